//! The reports of a cell without a link, handed to an agent of another cell (hazard 59).
//!
//! A reporter that does not reach the API server asks the contacts that its roster names, and whom they refer
//! it to, until one of them carries its reports. That one fetches each report part by part, writes it, and
//! says so; and it passes on what the controller asks of the cell, newer rosters, and the last renewals of
//! suspects. Whoever carries cannot forge votes, because readers count signatures alone; it can keep a report
//! back, or name a renewal that was not the last one. Therefore each reporter of a cell looks for one by
//! itself, and begins with another contact; and who does not write in time is left.

use super::Output;
use super::budget::Budget;
use super::context::{Context, NEVER, Stranger};
use super::own::Own;
use super::parts::{self, Parts, Taken, Turn};
use super::roster_fetch;
use super::window::Window;
use crate::Millis;
use crate::keys::PublicKey;
use crate::roster::{Contact, MemberId, Roster};
use crate::verdict::Link;
use crate::wire::{
    self, Body, Carried, Challenge, MAX_LIST, Message, Part, PartAsked, Referral, Renewal, RenewalsAsked,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// An agent that does not answer is asked again after this time.
const ASKS_AGAIN_MS: u64 = 500;
/// So often without any answer while one is looked for, and while one carries.
const MOST_UNANSWERED: u8 = 2;
const MOST_UNANSWERED_BY_CARRIER: u8 = 6;
/// An agent that answers, but does not know the cell yet, is waited for as long as a slow link takes to show
/// it the cell's roster.
const MEETS_MS: u64 = 5_000;
/// Who says that it carries, and has not written a report after this time, is left for another one: evidence
/// of life counts for 15 s.
const WRITES_WITHIN_MS: u64 = 5_000;
/// A contact is the first hop, whom it names the second.
const MOST_HOPS: u8 = 6;
/// A search asks so many agents at most, for so long.
const MOST_MET: usize = 256;
const SEARCHES_MS: u64 = 60_000;
/// A search that found nobody is repeated after this time and up to half as much more; after twice that where
/// the next one finds nobody either, and so on.
const SEARCHES_AGAIN_MS: u64 = 5_000;
const LONGEST_PAUSE_MS: u64 = 40_000;
/// Parts of reports that others can make this agent send in each second.
const REPORT_PARTS: u32 = 100;
/// A roster that was passed on and does not count is not fetched again for so long.
const DISTRUSTS_MS: u64 = 60_000;

/// What this agent hands over, and to whom.
pub(super) struct HandOver {
    /// Number of the last report.
    reports: u64,
    /// What is to be written, if it is not written yet.
    report: Option<Outgoing>,
    way: Way,
    /// A newer roster that the carrier has.
    roster: Option<Parts>,
    /// The version of one that did not count, and when it was fetched.
    refused: Option<(u64, Millis)>,
    /// Which datagrams of these agents were seen, in this life.
    heard: BTreeMap<MemberId, Window>,
    /// Searches since the last that found somebody.
    fruitless: u32,
    standing: Standing,
    sent: Budget,
}

struct Outgoing {
    number: u64,
    /// The draft.
    bytes: Vec<u8>,
    drafted: Millis,
}

/// Where this agent stands among the reporters of its cell.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    pub(super) rank: usize,
    /// Another one says that it has written.
    pub(super) spare: bool,
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
    /// Since when the present report has been offered to it, or since when it carries.
    offered: Millis,
}

struct Search {
    began: Millis,
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
    /// The last renewal of a member's Lease.
    Renewal(MemberId, Option<Renewal>),
}

impl Talk {
    fn with(cx: &Context, contact: Contact) -> Self {
        Self {
            to: cx.stranger(contact),
            began: cx.now(),
            asked: cx.now(),
            unanswered: 0,
            offered: cx.now(),
        }
    }
}

impl HandOver {
    pub(super) fn new(now: Millis) -> Self {
        Self {
            reports: 0,
            report: None,
            way: Way::Nobody { until: now },
            roster: None,
            refused: None,
            heard: BTreeMap::new(),
            fruitless: 0,
            standing: Standing::default(),
            sent: Budget::default(),
        }
    }

