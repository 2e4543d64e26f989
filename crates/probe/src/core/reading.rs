//! What is published about a container, once thresholds are met.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What is published about a container, once thresholds are met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reading {
    /// As it should be.
    Success,
    /// Not as it should be.
    Failure,
    /// Nobody knows: no result yet (startup), or only errors (strict mode).
    Unknown,
}

impl Reading {
    /// As a metric: 0, 1 and -1 (upstream's `ToPrometheusType`).
    pub fn gauge(self) -> i64 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Unknown => -1,
        }
    }
}

/// As upstream writes it: `Success`, `Failure`, `UNKNOWN`.
impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "Success",
            Self::Failure => "Failure",
            Self::Unknown => "UNKNOWN",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_written_and_measured_as_upstream_does() {
        let all = [Reading::Success, Reading::Failure, Reading::Unknown];
        assert_eq!(
            all.map(|reading| reading.to_string()),
            ["Success", "Failure", "UNKNOWN"]
        );
        assert_eq!(all.map(Reading::gauge), [0, 1, -1]);
    }
}
