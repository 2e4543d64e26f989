//! The cases of Kubernetes' own coordinator, by their names, and those in which ours does better.

mod choice;
mod object;
mod step;

use super::{Candidate, OLDEST_EMULATION_VERSION};
use jiff::{SignedDuration, Timestamp};

/// The moment at which every test looks.
fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

/// So many seconds before (negative: after) that moment.
fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// A candidate for `component-A` that has just shown itself.
fn candidate(name: &str, emulation: &str, binary: &str) -> Candidate {
    Candidate {
        name: name.to_owned(),
        lease_name: "component-A".to_owned(),
        renew_time: Some(now()),
        binary_version: binary.to_owned(),
        emulation_version: emulation.to_owned(),
        strategy: OLDEST_EMULATION_VERSION.to_owned(),
        ..Candidate::default()
    }
}

impl Candidate {
    fn by(mut self, strategy: &str) -> Self {
        strategy.clone_into(&mut self.strategy);
        self
    }

    fn pinged(mut self, seconds_ago: i64) -> Self {
        self.ping_time = Some(ago(seconds_ago));
        self
    }

    fn renewed(mut self, seconds_ago: i64) -> Self {
        self.renew_time = Some(ago(seconds_ago));
        self
    }

    fn born(mut self, seconds_ago: i64) -> Self {
        self.created = Some(ago(seconds_ago));
        self
    }

    fn annotated(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }
}