    pub(super) fn deadline(&self) -> Millis {
        let waits = self.report.is_some() || matches!(self.way, Way::Search(_));
        let talk = self.talk().filter(|_| waits);
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

    fn talk_mut(&mut self) -> Option<&mut Talk> {
        match &mut self.way {
            Way::Nobody { .. } => None,
            Way::Search(search) => search.asked.as_mut().map(|(talk, _)| talk),
            Way::Carrier(talk) => Some(talk),
        }
    }

    /// Whether this agent is carried.
    pub(super) fn is_carried(&self) -> bool {
        matches!(self.way, Way::Carrier(_))
    }

    /// The agent of another cell with which this one speaks, if it is this one.
    pub(super) fn partner(&self, from: MemberId) -> Option<&Stranger> {
        let talk = self.talk().filter(|talk| talk.to.contact.id == from);
        talk.map(|talk| &talk.to)
    }

    /// Takes over what the API server would be asked for in vain. Returns whether a report failed: over the
    /// link that is down it would be on its way for up to 9 s, and delay the next search.
    pub(super) fn divert(&mut self, cx: &mut Context, standing: Standing) -> bool {
        let concerns = |output: &Output| matches!(output, Output::Report(_) | Output::ReadLease(_));
        if !cx.outputs().iter().any(concerns) {
            return false;
        }
        self.standing = standing;
        let mut failed = false;
        let mut asked = Vec::new();
        for output in cx.take_outputs() {
            match output {
                Output::Report(draft) if self.may_take(cx.now()) => {
                    self.reports += 1;
                    self.report = Some(Outgoing {
                        number: self.reports,
                        bytes: draft.to_text().into_bytes(),
                        drafted: cx.now(),
                    });
                    self.offer(cx);
                }
                Output::Report(_) => failed = true,
                Output::ReadLease(member) if self.is_carried() => asked.push(member),
                other => cx.put(other),
            }
        }
        if let Way::Carrier(talk) = &self.way {
            for members in asked.chunks(MAX_LIST) {
                let members = members.to_vec();
                cx.send_outside(&talk.to, &Body::RenewalsAsked(RenewalsAsked { members }));
            }
        }
        failed
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
            Way::Nobody { .. } => self.search(cx, None),
            // Who is asked now hears of it with the next question.
            Way::Search(_) => {}
            Way::Carrier(talk) => {
                (talk.unanswered, talk.offered) = (0, cx.now());
                self.ask(cx);
            }
        }
    }

    /// Asks who carries, or is asked to, to write the report.
    fn ask(&mut self, cx: &mut Context) {
        let (Some(report), Some(cell)) = (&self.report, cx.roster().cell_number()) else {
            return;
        };
        let Some(talk) = self.talk() else { return };
        let body = Body::HandOver(wire::HandOver {
            key: talk.to.own_key,
            cell,
            report: report.number,
            age_ms: u32::try_from(cx.now().since(report.drafted)).unwrap_or(u32::MAX),
            spare: self.standing.spare,
        });
        if let Some(talk) = self.talk_mut() {
            talk.asked = cx.now();
            cx.send_outside(&talk.to, &body);
        }
    }

    /// Looks for somebody who carries, but for one who does not.
    fn search(&mut self, cx: &mut Context, without: Option<MemberId>) {
        let search = Search::begin(cx, self.standing, without);
        self.go(cx, search);
    }

    fn go(&mut self, cx: &mut Context, search: Search) {
        self.way = Way::Search(search);
        self.roster = None;
        self.ask_next(cx);
    }

