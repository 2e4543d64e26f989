//! The agent's state machine: heartbeats, suspicion, confirm rounds, votes, the zone's report.
//!
//! It takes datagrams, facts and the time, and returns datagrams and things to do. Nothing in it waits: the
//! caller comes back at [`Engine::deadline`] at the latest.
//!
//! | what | who | where |
//! |---|---|---|
//! | heartbeats, acks, relays, replay windows | every member | `contact` |
//! | edges: up, degraded, one-way, down | every observer | `watch` |
//! | ballots | every voter | `voter` |
//! | tally, suspects, confirm rounds | the three reporters | `reporter` |
//! | what ZoneHealth shall say | the three reporters, the Lease's holder first | `report` |
//! | writes that prove the link to the API server | every listed member | `link` |
//!
//! What goes in and comes out is in `event`.

mod contact;
mod event;
mod link;
mod peer;
mod report;
mod reporter;
mod voter;
mod watch;

pub use event::{CheckResult, Input, Note, Output, ZoneReport};

use crate::Millis;
use crate::keys::{self, Ed25519, Signer, Verifier};
use crate::roster::{Member, MemberId, REPORTERS, Roster};
use crate::verdict::{Link, ROSTER_SETTLE_MS};
use crate::vote::Council;
use crate::wire::{self, Body, EdgeState, Facts, Header, Message};
use peer::Peer;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// A gap between two calls longer than this is a pause of this process: its view is stale.
pub const PAUSE_MS: u64 = 3_000;
/// A shorter gap, but far longer than between two ticks: what was under way has to be looked at again.
const STALL_MS: u64 = 500;
/// How long an agent's votes have no weight after a pause, at least.
const PAUSE_PENALTY_MS: u64 = 5_000;
/// Longest time between two calls while nothing is under way, and while something is.
const IDLE_MS: u64 = 200;
const BUSY_MS: u64 = 50;

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
    /// Members that former lives of this agent have seen alive.
    pub seen_alive: BTreeSet<MemberId>,
}

/// The agent's state machine.
pub struct Engine {
    config: Config,
    identity: Identity,
    verifier: Arc<dyn Verifier>,
    me: MemberId,
    roster: Roster,
    previous: Option<(Roster, Millis)>,
    now: Millis,
    started: Millis,
    ticked: Millis,
    sequence: u64,
    draws: u64,
    peers: BTreeMap<MemberId, Peer>,
    sent: BTreeMap<u64, contact::Sent>,
    facts: Facts,
    cloud_contact: Option<Millis>,
    weightless_until: Millis,
    doubting: bool,
    /// It reaches half of those it watches or fewer, so it reports nothing.
    on_smaller_side: bool,
    /// It may be on the smaller side; `within` is how many it reached when it last looked.
    may_be_smaller: bool,
    within: usize,
    within_reach_since: Option<Millis>,
    edges: watch::Outbox,
    census_due: Millis,
    census: usize,
    /// Members about which the controller needs rounds; some of them may have left the roster.
    wanted: BTreeSet<MemberId>,
    proof: link::Proof,
    /// Writes that this agent still makes without being listed, to prove its link.
    unasked: u8,
    /// When such a series of writes last began.
    unasked_since: Option<Millis>,
    voter: voter::Voter,
    reporter: reporter::Reporter,
    out: Vec<Output>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({} in {:?})", self.identity.uid, self.roster)
    }
}

impl Engine {
    /// A new life of an agent. Members sign with Ed25519; see [`Engine::verifying_with`].
    pub fn new(config: Config, identity: Identity, roster: Roster, now: Millis) -> Self {
        let me = MemberId::of(&identity.uid);
        let config = Config {
            period_ms: config.period_ms.clamp(500, 60_000),
            ..config
        };
        let mut engine = Self {
            config,
            sequence: identity.sequence_base,
            identity,
            verifier: Arc::new(Ed25519),
            me,
            roster,
            previous: None,
            now,
            started: now,
            ticked: now,
            draws: 0,
            peers: BTreeMap::new(),
            sent: BTreeMap::new(),
            facts: Facts::default(),
            cloud_contact: None,
            weightless_until: Millis(0),
            doubting: true,
            on_smaller_side: true,
            may_be_smaller: true,
            within: 0,
            within_reach_since: None,
            edges: watch::Outbox::default(),
            census_due: now,
            census: 0,
            wanted: BTreeSet::new(),
            proof: link::Proof::default(),
            unasked: 0,
            unasked_since: None,
            voter: voter::Voter::default(),
            reporter: reporter::Reporter::default(),
            out: Vec::new(),
        };
        engine.meet();
        engine
    }

    /// The same engine in a zone whose members sign by another scheme. The agent's own key must be of that
    /// scheme.
    #[must_use]
    pub fn verifying_with(mut self, verifier: Arc<dyn Verifier>) -> Self {
        self.verifier = verifier;
        self
    }

