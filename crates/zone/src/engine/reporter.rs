//! What the reporters do: tally the observers' edges, find suspects, hold confirm rounds.

mod case;
mod readings;
mod rounds;
mod tally;

pub(super) use case::{Held, is_no_news};
pub(super) use rounds::Evidence;

use super::contacts::Contacts;
use super::context::Context;
use super::due::Due;
use super::edges::EdgeReports;
use super::own::Own;
use super::ranking::Ranking;
use super::reach::Reach;
use super::watches::Watches;
use super::{Note, Output};
use crate::Millis;
use crate::roster::{MemberId, MemberIndex};
use crate::verdict::Link;
use crate::wire::{self, Ballot, Body, ConfirmRequest, Renewal, RequestDigest, Suspect};
use case::{Case, RENEW_ALIVE_MS, REPEAT_YOUNG_DEATH_MS};
use readings::{Readiness, Readings, WAIT_MS};
use rounds::{Outcome, Rounds};
use std::collections::{BTreeMap, BTreeSet};

/// Members whose first rounds, or other attempts, are due within this time share one.
const SHARE_MS: u64 = 1_000;
/// Ballots that arrive within this time are counted together.
const COUNT_EVERY_MS: u64 = 20;
/// Who loses its rank keeps what it holds for this long. As links run out one after the other, in an outage
/// of the API server, a rank goes and is back soon, and each return would begin with rounds about all.
const KEEP_WITHOUT_RANK_MS: u64 = 2_000;
/// Who has the lesser part of its sample within reach asks about one member so often: the answers show
/// whether it reaches a majority all the same, and on the smaller side of a split they cost little.
const SOUND_EVERY_MS: u64 = 4_000;
/// With more listed members than this, two rounds about most of them would be more than a report should hold.
const CROWD: usize = 40;

/// What a reporter holds.
pub(super) struct Reporter {
    /// Rank among the reporters; `None` if it is not one of them.
    rank: Option<usize>,
    /// When the rank may have changed.
    rank_due: Millis,
    /// Until when it keeps what it holds without a rank.
    keeps_until: Millis,
    /// Members about which the controller needs rounds; some of them may have left the roster.
    wanted: BTreeSet<MemberId>,
    cases: BTreeMap<MemberId, Case>,
    /// When the next common round begins: one about all members whose evidence is to be renewed, so that one
    /// ballot of each voter is the evidence about all of them, whenever they were listed. Nothing while no
    /// member waits for one.
    common: Option<Millis>,
    rounds: Rounds,
    /// When the newest round began that a majority answered.
    answered: Option<Millis>,
    /// Before that no round begins that only shows whom this agent reaches.
    sounds_from: Millis,
    readings: Readings,
    due: Millis,
}

/// What a reporter judges by.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) own: &'a Own,
    pub(super) contacts: &'a Contacts,
    pub(super) watches: &'a Watches,
    pub(super) edges: &'a EdgeReports,
}

impl<'a> View<'a> {
    pub(super) fn reach(self, cx: &Context) -> Reach<'a> {
        Reach::new(cx, self.contacts, self.watches)
    }

    pub(super) fn ranking(self, cx: &'a Context) -> Ranking<'a> {
        Ranking {
            cx,
            own: self.own,
            reach: self.reach(cx),
            edges: self.edges,
        }
    }
}

impl Reporter {
    pub(super) fn new(now: Millis) -> Self {
        Self {
            rank: None,
            rank_due: now,
            keeps_until: now,
            wanted: BTreeSet::new(),
            cases: BTreeMap::new(),
            common: None,
            rounds: Rounds::default(),
            answered: None,
            sounds_from: now,
            readings: Readings::default(),
            due: now,
        }
    }

    pub(super) fn take_roster(&mut self, cx: &Context) {
        self.rounds.drop_all();
        self.cases.retain(|id, _| cx.roster().contains(*id));
        self.look_again(cx);
    }

    /// Replaces the members about which the controller needs rounds.
    pub(super) fn want(&mut self, cx: &Context, wanted: BTreeSet<MemberId>) {
        if self.wanted != wanted {
            self.wanted = wanted;
            self.look_again(cx);
        }
    }

