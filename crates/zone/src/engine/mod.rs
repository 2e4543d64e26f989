//! The agent's state machine: heartbeats, suspicion, confirm rounds, votes, the zone's report.
//!
//! It takes datagrams, facts and the time, and returns datagrams and things to do. Nothing in it waits: the
//! caller comes back at [`Engine::deadline`] at the latest.
//!
//! An engine is made of parts. Each has its own state, takes what it needs of the others as arguments, and
//! says by its `deadline` when it has to be looked at again if nothing happens. Between deadlines the engine
//! does nothing but take in what it is told.
//!
//! | part | what it does | who has it |
//! |---|---|---|
//! | `own` | what the agent says of its node; whether it trusts its view | every member |
//! | `contacts` | heartbeats, acks, relays, lives, replay windows | every member |
//! | `watches` | edges: up, degraded, one-way, down | every observer |
//! | `edges` | what observers report to each other | every observer |
//! | `voter` | ballots | every voter |
//! | `reporter` | tally, suspects, confirm rounds | the three reporters |
//! | `publication` | what ZoneHealth shall say | the three reporters, the Lease's holder first |
//! | `proof` | writes that prove the link to the API server | every listed member |
//! | `roster_fetch` | newer rosters that other members have | every member that is cut off |
//! | `hand_over` | reports for agents of other cells to write | reporters of a cell without a link |
//! | `carrier` | what an agent does for such cells | every member that has a link |
//! | `acknowledgement` | which roster is in force here, and whom a learner has met | learners; all while a roster settles |
//! | `regular_check` | whether this agent's checks reach a member at all | everybody, one member a minute |
//!
//! They share a `context`; `reach` is what contacts and watches say together,
//! and `ranking` says who reports. What goes in and comes out
//! is in `event`.

mod acknowledgement;
mod between_cells;
mod budget;
mod carrier;
mod contacts;
mod context;
mod due;
mod edges;
mod event;
mod hand_over;
mod own;
mod parts;
mod proof;
mod publication;
mod ranking;
mod reach;
mod receive;
mod regular_check;
mod reporter;
mod roster_fetch;
mod search;
mod voter;
mod watches;
mod window;
mod write;

pub use carrier::MOST_CARRIED;
pub use contacts::Met;
pub use event::{CheckResult, Input, Note, Output, Question, ReportDraft};

use crate::Millis;
use crate::keys::{Ed25519, Signer, Verifier};
use crate::roster::{MemberId, Roster, RosterKeys};
use crate::wire::{Challenge, ConfirmRequest, Facts};
use acknowledgement::Acknowledgement;
use carrier::Carrier;
use contacts::Contacts;
use context::Context;
use edges::EdgeReports;
use hand_over::HandOver;
use own::Own;
use proof::LinkProof;
use publication::Publication;
use reach::Reach;
use regular_check::RegularChecks;
use reporter::{Reporter, View};
use roster_fetch::RosterFetch;
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use voter::{Asker, Sight, Voter};
use watches::Watches;

/// A gap between two calls longer than this is a pause of this process: its view is stale. The process did
/// not run if it also missed its deadline, by more than this. An engine with a period of 2 s or less always
/// has a deadline within 2 s of each call, so that no pause is taken for a time in which nothing was to be
/// done.
pub const PAUSE_MS: u64 = 3_000;
const LATE_BY_A_PAUSE_MS: u64 = 1_000;
/// A shorter gap, but far longer than it takes to be called: what was under way has to be looked at again.
/// While anything is under way, deadlines are at most 250 ms apart, the time between two probes.
const STALL_MS: u64 = 500;
const LATE_BY_A_STALL_MS: u64 = 250;
/// How long an agent's votes have no weight after a pause, at least.
const PAUSE_PENALTY_MS: u64 = 5_000;

