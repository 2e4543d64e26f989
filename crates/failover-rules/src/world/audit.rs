//! Proof that a quiet watch delivers: its collection is read consistently and compared with what the watch
//! has shown.
//!
//! A quiet collection is read whole, metadata only, not from a cache. Every difference from what we hold must
//! arrive on the watch within [`ARRIVES_MS`]; then the watch is proven live at the time the read was sent. A
//! watch that does not deliver a difference in time is begun anew. Objects that cannot be decoded never
//! arrive: what a list named and did not show is left out of the comparison until it can be read.

use evenkeel_api::watch::Key;
use evenkeel_zone::Millis;
use std::collections::{BTreeMap, BTreeSet};

/// A collection that showed nothing for this long is read: half of the time for which an event proves its
/// watch live.
pub(super) const QUIET_MS: u64 = 2_500;
/// After a read that failed the next one waits for this long: no server that comes back is to be met by as
/// many reads as it can refuse, and a proof lasts longer.
const FAILED_REST_MS: u64 = 1_000;
/// A difference must arrive on the watch within this time after the answer.
pub(super) const ARRIVES_MS: u64 = 1_000;
/// A watch that was begun anew may list for this long before it is begun anew once more: on an API server
/// that is slow the list of a large cluster takes longer than a difference has, and would never come to its
/// end.
const LISTS_MS: u64 = 60_000;

/// What one watch holds, by key and resourceVersion, and the read that is under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    held: BTreeMap<Key, Version>,
    sent: Option<Millis>,
    /// No read before this time.
    rests_until: Millis,
    open: Option<Open>,
    /// It was begun anew because it did not deliver, and may list until then.
    lists_until: Option<Millis>,
    /// When the watch began.
    begun: Millis,
    /// What the last list named and did not show, because it cannot be decoded.
    unreadable: BTreeSet<Key>,
}

#[derive(Clone, Debug)]
struct Version {
    version: String,
    received: Millis,
}

/// A read that was answered with differences.
#[derive(Clone, Debug)]
struct Open {
    sent: Millis,
    until: Millis,
    /// What the read showed; `None`: the object is gone.
    missing: BTreeMap<Key, Option<String>>,
}

/// What a look at a ledger proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    None,
    /// Everything that happened before this instant has arrived.
    Live(Millis),
    /// The watch does not deliver: it must be begun anew.
    Broken,
}

impl Ledger {
    pub(super) fn put(&mut self, now: Millis, key: Key, version: String) {
        let version = Version {
            version,
            received: now,
        };
        self.unreadable.remove(&key);
        self.held.insert(key, version);
    }

    pub(super) fn gone(&mut self, key: &Key) {
        self.unreadable.remove(key);
        self.held.remove(key);
    }

    /// The watch begins anew, with a list.
    pub(super) fn begins(&mut self, now: Millis) {
        self.begun = now;
    }

    pub(super) fn listed(&mut self, present: &BTreeSet<Key>) {
        self.held.retain(|key, _| present.contains(key));
        let arrived = |key: &&Key| {
            self.held
                .get(*key)
                .is_some_and(|held| held.received >= self.begun)
        };
        self.unreadable = present.iter().filter(|key| !arrived(key)).cloned().collect();
        self.open = None;
        self.lists_until = None;
    }

    /// Whether the collection is to be read now; if so the read counts as sent.
    pub(super) fn wants_read(&mut self, now: Millis, last_proof: Option<Millis>) -> bool {
        let quiet = last_proof.is_none_or(|at| now.since(at) >= QUIET_MS);
        let waiting = self.open.is_some() || self.sent.is_some();
        let lists = self.lists_until.is_some_and(|until| now < until);
        if !quiet || waiting || lists || now < self.rests_until {
            return false;
        }
        self.sent = Some(now);
        true
    }

    /// The read failed: nothing was proven.
    pub(super) fn failed(&mut self, now: Millis) {
        self.sent = None;
        self.rests_until = now.plus(FAILED_REST_MS);
    }

    /// The read was answered.
    pub(super) fn answered(&mut self, now: Millis, found: &BTreeMap<Key, String>) {
        let Some(sent) = self.sent.take() else {
            return;
        };
        let changed = found
            .iter()
            .filter(|(key, _)| !self.unreadable.contains(*key))
            .filter(|(key, version)| self.held.get(*key).is_none_or(|held| held.version != **version))
            .map(|(key, version)| (key.clone(), Some(version.clone())));
        let gone = self
            .held
            .keys()
            .filter(|key| !found.contains_key(*key))
            .map(|key| (key.clone(), None));
        self.open = Some(Open {
            sent,
            until: now.plus(ARRIVES_MS),
            missing: changed.chain(gone).collect(),
        });
    }

    /// Whether every difference has arrived.
    pub(super) fn look(&mut self, now: Millis) -> Proof {
        let Some(open) = self.open.as_mut() else {
            return Proof::None;
        };
        let (held, sent) = (&self.held, open.sent);
        // What the watch showed after the read was sent is at least as new as what the read shows.
        open.missing.retain(|key, found| match (held.get(key), found) {
            (Some(held), Some(version)) => held.version != *version && held.received < sent,
            (Some(held), None) => held.received < sent,
            (None, Some(_)) => true,
            (None, None) => false,
        });
        if open.missing.is_empty() {
            self.open = None;
            return Proof::Live(sent);
        }
        if now >= open.until {
            self.open = None;
            self.lists_until = Some(now.plus(LISTS_MS));
            return Proof::Broken;
        }
        Proof::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        (String::new(), name.to_owned())
    }