    /// The Lease of a member was read, or could not be read.
    pub(super) fn take_renewal(&mut self, cx: &Context, member: MemberId, renewal: Option<Renewal>) {
        self.readings.take(member, renewal);
        self.due = cx.now();
    }

    /// The controller wants another challenge signed. Until a death is confirmed, readers wait for a round
    /// that signs it. It is a common one: all evidence about the cell stays in as few rounds.
    pub(super) fn challenged(&mut self, cx: &Context) {
        let now = cx.now();
        // Of the others the round that is under way is looked at when it is over.
        let quiet = self.cases.iter().filter(|(id, _)| !self.rounds.has(**id));
        // Not before the last of those rounds may begin that have just been held.
        if let Some(at) = quiet.filter_map(|(_, case)| case.challenged(now)).max() {
            self.hold_common_round_by(at);
            self.due = now;
        }
    }

    fn hold_common_round_by(&mut self, at: Millis) {
        self.common = Some(self.common.map_or(at, |common| common.min(at)));
    }

    /// After a pause everything under way is stale.
    pub(super) fn drop_rounds(&mut self) {
        self.rounds.drop_all();
    }

    pub(super) fn rank(&self) -> Option<usize> {
        self.rank
    }

    /// What this agent holds of the members.
    pub(super) fn held(&self) -> impl Iterator<Item = (MemberId, &Held)> {
        self.cases
            .iter()
            .filter_map(|(id, case)| Some((*id, case.held()?)))
    }

    /// When the newest round began that more than half of the voters answered.
    pub(super) fn answered(&self) -> Option<Millis> {
        self.answered
    }

    /// Whether a round is under way.
    pub(super) fn is_asking(&self) -> bool {
        !self.rounds.is_empty()
    }

    pub(super) fn deadline(&self) -> Millis {
        self.due.min(self.rank_due)
    }

    /// Something that a reporter judges by has changed.
    pub(super) fn look_again(&mut self, cx: &Context) {
        (self.due, self.rank_due) = (cx.now(), cx.now());
    }

    /// A member that was silent was heard. In a calm zone that matters to reporters alone, and only if it
    /// ranks before them.
    pub(super) fn member_returned(&mut self, cx: &Context, view: View<'_>, index: MemberIndex) {
        let unwell = view
            .contacts
            .peer(index)
            .is_some_and(|peer| !peer.facts().are_plain());
        if unwell || !self.cases.is_empty() {
            return self.look_again(cx);
        }
        let order = cx.roster().rendezvous().iter();
        let mut before_me = order.take_while(|other| !cx.is_me(**other));
        let linked = view.own.facts().cloud == Link::Up;
        if self.rank.is_some() && (!linked || before_me.any(|other| *other == index)) {
            self.rank_due = cx.now();
        }
    }

    /// The agent of a member proved its life: whoever is held dead is looked at again at once.
    pub(super) fn member_proved(&mut self, cx: &Context, id: MemberId) {
        if self.cases.get_mut(&id).is_some_and(|case| case.lives(cx.now())) {
            self.due = cx.now();
        }
    }

    /// Whether a ballot of this voter for this request is still waited for.
    pub(super) fn awaits(&self, voter: MemberId, request: RequestDigest) -> bool {
        self.rounds.awaits(voter, request)
    }

    /// A ballot of a round of ours.
    pub(super) fn take_ballot(&mut self, cx: &Context, voter: MemberId, ballot: &Ballot, bytes: &[u8]) {
        if self.rounds.take_ballot(voter, ballot, bytes) {
            self.due = self.due.min(cx.now().plus(COUNT_EVERY_MS));
        }
    }

