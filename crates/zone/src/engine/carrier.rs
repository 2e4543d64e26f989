//! What an agent with a link does for cells of its zone without one (hazard 59): the other side of
//! `hand_over`.
//!
//! Who asks is known by the roster of its cell, as the API server shows it; until that was read, nothing is
//! done for it. An agent carries at most eight cells. To others, and to all while it has no link itself, it
//! names agents that may: those of its cell that have a link, and the contacts of its own roster.

use super::Output;
use super::budget::Budget;
use super::context::{Context, NEVER, Stranger};
use super::parts::{self, Parts, Taken, Turn};
use crate::Millis;
use crate::keys::PublicKey;
use crate::roster::{Contact, MemberId, Roster};
use crate::wire::{
    Body, Carried, Challenge, Frame, HandOver, Header, MAX_LIST, Message, Part, PartAsked, Referral,
    Referred, Renewal, RenewalsRead,
};
use evenkeel_api::zone::ReportDraft;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

/// So many other cells one agent carries.
pub const MOST_CARRIED: usize = 8;
/// Of one cell at most so many agents are served: its three reporters, and those from which they take over
/// while links go one after the other.
const MOST_ASKERS: usize = 8;
/// A cell whose roster has not come by then is none of this zone, or its object cannot be read.
const MEETS_MS: u64 = 5_000;
/// Who has not been heard for so long does not hand over any more: a cell whose members have no link renews
/// its report every 8 s.
const FORGETS_MS: u64 = 30_000;
/// No report is longer: with all evidence one has at most 40 KB.
const LONGEST: usize = 64 * 1_024;
/// A write of which nothing is heard for this long has failed. After a failure so much time passes before
/// the next.
const GIVE_UP_MS: u64 = 10_000;
const WRITES_AGAIN_MS: u64 = 2_000;
/// A round waits for readings of Leases for 500 ms: what is read by then is told.
const READS_MS: u64 = 350;
/// Of what others can make this agent do, so much in each second: secrets with agents that it does not know,
/// of some 50 µs each, and for each agent that it knows parts of rosters and readings.
const STRANGERS: u32 = 50;
const ROSTER_PARTS: u32 = 30;
const READINGS: u32 = 2 * MAX_LIST as u32;

/// The cells that this agent carries.
#[derive(Default)]
pub(super) struct Carrier {
    /// By their numbers.
    cells: BTreeMap<u32, Cell>,
    strangers: Budget,
}

struct Cell {
    since: Millis,
    /// As the API server shows it.
    roster: Option<Arc<Roster>>,
    challenge: (Challenge, BTreeSet<MemberId>),
    askers: BTreeMap<MemberId, Asker>,
    /// How many reports this agent wrote about it.
    reports: i64,
    /// The write under way: whose report it is, which, and since when.
    writing: Option<(MemberId, u64, Millis)>,
    /// After a failure none begins before this time.
    writes_from: Millis,
}

/// A reporter of another cell, in its present life.
struct Asker {
    to: Stranger,
    incarnation: u64,
    /// Of its last hand-over.
    sequence: u64,
    heard: Millis,
    /// A report that is being fetched, and since when it has been offered.
    fetch: Option<(Parts, Millis)>,
    /// One that waits to be written, its number, and since when it has been offered.
    ready: Option<(u64, Millis, Box<ReportDraft>)>,
    /// Number of the last one that was written.
    written: u64,
    readings: Readings,
    parts: Budget,
}

/// Leases that are read for an asker.
#[derive(Default)]
struct Readings {
    asked: BTreeSet<MemberId>,
    read: Vec<(MemberId, Option<Renewal>)>,
    until: Millis,
    budget: Budget,
}

/// What a stranger is to be told of this agent.
pub(super) struct Stand {
    /// This agent has a link.
    pub(super) linked: bool,
    /// Who may carry where it does not.
    pub(super) others: Vec<Referred>,
}

impl Carrier {
    pub(super) fn deadline(&self) -> Millis {
        let cells = self.cells.values().map(Cell::deadline);
        cells.min().unwrap_or(NEVER)
    }

    /// Whether this agent is of the reporters for which this one carries.
    pub(super) fn asker(&self, from: MemberId) -> Option<&Stranger> {
        let mut askers = self.cells.values().filter_map(|cell| cell.askers.get(&from));
        askers.next().map(|asker| &asker.to)
    }

