//! Who is alive, by Leases that are seen to change. Pure: other machines' clocks are not asked.

use super::plan::View;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A Lease of the group as it was read.
#[derive(Clone, Debug)]
pub(super) struct SeenLease {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) holder: String,
    /// Among how many slots the announced replica shares; slots' Leases do not say.
    pub(super) count: Option<String>,
}

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Version of each Lease, and when it was first seen.
    seen: BTreeMap<String, (String, Duration)>,
    /// Since when slots are free.
    free: BTreeMap<usize, Duration>,
}

/// How long silence may last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Of a replica that counts as alive.
    pub(super) alive: Duration,
    /// Of a free slot that is due to somebody.
    pub(super) free: Duration,
}

impl Members {
    /// Takes note of all Leases there are, and says what that means for `slots` slots, whose Leases are named
    /// by `slot_name`.
    pub(super) fn observe(
        &mut self,
        leases: &[SeenLease],
        me: &str,
        slots: &[String],
        patience: Patience,
        now: Duration,
    ) -> View {
        self.seen
            .retain(|name, _| leases.iter().any(|lease| lease.name == *name));
        let mut alive: BTreeSet<&str> = BTreeSet::from([me]);
        let mut view = View {
            members: BTreeSet::from([me.to_owned()]),
            holders: vec![None; slots.len()],
            orphans: BTreeSet::new(),
            misfit: None,
        };
        let count = slots.len().to_string();
        for lease in leases {
            let seen = self
                .seen
                .entry(lease.name.clone())
                .or_insert_with(|| (lease.version.clone(), now));
            if seen.0 != lease.version {
                *seen = (lease.version.clone(), now);
            }
            let silence = now.saturating_sub(seen.1);
            if lease.holder.is_empty() || silence >= patience.alive {
                continue;
            }
            alive.insert(&lease.holder);
            let other = lease.count.as_ref().filter(|other| **other != count);
            if let Some(other) = other.filter(|_| lease.holder != me) {
                view.misfit = Some((lease.holder.clone(), other.clone()));
            }
            if !slots.contains(&lease.name) {
                view.members.insert(lease.holder.clone());
            }
        }
        for (slot, name) in slots.iter().enumerate() {
            let holder = leases.iter().find(|lease| lease.name == *name);
            view.holders[slot] = holder
                .map(|lease| lease.holder.clone())
                .filter(|holder| alive.contains(holder.as_str()));
            if view.holders[slot].is_some() {
                self.free.remove(&slot);
                continue;
            }
            let since = *self.free.entry(slot).or_insert(now);
            if now.saturating_sub(since) >= patience.free {
                view.orphans.insert(slot);
            }
        }
        view
    }

    /// For how long a Lease has not been seen to change.
    pub(super) fn silence(&self, name: &str, now: Duration) -> Duration {
        let seen = self.seen.get(name);
        seen.map_or(Duration::ZERO, |(_, since)| now.saturating_sub(*since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        alive: Duration::from_secs(8),
        free: Duration::from_secs(14),
    };

    fn lease(name: &str, version: u32, holder: &str) -> SeenLease {
        SeenLease {
            name: name.to_owned(),
            version: version.to_string(),
            holder: holder.to_owned(),
            count: None,
        }
    }

    fn observe(members: &mut Members, leases: &[SeenLease], seconds: u64) -> View {
        let slots = ["s-0".to_owned(), "s-1".to_owned()];
        members.observe(leases, "me", &slots, PATIENCE, Duration::from_secs(seconds))
    }

    #[test]
    fn who_is_not_seen_to_renew_is_dead() {
        let mut members = Members::default();
        let dead = [lease("s-you", 1, "you"), lease("s-0", 2, "you")];
        let view = observe(&mut members, &dead, 0);
        assert!(view.members.contains("you"));
        assert_eq!(view.holders, [Some("you".to_owned()), None]);
        let view = observe(&mut members, &dead, 7);
        assert!(view.members.contains("you"));
        let view = observe(&mut members, &dead, 8);
        assert_eq!(view.members, BTreeSet::from(["me".to_owned()]));
        assert_eq!(view.holders, [None, None]);
        let view = observe(
            &mut members,
            &[lease("s-you", 3, "you"), lease("s-0", 2, "you")],
            9,
        );
        assert_eq!(view.holders[0].as_deref(), Some("you"), "alive after all");
    }

    #[test]
    fn who_holds_without_taking_part_is_leaving() {
        let mut members = Members::default();
        let view = observe(&mut members, &[lease("s-0", 2, "you"), lease("s-1", 2, "")], 0);
        assert_eq!(view.members, BTreeSet::from(["me".to_owned()]));
        assert_eq!(view.holders, [Some("you".to_owned()), None]);
    }

    #[test]
    fn who_is_alive_and_counts_other_slots_is_a_misfit() {
        let mut members = Members::default();
        let held = |version, holder: &str, count: &str| SeenLease {
            count: Some(count.to_owned()),
            ..lease("s-m", version, holder)
        };
        let misfit = Some(("you".to_owned(), "16".to_owned()));
        assert_eq!(observe(&mut members, &[held(1, "you", "16")], 0).misfit, misfit);
        assert_eq!(observe(&mut members, &[held(1, "you", "16")], 7).misfit, misfit);
        assert_eq!(
            observe(&mut members, &[held(1, "you", "16")], 8).misfit,
            None,
            "dead"
        );
        assert_eq!(observe(&mut members, &[held(2, "you", "2")], 9).misfit, None);
        let earlier = held(3, "me", "16");
        assert_eq!(
            observe(&mut members, &[earlier], 10).misfit,
            None,
            "this one, before"
        );
        assert_eq!(observe(&mut members, &[lease("s-m", 4, "you")], 11).misfit, None);
    }

    #[test]
    fn a_slot_that_stays_free_is_an_orphan() {
        let mut members = Members::default();
        let taken = [lease("s-0", 1, "me")];
        assert!(observe(&mut members, &taken, 0).orphans.is_empty());
        assert!(observe(&mut members, &taken, 13).orphans.is_empty());
        assert_eq!(observe(&mut members, &taken, 14).orphans, BTreeSet::from([1]));
    }
}
