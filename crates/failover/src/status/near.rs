//! Names that are like one that does not exist.

use strsim::levenshtein;

/// How many are offered.
const OFFERED: usize = 3;

/// The names that differ from `name` in the fewest letters, nearest first; none that differ in more than a
/// third of it.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let limit = (name.chars().count() / 3).max(2);
    let asked = name.to_lowercase();
    let mut near: Vec<(usize, &str)> = known
        .map(|known| (levenshtein(&asked, &known.to_lowercase()), known))
        .filter(|(distance, known)| *distance <= limit || (!name.is_empty() && known.contains(name)))
        .collect();
    near.sort_unstable();
    near.into_iter()
        .take(OFFERED)
        .map(|(_, name)| name.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_are_offered_and_no_strangers() {
        let known = ["shore-1", "shore-2", "shore-12", "pier-1", "lighthouse"];
        assert_eq!(nearest("shroe-2", known.into_iter()), ["shore-2"]);
        assert_eq!(
            nearest("shore-3", known.into_iter()),
            ["shore-1", "shore-2", "shore-12"]
        );
        assert_eq!(nearest("light", known.into_iter()), ["lighthouse"]);
        assert_eq!(nearest("harbour", known.into_iter()), [] as [&str; 0]);
    }
}
