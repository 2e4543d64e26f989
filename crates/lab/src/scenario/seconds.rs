//! Durations as people write them: `10s`, `500ms`, `1m30s`.

use evenkeel_net::duration;
use serde::{Deserialize, Deserializer, de};
use std::{fmt, str::FromStr, time::Duration};

/// A duration in a scenario, longer than zero and at most a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

const DAY: Duration = Duration::from_secs(86_400);

/// Reads a duration; the error says how one is written.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration such as 10s, 500ms or 1m30s");
    // Whole numbers alone, so that a scenario reads again as it was written.
    let total = duration::parse(text)
        .ok()
        .filter(|_| !text.contains('.'))
        .ok_or_else(wrong)?;
    if total < Duration::from_millis(1) || total > DAY {
        return Err(format!("`{text}` is not a duration between 1ms and 24h"));
    }
    Ok(total)
}

impl Span {
    pub fn millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// Of so many milliseconds.
    pub fn of_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).map(Self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).map(Self).map_err(de::Error::custom)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis.is_multiple_of(1000) {
            write!(f, "{}s", millis / 1000)
        } else {
            write!(f, "{millis}ms")
        }
    }
}