    /// Takes in what happened at `now` and returns what is to be done, in order. `now` never runs backwards;
    /// if it does, it counts as standing still.
    pub fn handle(&mut self, now: Millis, input: Input<'_>) -> Vec<Output> {
        let gap = now.since(self.now);
        self.now = now.max(self.now);
        if gap > PAUSE_MS {
            self.resume(gap);
        } else if gap > STALL_MS {
            self.stumble();
        }
        match input {
            Input::Datagram(bytes) => self.receive(bytes),
            Input::Tick => self.tick(),
            Input::Facts { kubelet, runtime } => {
                let before = self.facts;
                (self.facts.kubelet, self.facts.runtime) = (kubelet, runtime);
                self.report_if_changed(before);
            }
            Input::CloudContact => {
                let before = self.facts;
                self.cloud_contact = Some(self.now);
                self.facts.cloud = Link::Up;
                self.report_if_changed(before);
            }
            Input::Checked {
                round,
                suspect,
                result,
            } => self.checked(round, suspect, result),
            Input::Roster(roster) => self.take_roster(roster),
            Input::Wanted(wanted) => self.wanted = wanted,
            Input::Published(status) => self.take_published(status),
            Input::Leading(leading) => self.reporter.leading = leading,
            Input::LinkProof { written } => self.take_proof(written),
        }
        std::mem::take(&mut self.out)
    }

    /// When to come back with [`Input::Tick`] at the latest.
    pub fn deadline(&self) -> Millis {
        let busy = self.voter.is_busy() || self.reporter.is_busy() || self.peers.values().any(Peer::is_busy);
        // From the last tick, not from the last datagram: traffic must not put it off.
        let latest = self.ticked.plus(if busy { BUSY_MS } else { IDLE_MS });
        self.reporter
            .next_dead_round_after(self.ticked)
            .map_or(latest, |at| at.min(latest))
    }

    /// The roster in force.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// The highest sequence used so far: a following life must begin above it.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// What this agent says of its node.
    pub fn facts(&self) -> Facts {
        self.facts
    }

    /// Peers with a recent contact, and all.
    pub fn reach(&self) -> (usize, usize) {
        let watched = self.peers.values().filter(|peer| peer.watch.is_some());
        let within = watched.clone().filter(|peer| self.is_live(peer)).count();
        (within, watched.count())
    }

    fn tick(&mut self) {
        self.ticked = self.now;
        self.sent
            .retain(|_, sent| self.now.since(sent.at) < contact::FORGET_SENT_MS);
        if self
            .previous
            .as_ref()
            .is_some_and(|(_, since)| self.now.since(*since) > ROSTER_SETTLE_MS)
        {
            self.previous = None;
        }
        let before = self.facts;
        self.facts.cloud = self.cloud_link();
        self.report_if_changed(before);
        self.tick_watches();
        self.judge_myself();
        self.tick_votes();
        self.tick_reporter();
        self.tick_edges();
        self.tick_link();
    }

    /// After a pause everything under way is stale, and this agent's view worth nothing for a while.
    fn resume(&mut self, gap: u64) {
        self.out.push(Output::Note(Note::Paused(gap)));
        self.weightless_until = self.now.plus(PAUSE_PENALTY_MS.max(2 * self.config.period_ms));
        self.sent.clear();
        self.voter.clear();
        self.reporter.drop_rounds();
        self.schedule_watches();
    }

    /// During a stall this process could not hear what arrived, so silence in that time accuses nobody.
    fn stumble(&mut self) {
        self.voter.distrust_silence();
        for watch in self.peers.values_mut().filter_map(|peer| peer.watch.as_mut()) {
            if let peer::Phase::Probing { since, sent } = &mut watch.phase {
                (*since, *sent) = (self.now, 0);
            }
        }
    }

    /// Finds out whether this agent may accuse anybody. It may not while it reaches half of those it watches
    /// or fewer, for a while after a pause, and before it has met a majority in this life.
    ///
    /// Above all-pairs size those it watches are a sample: with 40 % of the zone dead, every sixth sample of
    /// ten is for the greater part dead. There a voter doubts itself when three quarters are out of reach,
    /// and the majority of all votes stands against a smaller side; who reports still needs more than half.
    fn judge_myself(&mut self) {
        let (within, watched) = self.reach();
        // Of two members one is never more than half. They never reach a verdict, and their report only says
        // so.
        let in_reach = if self.roster.len() == 2 {
            self.peers.values().any(|peer| peer.seen_alive)
        } else {
            (within + 1) * 2 > watched + 1
        };
        // With a sample, half of the zone may be out of reach when a third of the sample is.
        let may_be_smaller = !in_reach || !self.roster.all_pairs() && within * 3 < watched * 2;
        let loses_more = within < std::mem::replace(&mut self.within, within);
        if may_be_smaller && (loses_more || !self.may_be_smaller) {
            self.prove_unrequested();
        }
        self.may_be_smaller = may_be_smaller;
        self.on_smaller_side = !in_reach;
        match (in_reach, self.within_reach_since) {
            (true, None) => self.within_reach_since = Some(self.now),
            (false, Some(_)) => self.within_reach_since = None,
            _ => {}
        }
        let hears_enough = in_reach || (!self.roster.all_pairs() && (within + 1) * 4 > watched + 1);
        let doubting = !hears_enough || self.now < self.weightless_until;
        if doubting != self.doubting {
            self.doubting = doubting;
            self.out.push(Output::Note(Note::Doubt(doubting)));
        }
    }

