//! Edges that the members report to each other: what they see of those they watch.

use super::contacts::Contacts;
use super::context::{Context, NEVER};
use super::own::Own;
use super::ranking::Ranking;
use super::reach::Reach;
use super::watches::Watches;
use crate::Millis;
use crate::roster::{CANDIDATES, MemberId, MemberIndex, Roster};
use crate::wire::{Body, Edge, EdgeState, Edges, Facts};

/// Empty lists that are sent after the last one that was not. One alone might get lost, and the others would
/// keep an old view.
const FAREWELLS: u8 = 3;

/// What the others see, and what they have been told.
pub(super) struct EdgeReports {
    /// By position in the roster: what the member last reported.
    heard: Vec<Option<Heard>>,
    /// Changes of this agent's edges that the others have been sent.
    told: u64,
    /// When this agent's edges are sent next. While nothing is wrong in an all-pairs zone it is not waited
    /// for, and only says when in a period it would be.
    due: Millis,
    /// Nothing is to be sent until something changes.
    resting: bool,
    farewells: u8,
}

/// A peer's view of its subjects.
pub(super) struct Heard {
    at: Millis,
    edges: Vec<(MemberId, EdgeState, Facts)>,
}

impl Heard {
    /// Until when it counts: two and a half periods.
    pub(super) fn counts_until(&self, period_ms: u64) -> Millis {
        self.at.plus(period_ms * 5 / 2 + 1)
    }

    pub(super) fn edges(&self) -> &[(MemberId, EdgeState, Facts)] {
        &self.edges
    }
}

impl EdgeReports {
    pub(super) fn new(cx: &Context) -> Self {
        Self {
            heard: cx.roster().members().iter().map(|_| None).collect(),
            told: 0,
            due: Millis(0),
            resting: false,
            farewells: 0,
        }
    }

    pub(super) fn take_roster(&mut self, cx: &Context, before: &Roster) {
        let mut old = std::mem::take(&mut self.heard);
        for member in cx.roster().members() {
            let index = before.position(member.id);
            let goes_on =
                |index: &MemberIndex| before.member(*index).is_some_and(|old| old.goes_on_as(member));
            let known = index.filter(goes_on).and_then(|index| old.get_mut(index.at()));
            self.heard.push(known.and_then(Option::take));
        }
        self.look_again(cx);
    }

    /// What the member last reported, if that still counts.
    pub(super) fn heard(&self, cx: &Context, index: MemberIndex) -> Option<&Heard> {
        let heard = self.heard.get(index.at())?.as_ref()?;
        (cx.now() < heard.counts_until(cx.period_ms())).then_some(heard)
    }

    /// The member began another life: what its former one saw is void.
    pub(super) fn forget(&mut self, index: MemberIndex) {
        if let Some(heard) = self.heard.get_mut(index.at()) {
            *heard = None;
        }
    }

    /// What a member sees. Returns whether that is news.
    pub(super) fn take(&mut self, cx: &Context, from: MemberIndex, edges: &Edges) -> bool {
        let counted = self.heard(cx, from).is_some();
        let Some(place) = self.heard.get_mut(from.at()) else {
            return false;
        };
        let said = |heard: &Heard| {
            let new = edges
                .edges
                .iter()
                .map(|edge| (edge.subject, edge.state, edge.facts));
            heard.edges.iter().copied().eq(new)
        };
        match place {
            Some(heard) if counted && said(heard) => {
                heard.at = cx.now();
                false
            }
            _ => {
                // Of two entries on one subject the later one counts.
                let mut list: Vec<(MemberId, EdgeState, Facts)> = Vec::with_capacity(edges.edges.len());
                for edge in &edges.edges {
                    list.retain(|(subject, ..)| *subject != edge.subject);
                    list.push((edge.subject, edge.state, edge.facts));
                }
                *place = Some(Heard {
                    at: cx.now(),
                    edges: list,
                });
                true
            }
        }
    }

    /// Something that this agent reports on may have changed.
    pub(super) fn look_again(&mut self, cx: &Context) {
        if std::mem::replace(&mut self.resting, false) {
            // At the time at which it would have been due, had something been wrong all along: who shares
            // news does so within a period, and not all at once.
            let missed = cx.now().since(self.due).div_ceil(cx.period_ms());
            self.due = self.due.plus(missed * cx.period_ms());
        }
    }

    pub(super) fn deadline(&self, watches: &Watches) -> Millis {
        match (watches.changes() != self.told, self.resting) {
            (true, _) => Millis(0),
            (false, true) => NEVER,
            (false, false) => self.due,
        }
    }

    /// Sends this agent's edges to the others: at once on a change, and every period while something is
    /// wrong. Above all-pairs size the reporters get them every period; they know by that who is alive. When
    /// one of the `newly_lost` reports or would step in, everybody gets them once, to look for who does now.
    pub(super) fn step(
        &mut self,
        cx: &mut Context,
        (own, contacts, watches): (&Own, &Contacts, &Watches),
        newly_lost: &[MemberIndex],
    ) {
        let changed = watches.changes() != self.told;
        if !changed && (self.resting || cx.now() < self.due) {
            return;
        }
        self.told = watches.changes();
        self.due = cx.now().plus(cx.period_ms());
        let all_pairs = cx.roster().all_pairs();
        let list = own_edges(cx, contacts, watches);
        if !list.is_empty() {
            self.farewells = FAREWELLS;
        } else if self.farewells > 0 {
            self.farewells -= 1;
        } else if all_pairs {
            // Everything is well, and the others have been sent that three times.
            self.resting = true;
            return;
        }
        let roster = std::sync::Arc::clone(cx.roster());
        let mut hearers: Vec<MemberIndex> = if all_pairs {
            roster.positions().collect()
        } else {
            let reach = Reach::new(cx, contacts, watches);
            let edges = &*self;
            Ranking {
                cx,
                own,
                reach,
                edges,
            }
            .reporters()
        };
        if changed && !all_pairs {
            let order = roster.rendezvous();
            let last = order.iter().rposition(|index| hearers.contains(index));
            let first = last.map_or(CANDIDATES, |last| CANDIDATES.max(last + 1));
            let lost = watches.edges().filter(|(_, state)| *state == EdgeState::Down);
            hearers.extend(lost.flat_map(|(subject, _)| roster.observers_of(subject)));
            if order.iter().take(first).any(|index| newly_lost.contains(index)) {
                hearers.extend(roster.positions());
            }
        }
        hearers.sort_unstable();
        hearers.dedup();
        let body = Body::Edges(Edges {
            doubt: u8::from(own.doubts()),
            edges: list,
        });
        let others = hearers.into_iter().filter(|hearer| Some(*hearer) != cx.place());
        let others: Vec<MemberId> = others
            .filter_map(|index| Some(roster.member(index)?.id))
            .collect();
        for id in others {
            cx.send(id, &body);
        }
    }
}

/// Those of this agent's subjects that are not plainly well.
fn own_edges(cx: &Context, contacts: &Contacts, watches: &Watches) -> Vec<Edge> {
    let entry = |(subject, state): (MemberIndex, EdgeState)| {
        let peer = contacts.peer(subject)?;
        let edge = Edge {
            subject: cx.roster().member(subject)?.id,
            state,
            facts: peer.facts(),
        };
        (state != EdgeState::Up || !edge.facts.are_plain()).then_some(edge)
    };
    watches.edges().filter_map(entry).collect()
}