/// Settings of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Heartbeat period T in milliseconds; 500 to 60 000, nearest bound otherwise.
    pub period_ms: u64,
    /// The link to the API server is down when the last contact is older than this.
    pub cloud_down_after_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            period_ms: 2_000,
            cloud_down_after_ms: 8_000,
        }
    }
}

/// Who this agent is.
#[derive(Debug)]
pub struct Identity {
    /// UID of its Node.
    pub uid: String,
    /// Its key: a [`SigningKey`](crate::keys::SigningKey), but in simulations.
    pub key: Arc<dyn Signer>,
    /// Random number of this life of the process (no clock: hazard 12).
    pub incarnation: u64,
    /// No statement of a former life had a sequence as high as this one.
    pub sequence_base: u64,
    /// Secret random bytes, for nonces and jitter.
    pub seed: [u8; 32],
    /// For how many milliseconds the machine has been up.
    pub uptime_ms: u64,
    /// Whom former lives of this agent have met.
    pub met: Met,
}

/// The agent's state machine.
pub struct Engine {
    cx: Context,
    own: Own,
    contacts: Contacts,
    watches: Watches,
    edges: EdgeReports,
    voter: Voter,
    reporter: Reporter,
    publication: Publication,
    proof: LinkProof,
    acknowledgement: Acknowledgement,
    regular_checks: RegularChecks,
    roster_fetch: RosterFetch,
    hand_over: HandOver,
    carrier: Carrier,
    /// What the caller was asked for with the last call.
    deadline: Millis,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({} in {:?})", self.cx.uid(), self.cx.roster())
    }
}

impl Engine {
    /// A new life of an agent. Members sign with Ed25519; see [`Engine::verifying_with`].
    pub fn new(config: Config, mut identity: Identity, roster: Arc<Roster>, now: Millis) -> Self {
        let config = Config {
            period_ms: config.period_ms.clamp(500, 60_000),
            ..config
        };
        let remembered = std::mem::take(&mut identity.met);
        let mut cx = Context::new(config, identity, Arc::new(Ed25519), roster, now);
        let contacts = Contacts::new(&cx, remembered);
        let mut acknowledgement = Acknowledgement::new();
        acknowledgement.look_again(&mut cx, &contacts);
        Self {
            own: Own::new(now),
            contacts,
            watches: Watches::new(&mut cx),
            edges: EdgeReports::new(&cx),
            voter: Voter::default(),
            reporter: Reporter::new(now),
            publication: Publication::new(now),
            proof: LinkProof::new(),
            acknowledgement,
            regular_checks: RegularChecks::new(now),
            roster_fetch: RosterFetch::default(),
            hand_over: HandOver::new(now),
            carrier: Carrier::default(),
            deadline: now,
            cx,
        }
    }

    /// The same engine in a zone whose members sign by another scheme. The agent's own key must be of that
    /// scheme.
    #[must_use]
    pub fn verifying_with(mut self, verifier: Arc<dyn Verifier>) -> Self {
        self.cx.verify_with(verifier);
        self
    }

    /// The same engine as the former version of Evenkeel has it.
    #[cfg(any(test, feature = "fixture"))]
    #[must_use]
    pub fn of_former_version(mut self) -> Self {
        self.cx.speak_version(crate::wire::MINOR - 1);
        self
    }

    /// The same engine as the next version of Evenkeel may have it: what it sends has fields and values that
    /// this version does not know.
    #[cfg(any(test, feature = "fixture"))]
    #[must_use]
    pub fn of_next_version(mut self) -> Self {
        self.cx.speak_version(crate::wire::MINOR + 1);
        self
    }

    /// The same engine without the bounds of what a member can have it look for. For simulations that show
    /// what the bounds are for.
    #[cfg(any(test, feature = "fixture"))]
    #[must_use]
    pub fn without_bounds(mut self) -> Self {
        self.voter.unbind();
        self
    }

    /// The same engine in a zone whose controllers sign rosters with these keys: it passes rosters on to
    /// other members, and takes them from others.
    #[must_use]
    pub fn trusting(mut self, keys: RosterKeys) -> Self {
        self.trust(keys);
        self
    }

