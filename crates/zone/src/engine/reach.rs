//! Who is within reach, by contacts and edges together.

use super::contacts::{Contacts, Peer};
use super::context::{Context, NEVER};
use super::watches::Watches;
use crate::Millis;
use crate::roster::{MemberId, MemberIndex, Roster};
use crate::wire::EdgeState;

/// A look at contacts and edges at one time.
#[derive(Clone, Copy)]
pub(super) struct Reach<'a> {
    now: Millis,
    period_ms: u64,
    contacts: &'a Contacts,
    watches: &'a Watches,
}

impl<'a> Reach<'a> {
    pub(super) fn new(cx: &Context, contacts: &'a Contacts, watches: &'a Watches) -> Self {
        Self {
            now: cx.now(),
            period_ms: cx.period_ms(),
            contacts,
            watches,
        }
    }

    pub(super) fn peer(self, index: MemberIndex) -> Option<&'a Peer> {
        self.contacts.peer(index)
    }

    /// State of this agent's own edge to the member; nothing if it does not watch it.
    pub(super) fn edge(self, index: MemberIndex) -> Option<EdgeState> {
        self.watches.edge(index)
    }

    /// Until when a member counts as heard; see [`Watches::heard_until`].
    pub(super) fn heard_until(self, cx: &Context, index: MemberIndex) -> Option<Millis> {
        self.watches.heard_until(cx, self.contacts, index)
    }

    /// When the peer ceases to count as alive if it stays silent: three periods after the last contact.
    /// `None` if it does not count as alive now, or its edge is down.
    pub(super) fn live_until(self, index: MemberIndex) -> Option<Millis> {
        if self.watches.is_down(index) {
            return None;
        }
        let until = self.peer(index)?.live_until(self.period_ms)?;
        (self.now < until).then_some(until)
    }

    /// Whether the peer counts as alive.
    pub(super) fn is_live(self, index: MemberIndex) -> bool {
        self.live_until(index).is_some()
    }

    /// Watched voters within reach, all watched voters, and when the first one is lost if all are silent from
    /// now on. Learners that nobody reaches must not make voters doubt their view.
    pub(super) fn count(self, roster: &Roster) -> (usize, usize, Millis) {
        let (mut within, mut watched, mut first_loss) = (0, 0, NEVER);
        for subject in self.watches.subjects().filter(|index| roster.has_vote(*index)) {
            watched += 1;
            if let Some(until) = self.live_until(subject) {
                within += 1;
                first_loss = first_loss.min(until);
            }
        }
        (within, watched, first_loss)
    }

    pub(super) fn has_met_anybody(self) -> bool {
        self.contacts.iter().any(|(_, peer)| peer.seen_alive())
    }

    /// Some live member to relay through, drawn anew each time.
    pub(super) fn relay_for(self, cx: &mut Context, subject: MemberIndex) -> Option<MemberId> {
        let live = || {
            let all = self.contacts.iter().map(|(index, _)| index);
            all.filter(|index| *index != subject && self.is_live(*index))
        };
        let position = cx.draw(live().count() as u64);
        let relay = live().nth(position as usize)?;
        Some(cx.roster().member(relay)?.id)
    }
}