    /// Somebody offers a report.
    pub(super) fn take_offer(
        &mut self,
        cx: &mut Context,
        frame: &Frame<'_>,
        source: SocketAddr,
        stand: impl FnOnce(&Context) -> Stand,
    ) -> Result<(), &'static str> {
        let from = frame.from();
        let claimed = frame.claimed_key().ok_or("truncated")?;
        let mut stranger = match self.known(from, &claimed) {
            Some(stranger) => stranger,
            None if self.strangers.allows(cx.now(), STRANGERS) => {
                let key = PublicKey::from_bytes(claimed).map_err(|_| "key")?;
                cx.stranger(Contact {
                    id: from,
                    address: source,
                    key,
                })
            }
            None => return Err("stranger-budget"),
        };
        let message = cx.open_from(frame, &stranger)?;
        stranger.contact.address = source;
        let Body::HandOver(offer) = &message.body else {
            return Err("kind");
        };
        let stand = stand(cx);
        let is_carried = self.cells.contains_key(&offer.cell);
        if Some(offer.cell) == cx.roster().cell_number() {
            return Err("own-cell");
        }
        if !stand.linked || !is_carried && self.cells.len() >= MOST_CARRIED {
            let body = Body::Referral(Referral {
                full: stand.linked,
                others: stand.others,
            });
            cx.send_outside(&stranger, &body);
            return Err(if stand.linked { "carries-enough" } else { "no-link" });
        }
        let now = cx.now();
        let cell = self.cells.entry(offer.cell).or_insert_with(|| Cell::new(now));
        let taken = cell.take_offer(cx, stranger, &message.header, offer);
        if !is_carried {
            self.follow(cx);
        }
        taken
    }

    /// What this agent shares with somebody whom it knows under this key.
    fn known(&self, from: MemberId, key: &[u8; 32]) -> Option<Stranger> {
        let known = |asker: &Asker| asker.to.contact.key.as_bytes() == key;
        let mut askers = self.cells.values().filter_map(|cell| cell.askers.get(&from));
        askers.find(|asker| known(asker)).map(|asker| asker.to.clone())
    }

    /// Takes what an asker says, whose code was checked.
    pub(super) fn take(&mut self, cx: &mut Context, message: &Message) -> Result<(), &'static str> {
        let from = message.header.from;
        let mut cells = self.cells.iter_mut();
        let (number, cell) = cells
            .find(|(_, cell)| cell.askers.contains_key(&from))
            .ok_or("stranger")?;
        match &message.body {
            Body::ReportPart(part) => cell.take_part(cx, *number, from, part),
            Body::RosterAsked(asked) => cell.send_roster(cx, from, asked),
            Body::RenewalsAsked(asked) => cell.read_leases(cx, *number, from, &asked.members),
            _ => Err("kind"),
        }
    }

    /// The roster of a cell that this agent carries, as the API server shows it.
    pub(super) fn take_roster(&mut self, cx: &mut Context, cell: u32, roster: Arc<Roster>) {
        if let Some(cell) = self.cells.get_mut(&cell) {
            cell.askers.retain(|id, asker| {
                let member = roster.get(*id);
                member.is_some_and(|member| member.key == asker.to.contact.key)
            });
            cell.roster = Some(roster);
            cell.tell_all(cx);
        }
    }

    /// What the controller asks of it.
    pub(super) fn take_challenge(
        &mut self,
        cx: &mut Context,
        cell: u32,
        asked: (Challenge, BTreeSet<MemberId>),
    ) {
        if let Some(cell) = self.cells.get_mut(&cell)
            && cell.challenge != asked
        {
            cell.challenge = asked;
            cell.tell_all(cx);
        }
    }

    /// What became of the write of a report.
    pub(super) fn take_written(&mut self, cx: &mut Context, number: u32, written: bool) {
        let Some(cell) = self.cells.get_mut(&number) else {
            return;
        };
        let Some((from, report, _)) = cell.writing.take() else {
            return;
        };
        if !written {
            cell.writes_from = cx.now().plus(WRITES_AGAIN_MS);
        } else if let Some(asker) = cell.askers.get_mut(&from) {
            asker.written = asker.written.max(report);
            cell.tell(cx, from);
        }
        cell.write(cx, number);
    }

    /// The last renewal of a member's Lease.
    pub(super) fn take_renewal(&mut self, cx: &mut Context, cell: u32, read: (MemberId, Option<Renewal>)) {
        let askers = self.cells.get_mut(&cell).map(|cell| cell.askers.values_mut());
        for asker in askers.into_iter().flatten() {
            if asker.readings.asked.remove(&read.0) {
                asker.readings.read.push(read);
                if asker.readings.asked.is_empty() {
                    asker.tell_readings(cx);
                }
            }
        }
    }

    /// Asks again for what did not come, and forgets who does not ask any more. Without a link, it carries
    /// nobody.
    pub(super) fn step(&mut self, cx: &mut Context, linked: bool) {
        let now = cx.now();
        let before = self.cells.len();
        if linked {
            for (number, cell) in &mut self.cells {
                cell.step(cx, *number);
            }
            self.cells.retain(|_, cell| !cell.is_over(now));
        } else {
            self.cells.clear();
        }
        if self.cells.len() != before {
            self.follow(cx);
        }
    }

    fn follow(&self, cx: &mut Context) {
        cx.put(Output::Follow(self.cells.keys().copied().collect()));
    }
}

