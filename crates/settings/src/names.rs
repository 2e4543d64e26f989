//! Names that are like one that does not exist.

use strsim::levenshtein;

/// The one that differs in case, or in at most two letters.
pub(crate) fn nearest(name: &str, fields: impl Iterator<Item = String>) -> Option<String> {
    let distances = fields.map(|field| {
        let distance = levenshtein(&name.to_ascii_lowercase(), &field.to_ascii_lowercase());
        (distance, field)
    });
    let (distance, field) = distances.min()?;
    (distance <= 2).then_some(field)
}
