//! What an agent with a link does for cells of its zone without one (hazard 59): the other side of
//! `hand_over`.
//!
//! Who asks is known by the roster of its cell, as the API server shows it; until that was read, nothing is
//! done for it. An agent carries at most eight cells. To others, and to all while it has no link itself, it
//! names agents that may: those of its cell that have a link, and the contacts of its own roster.

mod asker;

use super::Output;
use super::budget::Budget;
use super::context::{Context, NEVER, Stranger};
use super::parts::{self, Taken};
use super::window::Window;
use crate::Millis;
use crate::keys::PublicKey;
use crate::roster::{Contact, MemberId, Roster};
use crate::wire::{
    Body, Carried, Challenge, Frame, HandOver, Header, MAX_LIST, Message, Part, PartAsked, Referral,
    Referred, Renewal, RenewalsRead,
};
use asker::{Asker, FORGETS_MS};
use evenkeel_api::zone::{Report, ReportDraft};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

/// So many other cells one agent carries.
pub const MOST_CARRIED: usize = 8;
/// Of one cell at most so many agents are served: its three reporters, and those from which they take over
/// while links go one after the other.
const MOST_ASKERS: usize = 8;
/// A cell whose roster has not come by then, or does not hold who asked, is not waited for.
const MEETS_MS: u64 = 5_000;
/// So many cells are looked up at a time of which nobody is known yet. One for which nobody has asked for
/// this time makes room for another one.
const MOST_UNKNOWN: usize = 2;
const LOOKS_UP_MS: u64 = 1_000;
/// A write of which nothing is heard for this long has failed.
const GIVE_UP_MS: u64 = 10_000;
/// So much time passes between two writes about a cell, and after one that failed.
const PAUSE_MS: u64 = 500;
const WRITES_AGAIN_MS: u64 = 2_000;
/// So many senders are remembered, of which at most 64 are carried at a time. A window has 136 bytes.
const MOST_SEEN: usize = 1_024;
/// What the controller asks is told again so often, in case a datagram was lost.
const TELLS: u8 = 3;
const TELLS_AGAIN_MS: u64 = 500;
/// A Lease that is being read is not read again before this time.
const READS_AGAIN_MS: u64 = 4_000;
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
    /// Which datagrams of whom it carries, or has carried, were seen, of former lives as well: each life
    /// begins above the last.
    seen: BTreeMap<MemberId, Window>,
    strangers: Budget,
}

struct Cell {
    since: Millis,
    /// When it was last asked for.
    asked: Millis,
    /// As the API server shows it.
    roster: Option<Arc<Roster>>,
    challenge: Option<(Challenge, BTreeSet<MemberId>)>,
    /// How often it is still to be told, and when.
    tells: (u8, Millis),
    askers: BTreeMap<MemberId, Asker>,
    /// How many reports this agent wrote about it.
    reports: i64,
    writing: Option<Writing>,
    /// No write begins before this time.
    writes_from: Millis,
}

/// A write under way.
#[derive(Clone, Copy)]
struct Writing {
    /// Whose report it is, in which life, and its number.
    from: MemberId,
    incarnation: u64,
    number: u64,
    /// Of the report as it is written.
    sequence: i64,
    since: Millis,
}

/// What a stranger is to be told of this agent.
pub(super) struct Stand {
    /// This agent has a link.
    pub(super) linked: bool,
    /// Who may carry where it does not.
    pub(super) others: Vec<Referred>,
}

/// Whether there is a place for one more cell.
enum Room {
    Found,
    /// Others are being looked up, which takes a moment.
    Soon,
    Taken,
}

/// Says that it may carry, but does not know the cell yet.
fn tell_to_wait(cx: &mut Context, to: &Stranger, header: &Header) {
    let wait = Carried {
        incarnation: header.incarnation,
        ..Carried::default()
    };
    cx.send_outside(to, &Body::Carried(wait));
}

impl Carrier {
    pub(super) fn deadline(&self) -> Millis {
        let cells = self.cells.values().map(Cell::deadline);
        cells.min().unwrap_or(NEVER)
    }

    /// Whether this agent is of the reporters for which this one carries.
    pub(super) fn asker(&self, from: MemberId) -> Option<&Stranger> {
        self.askers(from).next()
    }

