//! Who reports: three members, those with a link to the API server first, then by rendezvous.
//!
//! A link is one bit: the member reached the API server within the last 30 s, and was heard within as long.
//! Contacts that differ by seconds from member to member, and outages of the API server, so change nothing
//! (hazards 11 and 45). A member that alone has lost its link, and says so, is skipped before the 30 s are
//! over: nobody else could publish in its place. Of a member that is gone its observers know within seconds,
//! and the others from a search.
//!
//! Among members without a link, those that live come first: agents of other cells write what they report,
//! and a cell whose first three are dead would have nobody who asks for that.

use super::context::{Context, NEVER};
use super::edges::{EdgeReports, Heard};
use super::own::Own;
use super::reach::Reach;
use crate::Millis;
use crate::roster::{MemberIndex, REPORTERS};
use crate::verdict::Link;
use crate::wire::EdgeState;

/// After an outage of the API server all links come back within this time, and who is back first takes nobody
/// for one without a link because of what it said before.
const ALL_BACK_MS: u64 = 6_000;

/// A look at the candidates for reporting at one time.
#[derive(Clone, Copy)]
pub(super) struct Ranking<'a> {
    pub(super) cx: &'a Context,
    pub(super) own: &'a Own,
    pub(super) reach: Reach<'a>,
    pub(super) edges: &'a EdgeReports,
}

impl Ranking<'_> {
    /// The members that report, best first: at most three.
    pub(super) fn reporters(self) -> Vec<MemberIndex> {
        let is_linked = |index| self.is_up(index) && self.linked_until(index).is_some();
        let up = self.ranked(is_linked);
        if up.first().is_some_and(|first| is_linked(*first)) {
            return up;
        }
        self.linked()
    }

    /// Those with a link, whatever they say of it, then the others.
    fn linked(self) -> Vec<MemberIndex> {
        self.ranked(|index| self.linked_until(index).is_some())
    }

    /// Those that come first, then those that live, then everybody else. Nobody is looked at before it is
    /// needed.
    fn ranked(self, comes_first: impl Fn(MemberIndex) -> bool) -> Vec<MemberIndex> {
        let all = || self.cx.roster().rendezvous().iter().copied();
        let others = || all().filter(|index| !comes_first(*index));
        let lives = |index: &MemberIndex| self.heard_until(*index).is_some();
        let first = all().filter(|index| comes_first(*index));
        let living = others().filter(lives);
        let dead = others().filter(|index| !lives(index));
        first.chain(living).chain(dead).take(REPORTERS).collect()
    }

    /// Rank of this agent among the reporters, `None` if it is not one of them; and when that may change if
    /// nothing is heard from now on. Without a link it cannot tell whether the others are as badly off, and
    /// keeps its rank until its link counts no more.
    pub(super) fn rank(self) -> (Option<usize>, Millis) {
        let Some(me) = self.cx.place() else {
            return (None, NEVER);
        };
        let reporters = if self.is_up(me) {
            self.reporters()
        } else {
            self.linked()
        };
        let changes_at = reporters
            .iter()
            .filter_map(|index| self.linked_until(*index).or_else(|| self.heard_until(*index)));
        let rank = reporters.iter().position(|index| *index == me);
        (rank, changes_at.min().unwrap_or(NEVER))
    }

    /// Whether no member of the cell has a link, as far as this agent knows.
    pub(super) fn nobody_is_up(self) -> bool {
        let first = self.reporters().first().copied();
        !first.is_some_and(|first| self.is_up(first) && self.linked_until(first).is_some())
    }

    /// Whether the member does not say that its link is down; what it said while this agent's own link was
    /// down or just back does not count.
    fn is_up(self, index: MemberIndex) -> bool {
        if self.cx.is_me(index) {
            return self.own.facts().cloud == Link::Up;
        }
        let Some(peer) = self.reach.peer(index) else {
            return false;
        };
        let may_be_back = self.own.linked_since().is_some_and(|since| {
            let counts_from = since.plus(ALL_BACK_MS);
            peer.told().is_none_or(|at| at < counts_from)
        });
        may_be_back || peer.facts().cloud != Link::Down
    }

    /// Until when a member counts as one with a link, if nothing is heard from now on. `None` if it does not.
    fn linked_until(self, index: MemberIndex) -> Option<Millis> {
        let cloud_contact = if self.cx.is_me(index) {
            self.own.cloud_contact()?
        } else {
            self.reach.peer(index)?.cloud_contact()?
        };
        let until = cloud_contact.plus(self.cx.linked_ms() + 1);
        let until = until.min(self.heard_until(index)?);
        (self.cx.now() < until).then_some(until)
    }

    /// Until when a member counts as one that lives, if nothing is heard from now on. `None` if it does not.
    fn heard_until(self, index: MemberIndex) -> Option<Millis> {
        if self.cx.is_me(index) {
            return Some(NEVER);
        }
        let until = self.reach.heard_until(self.cx, index)?;
        (self.cx.now() < until && !self.is_lost(index)).then_some(until)
    }

    /// Whether this agent has lost the member, or if it does not watch it, most of those who do.
    fn is_lost(self, index: MemberIndex) -> bool {
        if self.cx.is_me(index) {
            return false;
        }
        if let Some(state) = self.reach.edge(index) {
            return state == EdgeState::Down;
        }
        let Some(id) = self.cx.roster().member(index).map(|member| member.id) else {
            return true;
        };
        let observers = self.cx.roster().observers_of(index);
        let lost = |observer: &&MemberIndex| {
            let heard = self.edges.heard(self.cx, **observer);
            let mut edges = heard.into_iter().flat_map(Heard::edges);
            edges.any(|(subject, state, _)| *subject == id && *state == EdgeState::Down)
        };
        2 * observers.iter().filter(lost).count() > observers.len()
    }
}