    /// The same engine of an agent that changes its key: what others prove by this one counts, too.
    #[must_use]
    pub fn accepting(mut self, other: Option<Arc<dyn Signer>>) -> Self {
        self.cx.accept(other);
        self
    }

    /// From now on the controllers sign rosters with these keys. A roster that is in force stays.
    pub fn trust(&mut self, keys: RosterKeys) {
        self.cx.trust(keys);
    }

    /// Takes in what happened at `now`, and appends to `out` what is to be done, in order. `now` never runs
    /// backwards; if it does, it counts as standing still.
    pub fn handle(&mut self, now: Millis, input: Input<'_>, out: &mut Vec<Output>) {
        let (gap, late) = (now.since(self.cx.now()), now.since(self.deadline));
        self.cx.advance(now);
        self.cx.swap_outputs(out);
        if gap > PAUSE_MS && late > LATE_BY_A_PAUSE_MS {
            self.resume(gap);
        } else if gap > STALL_MS && late > LATE_BY_A_STALL_MS {
            self.stumble();
        }
        self.take(input);
        self.divert();
        self.deadline = self.next_deadline().max(self.cx.now());
        self.cx.swap_outputs(out);
    }

    fn take(&mut self, input: Input<'_>) {
        match input {
            Input::Datagram(bytes, source) => self.receive(bytes, source),
            Input::Tick => self.step(),
            Input::Facts { kubelet, runtime } => {
                if self.own.take_health(kubelet, runtime) {
                    self.tell_facts();
                }
            }
            Input::CloudContact => {
                if self.own.take_cloud_contact(self.cx.now()) {
                    self.tell_facts();
                }
            }
            Input::Checked {
                asked,
                suspect,
                result,
            } => {
                if result == CheckResult::Identity {
                    self.contacts.kubelet_proved(&self.cx, suspect);
                }
                let check = (asked, suspect, result);
                self.regular_checks.take(&mut self.cx, &mut self.contacts, check);
                self.voter.checked(&mut self.cx, &self.own, &self.contacts, check);
                self.count_own_ballots();
            }
            Input::Roster(roster) => {
                self.take_roster(Arc::clone(&roster));
                if self.cx.roster().cell() == roster.cell() {
                    let version = roster.reference().version;
                    self.acknowledgement
                        .take_shown(&mut self.cx, &self.contacts, version);
                }
            }
            Input::Keys { key, other } => self.cx.take_keys(key, other),
            Input::ChecksChanged => self.regular_checks.checks_changed(&self.cx),
            Input::Challenge { challenge, wanted } => self.take_challenge(challenge, wanted),
            Input::LeaseRead { member, renewal } => self.reporter.take_renewal(&self.cx, member, renewal),
            Input::ReportWritten { written } => self.take_written(written),
            Input::OtherRoster { .. }
            | Input::OtherChallenge { .. }
            | Input::CarriedWritten { .. }
            | Input::OtherLeaseRead { .. } => self.take_of_other_cell(input),
            Input::Leading(leading) => self.publication.lead(&self.cx, leading),
            Input::LinkProof { written } => self.proof.take(&mut self.cx, written),
            Input::Acknowledged { written } => {
                self.acknowledgement.take(&mut self.cx, &self.contacts, written);
            }
        }
    }

    /// When to come back with [`Input::Tick`] at the latest. It may be the time of the last call.
    pub fn deadline(&self) -> Millis {
        self.deadline
    }

    /// The roster in force.
    pub fn roster(&self) -> &Arc<Roster> {
        self.cx.roster()
    }

    /// The highest sequence used so far: a following life must begin above it.
    pub fn sequence(&self) -> u64 {
        self.cx.sequence()
    }

    /// What this agent says of its node.
    pub fn facts(&self) -> Facts {
        self.own.facts()
    }

