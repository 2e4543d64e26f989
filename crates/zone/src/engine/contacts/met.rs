//! Whom an agent has met, which is remembered across its restarts.

use crate::keys::PublicKey;
use crate::roster::{Member, MemberId, Roster};
use std::collections::BTreeMap;

/// Members whom this agent has met since the machine's present boot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Met {
    /// Those that have proved their life, and under which key. Who has not may not be back yet, after a power
    /// cut that took several machines.
    pub seen_alive: BTreeMap<MemberId, PublicKey>,
    /// Those that a check has found, and by which address of the kubelet in the roster.
    pub found: BTreeMap<MemberId, String>,
}

impl Met {
    /// A member has proved its life.
    pub fn note_seen_alive(&mut self, member: &Member) {
        self.seen_alive.insert(member.id, member.key.clone());
    }

    /// A check has found it.
    pub fn note_found(&mut self, member: &Member) {
        self.found.insert(member.id, kubelet_of(member).to_owned());
    }

    /// Another roster is in force. `me` is this agent: a roster without it is one of a cell that it leaves,
    /// and whom it has met there may go with it.
    pub(super) fn take_roster(&mut self, me: MemberId, before: &Roster, roster: &Roster) {
        for (id, key) in &mut self.seen_alive {
            // A key that was announced takes the place of the one under which the member was met.
            if let (Some(old), Some(new)) = (before.get(*id), roster.get(*id))
                && old.has_key(key)
                && old.goes_on_as(new)
            {
                *key = new.key.clone();
            }
        }
        if roster.contains(me) {
            self.seen_alive.retain(|member, _| roster.contains(*member));
            self.found.retain(|member, _| roster.contains(*member));
        }
    }
}

/// Where its kubelet is checked; empty: nowhere.
pub(in crate::engine) fn kubelet_of(member: &Member) -> &str {
    member.kubelet.as_ref().map_or("", |kubelet| &kubelet.address)
}