    fn found(list: &[(&str, &str)]) -> BTreeMap<Key, String> {
        list.iter()
            .map(|(name, version)| (key(name), (*version).to_owned()))
            .collect()
    }

    /// A ledger that holds a at version 1, read at 10 s.
    fn read_at_10() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.put(Millis(0), key("a"), "1".to_owned());
        assert!(ledger.wants_read(Millis(10_000), Some(Millis(7_000))));
        assert!(
            !ledger.wants_read(Millis(10_100), Some(Millis(7_000))),
            "one at a time"
        );
        ledger
    }

    #[test]
    fn a_collection_that_just_showed_something_is_not_read() {
        let mut ledger = Ledger::default();
        assert!(!ledger.wants_read(Millis(10_000), Some(Millis(8_000))));
    }

    #[test]
    fn a_read_that_agrees_proves_the_watch_as_of_its_start() {
        let mut ledger = read_at_10();
        ledger.answered(Millis(10_400), &found(&[("a", "1")]));
        assert_eq!(ledger.look(Millis(10_400)), Proof::Live(Millis(10_000)));
        assert_eq!(ledger.look(Millis(10_500)), Proof::None);
    }

    #[test]
    fn a_difference_must_arrive_within_a_second() {
        for (arrives, expected) in [(true, Proof::Live(Millis(10_000))), (false, Proof::Broken)] {
            let mut ledger = read_at_10();
            ledger.answered(Millis(10_400), &found(&[("a", "2")]));
            assert_eq!(ledger.look(Millis(10_500)), Proof::None);
            if arrives {
                ledger.put(Millis(11_000), key("a"), "2".to_owned());
            }
            assert_eq!(ledger.look(Millis(11_400)), expected);
        }
    }

    /// Nothing interrupts its list, however slow it is, until it can be taken for stuck.
    #[test]
    fn a_watch_that_was_begun_anew_may_list() {
        let mut ledger = read_at_10();
        ledger.answered(Millis(10_400), &found(&[("a", "2")]));
        assert_eq!(ledger.look(Millis(11_400)), Proof::Broken);
        ledger.begins(Millis(11_450));
        assert!(!ledger.wants_read(Millis(71_300), None));
        let mut stuck = ledger.clone();
        assert!(stuck.wants_read(Millis(71_400), None));
        ledger.put(Millis(30_000), key("a"), "2".to_owned());
        ledger.listed(&[key("a")].into());
        assert!(ledger.wants_read(Millis(33_000), Some(Millis(30_000))));
    }

    #[test]
    fn the_watch_may_be_ahead_of_the_read() {
        let mut ledger = read_at_10();
        ledger.put(Millis(10_200), key("a"), "3".to_owned());
        ledger.answered(Millis(10_400), &found(&[("a", "2")]));
        assert_eq!(ledger.look(Millis(10_400)), Proof::Live(Millis(10_000)));
    }

    #[test]
    fn additions_and_removals_must_arrive_too() {
        let mut ledger = read_at_10();
        ledger.answered(Millis(10_400), &found(&[("b", "5")]));
        assert_eq!(ledger.look(Millis(10_500)), Proof::None);
        ledger.put(Millis(10_600), key("b"), "5".to_owned());
        assert_eq!(ledger.look(Millis(10_700)), Proof::None, "a is still held");
        ledger.gone(&key("a"));
        assert_eq!(ledger.look(Millis(10_800)), Proof::Live(Millis(10_000)));
    }

    /// Else one object that somebody wrote by hand would have the watch of all begun anew for ever.
    #[test]
    fn what_cannot_be_decoded_is_left_out_until_it_can() {
        let mut ledger = read_at_10();
        ledger.answered(Millis(10_400), &found(&[("a", "2"), ("b", "5")]));
        assert_eq!(
            ledger.look(Millis(11_400)),
            Proof::Broken,
            "a is not seen at 2, nor b"
        );
        ledger.begins(Millis(11_450));
        ledger.put(Millis(11_500), key("c"), "1".to_owned());
        ledger.listed(&["a", "b", "c"].map(key).into());
        assert!(ledger.wants_read(Millis(15_000), Some(Millis(12_000))));
        ledger.answered(Millis(15_100), &found(&[("a", "3"), ("b", "6"), ("c", "1")]));
        assert_eq!(ledger.look(Millis(15_100)), Proof::Live(Millis(15_000)));
        ledger.put(Millis(16_000), key("a"), "4".to_owned());
        assert!(ledger.wants_read(Millis(20_000), Some(Millis(16_000))));
        ledger.answered(Millis(20_100), &found(&[("a", "7"), ("b", "6"), ("c", "1")]));
        assert_eq!(ledger.look(Millis(21_100)), Proof::Broken, "a can be read again");
    }

    #[test]
    fn a_read_that_fails_proves_nothing_and_is_sent_again_a_second_later() {
        let mut ledger = read_at_10();
        ledger.failed(Millis(10_100));
        assert_eq!(ledger.look(Millis(10_100)), Proof::None);
        assert!(!ledger.wants_read(Millis(11_099), Some(Millis(7_000))));
        assert!(ledger.wants_read(Millis(11_100), Some(Millis(7_000))));
    }
}
