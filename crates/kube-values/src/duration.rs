//! Durations as Go, and so Kubernetes, reads and writes them: `50s`, `1m30s`, `100ms`.

use std::fmt;
use std::time::Duration;

/// Reads a duration: numbers (with a fraction, if need be), each with a unit of `h`, `m`, `s`, `ms`, `us` or
/// `ns`; or a bare `0`. `Err` says what is wrong, in one line.
pub fn parse(text: &str) -> Result<Duration, String> {
    read(text, |_| None)
}

/// The same, with `d` for days of 24 hours, which Go has not.
pub fn parse_with_days(text: &str) -> Result<Duration, String> {
    read(text, |unit| (unit == "d").then_some(86_400.0))
}

/// `further`: seconds of units beside Go's.
fn read(text: &str, further: impl Fn(&str) -> Option<f64>) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 50s, 1m30s or 500ms");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.starts_with('-') {
        return Err(format!(
            "{text:?} is negative; give a duration such as 50s, 1m30s or 500ms"
        ));
    }
    if text.parse::<f64>().is_ok() {
        return Err(format!(
            "{text:?} has no unit; give a duration such as 50s, 1m30s or 500ms"
        ));
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let seconds = match unit {
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => further(unit).ok_or_else(wrong)?,
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = tail;
    }
    Ok(total)
}

/// Shows a duration as Go does: `0s`, `1.5µs`, `500ms`, `1.5s`, `1m30s`, `1h0m0s`.
///
/// ```
/// use evenkeel_kube_values::Go;
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

/// So many seconds as kubectl shows ages, with fewer units the longer they are: `119s`, `2m10s`, `3h1m`,
/// `2d`. Source: Kubernetes 1.36, `duration.HumanDuration`.
pub fn human(seconds: i64) -> String {
    let pair = |big: i64, big_unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{big}{big_unit}")
        } else {
            format!("{big}{big_unit}{small}{small_unit}")
        }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => pair(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => pair(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
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
    fn durations_read_as_in_go() {
        for (text, millis) in [
            ("50s", 50_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("1.5h", 5_400_000),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
            assert_eq!(parse_with_days(text), parse(text), "{text}");
        }
    }

    #[test]
    fn days_are_read_where_they_are_wanted() {
        assert_eq!(parse_with_days("2d"), Ok(Duration::from_secs(172_800)));
        assert_eq!(parse_with_days("1d12h"), Ok(Duration::from_secs(129_600)));
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "is not a duration"),
            ("50", "has no unit"),
            ("1.5", "has no unit"),
            ("s", "is not a duration"),
            ("-5s", "is negative"),
            ("5d", "is not a duration"),
            ("1.2.3s", "is not a duration"),
            ("5 s", "is not a duration"),
            ("5s ", "is not a duration"),
            ("5s\u{e9}", "is not a duration"),
            ("99999999999999999999999h", "is not a duration"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason) && error.contains("such as 50s"), "{error}");
        }
    }

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

    #[test]
    fn durations_for_people() {
        const DAY: i64 = 86_400;
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (130, "2m10s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + 3600, "2d1h"),
            (8 * DAY, "8d"),
            (729 * DAY, "729d"),
            (730 * DAY, "2y"),
            (731 * DAY, "2y1d"),
            (3000 * DAY, "8y"),
        ] {
            assert_eq!(human(seconds), text, "{seconds}");
        }
    }
}
