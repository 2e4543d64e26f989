//! Counts the edges that live observers have lost.

use super::View;
use crate::engine::context::Context;
use crate::engine::due::Due;
use crate::roster::{MemberId, MemberIndex};
use crate::wire::{EdgeState, Facts};
use std::collections::{BTreeMap, BTreeSet};

/// What the observers say that is not plainly well.
#[derive(Default)]
pub(super) struct Tally {
    /// By subject, the observers that have lost it.
    lost: BTreeMap<MemberId, BTreeSet<MemberIndex>>,
    /// By subject, what is wrong with its node.
    bad: BTreeMap<MemberId, Facts>,
}

impl Tally {
    /// All members of which something is said; some may not be in the roster.
    pub(super) fn subjects(&self) -> impl Iterator<Item = MemberId> {
        self.lost.keys().chain(self.bad.keys()).copied()
    }

    pub(super) fn lost_to(&self, subject: MemberId) -> Option<&BTreeSet<MemberIndex>> {
        self.lost.get(&subject)
    }

    pub(super) fn bad(&self, subject: MemberId) -> Option<Facts> {
        self.bad.get(&subject).copied()
    }
}

/// Gathers what this agent and the other observers say.
pub(super) fn tally_edges(cx: &Context, view: View<'_>, due: &mut Due) -> Tally {
    let mut tally = Tally::default();
    let reach = view.reach(cx);
    let roster = cx.roster();
    for (index, peer) in view.contacts.iter() {
        let Some(id) = roster.member(index).map(|member| member.id) else {
            continue;
        };
        if let Some(me) = cx.place().filter(|_| view.watches.is_down(index)) {
            tally.lost.entry(id).or_default().insert(me);
        }
        if !peer.facts().are_plain()
            && let Some(until) = reach.live_until(index)
        {
            due.by(until);
            tally.bad.insert(id, peer.facts());
        }
        let Some(heard) = view
            .edges
            .heard(cx, index)
            .filter(|heard| !heard.edges().is_empty())
        else {
            continue;
        };
        due.by(heard.counts_until(cx.period_ms()));
        for (subject, state, facts) in heard.edges() {
            let unwatched = |subject: &MemberIndex| !cx.is_me(*subject) && !view.watches.is_watched(*subject);
            if *state == EdgeState::Down {
                tally.lost.entry(*subject).or_default().insert(index);
            } else if !facts.are_plain() && roster.position(*subject).is_some_and(|index| unwatched(&index)) {
                tally.bad.entry(*subject).or_insert(*facts);
            }
        }
    }
    if !view.own.facts().are_plain() {
        tally.bad.insert(cx.me(), view.own.facts());
    }
    tally
}

/// Live observers of a subject without contact, and all live ones. Fewer than two of them cannot be outvoted.
pub(super) fn count(
    cx: &Context,
    view: View<'_>,
    subject: MemberIndex,
    lost: Option<&BTreeSet<MemberIndex>>,
    due: &mut Due,
) -> (usize, usize) {
    let reach = view.reach(cx);
    let mut counts = |observer: MemberIndex| {
        if cx.is_me(observer) {
            return true;
        }
        if reach
            .peer(observer)
            .is_none_or(super::super::contacts::Peer::doubts)
        {
            return false;
        }
        let told = view
            .edges
            .heard(cx, observer)
            .map(|heard| heard.counts_until(cx.period_ms()));
        let until = reach.live_until(observer).max(told);
        if let Some(until) = until {
            due.by(until);
        }
        until.is_some()
    };
    let (mut down, mut live) = (0, 0);
    for observer in cx.roster().observers_of(subject) {
        if counts(*observer) {
            live += 1;
            down += usize::from(lost.is_some_and(|lost| lost.contains(observer)));
        }
    }
    (down, live)
}
