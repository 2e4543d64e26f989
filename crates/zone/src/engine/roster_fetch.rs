//! Rosters from other members, for an agent that the API server does not reach (hazards 4 and 53).
//!
//! While a link to the API server is cut, the cell's roster changes: somebody joins, or has another key or
//! address. Heartbeats name the version that their sender has. Who hears of a newer one for 3 s fetches it
//! from that member, part by part. A roster counts by its signature, whoever passes it on, and only for the
//! ZoneHealth whose roster is in force here: versions of another object are not compared.

use super::Output;
use super::contacts::Contacts;
use super::context::{Context, NEVER};
use crate::Millis;
use crate::roster::{MemberId, MemberIndex, Roster};
use crate::wire::{Body, ROSTER_PART, RosterAsked, RosterPart};
use std::collections::BTreeMap;
use std::sync::Arc;

/// With a link to the API server the watch delivers a roster sooner.
const WAITS_MS: u64 = 3_000;
/// So many parts answer one question.
const PARTS: usize = 8;
/// After this time the first missing part is asked for again, so often without any answer.
const ASKS_AGAIN_MS: u64 = 500;
const MOST_UNANSWERED: u8 = 6;
/// A whole roster has come within this time, also where a third of the parts are lost.
const LONGEST_MS: u64 = 30_000;
/// Who passed on what is no newer roster of this cell, or nothing, is not asked again for so long.
const DISTRUSTS_MS: u64 = 60_000;
/// No roster is longer: a member takes some 350 bytes, and a cell has 64.
const LONGEST: usize = 128 * 1_024;

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
    version: u64,
    /// Bytes of the whole, once a part came.
    length: Option<usize>,
    /// By their place in the whole.
    parts: BTreeMap<usize, Vec<u8>>,
    began: Millis,
    asked: Millis,
    unanswered: u8,
}

impl Fetch {
    /// The first byte that is missing.
    fn missing(&self) -> usize {
        let mut end = 0;
        for (place, part) in &self.parts {
            if *place != end {
                break;
            }
            end += part.len();
        }
        end
    }

    fn ask(&mut self, cx: &mut Context) {
        self.asked = cx.now();
        let body = Body::RosterAsked(RosterAsked {
            version: self.version,
            offset: u32::try_from(self.missing()).unwrap_or(u32::MAX),
        });
        cx.send(self.from, &body);
    }
}

impl RosterFetch {
    pub(super) fn deadline(&self) -> Millis {
        let asked = self.under_way.as_ref().map(|fetch| fetch.asked);
        asked.map_or(NEVER, |asked| asked.plus(ASKS_AGAIN_MS))
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
        let mut fetch = Fetch {
            from,
            version,
            length: None,
            parts: BTreeMap::new(),
            began: now,
            asked: now,
            unanswered: 0,
        };
        fetch.ask(cx);
        self.under_way = Some(fetch);
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
            .is_some_and(|fetch| fetch.version <= version)
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
        if now.since(fetch.asked) < ASKS_AGAIN_MS {
            return;
        }
        fetch.unanswered += 1;
        if fetch.unanswered > MOST_UNANSWERED || now.since(fetch.began) >= LONGEST_MS {
            self.distrusted.insert(fetch.from, now);
            self.under_way = None;
        } else {
            fetch.ask(cx);
        }
    }

    /// A part of a roster. Returns the roster if it is whole and counts.
    pub(super) fn take_part(
        &mut self,
        cx: &mut Context,
        from: MemberId,
        part: &RosterPart,
    ) -> Option<Arc<Roster>> {
        let fetch = self.under_way.as_mut().filter(|fetch| fetch.from == from)?;
        let (length, place) = (
            usize::try_from(part.length).ok()?,
            usize::try_from(part.offset).ok()?,
        );
        if part.version > fetch.version || fetch.length.is_some_and(|known| known != length) {
            // It has got a newer one meanwhile.
            (fetch.version, fetch.length) = (part.version.max(fetch.version), None);
            fetch.parts.clear();
        }
        let end = place.saturating_add(part.bytes.len());
        let fits = part.version == fetch.version && length <= LONGEST && end <= length;
        let whole_part = end == length || part.bytes.len() == ROSTER_PART;
        if !fits || !whole_part || !place.is_multiple_of(ROSTER_PART) || part.bytes.is_empty() {
            cx.put(Output::Refused("roster"));
            return None;
        }
        fetch.length = Some(length);
        if fetch.parts.insert(place, part.bytes.clone()).is_none() {
            fetch.unanswered = 0;
        }
        let missing = fetch.missing();
        if missing < length {
            // The last part of an answer: the next ones are asked for at once.
            if missing == end && (end / ROSTER_PART).is_multiple_of(PARTS) {
                fetch.ask(cx);
            }
            return None;
        }
        let bytes: Vec<u8> = fetch.parts.values().flatten().copied().collect();
        self.under_way = None;
        let opened = Roster::from_bytes(&bytes, cx.roster().cell(), cx.roster_keys());
        let known = cx.roster().reference().version;
        let is_it = |roster: &Roster| {
            let version = roster.reference().version;
            version == part.version && version > known
        };
        let roster = opened.ok().filter(is_it);
        if roster.is_none() {
            cx.put(Output::Refused("roster"));
            self.distrusted.insert(from, cx.now());
        }
        roster.map(Arc::new)
    }
}

/// Sends the parts of the roster in force that a member asks for.
pub(super) fn answer(cx: &mut Context, contacts: &mut Contacts, to: MemberIndex, asked: &RosterAsked) {
    let roster = Arc::clone(cx.roster());
    let version = roster.reference().version;
    if version < asked.version {
        return;
    }
    let (Some(id), Some(bytes)) = (roster.member(to).map(|member| member.id), roster.to_bytes()) else {
        return;
    };
    let from = usize::try_from(asked.offset).unwrap_or(usize::MAX) / ROSTER_PART;
    for (place, part) in bytes.chunks(ROSTER_PART).enumerate().skip(from).take(PARTS) {
        if !contacts.allows_roster_part(to, cx.now()) {
            return cx.put(Output::Refused("roster-budget"));
        }
        let body = Body::RosterPart(RosterPart {
            version,
            length: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            offset: u32::try_from(place * ROSTER_PART).unwrap_or(u32::MAX),
            bytes: part.to_vec(),
        });
        cx.send(id, &body);
    }
}
