//! JSON as arklet writes it, by what a reader sees of it. The order of keys and the spelling of numbers are
//! not arklet's.

use serde_json::Value;

/// A Java bean or map: fields that are null are left out.
pub(crate) fn bean<const N: usize>(fields: [(&str, Value); N]) -> Value {
    fields.into_iter().filter(|(_, value)| !value.is_null()).collect()
}