    /// Goes on with the next agent, or gives up for a while.
    fn ask_next(&mut self, cx: &mut Context) {
        let Way::Search(search) = &mut self.way else {
            return;
        };
        let over = cx.now().since(search.began) >= SEARCHES_MS;
        if let Some((contact, hops)) = search.next.pop_front().filter(|_| !over) {
            search.asked = Some((Talk::with(cx, contact), hops));
            self.ask(cx);
        } else {
            let pause = (SEARCHES_AGAIN_MS << self.fruitless.min(8)).min(LONGEST_PAUSE_MS);
            self.fruitless = self.fruitless.saturating_add(1);
            let until = cx.now().plus(pause + cx.draw(pause / 2));
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
            self.fruitless = 0;
            return self.fail();
        }
        match self.roster.as_mut().map(|parts| parts.step(now)) {
            None | Some(Turn::Waits) => {}
            Some(Turn::Asks(asked)) => self.ask_for_roster(cx, asked),
            Some(Turn::GivesUp) => self.roster = None,
        }
        let has_report = self.report.is_some();
        match &mut self.way {
            Way::Search(search) => {
                let (talk, _) = search.asked.as_mut()?;
                if now >= talk.asked.plus(ASKS_AGAIN_MS) {
                    talk.unanswered += 1;
                    if talk.unanswered >= MOST_UNANSWERED || now.since(talk.began) >= MEETS_MS {
                        self.ask_next(cx);
                    } else {
                        self.ask(cx);
                    }
                }
            }
            Way::Carrier(talk) if has_report && now >= talk.asked.plus(ASKS_AGAIN_MS) => {
                talk.unanswered += 1;
                let (id, late) = (talk.to.contact.id, now.since(talk.offered) >= WRITES_WITHIN_MS);
                if late || talk.unanswered > MOST_UNANSWERED_BY_CARRIER {
                    self.search(cx, Some(id));
                } else {
                    self.ask(cx);
                }
            }
            Way::Nobody { .. } | Way::Carrier(_) => {}
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

    /// Takes what the partner says, whose code was checked. Nothing counts twice.
    pub(super) fn take(&mut self, cx: &mut Context, message: &Message) -> Result<Vec<News>, &'static str> {
        let header = &message.header;
        if self.heard.len() > 2 * MOST_MET {
            self.heard.retain(|id, _| *id == header.from);
        }
        let window = self.heard.entry(header.from).or_default();
        if !window.accept(header.sequence) {
            return Err("replay");
        }
        match &message.body {
            Body::Carried(carried) if carried.incarnation != cx.incarnation() => Err("replay"),
            Body::Carried(carried) => Ok(self.take_carried(cx, carried)),
            Body::Referral(referral) => Ok(self.take_referral(cx, referral).into_iter().collect()),
            Body::ReportAsked(asked) => self.send_report(cx, asked).map(|()| Vec::new()),
            Body::RosterPart(part) => Ok(self.take_roster_part(cx, part).into_iter().collect()),
            Body::RenewalsRead(read) if self.is_carried() => {
                let renewals = read.renewals.iter();
                let news = renewals.map(|(member, renewal)| News::Renewal(*member, *renewal));
                Ok(news.collect())
            }
            _ => Err("kind"),
        }
    }

    fn take_carried(&mut self, cx: &mut Context, carried: &Carried) -> Vec<News> {
        if let Some(talk) = self.talk_mut() {
            talk.unanswered = 0;
        }
        if carried.roster == 0 {
            // It has not seen the cell's roster yet.
            return Vec::new();
        }
        if let Way::Search(search) = &mut self.way
            && let Some((mut talk, _)) = search.asked.take()
        {
            talk.offered = cx.now();
            self.way = Way::Carrier(talk);
            self.fruitless = 0;
        }
        let mut news = Vec::new();
        if carried.challenge != Challenge::NONE {
            news.push(News::Challenge(carried.clone()));
        }
        let is_written = |report: &mut Outgoing| report.number <= carried.written;
        if self.report.take_if(is_written).is_some() {
            news.push(News::Report { written: true });
        }
        let refused = self
            .refused
            .is_some_and(|(version, at)| version == carried.roster && cx.now().since(at) < DISTRUSTS_MS);
        let is_newer = carried.roster > cx.roster().reference().version && !refused;
        if is_newer && self.roster.is_none() && cx.roster_keys().ask_for_signatures() {
            let mut parts = Parts::new(carried.roster, roster_fetch::LONGEST, cx.now());
            let asked = parts.ask(cx.now());
            self.roster = Some(parts);
            self.ask_for_roster(cx, asked);
        }
        news
    }

    fn ask_for_roster(&self, cx: &mut Context, asked: PartAsked) {
        if let Some(talk) = self.talk() {
            cx.send_outside(&talk.to, &Body::RosterAsked(asked));
        }
    }

    /// It does not carry, or no more: whom it names may.
    fn take_referral(&mut self, cx: &mut Context, referral: &Referral) -> Option<News> {
        let nobody = Way::Nobody { until: cx.now() };
        let way = std::mem::replace(&mut self.way, nobody);
        self.report.as_ref()?;
        let (mut search, hops) = match way {
            Way::Nobody { .. } => return None,
            Way::Carrier(talk) => (Search::begin(cx, self.standing, Some(talk.to.contact.id)), 0),
            Way::Search(mut search) => {
                let hops = search.asked.take().map_or(MOST_HOPS, |(_, hops)| hops);
                (search, hops)
            }
        };
        for other in &referral.others {
            if let Ok(key) = PublicKey::from_bytes(other.key) {
                let (id, address) = (other.id, other.address);
                search.add(cx, Contact { id, address, key }, hops + 1);
            }
        }
        self.go(cx, search);
        self.fail_without_way()
    }

    fn send_report(&mut self, cx: &mut Context, asked: &PartAsked) -> Result<(), &'static str> {
        let mut sent = self.sent;
        let (Some(report), Some(talk)) = (&self.report, self.talk()) else {
            return Err("unasked");
        };
        let mut answered = Ok(());
        for part in parts::answer((report.number, &report.bytes), asked) {
            if !sent.allows(cx.now(), REPORT_PARTS) {
                answered = Err("report-budget");
                break;
            }
            cx.send_outside(&talk.to, &Body::ReportPart(part));
        }
        self.sent = sent;
        answered
    }

