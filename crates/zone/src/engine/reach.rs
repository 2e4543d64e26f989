//! Who is within reach, by contacts and edges together.

use super::contacts::{Contacts, Peer};
use super::context::{Context, NEVER};
use super::own::Own;
use super::watches::Watches;
use crate::Millis;
use crate::roster::{MemberId, MemberIndex, REPORTERS, Roster};
use crate::verdict::Link;

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

    /// Watched members within reach, all watched members, and when the first one is lost if all are silent
    /// from now on.
    pub(super) fn count(self) -> (usize, usize, Millis) {
        let (mut within, mut first_loss) = (0, NEVER);
        for subject in self.watches.subjects() {
            if let Some(until) = self.live_until(subject) {
                within += 1;
                first_loss = first_loss.min(until);
            }
        }
        (within, self.watches.subjects().count(), first_loss)
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

    /// The members that report, best first.
    pub(super) fn reporters(self, roster: &Roster, me: Option<MemberIndex>, own: &Own) -> Vec<MemberIndex> {
        let ranked = roster.reporters_by_rank(|index| self.has_cloud(index, me, own).is_some());
        ranked.take(REPORTERS).collect()
    }

    /// Rank of this agent among the reporters, `None` if it is not one of them; and when that may change if
    /// nothing is heard from now on.
    pub(super) fn rank(self, roster: &Roster, me: Option<MemberIndex>, own: &Own) -> (Option<usize>, Millis) {
        let Some(me) = me else { return (None, NEVER) };
        let linked = own.facts().cloud == Link::Up;
        // Who ranks before: those with a link, and if this agent has none, those without that stand before it
        // in the order.
        let (mut with, mut without) = (0, 0);
        // Those of them that stay longest. Their number matters up to three.
        let mut longest = [Millis(0); REPORTERS];
        let mut before_me = true;
        for index in roster.rendezvous() {
            if *index == me {
                before_me = false;
                if linked {
                    break;
                }
                continue;
            }
            match self.has_cloud(*index, Some(me), own) {
                Some(until) => {
                    with += 1;
                    if let Some(shortest) = longest.iter_mut().min().filter(|shortest| **shortest < until) {
                        *shortest = until;
                    }
                }
                None if before_me && !linked => without += 1,
                None => {}
            }
        }
        let stay = longest.into_iter().filter(|until| *until > Millis(0));
        let changes_at = stay.min().unwrap_or(NEVER);
        let rank = with + without;
        (Some(rank).filter(|rank| *rank < REPORTERS), changes_at)
    }

    /// Until when a member counts as one with a link to the API server.
    fn has_cloud(self, index: MemberIndex, me: Option<MemberIndex>, own: &Own) -> Option<Millis> {
        if me == Some(index) {
            return Some(NEVER).filter(|_| own.facts().cloud == Link::Up);
        }
        let linked = self.peer(index)?.facts().cloud == Link::Up;
        self.live_until(index).filter(|_| linked)
    }
}