    /// Does what is due. Returns whether anything was, and the requests of rounds that this agent has to
    /// answer itself.
    pub(super) fn step(&mut self, cx: &mut Context, view: View<'_>) -> (bool, Vec<ConfirmRequest>) {
        let now = cx.now();
        // A look at the rank may come a period early, as in `Own::judge_myself`.
        if now.plus(cx.period_ms()) >= self.rank_due {
            let (rank, changes_at) = view.ranking(cx).rank();
            self.rank_due = changes_at;
            if std::mem::replace(&mut self.rank, rank) != rank {
                self.due = now;
                self.keeps_until = now.plus(KEEP_WITHOUT_RANK_MS);
            }
        }
        if now < self.due {
            return (false, Vec::new());
        }
        let mut due = Due::never();
        let mut requests = Vec::new();
        let has_rank = self.rank.is_some();
        if view.own.doubts() || !has_rank && now >= self.keeps_until {
            self.cases.clear();
            self.common = None;
            self.rounds.drop_all();
        } else if !has_rank {
            due.by(self.keeps_until);
        } else {
            self.tally_edges(cx, view, &mut due);
            self.judge_cases(cx, &mut due);
            self.finish_rounds(cx, view, &mut due, &mut requests);
            self.begin_rounds(cx, view, &mut due, &mut requests);
        }
        self.due = due.at();
        (true, requests)
    }

    fn tally_edges(&mut self, cx: &mut Context, view: View<'_>, due: &mut Due) {
        let tally = tally::tally_edges(cx, view, due);
        for id in tally.subjects().chain(self.wanted.iter().copied()) {
            if cx.roster().contains(id) {
                self.cases.entry(id).or_default();
            }
        }
        self.open_unwatched(cx, view, due);
        for (id, case) in &mut self.cases {
            let Some(index) = cx.roster().position(*id) else {
                continue;
            };
            let (down, live) = tally::count(cx, view, index, tally.lost_to(*id), due);
            let weight = case::Weight {
                down,
                live,
                bad: tally.bad(*id),
                wanted: self.wanted.contains(id),
                is_me: cx.is_me(index),
            };
            if case.weigh(cx, weight, due) {
                let subject = cx.name(*id);
                cx.note(Note::Suspect { subject, down, live });
            }
        }
    }

    /// A node whose observers all died with it is missed by nobody. So a node that was watched by a suspect
    /// and has no live observer left is voted on as well (hazard 5).
    fn open_unwatched(&mut self, cx: &Context, view: View<'_>, due: &mut Due) {
        if cx.roster().all_pairs() {
            return;
        }
        let gone = self.cases.iter().filter(|(_, case)| case.is_suspect());
        let gone = gone.filter_map(|(id, _)| cx.roster().position(*id));
        let watched: BTreeSet<MemberIndex> = gone
            .flat_map(|observer| cx.roster().subjects_of(observer))
            .copied()
            .filter(|subject| !cx.is_me(*subject))
            .collect();
        for subject in watched {
            let Some(id) = cx.roster().member(subject).map(|member| member.id) else {
                continue;
            };
            if !self.cases.contains_key(&id) && tally::count(cx, view, subject, None, due).1 == 0 {
                self.cases.entry(id).or_default();
            }
        }
    }

    fn judge_cases(&mut self, cx: &Context, due: &mut Due) {
        let now = cx.now();
        self.cases.retain(|_, case| {
            case.let_life_expire(now, due);
            // A death is left only on evidence of life: an alive verdict, or health for the whole time.
            !case.is_acquitted(now, due)
        });
    }

