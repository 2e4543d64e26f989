//! Durations as Go writes them in texts of Kubernetes: `50s`, `1m30s`, `100ms`.

use std::fmt;
use std::time::Duration;

/// Shows a duration as Go does: `0s`, `1.5µs`, `500ms`, `1.5s`, `1m30s`, `1h0m0s`.
///
/// ```
/// use evenkeel_probe_handlers::Go;
/// use std::time::Duration;
///
/// assert_eq!(Go(Duration::from_millis(1_500)).to_string(), "1.5s");
/// assert_eq!(Go(Duration::from_secs(3_600)).to_string(), "1h0m0s");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Go(pub Duration);

impl fmt::Display for Go {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.subsec_nanos();
        if self.0.as_secs() > 0 {
            let (minutes, seconds) = (self.0.as_secs() / 60, self.0.as_secs() % 60);
            if minutes >= 60 {
                write!(f, "{}h", minutes / 60)?;
            }
            if minutes > 0 {
                write!(f, "{}m", minutes % 60)?;
            }
            return write!(f, "{}s", decimal(seconds, nanos, 9));
        }
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => write!(f, "{}µs", decimal((nanos / 1_000).into(), nanos % 1_000, 3)),
            _ => write!(
                f,
                "{}ms",
                decimal((nanos / 1_000_000).into(), nanos % 1_000_000, 6)
            ),
        }
    }
}

/// `whole`, and what follows its point without zeros at the end; `fraction` has `digits` digits.
fn decimal(whole: u64, fraction: u32, digits: usize) -> String {
    let text = format!("{whole}.{fraction:0digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_as_in_go() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (500_000_000, "500ms"),
            (1_000_000_000, "1s"),
            (1_500_000_000, "1.5s"),
            (10_000_000_001, "10.000000001s"),
            (60_000_000_000, "1m0s"),
            (90_000_000_000, "1m30s"),
            (245_000_000_000, "4m5s"),
            (3_600_000_000_000, "1h0m0s"),
            (18_367_001_000_000, "5h6m7.001s"),
        ] {
            assert_eq!(Go(Duration::from_nanos(nanos)).to_string(), text, "{nanos} ns");
        }
    }
}
