//! Objects as they were sent beside objects as they are.

use serde_json::Value;

/// Whether `present` says everything that `wanted` says; servers add fields with defaults, which do not
/// matter but in lists.
pub fn says(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| says(present.get(key).unwrap_or(&Value::Null), wanted)),
        (Value::Array(present), Value::Array(wanted)) => {
            present.len() == wanted.len()
                && present
                    .iter()
                    .zip(wanted)
                    .all(|(present, wanted)| says(present, wanted))
        }
        // What is empty is left out by typed readers.
        (Value::Null, Value::Object(wanted)) => wanted.is_empty(),
        (Value::Null, Value::Array(wanted)) => wanted.is_empty(),
        // The same number can be written in several ways, and some readers round its last digit.
        (Value::Number(present), Value::Number(wanted)) => match (present.as_f64(), wanted.as_f64()) {
            (Some(present), Some(wanted)) => (present - wanted).abs() <= wanted.abs() * 1e-15,
            _ => present == wanted,
        },
        (present, wanted) => present == wanted,
    }
}
