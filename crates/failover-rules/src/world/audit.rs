//! Proof that watches deliver: a collection is read consistently and compared with what its watch has shown.
//!
//! A quiet collection is read whole, metadata only, not from a cache. Every difference from what we hold must
//! arrive on the watch within [`ARRIVES_MS`]; then the watch is proven live at the time the read was sent. A
//! watch that does not deliver a difference in time is begun anew. Objects that cannot be decoded never
//! arrive: what a list named and did not show is left out of the comparison until it can be read.

use super::{Kind, Wants};
use evenkeel_api::watch::{Key, Progress};
use evenkeel_judge::Sight;
use evenkeel_zone::Millis;
use std::collections::{BTreeMap, BTreeSet};

/// The collections that are read, each when it showed nothing for so long.
///
/// Silence on the first two counts against nodes: half of the time for which an event proves a watch live.
/// Through the others controllers hear of each other, and a leader of its own writes: one that draws a
/// challenge of which its own watch is not told refuses the ballots that sign it, and evidence lasts 25 s.
const AUDITED: [(Kind, u64); 5] = [
    (Kind::NodeLease, 2_500),
    (Kind::Report, 2_500),
    (Kind::Zone, 10_000),
    (Kind::Challenge, 10_000),
    (Kind::Incident, 10_000),
];
/// A difference must arrive on the watch within this time after the answer.
pub(super) const ARRIVES_MS: u64 = 1_000;
/// A watch that was begun anew may list for this long before it is begun anew once more. The list of a large
/// cluster takes longer than a difference has where the API server is slow, and would never come to its end.
const LISTS_MS: u64 = 60_000;

/// What the audited watches hold.
pub(super) struct Ledgers(Vec<(Kind, Ledger)>);

impl Default for Ledgers {
    fn default() -> Self {
        let ledger = |(kind, quiet_ms)| {
            let ledger = Ledger {
                quiet_ms,
                ..Ledger::default()
            };
            (kind, ledger)
        };
        Self(AUDITED.into_iter().map(ledger).collect())
    }
}

impl Ledgers {
    fn of(&mut self, kind: Kind) -> Option<&mut Ledger> {
        let found = self.0.iter_mut().find(|(of, _)| *of == kind);
        found.map(|(_, ledger)| ledger)
    }

    /// Takes in what a watch has shown.
    pub(super) fn take(&mut self, now: Millis, kind: Kind, progress: &Progress<'_>) {
        let Some(ledger) = self.of(kind) else {
            return;
        };
        match progress {
            Progress::Put(key, version) => ledger.put(now, key.clone(), (*version).to_owned()),
            Progress::Gone(key) => ledger.gone(now, key),
            Progress::Listed(keys) => ledger.listed(now, keys),
            Progress::Broken => ledger.begins(now),
        }
    }

    /// A collection was read, or not: resourceVersions by key.
    pub(super) fn audited(&mut self, now: Millis, kind: Kind, found: Option<&BTreeMap<Key, String>>) {
        let Some(ledger) = self.of(kind) else {
            return;
        };
        match found {
            Some(found) => ledger.answered(now, found),
            None => ledger.failed(now),
        }
    }

    /// The reads that were sent, if any, will not be answered.
    pub(super) fn lost(&mut self, now: Millis) {
        for (_, ledger) in &mut self.0 {
            ledger.failed(now);
        }
    }

    /// What is to be read, and which watches are to be begun anew. Proofs go into `sight`.
    pub(super) fn look(&mut self, now: Millis, listed: &BTreeSet<Kind>, sight: &mut Sight) -> Wants {
        let mut wants = Wants::default();
        for (kind, ledger) in &mut self.0 {
            let proof = match kind {
                Kind::NodeLease => Some(&mut sight.leases),
                Kind::Report => Some(&mut sight.reports),
                _ => None,
            };
            match (ledger.look(now), proof) {
                (Proof::Live(at), Some(proof)) => proof.progress(at),
                (Proof::Broken, proof) => {
                    wants.restart.push(*kind);
                    if let Some(proof) = proof {
                        proof.broken();
                    }
                }
                (Proof::None | Proof::Live(_), _) => {}
            }
            if listed.contains(kind) && ledger.wants_read(now) {
                wants.audits.push(*kind);
            }
        }
        wants
    }
}

/// What one watch holds, by key and resourceVersion, and the read that is under way.
#[derive(Clone, Debug, Default)]
struct Ledger {
    quiet_ms: u64,
    /// When the watch was last proven live.
    proven: Option<Millis>,
    held: BTreeMap<Key, Version>,
    sent: Option<Millis>,
    /// No read before this time.
    rests_until: Millis,
    open: Option<Open>,
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
enum Proof {
    None,
    /// Everything that happened before this instant has arrived.
    Live(Millis),
    /// The watch does not deliver: it must be begun anew.
    Broken,
}

impl Ledger {
    fn put(&mut self, now: Millis, key: Key, version: String) {
        let version = Version {
            version,
            received: now,
        };
        self.proven = Some(now);
        self.unreadable.remove(&key);
        self.held.insert(key, version);
    }

