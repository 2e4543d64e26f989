//! The settings of a candidate in a coordinated election.

use crate::core::coordinated::{Candidate, OLDEST_EMULATION_VERSION, WEIGHT_ANNOTATION};
use semver::Version;

/// The settings of a candidate: for which Lease it stands, with which versions, and how the leader is to be
/// chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidacy {
    /// Namespace of the Lease and of the LeaseCandidate.
    pub namespace: String,
    /// Name of the Lease.
    pub lease_name: String,
    /// The elector's identity; also the name of the LeaseCandidate. Letters, digits, `-`, `_` and `.`.
    pub identity: String,
    /// Version of this program.
    pub binary_version: Version,
    /// The version whose behaviour the program emulates, at most `binary_version`.
    pub emulation_version: Option<Version>,
    /// How the leader is to be chosen: [`OLDEST_EMULATION_VERSION`], or a qualified name with a slash.
    pub strategy: String,
    /// Weight for [`crate::core::coordinated::HighestWeight`]. With `None`, an annotation that others have
    /// set is kept.
    pub weight: Option<i64>,
    /// Whether the LeaseCandidate is deleted at the end, so that the next election does not wait for an
    /// answer. Otherwise the coordinator deletes it after 30 min.
    pub withdraw_on_stop: bool,
}

/// Returned for a candidacy that the API server would refuse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CandidacyError {
    /// No object can have this name.
    #[error(
        "identity {0:?} cannot name a LeaseCandidate: use 1 to 253 letters, digits, '-', '_' and '.', not beginning with '..'"
    )]
    Identity(String),
    /// The namespace or the name of the Lease is empty.
    #[error("the candidacy needs a namespace and the name of a Lease")]
    Lease,
    /// The emulated version is newer than the program's own.
    #[error("emulation version {emulation} is newer than binary version {binary}")]
    Emulation {
        /// The emulated version.
        emulation: Version,
        /// The program's own version.
        binary: Version,
    },
    /// There is no emulation version, which the built-in strategy needs.
    #[error("strategy OldestEmulationVersion needs an emulation version other than 0.0.0")]
    NoEmulation,
    /// The strategy is neither built in nor a qualified name.
    #[error(
        "strategy {0:?} is neither OldestEmulationVersion nor a qualified name such as example.com/Strategy"
    )]
    Strategy(String),
}

impl Candidacy {
    /// A candidacy with the built-in strategy and without emulation of another version.
    pub fn new(namespace: &str, lease_name: &str, identity: &str, version: Version) -> Self {
        Self {
            namespace: namespace.to_owned(),
            lease_name: lease_name.to_owned(),
            identity: identity.to_owned(),
            emulation_version: Some(version.clone()),
            binary_version: version,
            strategy: OLDEST_EMULATION_VERSION.to_owned(),
            weight: None,
            withdraw_on_stop: true,
        }
    }

    /// Checks what the API server would check.
    ///
    /// # Errors
    /// The first setting that the API server would refuse.
    pub fn validate(&self) -> Result<(), CandidacyError> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let identity = self.identity.as_str();
        if identity.is_empty()
            || identity.len() > 253
            || identity == "."
            || identity.starts_with("..")
            || !identity.bytes().all(legal)
        {
            return Err(CandidacyError::Identity(self.identity.clone()));
        }
        if self.namespace.is_empty() || self.lease_name.is_empty() {
            return Err(CandidacyError::Lease);
        }
        if let Some(emulation) = &self.emulation_version
            && emulation.cmp_precedence(&self.binary_version).is_gt()
        {
            return Err(CandidacyError::Emulation {
                emulation: emulation.clone(),
                binary: self.binary_version.clone(),
            });
        }
        let named = self
            .emulation_version
            .as_ref()
            .is_some_and(|version| version.cmp_precedence(&Version::new(0, 0, 0)).is_gt());
        match self.strategy.as_str() {
            OLDEST_EMULATION_VERSION if !named => Err(CandidacyError::NoEmulation),
            OLDEST_EMULATION_VERSION => Ok(()),
            strategy if strategy.split('/').filter(|part| !part.is_empty()).count() == 2 => Ok(()),
            strategy => Err(CandidacyError::Strategy(strategy.to_owned())),
        }
    }

    pub(super) fn wanted(&self) -> Candidate {
        let weight = self
            .weight
            .map(|weight| (WEIGHT_ANNOTATION.to_owned(), weight.to_string()));
        Candidate {
            name: self.identity.clone(),
            lease_name: self.lease_name.clone(),
            binary_version: self.binary_version.to_string(),
            emulation_version: self
                .emulation_version
                .as_ref()
                .map(Version::to_string)
                .unwrap_or_default(),
            strategy: self.strategy.clone(),
            annotations: weight.into_iter().collect(),
            ..Candidate::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn candidacy() -> Candidacy {
        Candidacy::new("kube-system", "lease", "host_0a1b", Version::new(1, 2, 0))
    }

    #[rstest]
    #[case::good(candidacy(), "")]
    #[case::third_party(Candidacy { strategy: "foo.com/bar".into(), emulation_version: None, ..candidacy() }, "")]
    #[case::no_identity(Candidacy { identity: String::new(), ..candidacy() }, "identity \"\" cannot name")]
    #[case::slash(Candidacy { identity: "a/b".into(), ..candidacy() }, "identity \"a/b\" cannot name")]
    #[case::dots(Candidacy { identity: "..a".into(), ..candidacy() }, "identity \"..a\" cannot name")]
    #[case::no_lease(Candidacy { lease_name: String::new(), ..candidacy() }, "needs a namespace and the name of a Lease")]
    #[case::no_namespace(Candidacy { namespace: String::new(), ..candidacy() }, "needs a namespace and the name of a Lease")]
    #[case::future(
        Candidacy { emulation_version: Some(Version::new(1, 10, 0)), ..candidacy() },
        "emulation version 1.10.0 is newer than binary version 1.2.0"
    )]
    #[case::no_emulation(Candidacy { emulation_version: None, ..candidacy() }, "needs an emulation version")]
    #[case::strategy(Candidacy { strategy: "Youngest".into(), ..candidacy() }, "\"Youngest\" is neither")]
    #[case::half_a_name(Candidacy { strategy: "foo.com/".into(), ..candidacy() }, "\"foo.com/\" is neither")]
    fn what_the_api_server_would_refuse_is_refused_here(
        #[case] candidacy: Candidacy,
        #[case] expected: &str,
    ) {
        match candidacy.validate() {
            Ok(()) => assert_eq!(expected, ""),
            Err(error) => assert!(
                !expected.is_empty() && error.to_string().contains(expected),
                "{error}"
            ),
        }
    }

    #[test]
    fn a_weight_becomes_an_annotation() {
        assert!(candidacy().wanted().annotations.is_empty());
        let weighty = Candidacy {
            weight: Some(-3),
            ..candidacy()
        };
        assert_eq!(weighty.wanted().annotations[WEIGHT_ANNOTATION], "-3");
    }
}
