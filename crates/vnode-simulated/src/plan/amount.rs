//! Quantities and spans of time as far as plans need them.

use evenkeel_kube_values::{Quantity, duration};
use std::time::Duration;

/// The longest span that means anything here: a hundred years. Keeps sums of times within the calendar.
const MOST: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// Reads `250m`, `1.5`, `128Mi` as a number of base units; `None` if it is none, or not a plausible amount.
pub(crate) fn quantity(text: &str) -> Option<f64> {
    let amount = Quantity::parse(text).ok()?.as_f64();
    (0.0..=1e18).contains(&amount).then_some(amount)
}

/// Reads `500ms`, `1m30s`, `2d`, `0`; `None` if it is none, or longer than a century.
pub(crate) fn span(text: &str) -> Option<Duration> {
    duration::parse_with_days(text).ok().filter(|span| *span <= MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("250m", Some(0.25))]
    #[case("128Mi", Some(134_217_728.0))]
    #[case("Mi", None)]
    #[case("-1", None)]
    #[case("1e400", None)]
    fn quantities_are_read(#[case] text: &str, #[case] amount: Option<f64>) {
        assert_eq!(quantity(text), amount);
    }

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
        assert_eq!(span(text), milliseconds.map(Duration::from_millis));
    }
}