    /// Whether this agent has reached a majority for long enough to have an opinion of every member.
    fn is_settled(&self) -> bool {
        !self.doubting
            && self
                .within_reach_since
                .is_some_and(|since| self.now.since(since) >= 2 * self.config.period_ms)
    }

    fn cloud_link(&self) -> Link {
        match self.cloud_contact {
            Some(at) if self.now.since(at) <= self.config.cloud_down_after_ms => Link::Up,
            Some(_) => Link::Down,
            None if self.now.since(self.started) <= self.config.cloud_down_after_ms => Link::Unknown,
            None => Link::Down,
        }
    }

    fn cloud_age(&self) -> u16 {
        let age = self.cloud_contact.map_or(u64::MAX, |at| self.now.since(at) / 100);
        u16::try_from(age).unwrap_or(u16::MAX)
    }

    fn council(&self) -> Council<'_> {
        Council {
            current: &self.roster,
            previous: self.previous.as_ref().map(|(roster, _)| roster),
        }
    }

    fn take_roster(&mut self, roster: Roster) {
        if roster.reference().version <= self.roster.reference().version {
            return;
        }
        let before = std::mem::replace(&mut self.roster, roster);
        for member in self.roster.members() {
            // A member with another key is another agent, and nothing that was known of the former one holds
            // for it.
            if before.get(member.id).is_some_and(|old| old.key != member.key) {
                self.peers.remove(&member.id);
            }
        }
        self.previous = Some((before, self.now));
        self.reporter.drop_rounds();
        self.meet();
    }

    /// Makes peers of the roster's members and forgets those who left.
    fn meet(&mut self) {
        let Self {
            peers,
            roster,
            reporter,
            me,
            identity,
            now,
            ..
        } = self;
        peers.retain(|id, _| roster.contains(*id));
        reporter.retain(roster);
        for id in roster.others(*me) {
            peers
                .entry(id)
                .or_insert_with(|| Peer::new(identity.seen_alive.contains(&id), *now));
        }
        let subjects: BTreeSet<MemberId> = roster.subjects_of(*me).into_iter().collect();
        for (id, peer) in peers.iter_mut() {
            if !subjects.contains(id) {
                peer.watch = None;
            }
        }
        for id in subjects {
            if self.peers.get(&id).is_some_and(|peer| peer.watch.is_none()) {
                let due = self.now.plus(self.draw(self.config.period_ms / 2));
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.watch = Some(peer::Watch::new(due));
                }
            }
        }
    }

    /// Whether the peer counts as alive: contact within three periods, and its edge is not down.
    fn is_live(&self, peer: &Peer) -> bool {
        let down = peer
            .watch
            .as_ref()
            .is_some_and(|watch| watch.state == EdgeState::Down);
        !down
            && peer
                .contact
                .is_some_and(|at| self.now.since(at) <= 3 * self.config.period_ms)
    }

    /// The members that report, best first.
    fn reporters(&self) -> Vec<MemberId> {
        let has_cloud = |id: MemberId| {
            if id == self.me {
                return self.facts.cloud == Link::Up;
            }
            self.peers
                .get(&id)
                .is_some_and(|peer| self.is_live(peer) && peer.facts.cloud == Link::Up)
        };
        let mut ranked = self.roster.reporters_by_rank(has_cloud);
        ranked.truncate(REPORTERS);
        ranked
    }

    /// A number below `bound` (0 for 0), from the seed: the same seed and inputs give the same run.
    fn draw(&mut self, bound: u64) -> u64 {
        let bytes: [u8; 8] = keys::prefix(&self.random());
        u64::from_be_bytes(bytes).checked_rem(bound).unwrap_or_default()
    }

    fn random(&mut self) -> [u8; 32] {
        self.draws += 1;
        keys::hash("evenkeel draw", &[&self.identity.seed, &self.draws.to_be_bytes()])
    }

    fn seal(&mut self, to: MemberId, body: Body) -> (u64, Vec<u8>) {
        self.sequence += 1;
        let header = Header {
            from: self.me,
            to,
            incarnation: self.identity.incarnation,
            sequence: self.sequence,
        };
        (
            self.sequence,
            wire::seal(&Message { header, body }, &*self.identity.key),
        )
    }

    fn send_bytes(&mut self, to: MemberId, bytes: Vec<u8>) {
        if let Some(Member { address, .. }) = self.roster.get(to) {
            self.out.push(Output::Send {
                to,
                address: *address,
                bytes,
            });
        }
    }

    fn send(&mut self, to: MemberId, body: Body) {
        let (_, bytes) = self.seal(to, body);
        self.send_bytes(to, bytes);
    }

    fn name(&self, id: MemberId) -> String {
        self.roster
            .get(id)
            .map_or_else(|| format!("{id:?}"), |member| member.name.clone())
    }
}

#[cfg(test)]
mod tests;