impl Cell {
    fn new(now: Millis) -> Self {
        Self {
            since: now,
            roster: None,
            challenge: (Challenge::NONE, BTreeSet::new()),
            askers: BTreeMap::new(),
            reports: 0,
            writing: None,
            writes_from: now,
        }
    }

    fn deadline(&self) -> Millis {
        let writing = self.writing.map_or(NEVER, |(.., since)| since.plus(GIVE_UP_MS));
        let is_ready = self.askers.values().any(|asker| asker.ready.is_some());
        let write = if is_ready && self.writing.is_none() {
            self.writes_from
        } else {
            NEVER
        };
        let forget = if self.askers.is_empty() {
            self.since.plus(MEETS_MS)
        } else {
            NEVER
        };
        let askers = self.askers.values().map(Asker::deadline);
        let askers = askers.min().unwrap_or(NEVER);
        writing.min(write).min(forget).min(askers)
    }

    fn is_over(&self, now: Millis) -> bool {
        self.askers.is_empty() && now >= self.since.plus(MEETS_MS)
    }

    fn take_offer(
        &mut self,
        cx: &mut Context,
        to: Stranger,
        header: &Header,
        offer: &HandOver,
    ) -> Result<(), &'static str> {
        let Some(roster) = &self.roster else {
            // It shall wait a moment.
            cx.send_outside(&to, &Body::Carried(Carried::default()));
            return Ok(());
        };
        let member = roster.get(header.from).ok_or("stranger")?;
        if member.key != to.contact.key {
            return Err("stranger");
        }
        let now = cx.now();
        let same_life = |asker: &Asker| asker.incarnation == header.incarnation;
        if let Some(asker) = self.askers.get(&header.from).filter(|asker| same_life(asker))
            && asker.sequence >= header.sequence
        {
            return Err("replay");
        }
        let known = self.askers.remove(&header.from).filter(same_life);
        if known.is_none() && self.askers.len() >= MOST_ASKERS {
            return Err("askers");
        }
        let mut asker = known.unwrap_or_else(|| Asker::new(to.clone(), header.incarnation));
        (asker.to, asker.sequence, asker.heard) = (to, header.sequence, now);
        let is_writing = self
            .writing
            .is_some_and(|(from, report, _)| from == header.from && report >= offer.report);
        if now >= self.writes_from && !is_writing {
            asker.take_offer(cx, offer);
        }
        self.askers.insert(header.from, asker);
        self.tell(cx, header.from);
        Ok(())
    }

    /// Says how things are.
    fn tell(&self, cx: &mut Context, to: MemberId) {
        let (Some(asker), Some(roster)) = (self.askers.get(&to), &self.roster) else {
            return;
        };
        let (challenge, wanted) = &self.challenge;
        let body = Body::Carried(Carried {
            written: asker.written,
            roster: roster.reference().version,
            challenge: *challenge,
            wanted: wanted.iter().take(MAX_LIST).copied().collect(),
        });
        cx.send_outside(&asker.to, &body);
    }

    fn tell_all(&self, cx: &mut Context) {
        for id in self.askers.keys() {
            self.tell(cx, *id);
        }
    }

    fn take_part(
        &mut self,
        cx: &mut Context,
        number: u32,
        from: MemberId,
        part: &Part,
    ) -> Result<(), &'static str> {
        let asker = self.askers.get_mut(&from).ok_or("stranger")?;
        let (parts, offered) = asker.fetch.as_mut().ok_or("unasked")?;
        match parts.take(part, cx.now()) {
            Taken::Refused => return Err("report"),
            Taken::Waits => {}
            Taken::Asks(asked) => cx.send_outside(&asker.to, &Body::ReportAsked(asked)),
            Taken::Whole(bytes) => {
                let (report, offered) = (parts.version(), *offered);
                asker.fetch = None;
                let draft = ReportDraft::from_text(&bytes).map_err(|_| "report")?;
                asker.ready = Some((report, offered, Box::new(draft)));
                self.write(cx, number);
            }
        }
        Ok(())
    }

    /// Has the next report written, one at a time.
    fn write(&mut self, cx: &mut Context, number: u32) {
        let now = cx.now();
        if self.writing.is_some() || now < self.writes_from {
            return;
        }
        let mut ready = self.askers.iter_mut();
        let next = ready.find_map(|(from, asker)| Some((*from, asker.ready.take()?)));
        let Some((from, (report, offered, mut draft))) = next else {
            return;
        };
        // Its way took that long.
        let way = now.since(offered);
        for held in draft.held_for_ms.values_mut() {
            *held = held.saturating_add(way);
        }
        for round in &mut draft.report.rounds {
            round.age_ms = round
                .age_ms
                .saturating_add(i64::try_from(way).unwrap_or(i64::MAX));
        }
        self.reports = self.reports.saturating_add(1);
        draft.report.sequence = self.reports;
        self.writing = Some((from, report, now));
        cx.put(Output::Carry { cell: number, draft });
    }

    fn send_roster(&mut self, cx: &mut Context, to: MemberId, asked: &PartAsked) -> Result<(), &'static str> {
        let asker = self.askers.get_mut(&to).ok_or("stranger")?;
        let roster = self.roster.as_ref().ok_or("roster")?;
        let bytes = roster.to_bytes().ok_or("roster")?;
        for part in parts::answer((roster.reference().version, &bytes), asked) {
            if !asker.parts.allows(cx.now(), ROSTER_PARTS) {
                return Err("roster-budget");
            }
            cx.send_outside(&asker.to, &Body::RosterPart(part));
        }
        Ok(())
    }

    fn read_leases(
        &mut self,
        cx: &mut Context,
        number: u32,
        from: MemberId,
        members: &[MemberId],
    ) -> Result<(), &'static str> {
        let asker = self.askers.get_mut(&from).ok_or("stranger")?;
        let roster = self.roster.as_ref().ok_or("roster")?;
        let readings = &mut asker.readings;
        readings.until = cx.now().plus(READS_MS);
        for member in members {
            let Some(found) = roster.get(*member).filter(|_| !readings.asked.contains(member)) else {
                continue;
            };
            if !readings.budget.allows(cx.now(), READINGS) {
                return Err("readings");
            }
            readings.asked.insert(*member);
            cx.put(Output::ReadOtherLease {
                cell: number,
                member: *member,
                node: found.name.clone(),
            });
        }
        Ok(())
    }

    fn step(&mut self, cx: &mut Context, number: u32) {
        let now = cx.now();
        if self
            .writing
            .is_some_and(|(.., since)| now >= since.plus(GIVE_UP_MS))
        {
            self.writing = None;
        }
        self.write(cx, number);
        for asker in self.askers.values_mut() {
            asker.step(cx);
        }
        let had = self.askers.len();
        self.askers.retain(|_, asker| now < asker.heard.plus(FORGETS_MS));
        if had > 0 && self.askers.is_empty() {
            // As if nobody had asked: it is over at once.
            self.since = Millis(0);
        }
    }
}