    fn gone(&mut self, now: Millis, key: &Key) {
        self.proven = Some(now);
        self.unreadable.remove(key);
        self.held.remove(key);
    }

    /// The watch begins anew, with a list.
    fn begins(&mut self, now: Millis) {
        self.begun = now;
        self.proven = None;
    }

    fn listed(&mut self, now: Millis, present: &BTreeSet<Key>) {
        self.proven = Some(now);
        self.held.retain(|key, _| present.contains(key));
        let arrived = |key: &&Key| {
            self.held
                .get(*key)
                .is_some_and(|held| held.received >= self.begun)
        };
        self.unreadable = present.iter().filter(|key| !arrived(key)).cloned().collect();
        self.open = None;
        self.rests_until = Millis(0);
    }

    /// Whether the collection is to be read now; if so the read counts as sent.
    fn wants_read(&mut self, now: Millis) -> bool {
        let quiet = self.proven.is_none_or(|at| now.since(at) >= self.quiet_ms);
        let waiting = self.open.is_some() || self.sent.is_some();
        if !quiet || waiting || now < self.rests_until {
            return false;
        }
        self.sent = Some(now);
        true
    }

    /// The read failed: nothing was proven.
    fn failed(&mut self, now: Millis) {
        self.sent = None;
        // No server that comes back is to be met by as many reads as it can refuse. That of Leases and of
        // reports waits for a second, and a proof lasts longer.
        self.rests_until = now.plus(self.quiet_ms * 2 / 5);
    }

    /// The read was answered.
    fn answered(&mut self, now: Millis, found: &BTreeMap<Key, String>) {
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
    fn look(&mut self, now: Millis) -> Proof {
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
            self.proven = self.proven.max(Some(sent));
            return Proof::Live(sent);
        }
        if now >= open.until {
            (self.open, self.proven) = (None, None);
            self.rests_until = now.plus(LISTS_MS);
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

    /// A ledger that is read when it showed nothing for 2.5 s, and holds a at version 1.
    fn ledger(shown: Millis) -> Ledger {
        let mut ledger = Ledger {
            quiet_ms: 2_500,
            ..Ledger::default()
        };
        ledger.put(shown, key("a"), "1".to_owned());
        ledger
    }

    /// The same, read at 10 s.
    fn read_at_10() -> Ledger {
        let mut ledger = ledger(Millis(0));
        assert!(ledger.wants_read(Millis(10_000)));
        assert!(!ledger.wants_read(Millis(10_100)), "one at a time");
        ledger
    }

    #[test]
    fn a_collection_that_just_showed_something_is_not_read() {
        let mut ledger = ledger(Millis(8_000));
        assert!(!ledger.wants_read(Millis(10_499)));
        assert!(ledger.wants_read(Millis(10_500)));
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
        assert!(!ledger.wants_read(Millis(71_300)));
        let mut stuck = ledger.clone();
        assert!(stuck.wants_read(Millis(71_400)));
        ledger.put(Millis(30_000), key("a"), "2".to_owned());
        ledger.listed(Millis(30_000), &[key("a")].into());
        assert!(ledger.wants_read(Millis(33_000)));
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
        ledger.gone(Millis(10_800), &key("a"));
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
        ledger.listed(Millis(12_000), &["a", "b", "c"].map(key).into());
        assert!(ledger.wants_read(Millis(15_000)));
        ledger.answered(Millis(15_100), &found(&[("a", "3"), ("b", "6"), ("c", "1")]));
        assert_eq!(ledger.look(Millis(15_100)), Proof::Live(Millis(15_000)));
        ledger.put(Millis(16_000), key("a"), "4".to_owned());
        assert!(ledger.wants_read(Millis(20_000)));
        ledger.answered(Millis(20_100), &found(&[("a", "7"), ("b", "6"), ("c", "1")]));
        assert_eq!(ledger.look(Millis(21_100)), Proof::Broken, "a can be read again");
    }

    #[test]
    fn a_read_that_fails_proves_nothing_and_is_sent_again_a_second_later() {
        let mut ledger = read_at_10();
        ledger.failed(Millis(10_100));
        assert_eq!(ledger.look(Millis(10_100)), Proof::None);
        assert!(!ledger.wants_read(Millis(11_099)));
        assert!(ledger.wants_read(Millis(11_100)));
    }
}
