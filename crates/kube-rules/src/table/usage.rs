//! NodeMetrics and PodMetrics, and quantities as they have them.

use super::cells::{items, text};
use super::column::{Cell, NAME, Printer, string};
use evenkeel_kube_values::Quantity;
use serde_json::{Value, json};

/// Nanocores in canonical form, as in `250m`.
pub fn cpu(nanocores: u64) -> String {
    Quantity::of_nanos(nanocores).to_string()
}

/// Bytes in canonical form, as in `12Mi`.
pub fn memory(bytes: u64) -> String {
    Quantity::of_bytes(bytes).to_string()
}

pub(super) const METRICS: &[Printer] = &[
    NAME,
    string(
        "cpu",
        Cell::Made(|object, _| json!(cpu(total(object, "/usage/cpu", Quantity::nanos)))),
    ),
    string(
        "memory",
        Cell::Made(|object, _| json!(memory(total(object, "/usage/memory", Quantity::value)))),
    ),
    string("Window", Cell::Text("/window", "")),
];

/// The usage of a node, or of all containers of a pod.
fn total(object: &Value, pointer: &str, amount: fn(Quantity) -> i128) -> u64 {
    let parts: Vec<&Value> = match object.get("containers") {
        Some(_) => items(object, "/containers").iter().collect(),
        None => vec![object],
    };
    let amounts = parts
        .iter()
        .filter_map(|part| Quantity::parse(text(part, pointer)).ok());
    amounts.fold(0, |sum: u64, quantity| {
        sum.saturating_add(u64::try_from(amount(quantity)).unwrap_or(0))
    })
}
