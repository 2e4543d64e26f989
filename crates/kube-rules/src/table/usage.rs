//! NodeMetrics and PodMetrics, and quantities as they have them.

use super::cells::{items, text};
use super::column::{Cell, NAME, Printer, string};
use serde_json::{Value, json};

/// Nanocores in canonical form, as in `250m`.
pub fn cpu(nanocores: u64) -> String {
    let units = [(1_000_000_000, ""), (1_000_000, "m"), (1_000, "u")];
    scaled(nanocores, &units, "n")
}

/// Bytes in canonical form, as in `12Mi`.
pub fn memory(bytes: u64) -> String {
    let units = [(1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    scaled(bytes, &units, "")
}

/// The largest unit of which the number is a multiple.
fn scaled(number: u64, units: &[(u64, &str)], smallest: &str) -> String {
    if number == 0 {
        return "0".to_owned();
    }
    match units.iter().find(|(unit, _)| number.is_multiple_of(*unit)) {
        Some((unit, suffix)) => format!("{}{suffix}", number / unit),
        None => format!("{number}{smallest}"),
    }
}

/// The number of a quantity that [`cpu`] or [`memory`] wrote.
fn parse(quantity: &str, is_cpu: bool) -> u64 {
    let at = quantity
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(quantity.len());
    let (digits, suffix) = quantity.split_at(at);
    let unit = match suffix {
        "m" => 1_000_000,
        "u" => 1_000,
        "Ti" => 1 << 40,
        "Gi" => 1 << 30,
        "Mi" => 1 << 20,
        "Ki" => 1 << 10,
        "" if is_cpu => 1_000_000_000,
        _ => 1,
    };
    digits.parse::<u64>().unwrap_or(0).saturating_mul(unit)
}

pub(super) const METRICS: &[Printer] = &[
    NAME,
    string(
        "cpu",
        Cell::Made(|object, _| json!(cpu(total(object, "/usage/cpu", true)))),
    ),
    string(
        "memory",
        Cell::Made(|object, _| json!(memory(total(object, "/usage/memory", false)))),
    ),
    string("Window", Cell::Text("/window", "")),
];

/// The usage of a node, or of all containers of a pod.
fn total(object: &Value, pointer: &str, is_cpu: bool) -> u64 {
    let parts: Vec<&Value> = match object.get("containers") {
        Some(_) => items(object, "/containers").iter().collect(),
        None => vec![object],
    };
    parts
        .iter()
        .map(|part| parse(text(part, pointer), is_cpu))
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case(0, "0", "0")]
    #[case(7, "7n", "7")]
    #[case(12_000, "12u", "12000")]
    #[case(250_000_000, "250m", "250000000")]
    #[case(2_000_000_000, "2", "1953125Ki")]
    #[case(3 << 20, "3145728n", "3Mi")]
    fn quantities_are_canonical_and_read_again(
        #[case] number: u64,
        #[case] cores: &str,
        #[case] bytes: &str,
    ) {
        assert_eq!((cpu(number).as_str(), memory(number).as_str()), (cores, bytes));
        assert_eq!((parse(cores, true), parse(bytes, false)), (number, number));
    }
}
