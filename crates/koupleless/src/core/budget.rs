//! Who may be healed at a time, over all replicas: a counting semaphore in one object.
//!
//! An entry stands for a node from before its taint is set until after it is gone. Whoever writes the object
//! does so by compare-and-swap, so that what is decided here holds for all replicas.

use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// An entry whose node has no taint is dropped this long after it was made or confirmed: its holder has died
/// before it set the taint, or after it took it off. A holder that lives confirms its entry, or gives up,
/// within two minutes.
const IDLE: SignedDuration = SignedDuration::from_mins(10);

/// How many bases may be healed at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// This number of bases.
    Bases(NonZeroU32),
    /// This share of all bases in percent, rounded down, and one at least.
    Percent(u8),
}

/// A limit that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no number of bases (1 or more), nor a share of them (1% to 100%)")]
pub struct LimitError(String);

/// A base that is being healed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    /// Which replica heals it.
    pub holder: String,
    /// Since when it has its permit.
    pub since: Timestamp,
    /// When that was last confirmed.
    pub confirmed: Timestamp,
}

/// Those that are being healed, by node.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(transparent)]
pub(crate) struct Budget {
    entries: BTreeMap<String, Entry>,
}

/// The nodes of bases: whether each has the taint.
pub(crate) type Nodes = BTreeMap<String, bool>;

/// What became of a request for a permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The node has a permit.
    Granted,
    /// No permit is free: these nodes have them.
    Full(Vec<String>),
}

impl Default for Limit {
    fn default() -> Self {
        Self::Bases(NonZeroU32::MIN)
    }
}

impl Limit {
    /// The number of permits where there are so many bases.
    pub fn of(self, bases: usize) -> usize {
        match self {
            Self::Bases(bases) => bases.get() as usize,
            Self::Percent(percent) => (bases * usize::from(percent) / 100).max(1),
        }
    }
}