    /// Begins rounds about the members for whom one is due, and for whom it soon will be. They wait for the
    /// Leases of those that are due, but not of those that are not, and nobody waits longer than `WAIT_MS`.
    fn begin_rounds(
        &mut self,
        cx: &mut Context,
        view: View<'_>,
        due: &mut Due,
        requests: &mut Vec<ConfirmRequest>,
    ) {
        let now = cx.now();
        self.readings.expire(now);
        let awaiting = self.cases.values().filter(|case| case.awaits_common_round());
        let awaiting = awaiting.count();
        if awaiting == 0 {
            self.common = None;
        }
        // Who sees by the answers to its rounds alone needs one in time.
        let crowd = awaiting > CROWD || view.own.sees_by_answers();
        let sounds = !view.own.sees_the_zone();
        if sounds && now < self.sounds_from {
            return due.by(self.sounds_from);
        }
        let (mut suspects, mut sounded) = (Vec::new(), false);
        // Since when a round has been due that waits for nothing, and until when another one waits.
        let (mut due_since, mut waits_until): (Option<Millis>, Option<Millis>) = (None, None);
        for (id, case) in &self.cases {
            let listed = case.is_listed() || self.wanted.contains(id);
            let Some(at) = case
                .due_at(self.common, crowd)
                .filter(|_| listed && !self.rounds.has(*id))
            else {
                continue;
            };
            let is_due = now >= at;
            if !is_due {
                due.by(at);
            }
            // Of one alone the Lease is read.
            if sounds && (sounded || !is_due) {
                continue;
            }
            sounded = true;
            match self
                .readings
                .prepare(cx, view, (*id, case.suspect_since()), at, due)
            {
                Readiness::Waits(until) => {
                    due.by(until);
                    waits_until = waits_until.max(Some(until).filter(|_| is_due));
                }
                Readiness::Ready(renewal) if now.plus(case.shares(SHARE_MS)) >= at => {
                    let member = *id;
                    // The dead first: of a large cell they share a round, and keep its ballots longer.
                    suspects.push((!case.is_dead(), Suspect { member, renewal }));
                    if is_due {
                        due_since = Some(due_since.map_or(at, |since| since.min(at)));
                    }
                }
                Readiness::Ready(_) => {}
            }
        }
        let patient_until = due_since.map(|since| since.plus(WAIT_MS));
        if let Some(until) = waits_until.filter(|_| patient_until.is_none_or(|until| now < until)) {
            return due.by(patient_until.map_or(until, |patient| patient.min(until)));
        }
        if self.common.is_some_and(|at| now >= at) {
            let young = self.cases.values().any(|case| case.is_young_death(now));
            let next = if young {
                REPEAT_YOUNG_DEATH_MS
            } else {
                RENEW_ALIVE_MS
            };
            self.common = Some(now.plus(next));
        }
        if let Some(at) = self.common {
            // Before it, Leases are read.
            let before = Millis(at.0.saturating_sub(WAIT_MS));
            due.by(if now < before { before } else { at });
        }
        if due_since.is_none() {
            return;
        }
        suspects.sort_by_key(|(lives, suspect)| (*lives, suspect.member));
        if sounds {
            self.sounds_from = now.plus(SOUND_EVERY_MS);
        }
        let suspects: Vec<Suspect> = suspects.into_iter().map(|(_, suspect)| suspect).collect();
        for suspects in suspects.chunks(wire::MAX_SUSPECTS) {
            let round = self.rounds.begin(cx, suspects, due);
            requests.extend(request_ballots(cx, &round, &BTreeSet::new()));
        }
    }

    fn finish_rounds(
        &mut self,
        cx: &mut Context,
        view: View<'_>,
        due: &mut Due,
        requests: &mut Vec<ConfirmRequest>,
    ) {
        self.answered = self.answered.max(self.rounds.answered_by_a_majority(cx));
        for outcome in self.rounds.finish(cx, view.contacts) {
            self.conclude(cx, outcome);
        }
        for (request, answered) in self.rounds.ask_again(cx, due) {
            requests.extend(request_ballots(cx, &request, &answered));
        }
    }

    fn conclude(&mut self, cx: &mut Context, outcome: Outcome) {
        let Some(case) = self.cases.get_mut(&outcome.suspect) else {
            return;
        };
        if case.held().map(|held| held.kind) != Some(outcome.kind) {
            let subject = cx.name(outcome.suspect);
            cx.put(Output::Note(Note::Round {
                subject,
                outcome: outcome.words(),
                votes: outcome.counts(),
                of: cx.roster().voters(),
            }));
        }
        if let Some(at) = case.conclude(cx, outcome) {
            self.hold_common_round_by(at);
        }
    }
}

/// Asks all voters that have not answered, and suspects that have no vote: their word vetoes a death.
/// Returns the request if this agent is one of those.
fn request_ballots(
    cx: &mut Context,
    request: &ConfirmRequest,
    answered: &BTreeSet<MemberId>,
) -> Option<ConfirmRequest> {
    let is_suspect = |id| request.suspects.iter().any(|suspect| suspect.member == id);
    let members = cx.roster().members().iter();
    let asked = members.filter(|member| !member.learner || is_suspect(member.id));
    let voters: Vec<MemberId> = asked.map(|member| member.id).collect();
    let mut mine = None;
    let body = Body::Confirm(request.clone());
    for voter in voters.iter().filter(|voter| !answered.contains(voter)) {
        if *voter == cx.me() {
            mine = Some(request.clone());
        } else {
            cx.send(*voter, &body);
        }
    }
    mine
}