    /// The same by each cell that it has spoken for.
    fn askers(&self, from: MemberId) -> impl Iterator<Item = &Stranger> {
        let askers = self.cells.values();
        askers.filter_map(move |cell| Some(&cell.askers.get(&from)?.to))
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
        let is_known = |stranger: &&Stranger| *stranger.contact.key.as_bytes() == claimed;
        let known = self.askers(from).find(is_known).cloned();
        let (mut stranger, message) = match known {
            Some(stranger) => {
                let message = cx.open_from(frame, &stranger)?;
                (stranger, message)
            }
            None if self.strangers.allows(cx.now(), STRANGERS) => {
                let key = PublicKey::from_bytes(claimed).map_err(|_| "key")?;
                let contact = Contact {
                    id: from,
                    address: source,
                    key,
                };
                cx.open_of_new(frame, &contact)?
            }
            None => return Err("stranger-budget"),
        };
        stranger.contact.address = source;
        let Body::HandOver(offer) = &message.body else {
            return Err("kind");
        };
        let window = self.seen.get(&from);
        if window.is_some_and(|window| !window.is_new(message.header.sequence)) {
            return Err("replay");
        }
        let stand = stand(cx);
        if Some(offer.cell) == cx.roster().cell_number() {
            return Err("own-cell");
        }
        let referral = Body::Referral(Referral { others: stand.others });
        if !stand.linked {
            cx.send_outside(&stranger, &referral);
            return Err("no-link");
        }
        let is_carried = self.cells.contains_key(&offer.cell);
        if !is_carried {
            match self.makes_room(cx, offer.spare) {
                Room::Found => {}
                Room::Soon => {
                    tell_to_wait(cx, &stranger, &message.header);
                    return Ok(());
                }
                Room::Taken => {
                    cx.send_outside(&stranger, &referral);
                    return Err("carries-enough");
                }
            }
        }
        let now = cx.now();
        let cell = self.cells.entry(offer.cell).or_insert_with(|| Cell::new(now));
        let taken = cell.take_offer(cx, stranger, &message.header, offer);
        if cell.askers.contains_key(&from) {
            self.seen.entry(from).or_default().accept(message.header.sequence);
            self.forget_former();
        }
        if !is_carried {
            self.follow(cx);
        }
        taken
    }

    /// Forgets what was seen of those that are carried no more, once that is much.
    fn forget_former(&mut self) {
        if self.seen.len() > MOST_SEEN {
            let cells = &self.cells;
            self.seen
                .retain(|id, _| cells.values().any(|cell| cell.askers.contains_key(id)));
        }
    }

    /// Whether there is a place for one more cell. One of which nobody is known has to go for another one,
    /// and one of which all have somebody else for one that has not; such a one gets a place only where half
    /// of them are free.
    fn makes_room(&mut self, cx: &mut Context, spare: bool) -> Room {
        if spare && self.cells.len() >= MOST_CARRIED / 2 {
            return Room::Taken;
        }
        let now = cx.now();
        let is_unknown = |cell: &Cell| cell.askers.is_empty();
        let is_left = |cell: &Cell| is_unknown(cell) && now.since(cell.asked) >= LOOKS_UP_MS;
        let is_spare = |cell: &Cell| !is_unknown(cell) && cell.askers.values().all(|asker| asker.spare);
        let first = |which: &dyn Fn(&Cell) -> bool| {
            let found = self.cells.iter().find(|(_, cell)| which(cell));
            found.map(|(number, _)| *number)
        };
        let unknown = self.cells.values().filter(|cell| is_unknown(cell)).count();
        let may_come = unknown < MOST_UNKNOWN;
        if may_come && self.cells.len() < MOST_CARRIED {
            return Room::Found;
        }
        match first(&is_left).or_else(|| first(&is_spare).filter(|_| may_come)) {
            Some(number) => self.drop_cell(cx, number),
            None if unknown > 0 => return Room::Soon,
            None => return Room::Taken,
        }
        Room::Found
    }

    /// At once, so that a cell that comes back is looked up anew.
    fn drop_cell(&mut self, cx: &mut Context, number: u32) {
        self.cells.remove(&number);
        self.follow(cx);
    }

