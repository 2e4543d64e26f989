//! The members that this one watches: the state of each edge, and where the present look at it stands.

use super::Note;
use super::contacts::{Contacts, Peer};
use super::context::{Context, NEVER};
use super::own::Own;
use super::reach::Reach;
use super::search::Search;
use crate::Millis;
use crate::roster::{CANDIDATES, MemberId, MemberIndex, REPORTERS, Roster};
use crate::verdict::Link;
use crate::wire::EdgeState;
use std::collections::BTreeSet;

/// Probes directly and through relays before an edge is given up, and the time between two of them.
const PROBES: u8 = 3;
const PROBE_EVERY_MS: u64 = 250;
/// A subject that answered this recently is not probed because somebody else lost it.
const JUST_ANSWERED_MS: u64 = 300;
/// The first candidates for reporting are asked when their last word is older than this, every period until
/// they answer: a link counts for 30 s, of which the last contact with the API server may take 8 s when it is
/// told. With one datagram of ten lost, five attempts in a row fail once in 4 000 times.
const CANDIDATE_EVERY_MS: u64 = 14_000;
/// So many strangers are greeted in each period, in turn, and each for this long: a newcomer meets a cell of
/// 64 within 14 s. Who does not answer in a minute is not there, and is met in the course of the census.
const GREETED: usize = 8;
const GREETS_MS: u64 = 60_000;
/// Who has not answered for long is asked every so many periods.
const SELDOM: usize = 4;

/// The watched members.
pub(super) struct Watches {
    list: Vec<Watch>,
    /// By position in the roster, the watch in `list`, or [`NOBODY`].
    slots: Vec<u8>,
    /// When the first of them has to be looked at.
    due: Millis,
    /// How often an edge changed its state.
    changes: u64,
    /// Above all-pairs size: when the next member that is not watched gets a heartbeat, and how many got one.
    census_due: Millis,
    census: usize,
    /// Who raised an alarm about whom, and when, within the last period.
    alarms: Vec<(MemberIndex, MemberIndex, Millis)>,
    /// Above all-pairs size: the search for the members that report now.
    search: Search,
    /// Watched members whose edges went down, which the others have not been told yet.
    newly_lost: Vec<MemberIndex>,
}

const NOBODY: u8 = u8::MAX;

/// One watched member.
#[derive(Clone, Copy)]
struct Watch {
    subject: MemberIndex,
    /// What the last look at the subject concluded.
    state: EdgeState,
    phase: Phase,
}

/// Where the present look at a subject stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The next heartbeat is due at this time.
    Waiting { due: Millis },
    /// A heartbeat was sent, its ack is awaited.
    Asked { sent: Millis, deadline: Millis },
    /// The ack did not come, or somebody else lost the subject: three probes directly and three relayed.
    Probing {
        since: Millis,
        /// Probes sent so far.
        sent: u8,
        /// The next probe, or the next attempt to conclude.
        next: Millis,
    },
}

impl Phase {
    fn waiting(due: Millis) -> Self {
        Self::Waiting { due }
    }

    fn probing(now: Millis) -> Self {
        Self::Probing {
            since: now,
            sent: 0,
            next: now,
        }
    }

    fn due(self) -> Millis {
        match self {
            Self::Waiting { due } => due,
            Self::Asked { deadline, .. } => deadline,
            Self::Probing { next, .. } => next,
        }
    }
}

impl Watches {
    pub(super) fn new(cx: &mut Context) -> Self {
        let mut watches = Self {
            list: Vec::new(),
            slots: Vec::new(),
            due: NEVER,
            changes: 0,
            census_due: cx.now(),
            census: 0,
            alarms: Vec::new(),
            search: Search::default(),
            newly_lost: Vec::new(),
        };
        watches.take_roster(cx, &Roster::none());
        watches
    }

