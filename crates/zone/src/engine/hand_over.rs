//! The reports of a cell without a link, handed to an agent of another cell (hazard 59).
//!
//! A reporter that does not reach the API server asks the contacts that its roster names, and whom they refer
//! it to, until one of them carries its reports. That one fetches each report part by part, writes it, and
//! says so; and it passes on what the controller asks of the cell, newer rosters, and the last renewals of
//! suspects. Whoever carries cannot forge anything, because readers count signatures alone; it can keep a
//! report back. Therefore each reporter of a cell looks for one by itself, in an order of its own.

use super::Output;
use super::context::{Context, NEVER, Stranger};
use super::own::Own;
use super::parts::{self, Parts, Taken, Turn};
use super::roster_fetch;
use crate::Millis;
use crate::keys::PublicKey;
use crate::roster::{Contact, MemberId, Roster};
use crate::verdict::Link;
use crate::wire::{Body, Carried, Header, MAX_LIST, Message, Part, PartAsked, Referral, RenewalsAsked};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// An agent that does not answer is asked again after this time.
const ASKS_AGAIN_MS: u64 = 500;
/// So often without any answer while one is looked for, and while one carries.
const MOST_UNANSWERED: u8 = 2;
const MOST_UNANSWERED_BY_CARRIER: u8 = 6;
/// An agent that answers, but does not know the cell yet, is waited for as long as a slow link takes to show
/// it the cell's roster.
const MEETS_MS: u64 = 5_000;
/// A contact is the first hop, whom it names the second.
const MOST_HOPS: u8 = 6;
/// A search that found nobody is repeated after this time and up to half as much more.
const SEARCHES_AGAIN_MS: u64 = 5_000;

/// What this agent hands over, and to whom.
pub(super) struct HandOver {
    /// Number of the last report.
    reports: u64,
    /// What is to be written, if it is not written yet: its number, and the draft as bytes.
    report: Option<(u64, Vec<u8>)>,
    way: Way,
    /// A newer roster that the carrier has.
    roster: Option<Parts>,
}

enum Way {
    /// Nobody carries, and nobody is looked for before this time.
    Nobody {
        until: Millis,
    },
    Search(Search),
    Carrier(Talk),
}

/// An agent that was asked.
struct Talk {
    to: Stranger,
    /// When it was first and last asked.
    began: Millis,
    asked: Millis,
    unanswered: u8,
    /// Life and sequence of the last answer that says how things are: an older one says nothing.
    heard: Option<(u64, u64)>,
}

#[derive(Default)]
struct Search {
    /// Who is asked now, and how many agents referred this one to it, itself counted in.
    asked: Option<(Talk, u8)>,
    next: VecDeque<(Contact, u8)>,
    /// Everybody who was asked or will be.
    met: BTreeSet<MemberId>,
}

/// What came of a datagram, or of the time.
pub(super) enum News {
    /// What became of the report under way.
    Report { written: bool },
    /// What the controller asks of the cell.
    Challenge(Carried),
    /// A newer roster of the cell.
    Roster(Arc<Roster>),
}

impl Talk {
    fn with(cx: &Context, contact: Contact) -> Self {
        Self {
            to: cx.stranger(contact),
            began: cx.now(),
            asked: cx.now(),
            unanswered: 0,
            heard: None,
        }
    }

    /// Whether an answer is no older than the last one.
    fn hears(&mut self, header: &Header) -> bool {
        let said = (header.incarnation, header.sequence);
        let is_old = self
            .heard
            .is_some_and(|(life, sequence)| life == said.0 && sequence >= said.1);
        if !is_old {
            (self.heard, self.unanswered) = (Some(said), 0);
        }
        !is_old
    }
}

impl HandOver {
    pub(super) fn new(now: Millis) -> Self {
        Self {
            reports: 0,
            report: None,
            way: Way::Nobody { until: now },
            roster: None,
        }
    }

    pub(super) fn deadline(&self) -> Millis {
        let talk = match &self.way {
            Way::Nobody { .. } => None,
            Way::Search(search) => search.asked.as_ref().map(|(talk, _)| talk),
            Way::Carrier(talk) => Some(talk).filter(|_| self.report.is_some()),
        };
        let talk = talk.map_or(NEVER, |talk| talk.asked.plus(ASKS_AGAIN_MS));
        let roster = self.roster.as_ref().map_or(NEVER, Parts::deadline);
        talk.min(roster)
    }

    /// Who carries, or is asked to.
    fn talk(&self) -> Option<&Talk> {
        match &self.way {
            Way::Nobody { .. } => None,
            Way::Search(search) => search.asked.as_ref().map(|(talk, _)| talk),
            Way::Carrier(talk) => Some(talk),
        }
    }

    /// The agent of another cell with which this one speaks, if it is this one.
    pub(super) fn partner(&self, from: MemberId) -> Option<&Stranger> {
        let talk = self.talk().filter(|talk| talk.to.contact.id == from);
        talk.map(|talk| &talk.to)
    }

