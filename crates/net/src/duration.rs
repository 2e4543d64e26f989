//! Durations in flags, as Go reads them: `50s`, `1m30s`, `100ms`.

use std::time::Duration;

/// Reads a duration: numbers (with a fraction, if need be), each with a unit of `h`, `m`, `s`, `ms`, `us` or `ns`;
/// or a bare `0`. `Err` says what is wrong, in one line.
pub fn parse(text: &str) -> Result<Duration, String> {
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
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = tail;
    }
    Ok(total)
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
        }
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
            ("99999999999999999999999h", "is not a duration"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason) && error.contains("such as 50s"), "{error}");
        }
    }
}
