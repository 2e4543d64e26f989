//! Durations as Go writes them: `50s`, `1m30s`, `100ms`.

use std::time::Duration;

/// Reads a duration: numbers (with a fraction, if need be), each with a unit of `h`, `m`, `s`, `ms`, `us` or `ns`;
/// or a bare `0`. `Err` says what is wrong.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 50s, 1m30s or 500ms");
    if text == "0" {
        return Ok(Duration::ZERO);
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
    use rstest::rstest;

    #[rstest]
    #[case("50s", 50_000)]
    #[case("1m30s", 90_000)]
    #[case("500ms", 500)]
    #[case("1.5h", 5_400_000)]
    #[case("0", 0)]
    #[case("0s", 0)]
    fn durations_read_as_in_go(#[case] text: &str, #[case] millis: u64) {
        assert_eq!(parse(text), Ok(Duration::from_millis(millis)));
    }

    #[rstest]
    #[case::empty("")]
    #[case::no_unit("50")]
    #[case::no_number("s")]
    #[case::negative("-5s")]
    #[case::unknown_unit("5d")]
    #[case::two_points("1.2.3s")]
    #[case::space("5 s")]
    #[case::endless("99999999999999999999999h")]
    fn what_is_no_duration_is_refused(#[case] text: &str) {
        let error = parse(text).unwrap_err();
        assert!(error.contains("such as 50s"), "{error}");
    }
}