    /// Takes over what the API server would be asked for in vain.
    pub(super) fn divert(&mut self, cx: &mut Context, own: &Own) {
        let concerns = |output: &Output| matches!(output, Output::Report(_) | Output::ReadLease(_));
        if !is_needed(cx, own) || !cx.outputs().iter().any(concerns) {
            return;
        }
        let mut asked = Vec::new();
        for output in cx.take_outputs() {
            match output {
                Output::Report(draft) if self.may_take(cx.now()) => {
                    self.reports += 1;
                    self.report = Some((self.reports, draft.to_text().into_bytes()));
                    self.offer(cx);
                }
                Output::ReadLease(member) if matches!(self.way, Way::Carrier(_)) => asked.push(member),
                other => cx.put(other),
            }
        }
        if let Way::Carrier(talk) = &self.way {
            for members in asked.chunks(MAX_LIST) {
                let members = members.to_vec();
                cx.send_outside(&talk.to, &Body::RenewalsAsked(RenewalsAsked { members }));
            }
        }
    }

    fn may_take(&self, now: Millis) -> bool {
        match &self.way {
            Way::Nobody { until } => now >= *until,
            Way::Search(_) | Way::Carrier(_) => true,
        }
    }

    /// There is a new report.
    fn offer(&mut self, cx: &mut Context) {
        match &mut self.way {
            Way::Nobody { .. } => self.search(cx, Search::default()),
            // Who is asked now hears of it with the next question.
            Way::Search(_) => {}
            Way::Carrier(talk) => {
                talk.unanswered = 0;
                self.ask(cx);
            }
        }
    }

