//! Rosters from other members, for an agent that the API server does not reach (hazards 4 and 53).
//!
//! While a link to the API server is cut, the cell's roster changes: somebody joins, or has another key or
//! address. Heartbeats name the version that their sender has. Who hears of a newer one for 3 s fetches it
//! from that member, part by part. A roster counts by its signature, whoever passes it on, and only for the
//! ZoneHealth whose roster is in force here: versions of another object are not compared.

use super::Output;
use super::contacts::Contacts;
use super::context::{Context, NEVER};
use super::parts::{self, Parts, Taken, Turn};
use crate::Millis;
use crate::roster::{MemberId, MemberIndex, Roster};
use crate::wire::{Body, Part, PartAsked};
use std::collections::BTreeMap;
use std::sync::Arc;

/// With a link to the API server the watch delivers a roster sooner.
const WAITS_MS: u64 = 3_000;
/// Who passed on what is no newer roster of this cell, or nothing, is not asked again for so long.
const DISTRUSTS_MS: u64 = 60_000;
/// No roster is longer: a member takes some 350 bytes, and a cell has 64.
pub(super) const LONGEST: usize = 128 * 1_024;

/// The newer roster that this agent has heard of, and what it has of it.
#[derive(Default)]
pub(super) struct RosterFetch {
    /// By member: the version that it says it has, and since when it has said so.
    heard: BTreeMap<MemberId, (u64, Millis)>,
    under_way: Option<Fetch>,
    distrusted: BTreeMap<MemberId, Millis>,
}

struct Fetch {
    from: MemberId,
    parts: Parts,
}

impl RosterFetch {
    pub(super) fn deadline(&self) -> Millis {
        let under_way = self.under_way.as_ref();
        under_way.map_or(NEVER, |fetch| fetch.parts.deadline())
    }

    /// A member says which version it has.
    pub(super) fn hear(&mut self, cx: &mut Context, from: MemberId, version: u64) {
        if version <= cx.roster().reference().version || !cx.roster_keys().ask_for_signatures() {
            return;
        }
        let now = cx.now();
        let heard = self.heard.entry(from).or_insert((version, now));
        if heard.0 != version {
            *heard = (version, now);
        }
        let since = heard.1;
        let trusted = self
            .distrusted
            .get(&from)
            .is_none_or(|at| now.since(*at) >= DISTRUSTS_MS);
        if now.since(since) < WAITS_MS || !trusted || self.under_way.is_some() {
            return;
        }
        let mut parts = Parts::new(version, LONGEST, now);
        cx.send(from, &Body::RosterAsked(parts.ask(now)));
        self.under_way = Some(Fetch { from, parts });
    }

    /// Another roster is in force.
    pub(super) fn take_roster(&mut self, cx: &Context) {
        let version = cx.roster().reference().version;
        self.heard
            .retain(|id, (heard, _)| *heard > version && cx.roster().contains(*id));
        self.distrusted.retain(|id, _| cx.roster().contains(*id));
        if self
            .under_way
            .as_ref()
            .is_some_and(|fetch| fetch.parts.version() <= version)
        {
            self.under_way = None;
        }
    }

    /// Asks again for what did not come, and gives up who does not answer.
    pub(super) fn step(&mut self, cx: &mut Context) {
        let now = cx.now();
        let Some(fetch) = self.under_way.as_mut() else {
            return;
        };
        match fetch.parts.step(now) {
            Turn::Waits => {}
            Turn::Asks(asked) => cx.send(fetch.from, &Body::RosterAsked(asked)),
            Turn::GivesUp => {
                self.distrusted.insert(fetch.from, now);
                self.under_way = None;
            }
        }
    }

    /// A part of a roster. Returns the roster if it is whole and counts.
    pub(super) fn take_part(&mut self, cx: &mut Context, from: MemberId, part: &Part) -> Option<Arc<Roster>> {
        let fetch = self.under_way.as_mut().filter(|fetch| fetch.from == from)?;
        match fetch.parts.take(part, cx.now()) {
            Taken::Refused => {
                cx.put(Output::Refused("roster"));
                None
            }
            Taken::Waits => None,
            Taken::Asks(asked) => {
                cx.send(from, &Body::RosterAsked(asked));
                None
            }
            Taken::Whole(bytes) => {
                self.under_way = None;
                let roster = newer(cx, &bytes);
                if roster.is_none() {
                    cx.put(Output::Refused("roster"));
                    self.distrusted.insert(from, cx.now());
                }
                roster
            }
        }
    }
}

/// The roster that another agent passed on, if it counts here and is newer than the one in force.
pub(super) fn newer(cx: &Context, bytes: &[u8]) -> Option<Arc<Roster>> {
    let opened = Roster::from_bytes(bytes, cx.roster().cell(), cx.roster_keys()).ok()?;
    let known = cx.roster().reference().version;
    (opened.reference().version > known).then(|| Arc::new(opened))
}

/// Sends the parts of the roster in force that a member asks for.
pub(super) fn answer(cx: &mut Context, contacts: &mut Contacts, to: MemberIndex, asked: &PartAsked) {
    let roster = Arc::clone(cx.roster());
    let (Some(id), Some(bytes)) = (roster.member(to).map(|member| member.id), roster.to_bytes()) else {
        return;
    };
    for part in parts::answer((roster.reference().version, &bytes), asked) {
        if !contacts.allows_roster_part(to, cx.now()) {
            return cx.put(Output::Refused("roster-budget"));
        }
        cx.send(id, &Body::RosterPart(part));
    }
}
