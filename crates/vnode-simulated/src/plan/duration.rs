//! Spans of time as people write them.

use std::time::Duration;

/// The longest span that means anything here: a hundred years. Keeps sums of times within the calendar.
const MOST: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// Reads `500ms`, `5s`, `1m30s`, `1.5h`, `0`; `None` if it is none, or longer than a century.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    if text.is_empty() {
        return None;
    }
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let amount: f64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?;
        let letters = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let seconds = match rest.get(..letters)? {
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        rest = rest.get(letters..)?;
        sum = sum.checked_add(Duration::try_from_secs_f64(amount * seconds).ok()?)?;
    }
    (sum <= MOST).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("0", Some(0))]
    #[case("500ms", Some(500))]
    #[case("5s", Some(5_000))]
    #[case("1m30s", Some(90_000))]
    #[case("1.5h", Some(5_400_000))]
    #[case("2d", Some(172_800_000))]
    #[case("", None)]
    #[case("5", None)]
    #[case("s", None)]
    #[case("-5s", None)]
    #[case("5 s", None)]
    #[case("1..5s", None)]
    #[case("5parsecs", None)]
    #[case("99999999h", None)]
    #[case("5s\u{e9}", None)]
    fn spans_are_read_as_people_write_them(#[case] text: &str, #[case] milliseconds: Option<u64>) {
        assert_eq!(parse(text), milliseconds.map(Duration::from_millis));
    }
}
