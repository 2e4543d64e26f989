//! What a base says of its metaspace.

use super::{Measure, Settings};
use std::time::Duration;

/// What a base says of its metaspace. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// `java used metaspace`.
    pub used: Option<u64>,
    /// `java committed metaspace`.
    pub committed: Option<u64>,
    /// `java max metaspace`; -1 without a limit.
    pub max: Option<i64>,
    /// `run time(s)`: for how long the process runs.
    pub uptime: Option<Duration>,
}

/// What follows from a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing: there is no limit, or a figure is missing.
    None,
    /// Below the low mark.
    Low,
    /// Between the marks.
    Middle,
    /// At the high mark or above.
    High,
}

impl Reading {
    /// What follows from it.
    pub fn judge(&self, settings: &Settings) -> Judgement {
        match self.percent(settings.measure) {
            None => Judgement::None,
            Some(percent) if percent >= u64::from(settings.high) => Judgement::High,
            Some(percent) if percent < u64::from(settings.low) => Judgement::Low,
            Some(_) => Judgement::Middle,
        }
    }

    /// The share of the limit in whole percent, rounded down.
    pub fn percent(&self, measure: Measure) -> Option<u64> {
        let max = u64::try_from(self.max?).ok().filter(|max| *max > 0)?;
        let bytes = self.bytes(measure)?;
        let percent = u128::from(bytes) * 100 / u128::from(max);
        Some(u64::try_from(percent).unwrap_or(u64::MAX))
    }

    /// The figure that is held against the limit.
    pub(super) fn bytes(&self, measure: Measure) -> Option<u64> {
        match measure {
            Measure::Used => self.used,
            Measure::Committed => self.committed,
        }
    }
}
