//! A certificate that is served with.

use evenkeel_net::pki::{Identity, PkiError};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use x509_parser::pem::Pem;
use x509_parser::prelude::{GeneralName, X509Certificate};

/// Addresses that a certificate is for, or was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names(BTreeSet<IpAddr>);

impl Names {
    /// Whether none of `wanted` is missing.
    pub(super) fn covers(&self, wanted: &BTreeSet<IpAddr>) -> bool {
        wanted.is_subset(&self.0)
    }

    pub(super) fn extend(&mut self, more: &BTreeSet<IpAddr>) {
        self.0.extend(more);
    }
}

/// Certificate and key with what counts of them.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) identity: Identity,
    pub(super) names: Names,
    pub(super) until: Timestamp,
    renew: Timestamp,
}

impl Held {
    /// To be renewed when `part` of its life is over.
    pub(super) fn read(identity: Identity, part: f64) -> Result<Self, PkiError> {
        let pem = certificate(&identity.certificate_pem)?;
        let leaf = pem.parse_x509().map_err(refuse)?;
        let (from, until) = (
            time(leaf.validity().not_before)?,
            time(leaf.validity().not_after)?,
        );
        let life = Duration::try_from(until.duration_since(from)).unwrap_or_default();
        // Within its life, whose ends are timestamps.
        let renew = from
            .saturating_add(life.mul_f64(part.clamp(0.0, 1.0)))
            .unwrap_or(until);
        Ok(Self {
            names: names(&leaf),
            until,
            renew,
            identity,
        })
    }

    /// Until it is to be renewed.
    pub(super) fn rest(&self, now: Timestamp) -> Duration {
        Duration::try_from(self.renew.duration_since(now)).unwrap_or_default()
    }
}

/// When the certificate in a PEM text is over.
pub(super) fn end(text: &str) -> Result<Timestamp, PkiError> {
    let pem = certificate(text)?;
    let leaf = pem.parse_x509().map_err(refuse)?;
    time(leaf.validity().not_after)
}

fn certificate(text: &str) -> Result<Pem, PkiError> {
    Pem::iter_from_buffer(text.as_bytes())
        .filter_map(Result::ok)
        .find(|pem| pem.label == "CERTIFICATE")
        .ok_or_else(|| refuse("no CERTIFICATE in the PEM text"))
}

fn time(time: x509_parser::time::ASN1Time) -> Result<Timestamp, PkiError> {
    Timestamp::from_second(time.timestamp()).map_err(refuse)
}

fn refuse(reason: impl ToString) -> PkiError {
    PkiError::Read {
        what: "the serving certificate".to_owned(),
        reason: reason.to_string(),
    }
}

fn names(leaf: &X509Certificate<'_>) -> Names {
    let Ok(Some(names)) = leaf.subject_alternative_name() else {
        return Names::default();
    };
    let addresses = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(IpAddr::from),
            16 => <[u8; 16]>::try_from(*bytes).ok().map(IpAddr::from),
            _ => None,
        },
        _ => None,
    });
    Names(addresses.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_net::pki::{Ca, ServerNames, Validity};

    const NOW: i64 = 1_767_225_600;

    fn held(part: f64) -> Held {
        let validity = Validity {
            from: NOW,
            until: NOW + 1_000,
        };
        let names = ServerNames {
            dns: vec!["a.example".to_owned()],
            ips: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
        };
        let identity = Ca::new("ca", validity)
            .unwrap()
            .issue_server("x", &names, validity)
            .unwrap();
        // As it is kept: all in one text, the key first.
        let text = format!("{}{}", identity.key_pem, identity.certificate_pem);
        let identity = Identity {
            certificate_pem: text.clone(),
            key_pem: text,
        };
        Held::read(identity, part).unwrap()
    }

    #[test]
    fn it_is_renewed_when_its_part_of_life_is_over() {
        let rest = |part, now| held(part).rest(Timestamp::from_second(now).unwrap()).as_secs();
        assert_eq!(rest(0.7, NOW), 700);
        assert_eq!(rest(0.9, NOW + 600), 300);
        assert_eq!(rest(0.9, NOW + 901), 0);
    }

    #[test]
    fn it_covers_its_addresses_and_those_it_was_asked_for() {
        let set = |addresses: &[&str]| addresses.iter().map(|text| text.parse().unwrap()).collect();
        let mut names = held(0.7).names;
        assert!(names.covers(&set(&["::1", "127.0.0.1"])));
        assert!(!names.covers(&set(&["127.0.0.2"])));
        names.extend(&set(&["127.0.0.2"]));
        assert!(names.covers(&set(&["127.0.0.2", "127.0.0.1"])));
    }

    #[test]
    fn a_text_without_a_certificate_is_refused() {
        let mut identity = held(0.7).identity;
        identity.certificate_pem = "nothing".to_owned();
        let error = Held::read(identity, 0.7).unwrap_err().to_string();
        assert!(error.contains("no CERTIFICATE"), "{error}");
    }
}