    /// Asks who carries, or is asked to, to write the report.
    fn ask(&mut self, cx: &mut Context) {
        let (report, length) = match &self.report {
            Some((number, bytes)) => (*number, u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
            None => return,
        };
        let Some(cell) = cx.roster().cell_number() else {
            return;
        };
        let body = Body::HandOver(crate::wire::HandOver {
            key: *cx.public_key().as_bytes(),
            cell,
            roster: cx.roster().reference().version,
            report,
            length,
        });
        let talk = match &mut self.way {
            Way::Nobody { .. } => return,
            Way::Search(search) => match &mut search.asked {
                Some((talk, _)) => talk,
                None => return,
            },
            Way::Carrier(talk) => talk,
        };
        talk.asked = cx.now();
        cx.send_outside(&talk.to, &body);
    }

    /// Looks for somebody who carries: whom this search already knows, then the roster's contacts.
    fn search(&mut self, cx: &mut Context, mut search: Search) {
        let mut contacts = cx.roster().contacts().to_vec();
        // Each reporter in an order of its own.
        let turn = cx.draw(contacts.len() as u64) as usize;
        contacts.rotate_left(turn);
        for contact in contacts {
            search.add(cx, contact, 1, false);
        }
        self.way = Way::Search(search);
        self.roster = None;
        self.ask_next(cx);
    }

    /// Goes on with the next agent, or gives up for a while.
    fn ask_next(&mut self, cx: &mut Context) {
        let Way::Search(search) = &mut self.way else {
            return;
        };
        if let Some((contact, hops)) = search.next.pop_front() {
            search.asked = Some((Talk::with(cx, contact), hops));
            self.ask(cx);
        } else {
            let pause = SEARCHES_AGAIN_MS + cx.draw(SEARCHES_AGAIN_MS / 2);
            let until = cx.now().plus(pause);
            self.way = Way::Nobody { until };
        }
    }

    /// Repeats what was not answered. Returns whether a report failed.
    pub(super) fn step(&mut self, cx: &mut Context, own: &Own) -> Option<News> {
        let now = cx.now();
        if !is_needed(cx, own) {
            if !matches!(self.way, Way::Nobody { .. }) {
                self.way = Way::Nobody { until: now };
                self.roster = None;
            }
            return self.fail();
        }
        match self.roster.as_mut().map(|parts| parts.step(now)) {
            None | Some(Turn::Waits) => {}
            Some(Turn::Asks(asked)) => {
                if let Some(talk) = self.talk() {
                    cx.send_outside(&talk.to, &Body::RosterAsked(asked));
                }
            }
            Some(Turn::GivesUp) => self.roster = None,
        }
        match &mut self.way {
            Way::Nobody { .. } => {}
            Way::Search(search) => {
                let Some((talk, _)) = &mut search.asked else {
                    return None;
                };
                if now >= talk.asked.plus(ASKS_AGAIN_MS) {
                    talk.unanswered += 1;
                    if talk.unanswered >= MOST_UNANSWERED || now.since(talk.began) >= MEETS_MS {
                        self.ask_next(cx);
                    } else {
                        self.ask(cx);
                    }
                }
            }
            Way::Carrier(talk) => {
                if self.report.is_some() && now >= talk.asked.plus(ASKS_AGAIN_MS) {
                    talk.unanswered += 1;
                    if talk.unanswered > MOST_UNANSWERED_BY_CARRIER {
                        self.search(cx, Search::default());
                    } else {
                        self.ask(cx);
                    }
                }
            }
        }
        self.fail_without_way()
    }

    /// Without anybody who carries, a report has failed.
    fn fail_without_way(&mut self) -> Option<News> {
        match self.way {
            Way::Nobody { .. } => self.fail(),
            Way::Search(_) | Way::Carrier(_) => None,
        }
    }

    fn fail(&mut self) -> Option<News> {
        self.report.take().map(|_| News::Report { written: false })
    }

    /// Takes what the partner says, whose code was checked.
    pub(super) fn take(&mut self, cx: &mut Context, message: &Message) -> Vec<News> {
        match &message.body {
            Body::Carried(_) | Body::Referral(_) if !self.hears(&message.header) => Vec::new(),
            Body::Carried(carried) => self.take_carried(cx, carried),
            Body::Referral(referral) => self.take_referral(cx, referral).into_iter().collect(),
            Body::ReportAsked(asked) => {
                self.send_report(cx, asked);
                Vec::new()
            }
            Body::RosterPart(part) => self.take_roster_part(cx, part).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    fn take_carried(&mut self, cx: &mut Context, carried: &Carried) -> Vec<News> {
        if carried.roster == 0 {
            // It has not seen the cell's roster yet.
            return Vec::new();
        }
        if let Way::Search(search) = &mut self.way
            && let Some((talk, _)) = search.asked.take()
        {
            self.way = Way::Carrier(talk);
        }
        let mut news = vec![News::Challenge(carried.clone())];
        if self
            .report
            .take_if(|(number, _)| *number <= carried.written)
            .is_some()
        {
            news.push(News::Report { written: true });
        }
        let is_newer = carried.roster > cx.roster().reference().version;
        if is_newer && self.roster.is_none() && cx.roster_keys().ask_for_signatures() {
            let mut parts = Parts::new(carried.roster, roster_fetch::LONGEST, cx.now());
            let asked = parts.ask(cx.now());
            self.roster = Some(parts);
            if let Some(talk) = self.talk() {
                cx.send_outside(&talk.to, &Body::RosterAsked(asked));
            }
        }
        news
    }

    /// It carries no more: whom it names may. Those with a link, by the word of one without, come first.
    fn take_referral(&mut self, cx: &mut Context, referral: &Referral) -> Option<News> {
        let (mut search, hops) = match std::mem::replace(&mut self.way, Way::Nobody { until: cx.now() }) {
            Way::Nobody { .. } => return None,
            Way::Carrier(talk) => {
                let mut search = Search::default();
                search.met.insert(talk.to.contact.id);
                (search, 0)
            }
            Way::Search(mut search) => {
                let hops = search.asked.take().map_or(MOST_HOPS, |(_, hops)| hops);
                (search, hops)
            }
        };
        for other in referral.others.iter().rev() {
            if let Ok(key) = PublicKey::from_bytes(other.key) {
                let contact = Contact {
                    id: other.id,
                    address: other.address,
                    key,
                };
                search.add(cx, contact, hops + 1, !referral.full);
            }
        }
        self.search(cx, search);
        self.fail_without_way()
    }

    fn send_report(&self, cx: &mut Context, asked: &PartAsked) {
        let (Some((number, bytes)), Some(talk)) = (&self.report, self.talk()) else {
            return;
        };
        for part in parts::answer((*number, bytes), asked) {
            cx.send_outside(&talk.to, &Body::ReportPart(part));
        }
    }

    fn take_roster_part(&mut self, cx: &mut Context, part: &Part) -> Option<News> {
        match self.roster.as_mut()?.take(part, cx.now()) {
            Taken::Refused => cx.put(Output::Refused("roster")),
            Taken::Waits => {}
            Taken::Asks(asked) => {
                if let Some(talk) = self.talk() {
                    cx.send_outside(&talk.to, &Body::RosterAsked(asked));
                }
            }
            Taken::Whole(bytes) => {
                self.roster = None;
                let roster = roster_fetch::newer(cx, &bytes);
                if roster.is_none() {
                    cx.put(Output::Refused("roster"));
                }
                return roster.map(News::Roster);
            }
        }
        None
    }

    /// Whether the partner's answer is no older than its last one.
    fn hears(&mut self, header: &Header) -> bool {
        match &mut self.way {
            Way::Nobody { .. } => false,
            Way::Search(search) => search.asked.as_mut().is_some_and(|(talk, _)| talk.hears(header)),
            Way::Carrier(talk) => talk.hears(header),
        }
    }

    /// Whether this agent is carried.
    pub(super) fn is_carried(&self) -> bool {
        matches!(self.way, Way::Carrier(_))
    }
}

impl Search {
    fn add(&mut self, cx: &Context, contact: Contact, hops: u8, first: bool) {
        let is_of_cell = cx.roster().contains(contact.id);
        if hops > MOST_HOPS || is_of_cell || !self.met.insert(contact.id) {
            return;
        }
        if first {
            self.next.push_front((contact, hops));
        } else {
            self.next.push_back((contact, hops));
        }
    }
}

/// Whether this agent has no link, and knows somebody who may have one.
pub(super) fn is_needed(cx: &Context, own: &Own) -> bool {
    own.facts().cloud == Link::Down && !cx.roster().contacts().is_empty()
}