    /// Watches whom the roster says. Who was watched before, as the same agent, stays as it was.
    pub(super) fn take_roster(&mut self, cx: &mut Context, before: &Roster) {
        let roster = std::sync::Arc::clone(cx.roster());
        let old = std::mem::take(&mut self.list);
        self.alarms.clear();
        self.search.take_roster(before, &roster);
        self.newly_lost.clear();
        self.slots.clear();
        self.slots.resize(roster.len(), NOBODY);
        let subjects = cx.place().map_or(&[][..], |me| roster.subjects_of(me));
        for subject in subjects {
            let Some(member) = roster.member(*subject) else {
                continue;
            };
            let goes_on =
                |index: &MemberIndex| before.member(*index).is_some_and(|old| old.goes_on_as(member));
            let known = before.position(member.id).filter(goes_on);
            let known = old.iter().find(|watch| Some(watch.subject) == known);
            let watch = known.map_or_else(
                || Watch {
                    subject: *subject,
                    state: EdgeState::Up,
                    phase: Phase::waiting(cx.now().plus(cx.draw(cx.period_ms() / 2))),
                },
                |watch| Watch {
                    subject: *subject,
                    ..*watch
                },
            );
            if let Some(slot) = self.slots.get_mut(subject.at()) {
                *slot = self.list.len() as u8;
            }
            self.list.push(watch);
        }
        self.schedule();
    }

    /// The watched members.
    pub(super) fn subjects(&self) -> impl ExactSizeIterator<Item = MemberIndex> {
        self.list.iter().map(|watch| watch.subject)
    }

    pub(super) fn is_watched(&self, index: MemberIndex) -> bool {
        self.watch(index).is_some()
    }

    /// The state of the edge to a watched member.
    pub(super) fn edge(&self, index: MemberIndex) -> Option<EdgeState> {
        self.watch(index).map(|watch| watch.state)
    }

    pub(super) fn is_down(&self, index: MemberIndex) -> bool {
        self.edge(index) == Some(EdgeState::Down)
    }

    /// The watched members with the state of their edges.
    pub(super) fn edges(&self) -> impl Iterator<Item = (MemberIndex, EdgeState)> {
        self.list.iter().map(|watch| (watch.subject, watch.state))
    }

