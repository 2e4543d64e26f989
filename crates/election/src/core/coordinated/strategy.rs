//! How the best candidate is found, and by whose rule.

use super::candidate::{Candidate, compare, parse_version};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Name of Kubernetes' only built-in strategy.
pub const OLDEST_EMULATION_VERSION: &str = "OldestEmulationVersion";

/// Name of [`HighestWeight`]. Names with a slash are free for anybody to use; the API refuses others.
pub const HIGHEST_WEIGHT: &str = "evenkeel.io/HighestWeight";

pub use evenkeel_api::names::annotations::ELECTION_WEIGHT as WEIGHT_ANNOTATION;

/// A rule that chooses a leader.
///
/// It must be deterministic: the same candidates in any order must give the same leader, or leadership
/// changes without need. It is called often and must not block.
pub trait Strategy: fmt::Debug + Send + Sync {
    /// The name that candidates write in `spec.strategy`: a built-in one, or a qualified name with a slash.
    fn name(&self) -> &str;

    /// The best of `candidates`, all of which are alive; `None` if none of them may lead.
    fn best<'a>(&self, candidates: &[&'a Candidate]) -> Option<&'a Candidate>;
}

/// Kubernetes' own rule: the lowest emulation version, then the lowest binary version, then the oldest
/// object. A candidate with a version that cannot be read is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct OldestEmulationVersion;

impl Strategy for OldestEmulationVersion {
    fn name(&self) -> &str {
        OLDEST_EMULATION_VERSION
    }

    fn best<'a>(&self, candidates: &[&'a Candidate]) -> Option<&'a Candidate> {
        pick_best_leader(candidates)
    }
}

/// Chooses the candidate with the highest [`WEIGHT_ANNOTATION`], for example the one in the preferred zone or
/// on the largest machine; among equals it decides as [`OldestEmulationVersion`]. A weight that is missing or
/// cannot be read counts as zero.
///
/// A weight may be changed at any time. Leadership then moves at the end of a term, as for a version.
#[derive(Clone, Copy, Debug, Default)]
pub struct HighestWeight;

impl Strategy for HighestWeight {
    fn name(&self) -> &str {
        HIGHEST_WEIGHT
    }

    fn best<'a>(&self, candidates: &[&'a Candidate]) -> Option<&'a Candidate> {
        let weight = |candidate: &Candidate| -> i64 {
            candidate
                .annotations
                .get(WEIGHT_ANNOTATION)
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or_default()
        };
        candidates.iter().copied().min_by(|left, right| {
            weight(right)
                .cmp(&weight(left))
                .then_with(|| compare(left, right))
        })
    }
}

/// The strategies that a coordinator carries out. For any other name it creates the Lease and records the
/// strategy there; another component has to choose.
#[derive(Clone, Debug)]
pub struct Strategies {
    by_name: BTreeMap<String, Arc<dyn Strategy>>,
}

impl Default for Strategies {
    /// The only strategy of Kubernetes' coordinator: [`OldestEmulationVersion`].
    fn default() -> Self {
        let none = Self {
            by_name: BTreeMap::new(),
        };
        none.with(OldestEmulationVersion)
    }
}

impl Strategies {
    /// Adds a strategy, or replaces the one with its name.
    #[must_use]
    pub fn with(mut self, strategy: impl Strategy + 'static) -> Self {
        self.by_name
            .insert(strategy.name().to_owned(), Arc::new(strategy));
        self
    }

    /// The strategy with this name, if the coordinator carries it out.
    pub fn get(&self, name: &str) -> Option<&dyn Strategy> {
        self.by_name.get(name).map(AsRef::as_ref)
    }
}

/// The first of the candidates by [`compare`] whose versions can both be read.
pub fn pick_best_leader<'a>(candidates: &[&'a Candidate]) -> Option<&'a Candidate> {
    candidates
        .iter()
        .copied()
        .filter(|candidate| {
            parse_version(&candidate.emulation_version).is_some()
                && parse_version(&candidate.binary_version).is_some()
        })
        .min_by(|left, right| compare(left, right))
}

/// Whether a candidate is strictly better than the present leader.
pub fn should_reelect(candidates: &[&Candidate], leader: &Candidate) -> bool {
    pick_best_leader(candidates).is_some_and(|best| compare(leader, best).is_gt())
}

/// Returned when candidates of the newest version ask for different strategies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "candidates {first} and {second} have the same binary version {version} and ask for different strategies \
     ({first_strategy} and {second_strategy}); configure one for both"
)]
pub struct StrategyConflict {
    /// The binary version of both.
    pub version: String,
    /// Name of one candidate.
    pub first: String,
    /// The strategy that it asks for.
    pub first_strategy: String,
    /// Name of another candidate.
    pub second: String,
    /// The strategy that the other one asks for.
    pub second_strategy: String,
}

/// The strategy of the candidates with the highest binary version; `None` if there are no candidates. A
/// version that cannot be read counts as zero.
///
/// # Errors
/// Two candidates of that version ask for different strategies.
pub fn pick_best_strategy<'a>(candidates: &[&'a Candidate]) -> Result<Option<&'a str>, StrategyConflict> {
    let Some(highest) = candidates
        .iter()
        .map(|candidate| candidate.binary_version())
        .max_by(semver::Version::cmp_precedence)
    else {
        return Ok(None);
    };
    let mut newest = candidates
        .iter()
        .filter(|candidate| candidate.binary_version().cmp_precedence(&highest).is_eq());
    let first = newest.next();
    let strategy = first.map(|candidate| candidate.strategy.as_str());
    match (
        first,
        newest.find(|other| Some(other.strategy.as_str()) != strategy),
    ) {
        (Some(first), Some(second)) => Err(StrategyConflict {
            version: highest.to_string(),
            first: first.name.clone(),
            first_strategy: first.strategy.clone(),
            second: second.name.clone(),
            second_strategy: second.strategy.clone(),
        }),
        _ => Ok(strategy),
    }
}