impl Asker {
    fn new(to: Stranger, incarnation: u64) -> Self {
        Self {
            to,
            incarnation,
            sequence: 0,
            heard: Millis(0),
            fetch: None,
            ready: None,
            written: 0,
            readings: Readings::default(),
            parts: Budget::default(),
        }
    }

    fn deadline(&self) -> Millis {
        let fetch = self.fetch.as_ref().map_or(NEVER, |(parts, _)| parts.deadline());
        let tell = if self.readings.asked.is_empty() {
            NEVER
        } else {
            self.readings.until
        };
        fetch.min(tell).min(self.heard.plus(FORGETS_MS))
    }

    /// Begins to fetch a report that is new.
    fn take_offer(&mut self, cx: &mut Context, offer: &HandOver) {
        let is_known = |number: u64| number >= offer.report;
        let fetched = self
            .fetch
            .as_ref()
            .is_some_and(|(parts, _)| is_known(parts.version()));
        let ready = self.ready.as_ref().is_some_and(|(number, ..)| is_known(*number));
        if is_known(self.written) || fetched || ready {
            return;
        }
        let now = cx.now();
        let mut parts = Parts::new(offer.report, LONGEST, now);
        let asked = parts.ask(now);
        self.fetch = Some((parts, now));
        cx.send_outside(&self.to, &Body::ReportAsked(asked));
    }

    fn step(&mut self, cx: &mut Context) {
        let now = cx.now();
        match self.fetch.as_mut().map(|(parts, _)| parts.step(now)) {
            None | Some(Turn::Waits) => {}
            Some(Turn::Asks(asked)) => cx.send_outside(&self.to, &Body::ReportAsked(asked)),
            Some(Turn::GivesUp) => self.fetch = None,
        }
        if !self.readings.asked.is_empty() && now >= self.readings.until {
            self.tell_readings(cx);
        }
    }

    /// Tells what was read; who waits for the rest has not been heard of.
    fn tell_readings(&mut self, cx: &mut Context) {
        self.readings.asked.clear();
        let renewals = std::mem::take(&mut self.readings.read);
        for renewals in renewals.chunks(MAX_LIST) {
            let renewals = renewals.to_vec();
            cx.send_outside(&self.to, &Body::RenewalsRead(RenewalsRead { renewals }));
        }
    }
}