impl std::str::FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let error = || LimitError(text.to_owned());
        match text.strip_suffix('%') {
            Some(percent) => match percent.parse() {
                Ok(percent @ 1..=100) => Ok(Self::Percent(percent)),
                _ => Err(error()),
            },
            None => text.parse().map(Self::Bases).map_err(|_| error()),
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bases(bases) => write!(f, "{bases}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Budget {
    /// Takes a permit for `node`, or confirms the one that it has. `nodes`: all nodes of bases, read before
    /// this is written.
    ///
    /// Nodes that have the taint without an entry count as well: somebody has lost the object, or set the
    /// taint by hand.
    pub(crate) fn acquire(
        &mut self,
        node: &str,
        holder: &str,
        now: Timestamp,
        limit: Limit,
        nodes: &Nodes,
    ) -> Verdict {
        self.expire(now, nodes);
        if let Some(entry) = self.entries.get_mut(node) {
            holder.clone_into(&mut entry.holder);
            entry.confirmed = now;
            return Verdict::Granted;
        }
        let others = |name: &&String| *name != node;
        let tainted = nodes
            .iter()
            .filter(|(_, tainted)| **tainted)
            .map(|(name, _)| name);
        let mut busy: Vec<&String> = self.entries.keys().chain(tainted).filter(others).collect();
        busy.sort();
        busy.dedup();
        if busy.len() >= limit.of(nodes.len()) {
            return Verdict::Full(busy.into_iter().cloned().collect());
        }
        let entry = Entry {
            holder: holder.to_owned(),
            since: now,
            confirmed: now,
        };
        self.entries.insert(node.to_owned(), entry);
        Verdict::Granted
    }

    /// Gives a permit back. Returns whether there was one.
    pub(crate) fn release(&mut self, node: &str) -> bool {
        self.entries.remove(node).is_some()
    }

    /// Drops the entries of nodes that are no more, and of those without taint that nobody has confirmed for
    /// ten minutes.
    pub(crate) fn expire(&mut self, now: Timestamp, nodes: &Nodes) {
        self.entries.retain(|node, entry| match nodes.get(node) {
            None => false,
            Some(true) => true,
            Some(false) => now.duration_since(entry.confirmed) < IDLE,
        });
    }
}

#[cfg(test)]
impl Budget {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn nodes(nodes: &[(&str, bool)]) -> Nodes {
        nodes
            .iter()
            .map(|(name, tainted)| ((*name).to_owned(), *tainted))
            .collect()
    }

    fn one() -> Limit {
        Limit::default()
    }

    #[test]
    fn a_permit_is_taken_once_and_given_back() {
        let all = nodes(&[("a", false), ("b", false)]);
        let mut budget = Budget::default();
        assert_eq!(budget.acquire("a", "x", at(0), one(), &all), Verdict::Granted);
        let full = Verdict::Full(vec!["a".to_owned()]);
        assert_eq!(budget.acquire("b", "x", at(1), one(), &all), full);
        assert!(budget.release("a") && !budget.release("a"));
        assert_eq!(budget.acquire("b", "x", at(2), one(), &all), Verdict::Granted);
    }

    #[test]
    fn whoever_takes_a_node_over_keeps_its_permit() {
        let all = nodes(&[("a", true), ("b", false)]);
        let mut budget = Budget::default();
        budget.acquire("a", "x", at(0), one(), &all);
        assert_eq!(budget.acquire("a", "y", at(60), one(), &all), Verdict::Granted);
        let entry = &budget.entries["a"];
        assert_eq!(
            (&*entry.holder, entry.since, entry.confirmed),
            ("y", at(0), at(60))
        );
    }

    #[test]
    fn a_node_with_the_taint_counts_without_an_entry() {
        let all = nodes(&[("a", true), ("b", false)]);
        let mut budget = Budget::default();
        let full = Verdict::Full(vec!["a".to_owned()]);
        assert_eq!(budget.acquire("b", "x", at(0), one(), &all), full);
        assert_eq!(budget.acquire("a", "x", at(0), one(), &all), Verdict::Granted);
    }

    #[rstest]
    #[case::gone(nodes(&[("b", false)]), 1, false)]
    #[case::tainted(nodes(&[("a", true)]), 100_000, true)]
    #[case::young(nodes(&[("a", false)]), 599, true)]
    #[case::idle(nodes(&[("a", false)]), 600, false)]
    fn entries_expire(#[case] nodes: Nodes, #[case] after: i64, #[case] stays: bool) {
        let mut budget = Budget::default();
        budget.acquire(
            "a",
            "x",
            at(0),
            one(),
            &[("a".to_owned(), false)].into_iter().collect(),
        );
        budget.expire(at(after), &nodes);
        assert_eq!(budget.entries.contains_key("a"), stays);
    }

    #[rstest]
    #[case("1", 100, 1)]
    #[case("3", 2, 3)]
    #[case("25%", 10, 2)]
    #[case("25%", 3, 1)]
    #[case("100%", 7, 7)]
    fn a_limit_is_a_number_or_a_share(#[case] text: &str, #[case] bases: usize, #[case] permits: usize) {
        let limit: Limit = text.parse().unwrap();
        assert_eq!((limit.of(bases), limit.to_string().as_str()), (permits, text));
    }

    #[rstest]
    #[case("0")]
    #[case("0%")]
    #[case("101%")]
    #[case("-1")]
    #[case("")]
    #[case("many")]
    fn other_texts_are_no_limit(#[case] text: &str) {
        let error = text.parse::<Limit>().unwrap_err().to_string();
        assert!(error.contains("1% to 100%"), "{error}");
    }

    #[test]
    fn it_is_written_as_json_by_node() {
        let mut budget = Budget::default();
        budget.acquire("a", "x", at(0), one(), &nodes(&[("a", false)]));
        let text = serde_json::to_string(&budget).unwrap();
        assert_eq!(
            text,
            r#"{"a":{"holder":"x","since":"1970-01-01T00:00:00Z","confirmed":"1970-01-01T00:00:00Z"}}"#
        );
        assert_eq!(serde_json::from_str::<Budget>(&text).unwrap(), budget);
    }
}