    /// How often an edge changed its state so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn deadline(&self, cx: &Context) -> Millis {
        if cx.roster().all_pairs() {
            self.due
        } else {
            self.due.min(self.census_due)
        }
    }

    /// Sends what is due, and concludes the looks that are over.
    /// `reports`: this agent is one of the reporters.
    pub(super) fn step(&mut self, cx: &mut Context, contacts: &mut Contacts, own: &Own, reports: bool) {
        let now = cx.now();
        if now >= self.due {
            for slot in 0..self.list.len() {
                if self.list.get(slot).is_some_and(|watch| now >= watch.phase.due()) {
                    self.look(cx, contacts, own, slot);
                }
            }
            self.schedule();
        }
        if now >= self.census_due && !cx.roster().all_pairs() {
            self.census_due = now.plus(cx.period_ms());
            self.take_census(cx, contacts, own, reports);
        }
    }

    fn look(&mut self, cx: &mut Context, contacts: &mut Contacts, own: &Own, slot: usize) {
        let (now, period) = (cx.now(), cx.period_ms());
        let Some(watch) = self.list.get_mut(slot) else {
            return;
        };
        let subject = watch.subject;
        match watch.phase {
            Phase::Waiting { .. } => {
                let timeout = contacts.peer(subject).map_or(0, |peer| peer.timeout_ms(period));
                let deadline = now.plus(timeout);
                watch.phase = Phase::Asked { sent: now, deadline };
                if let Some(id) = id(cx, subject) {
                    contacts.send_heartbeat(cx, own, id, None);
                }
            }
            // A subject that is given up already gets one heartbeat a period, until it answers.
            Phase::Asked { sent, .. } if watch.state == EdgeState::Down => {
                watch.phase = Phase::waiting(sent.plus(period));
            }
            Phase::Asked { .. } => {
                watch.phase = Phase::probing(now);
                self.probe(cx, contacts, own, slot);
            }
            Phase::Probing { .. } => self.probe(cx, contacts, own, slot),
        }
    }

    /// The next probe of a burst, or its conclusion.
    fn probe(&mut self, cx: &mut Context, contacts: &mut Contacts, own: &Own, slot: usize) {
        let now = cx.now();
        let Some(watch) = self.list.get_mut(slot) else {
            return;
        };
        let Phase::Probing { since, sent, .. } = watch.phase else {
            return;
        };
        if sent < PROBES {
            let sent = sent + 1;
            let next = since.plus(u64::from(sent) * PROBE_EVERY_MS).max(now);
            watch.phase = Phase::Probing { since, sent, next };
            let subject = watch.subject;
            let relay = Reach::new(cx, contacts, self).relay_for(cx, subject);
            if let Some(id) = id(cx, subject) {
                contacts.send_heartbeat(cx, own, id, None);
                if relay.is_some() {
                    contacts.send_heartbeat(cx, own, id, relay);
                }
            }
            return;
        }
        let heard = |at: Option<Millis>| at.is_some_and(|at| at >= since);
        let Some(peer) = contacts.peer(watch.subject) else {
            return;
        };
        // A living subject sends something in every period. Until one has passed, silence means little.
        let quiet = peer.is_quiet(now, cx.period_ms());
        let state = match (
            heard(peer.answered()),
            heard(peer.proved()),
            heard(peer.contact()),
        ) {
            (true, _, _) => EdgeState::Up,
            (_, true, _) => EdgeState::Degraded,
            (_, _, true) => EdgeState::OneWay,
            _ if quiet => EdgeState::Down,
            _ => {
                // Not longer than between two probes, so that a stall of this process is noticed.
                let quiet_from = peer.quiet_from(cx.period_ms()).unwrap_or(now);
                let next = quiet_from.min(now.plus(PROBE_EVERY_MS));
                watch.phase = Phase::Probing { since, sent, next };
                return;
            }
        };
        self.conclude_slot(cx, slot, state);
    }

    /// The subject answered directly: the present look at it is over.
    pub(super) fn answered(&mut self, cx: &mut Context, subject: MemberIndex) {
        if let Some(slot) = self.slot(subject) {
            self.conclude_slot(cx, slot, EdgeState::Up);
            self.schedule();
        }
    }

    fn conclude_slot(&mut self, cx: &mut Context, slot: usize, state: EdgeState) {
        let (now, period) = (cx.now(), cx.period_ms());
        let Some(watch) = self.list.get_mut(slot) else {
            return;
        };
        watch.phase = match watch.phase {
            Phase::Asked { sent, .. } => Phase::waiting(sent.plus(period)),
            Phase::Probing { .. } => {
                let jitter = cx.draw(period / 8);
                Phase::waiting(now.plus(period / 2 + jitter))
            }
            waiting @ Phase::Waiting { .. } => waiting,
        };
        let subject = watch.subject;
        if std::mem::replace(&mut watch.state, state) != state {
            self.changes += 1;
            if let Some(id) = id(cx, subject) {
                let subject = cx.name(id);
                cx.note(Note::Edge { subject, state });
            }
            if state == EdgeState::Down {
                self.newly_lost.push(subject);
            }
        }
    }

    /// The watched members whose edges went down since this was asked last.
    pub(super) fn take_newly_lost(&mut self) -> Vec<MemberIndex> {
        std::mem::take(&mut self.newly_lost)
    }

    /// One of its observers has lost a member: if it depends on it who reports, this agent looks for those
    /// who do now.
    pub(super) fn search_instead_of(
        &mut self,
        cx: &Context,
        contacts: &Contacts,
        (lost, by): (MemberIndex, MemberIndex),
    ) {
        if self.search.begin(cx, (lost, by), last_contact(contacts, lost)) {
            self.census_due = cx.now();
        }
    }

    /// Somebody else lost the subject: it is looked at now, and not when its next heartbeat is due. Each of
    /// the others can bring that about once in a period: a member that raises alarms without end costs no
    /// more than one that is right.
    pub(super) fn alarm(&mut self, cx: &Context, contacts: &Contacts, from: MemberIndex, subject: MemberId) {
        let (now, period) = (cx.now(), cx.period_ms());
        let Some(index) = cx.roster().position(subject) else {
            return;
        };
        if cx.roster().observers_of(index).contains(&from) {
            self.search_instead_of(cx, contacts, (index, from));
        }
        let answered = contacts.peer(index).and_then(Peer::answered);
        let just_answered = answered.is_some_and(|at| now.since(at) < JUST_ANSWERED_MS);
        let slot = self.slot(index).filter(|_| !just_answered);
        let Some(watch) = slot.and_then(|slot| self.list.get_mut(slot)) else {
            return;
        };
        if matches!(watch.phase, Phase::Probing { .. }) || watch.state == EdgeState::Down {
            return;
        }
        self.alarms.retain(|(_, _, at)| now.since(*at) < period);
        let raised = |(by, about, _): &(MemberIndex, MemberIndex, Millis)| (*by, *about) == (from, index);
        if !self.alarms.iter().any(raised) {
            self.alarms.push((from, index, now));
            watch.phase = Phase::probing(now);
            self.due = now;
        }
    }

    /// After a pause: begins anew with every subject, spread over half a period.
    pub(super) fn begin_anew(&mut self, cx: &mut Context) {
        self.search.begin_anew(cx.now());
        for watch in &mut self.list {
            watch.phase = Phase::waiting(cx.now().plus(cx.draw(cx.period_ms() / 2)));
        }
        self.schedule();
    }

    /// During a stall this process could not hear what arrived, so silence in that time accuses nobody.
    pub(super) fn distrust_silence(&mut self, cx: &Context) {
        for watch in &mut self.list {
            if matches!(watch.phase, Phase::Probing { .. }) {
                watch.phase = Phase::probing(cx.now());
            }
        }
        self.schedule();
    }

    /// In zones above all-pairs size: one member a period in turn, so that everybody has seen everybody
    /// alive, and those about whom this agent has to know whether they can report.
    fn take_census(&mut self, cx: &mut Context, contacts: &mut Contacts, own: &Own, reports: bool) {
        let roster = std::sync::Arc::clone(cx.roster());
        self.census = self.census.wrapping_add(1);
        let strangers = || {
            let all = roster.positions();
            all.filter(|index| !cx.is_me(*index) && !self.is_watched(*index))
        };
        let turn = self.census.checked_rem(strangers().count());
        let next = turn.and_then(|turn| strangers().nth(turn));
        let place = roster.rendezvous().iter().position(|index| cx.is_me(*index));
        let candidates = self.candidates(cx, contacts, own, place);
        // A reporter that the others do not ask asks all of them, so that they know of it.
        let presents_itself = reports && place.is_some_and(|place| place >= CANDIDATES);
        let list = if presents_itself {
            roster.rendezvous()
        } else {
            &candidates
        };
        let is_asked = |index: &&MemberIndex| self.is_to_be_asked(cx, contacts, own, **index);
        let mut asked: BTreeSet<MemberIndex> = list.iter().filter(is_asked).copied().collect();
        let asked_here = (asked.iter().copied(), candidates.len());
        self.search
            .take_asked(cx, asked_here, |index| last_contact(contacts, index));
        asked.extend(next);
        asked.extend(self.to_greet(cx, contacts));
        asked.extend(self.unheard_observers(cx, contacts));
        for index in asked {
            if let Some(id) = id(cx, index) {
                contacts.send_heartbeat(cx, own, id, None);
            }
        }
    }

    /// Those who watch this agent and have fallen silent: they may be looking for it where it no longer is.
    fn unheard_observers(&self, cx: &Context, contacts: &Contacts) -> Vec<MemberIndex> {
        let (now, period) = (cx.now(), cx.period_ms());
        let is_unheard = |index: &MemberIndex| {
            let peer = contacts.peer(*index);
            let silent_for = peer.and_then(Peer::contact).map(|at| now.since(at));
            let lately = silent_for.is_some_and(|silent_for| silent_for < GREETS_MS);
            lately && peer.is_some_and(|peer| peer.is_quiet(now, period))
        };
        let observers = cx.place().map_or(&[][..], |me| cx.roster().observers_of(me));
        let unwatched = observers.iter().filter(|index| !self.is_watched(**index));
        unwatched.copied().filter(is_unheard).collect()
    }

    /// Members that this agent has never met and knows for a short time. A newcomer meets all others within
    /// a few periods, and they meet it: nobody who was not met is convicted, and who has not met the others
    /// gets no vote.
    fn to_greet(&self, cx: &Context, contacts: &Contacts) -> Vec<MemberIndex> {
        let is_new = |peer: &Peer| !peer.seen_alive() && cx.now().since(peer.known_since()) < GREETS_MS;
        let all = contacts
            .iter()
            .filter(|(_, peer)| is_new(peer))
            .map(|(index, _)| index);
        let strangers: Vec<MemberIndex> = all
            .filter(|index| !cx.is_me(*index) && !self.is_watched(*index))
            .collect();
        let before = self.census.wrapping_mul(GREETED);
        let first = before.checked_rem(strangers.len()).unwrap_or_default();
        let in_turn = strangers.iter().cycle().skip(first);
        in_turn.take(GREETED.min(strangers.len())).copied().collect()
    }

    /// The first candidates. An agent has to know who before it can report, and looks further until it has
    /// found three: with a link, members that have one, and without, members that live.
    fn candidates(
        &self,
        cx: &Context,
        contacts: &Contacts,
        own: &Own,
        place: Option<usize>,
    ) -> Vec<MemberIndex> {
        let order = cx.roster().rendezvous();
        let is_linked = own.facts().cloud == Link::Up;
        let can_report = |index: &&MemberIndex| {
            let peer = contacts.peer(**index).filter(|_| !self.is_down(**index));
            peer.is_some_and(|peer| {
                let has_link = peer.facts().cloud == Link::Up;
                let until = self.heard_until(cx, contacts, **index);
                until.is_some_and(|until| cx.now() < until)
                    && self.search.has_found(peer.contact())
                    && (has_link || !is_linked)
            })
        };
        let mut list: Vec<MemberIndex> = order.iter().take(CANDIDATES).copied().collect();
        let mut found = list.iter().filter(can_report).count();
        let reach = place.unwrap_or_default().min(self.search.reach(cx));
        for index in order.iter().take(reach).skip(CANDIDATES) {
            if found >= REPORTERS {
                break;
            }
            found += usize::from(can_report(&index));
            list.push(*index);
        }
        list
    }

    /// Until when a member counts as heard, if nothing is heard from now on: as long as a link counts, and
    /// for three periods if it is asked in a search. `None` if it never was.
    pub(super) fn heard_until(
        &self,
        cx: &Context,
        contacts: &Contacts,
        index: MemberIndex,
    ) -> Option<Millis> {
        let contact = last_contact(contacts, index);
        let until = contact?.plus(cx.linked_ms() + 1);
        let missing = self.search.missing_from(index, contact, cx.period_ms());
        Some(missing.map_or(until, |missing| until.min(missing)))
    }

    fn is_to_be_asked(&self, cx: &Context, contacts: &Contacts, own: &Own, index: MemberIndex) -> bool {
        let peer = contacts.peer(index);
        let told = peer.and_then(Peer::told);
        let silent_for = told.map_or(u64::MAX, |at| cx.now().since(at));
        let gone = silent_for > 2 * cx.linked_ms();
        let patient = gone && self.census % SELDOM != 1;
        // Who has a link may have to step in for those who have none, and has to know when they are back.
        let is_cut = peer.is_some_and(|peer| peer.facts().cloud == Link::Down);
        let urgent = is_cut && own.facts().cloud == Link::Up;
        let sought = !self.search.has_found(peer.and_then(Peer::contact));
        !cx.is_me(index)
            && !self.is_watched(index)
            && !patient
            && (urgent || sought || silent_for >= CANDIDATE_EVERY_MS)
    }

    fn schedule(&mut self) {
        self.due = self
            .list
            .iter()
            .map(|watch| watch.phase.due())
            .min()
            .unwrap_or(NEVER);
    }

    fn slot(&self, index: MemberIndex) -> Option<usize> {
        let slot = self.slots.get(index.at()).copied()?;
        (slot != NOBODY).then_some(usize::from(slot))
    }

    fn watch(&self, index: MemberIndex) -> Option<&Watch> {
        self.list.get(self.slot(index)?)
    }
}

fn last_contact(contacts: &Contacts, index: MemberIndex) -> Option<Millis> {
    contacts.peer(index).and_then(Peer::contact)
}

fn id(cx: &Context, index: MemberIndex) -> Option<MemberId> {
    cx.roster().member(index).map(|member| member.id)
}