    /// Whom this agent has met since the machine booted. A new roster and [`Output::Met`] change it.
    pub fn met(&self) -> &Met {
        self.contacts.remembered()
    }

    /// Where the agent of a member is reached, if that is not where the roster says.
    pub fn moved_to(&self, member: MemberId) -> Option<SocketAddr> {
        self.cx.moved_to(member)
    }

    /// Members whose agents answer and whom checks do not find: this agent votes none of them dead.
    pub fn not_found(&self) -> impl Iterator<Item = MemberId> {
        self.regular_checks.not_found()
    }

    /// Watched voters with a recent contact, and all watched voters.
    pub fn reach(&self) -> (usize, usize) {
        let (within, watched, _) = self.view().reach(&self.cx).count(self.cx.roster());
        (within, watched)
    }

    fn view(&self) -> View<'_> {
        View {
            own: &self.own,
            contacts: &self.contacts,
            watches: &self.watches,
            edges: &self.edges,
        }
    }

    fn next_deadline(&self) -> Millis {
        self.watches
            .deadline(&self.cx)
            .min(self.own.deadline(&self.cx))
            .min(self.edges.deadline(&self.watches))
            .min(self.voter.deadline())
            .min(self.reporter.deadline())
            .min(self.publication.deadline())
            .min(self.proof.deadline())
            .min(self.acknowledgement.deadline())
            .min(self.regular_checks.deadline())
            .min(self.roster_fetch.deadline())
            .min(self.hand_over.deadline())
            .min(self.carrier.deadline())
    }

    /// Does what is due. A part of which nothing is due does nothing.
    fn step(&mut self) {
        if self.own.look_at_link(&self.cx) {
            self.tell_facts();
        }
        let before = self.watches.changes();
        let reports = self.reporter.rank().is_some();
        self.watches
            .step(&mut self.cx, &mut self.contacts, &self.own, reports);
        self.look_at_changes(before);
        self.judge_myself();
        let mut sight = Sight {
            own: &self.own,
            contacts: &mut self.contacts,
            watches: &self.watches,
        };
        self.voter.step(&mut self.cx, &mut sight);
        self.count_own_ballots();
        self.report();
        let newly_lost = self.watches.take_newly_lost();
        if let Some(me) = self.cx.place() {
            for lost in &newly_lost {
                self.watches
                    .search_instead_of(&self.cx, &self.contacts, (*lost, me));
            }
        }
        let view = (&self.own, &self.contacts, &self.watches);
        self.edges.step(&mut self.cx, view, &newly_lost);
        self.proof.step(&mut self.cx);
        self.acknowledgement.step(&mut self.cx, &self.contacts);
        self.regular_checks
            .step(&mut self.cx, &self.own, &mut self.contacts);
        self.roster_fetch.step(&mut self.cx);
        self.step_between_cells();
    }

    fn judge_myself(&mut self) {
        let reach = Reach::new(&self.cx, &self.contacts, &self.watches);
        // The look needs the context for its note while contacts and watches are read.
        let turn = self.own.judge_myself(&mut self.cx, reach);
        if turn.endangered {
            self.proof.prove_unrequested(&mut self.cx);
        }
        if turn.changed {
            self.reporter.look_again(&self.cx);
            self.publication.look_again(&self.cx);
        }
    }

    fn report(&mut self) {
        let view = View {
            own: &self.own,
            contacts: &self.contacts,
            watches: &self.watches,
            edges: &self.edges,
        };
        let (looked, requests) = self.reporter.step(&mut self.cx, view);
        for request in requests {
            let me = Asker {
                id: self.cx.me(),
                knows_voted: false,
            };
            self.take_request(me, &request);
        }
        if looked {
            self.publication.look_again(&self.cx);
        }
        if let Some(began) = self.reporter.answered() {
            self.own.take_answers(&self.cx, began);
        }
        // Others may write for a cell of which nobody has a link.
        let is_due = self.publication.deadline() <= self.cx.now();
        let needed = is_due && hand_over::is_needed(&self.cx, &self.own);
        let alone = needed && self.view().ranking(&self.cx).nobody_is_up();
        self.publication
            .step(&mut self.cx, &self.own, &self.reporter, (needed, alone));
    }

    /// After a pause everything under way is stale, and this agent's view worth nothing for a while.
    fn resume(&mut self, gap: u64) {
        self.cx.note(Note::Paused(gap));
        self.own.pause(&self.cx);
        self.contacts.forget_sent();
        self.voter.resume(self.cx.now());
        self.reporter.drop_rounds();
        self.watches.begin_anew(&mut self.cx);
    }

    /// During a stall this process could not hear what arrived, so silence in that time accuses nobody.
    fn stumble(&mut self) {
        self.voter.distrust_silence();
        self.watches.distrust_silence(&self.cx);
    }

    fn take_challenge(&mut self, challenge: Challenge, wanted: BTreeSet<MemberId>) {
        if self.cx.take_challenge(challenge) {
            self.reporter.challenged(&self.cx);
        }
        let wanted_me = wanted.contains(&self.cx.me());
        self.reporter.want(&self.cx, wanted);
        self.proof.take_wanted(&mut self.cx, wanted_me);
    }

    fn take_written(&mut self, written: bool) {
        let reporters = self.reporters();
        self.publication.take_written(&mut self.cx, &reporters, written);
    }

    /// A roster that another agent passed on.
    fn take_passed_on(&mut self, roster: Arc<Roster>) {
        self.take_roster(Arc::clone(&roster));
        if *self.cx.roster() == roster {
            self.cx.put(Output::Roster(roster));
        }
    }

    fn take_roster(&mut self, roster: Arc<Roster>) {
        let Some(before) = self.cx.take_roster(roster) else {
            return;
        };
        self.contacts.take_roster(&self.cx, &before);
        self.watches.take_roster(&mut self.cx, &before);
        self.edges.take_roster(&self.cx, &before);
        self.reporter.take_roster(&self.cx);
        self.own.count_again(&self.cx);
        self.own.forget_answers(&self.cx);
        self.acknowledgement.look_again(&mut self.cx, &self.contacts);
        self.regular_checks.take_roster(&self.cx, &before);
        self.roster_fetch.take_roster(&self.cx);
    }

    /// Edges that changed concern the own view and the reporters.
    fn look_at_changes(&mut self, before: u64) {
        if self.watches.changes() != before {
            self.own.count_again(&self.cx);
            self.reporter.look_again(&self.cx);
        }
    }

    fn take_request(&mut self, asker: Asker, request: &ConfirmRequest) {
        let mut sight = Sight {
            own: &self.own,
            contacts: &mut self.contacts,
            watches: &self.watches,
        };
        if self.voter.take_request(&mut self.cx, &mut sight, asker, request) {
            let suspects = request.suspects.len();
            let most = suspects > 2 && 2 * suspects >= self.cx.roster().len();
            self.proof.prove_when_requested(&mut self.cx, most);
        }
        self.count_own_ballots();
    }

    fn count_own_ballots(&mut self) {
        for (ballot, bytes) in self.voter.take_own_ballots() {
            self.reporter.take_ballot(&self.cx, self.cx.me(), &ballot, &bytes);
        }
    }

    /// The facts about this agent's node have changed.
    fn tell_facts(&mut self) {
        let reporters = self.view().ranking(&self.cx).reporters();
        self.contacts.tell_facts(&mut self.cx, &self.own, &reporters);
        self.reporter.look_again(&self.cx);
        self.publication.look_again(&self.cx);
    }

    /// The members that report, as this agent sees it.
    fn reporters(&self) -> Vec<MemberId> {
        let roster = self.cx.roster();
        let reporters = self.view().ranking(&self.cx).reporters();
        let ids = reporters.iter().filter_map(|index| roster.member(*index));
        ids.map(|member| member.id).collect()
    }
}

#[cfg(test)]
mod tests;
