//! Names that are like one that does not exist.

/// The one that differs in case, or in at most two letters.
pub(crate) fn nearest(name: &str, fields: impl Iterator<Item = String>) -> Option<String> {
    let distances = fields.map(|field| {
        let distance = distance(&name.to_ascii_lowercase(), &field.to_ascii_lowercase());
        (distance, field)
    });
    let (distance, field) = distances.min()?;
    (distance <= 2).then_some(field)
}

/// How many letters have to be put in, taken out or changed (Levenshtein).
pub fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, theirs) in other.iter().enumerate() {
            let change = diagonal + usize::from(letter != *theirs);
            diagonal = row[column + 1];
            row[column + 1] = change.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}
