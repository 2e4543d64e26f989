//! When a base is overloaded, and how long each step may take.

use std::time::Duration;

/// Which figure is held against the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// What classes take. Falls when modules are unloaded.
    #[default]
    Used,
    /// What the JVM took from the system for them: never less than what is used, and what the limit is about.
    /// Older JVMs hardly ever give it back, so that a base which was drained may have to be replaced all the
    /// same.
    Committed,
}

/// When a base is overloaded, and how long each step may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// From this share of the limit on a base is overloaded, in percent.
    pub high: u8,
    /// Below this share it is well again, in percent; lower than `high`.
    pub low: u8,
    /// Number of readings in a row that decide; at least 1.
    pub readings: u32,
    pub measure: Measure,
    /// For how long pods may take to leave.
    pub drain: Duration,
    /// Pause between two inspections of whether they have left.
    pub inspect: Duration,
    /// For how long uninstalling is tried.
    pub uninstall: Duration,
    /// For how long an empty base may take to show that its metaspace is back: a collection must happen
    /// first.
    pub settle: Duration,
    /// After an accepted eviction the base is expected to be a new one, or gone, within this time; then the
    /// eviction is asked for again.
    pub replace: Duration,
    /// First and longest wait before something that failed or was refused is asked for again; doubled in
    /// between.
    pub back_off: (Duration, Duration),
    /// After the end of a healing the base is left alone for this long: one whose modules need more than it
    /// has would be drained without end.
    pub pause: Duration,
}

/// Settings that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The marks are out of order.
    #[error(
        "the marks of metaspace are {low} % and {high} %; the low one must be above 0 and below the high one, which is 100 at most"
    )]
    Marks {
        /// The low mark, in percent.
        low: u8,
        /// The high mark, in percent.
        high: u8,
    },
    /// No reading would decide.
    #[error("at least one reading must be needed to call a base overloaded")]
    Readings,
    /// Nothing would be waited for.
    #[error("the time for {0} must not be zero")]
    Time(&'static str),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            high: 85,
            low: 70,
            readings: 3,
            measure: Measure::default(),
            // Ten of the usual grace periods.
            drain: Duration::from_secs(300),
            inspect: Duration::from_secs(2),
            uninstall: Duration::from_secs(120),
            settle: Duration::from_secs(60),
            replace: Duration::from_secs(300),
            back_off: (Duration::from_secs(5), Duration::from_secs(300)),
            pause: Duration::from_secs(600),
        }
    }
}

impl Settings {
    /// Refuses what cannot work.
    pub fn validate(&self) -> Result<(), SettingsError> {
        if self.low == 0 || self.low >= self.high || self.high > 100 {
            return Err(SettingsError::Marks {
                low: self.low,
                high: self.high,
            });
        }
        if self.readings == 0 {
            return Err(SettingsError::Readings);
        }
        let times = [
            ("draining", self.drain),
            ("inspecting the node", self.inspect),
            ("uninstalling", self.uninstall),
            ("replacing", self.replace),
            ("the first repetition", self.back_off.0),
        ];
        match times.into_iter().find(|(_, time)| time.is_zero()) {
            Some((what, _)) => Err(SettingsError::Time(what)),
            None => Ok(()),
        }
    }

    /// How long to wait after the `tries`-th failure in a row, counted from 1.
    pub(super) fn wait(&self, tries: u32) -> Duration {
        let (first, most) = self.back_off;
        let doubled = first.saturating_mul(1 << tries.saturating_sub(1).min(16));
        doubled.min(most.max(first))
    }
}