    fn take_roster_part(&mut self, cx: &mut Context, part: &Part) -> Option<News> {
        match self.roster.as_mut()?.take(part, cx.now()) {
            Taken::Refused => cx.put(Output::Refused("roster")),
            Taken::Waits => {}
            Taken::Asks(asked) => self.ask_for_roster(cx, asked),
            Taken::Whole(bytes) => {
                let fetched = self.roster.take();
                if let Some(roster) = roster_fetch::newer(cx, &bytes) {
                    return Some(News::Roster(roster));
                }
                cx.put(Output::Refused("roster"));
                self.refused = fetched.map(|parts| (parts.version(), cx.now()));
            }
        }
        None
    }
}

impl Search {
    /// The roster's contacts first, whatever others say of them; each reporter of the cell begins with
    /// another one, so that one that lies keeps one reporter.
    fn begin(cx: &Context, standing: Standing, without: Option<MemberId>) -> Self {
        let mut search = Self {
            began: cx.now(),
            asked: None,
            next: VecDeque::new(),
            met: without.into_iter().collect(),
        };
        let contacts = cx.roster().contacts();
        let from = standing.rank.checked_rem(contacts.len()).unwrap_or_default();
        let (before, after) = contacts.split_at(from);
        for contact in after.iter().chain(before) {
            search.add(cx, contact.clone(), 1);
        }
        search
    }

    fn add(&mut self, cx: &Context, contact: Contact, hops: u8) {
        let is_of_cell = cx.roster().contains(contact.id);
        if hops <= MOST_HOPS && !is_of_cell && self.met.len() < MOST_MET && self.met.insert(contact.id) {
            self.next.push_back((contact, hops));
        }
    }
}

/// Whether this agent has no link, and knows somebody who may have one.
pub(super) fn is_needed(cx: &Context, own: &Own) -> bool {
    own.facts().cloud == Link::Down && !cx.roster().contacts().is_empty()
}