    /// Takes what an asker says, whose code was checked.
    pub(super) fn take(&mut self, cx: &mut Context, message: &Message) -> Result<(), &'static str> {
        let from = message.header.from;
        let mut cells = self.cells.iter_mut();
        let (number, cell) = cells
            .find(|(_, cell)| cell.askers.contains_key(&from))
            .ok_or("stranger")?;
        let asker = cell.askers.get_mut(&from).ok_or("stranger")?;
        let header = &message.header;
        let window = self.seen.entry(from).or_default();
        if header.incarnation != asker.incarnation || !window.accept(header.sequence) {
            return Err("replay");
        }
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
                member.is_some_and(|member| member.has_key(&asker.to.contact.key))
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
            && cell.challenge.as_ref() != Some(&asked)
        {
            cell.challenge = Some(asked);
            cell.tells = (TELLS, cx.now());
            cell.tell_again(cx);
        }
    }

    /// What became of the write of the report with this sequence.
    pub(super) fn take_written(&mut self, cx: &mut Context, number: u32, sequence: i64, written: bool) {
        let Some(cell) = self.cells.get_mut(&number) else {
            return;
        };
        let Some(writing) = cell.writing.take_if(|writing| writing.sequence == sequence) else {
            return;
        };
        let pause = if written { PAUSE_MS } else { WRITES_AGAIN_MS };
        cell.writes_from = cx.now().plus(pause);
        let asker = cell.askers.get_mut(&writing.from);
        let asker = asker.filter(|asker| written && asker.incarnation == writing.incarnation);
        if let Some(asker) = asker {
            asker.written = asker.written.max(writing.number);
            cell.tell(cx, writing.from);
        }
    }

    /// The last renewal of a member's Lease.
    pub(super) fn take_renewal(&mut self, cx: &mut Context, cell: u32, read: (MemberId, Option<Renewal>)) {
        let askers = self.cells.get_mut(&cell).map(|cell| cell.askers.values_mut());
        for asker in askers.into_iter().flatten() {
            if asker.reads.remove(&read.0).is_some() {
                let renewals = vec![read];
                cx.send_outside(&asker.to, &Body::RenewalsRead(RenewalsRead { renewals }));
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
            self.cells.retain(|number, cell| {
                let over = cell.is_over(now);
                if over {
                    cell.write_nothing(cx, *number);
                }
                !over
            });
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
            asked: now,
            roster: None,
            challenge: None,
            tells: (0, NEVER),
            askers: BTreeMap::new(),
            reports: 0,
            writing: None,
            writes_from: now,
        }
    }

    fn deadline(&self) -> Millis {
        let is_ready = self.askers.values().any(|asker| asker.ready.is_some());
        let write = match self.writing {
            Some(writing) => writing.since.plus(GIVE_UP_MS),
            None if is_ready => self.writes_from,
            None => NEVER,
        };
        let over = self.askers.is_empty().then(|| self.since.plus(MEETS_MS));
        let tells = if self.tells.0 > 0 { self.tells.1 } else { NEVER };
        let askers = self.askers.values().map(Asker::deadline);
        let askers = askers.min().unwrap_or(NEVER);
        write.min(over.unwrap_or(NEVER)).min(tells).min(askers)
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
        self.asked = cx.now();
        let Some(roster) = &self.roster else {
            tell_to_wait(cx, &to, header);
            return Ok(());
        };
        let member = roster.get(header.from).ok_or("stranger")?;
        if !member.has_key(&to.contact.key) {
            return Err("stranger");
        }
        let now = cx.now();
        let known = self.askers.remove(&header.from);
        if known.is_none() && self.askers.len() >= MOST_ASKERS {
            return Err("askers");
        }
        let is_first = known.is_none() && self.askers.is_empty();
        let mut asker = known.unwrap_or_else(|| Asker::new(to.clone(), header.incarnation));
        if asker.incarnation != header.incarnation {
            asker = Asker {
                served: asker.served,
                ..Asker::new(to.clone(), header.incarnation)
            };
        }
        (asker.to, asker.heard, asker.spare) = (to, now, offer.spare);
        let is_writing = self.writing.is_some_and(|writing| {
            let same = (writing.from, writing.incarnation) == (header.from, header.incarnation);
            same && writing.number >= offer.report
        });
        if now >= self.writes_from && !is_writing {
            asker.take_offer(cx, offer);
        }
        self.askers.insert(header.from, asker);
        if is_first {
            // Readers take the first report of an object for as old as it can be.
            self.write_nothing(cx, offer.cell);
        }
        self.tell(cx, header.from);
        Ok(())
    }

    /// Writes a report that lists nobody.
    fn write_nothing(&mut self, cx: &mut Context, number: u32) {
        let Some(roster) = &self.roster else { return };
        self.reports = self.reports.saturating_add(1);
        let report = Report {
            roster_version: i64::try_from(roster.reference().version).unwrap_or(i64::MAX),
            sequence: self.reports,
            members: i32::try_from(roster.len()).unwrap_or(i32::MAX),
            ..Report::default()
        };
        let draft = Box::new(ReportDraft {
            report,
            ..ReportDraft::default()
        });
        cx.put(Output::Carry { cell: number, draft });
    }

    /// Tells all askers what the controller asks, as often as that is due.
    fn tell_again(&mut self, cx: &mut Context) {
        let (left, at) = self.tells;
        if left > 0 && cx.now() >= at {
            self.tells = (left - 1, cx.now().plus(TELLS_AGAIN_MS));
            self.tell_all(cx);
        }
    }

    /// Says how things are.
    fn tell(&self, cx: &mut Context, to: MemberId) {
        let (Some(asker), Some(roster)) = (self.askers.get(&to), &self.roster) else {
            return;
        };
        let (challenge, wanted) = self.challenge.clone().unwrap_or_default();
        let body = Body::Carried(Carried {
            incarnation: asker.incarnation,
            written: asker.written,
            roster: roster.reference().version,
            challenge,
            wanted: wanted.into_iter().take(MAX_LIST).collect(),
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
        let (parts, drafted) = asker.fetch.as_mut().ok_or("unasked")?;
        match parts.take(part, cx.now()) {
            Taken::Refused => return Err("report"),
            Taken::Waits => {}
            Taken::Asks(asked) => cx.send_outside(&asker.to, &Body::ReportAsked(asked)),
            Taken::Whole(bytes) => {
                let (report, drafted) = (parts.version(), *drafted);
                asker.fetch = None;
                let draft = ReportDraft::from_text(&bytes).map_err(|_| "report")?;
                asker.ready = Some((report, drafted, Box::new(draft)));
                self.write(cx, number);
            }
        }
        Ok(())
    }

    /// Has the next report written, one at a time: of several that wait, the one whose author has waited for
    /// longest, so that a hostile member with many reports keeps no other one's back.
    fn write(&mut self, cx: &mut Context, number: u32) {
        let now = cx.now();
        if self.writing.is_some() || now < self.writes_from {
            return;
        }
        let ready = self.askers.iter_mut().filter(|(_, asker)| asker.ready.is_some());
        let Some((from, asker)) = ready.min_by_key(|(_, asker)| asker.served) else {
            return;
        };
        let Some((report, drafted, mut draft)) = asker.ready.take() else {
            return;
        };
        asker.served = now;
        let (from, incarnation) = (*from, asker.incarnation);
        draft.grow_older(now.since(drafted));
        self.reports = self.reports.saturating_add(1);
        draft.report.sequence = self.reports;
        self.writing = Some(Writing {
            from,
            incarnation,
            number: report,
            sequence: self.reports,
            since: now,
        });
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
        let now = cx.now();
        asker.reads.retain(|_, since| now.since(*since) < READS_AGAIN_MS);
        for member in members {
            let Some(found) = roster.get(*member).filter(|_| !asker.reads.contains_key(member)) else {
                continue;
            };
            if !asker.readings.allows(now, READINGS) {
                return Err("readings");
            }
            asker.reads.insert(*member, now);
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
        let gives_up = |writing: &mut Writing| now >= writing.since.plus(GIVE_UP_MS);
        self.writing.take_if(gives_up);
        self.write(cx, number);
        self.tell_again(cx);
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
