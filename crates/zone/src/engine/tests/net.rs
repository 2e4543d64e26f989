//! A deterministic network of engines.

mod cloud;

use super::met;
use crate::Millis;
use crate::engine::{CheckResult, Config, Engine, Identity, Input, Met, Note, Output, Question};
use crate::fixture::Fixture;
use crate::keys;
use crate::roster::{MemberId, MemberIndex, Roster, RosterKeys, publish};
use crate::verdict::{Book, Refusal, Verdict};
use crate::wire::{Body, Challenge, ConfirmRequest, Datagram, Facts, Nonce, Renewal};
use evenkeel_api::zone::{KubeletEndpoint, ListedNode, Report, RosterSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

const STEP_MS: u64 = 10;
pub(super) const ZONE: &str = "shore";

const HEARTBEAT: u8 = 1;
const EDGES: u8 = 4;
const CONFIRM: u8 = 5;

/// Size in the API server's store, with UIDs as long as real ones.
pub(super) fn stored_bytes(report: &Report) -> usize {
    let short: usize = report.nodes.iter().map(|node| 36 - node.uid.len()).sum();
    serde_json::to_vec(report).unwrap().len() + short
}

/// The kind of a datagram.
fn kind(bytes: &[u8]) -> Option<u8> {
    bytes.get(4).copied()
}

pub(super) struct Net {
    config: Config,
    zone: Fixture,
    pub(super) now: u64,
    pub(super) engines: Vec<Option<Engine>>,
    pub(super) spec: RosterSpec,
    pub(super) book: Book,
    /// What stands in the object of each reporter.
    pub(super) published: BTreeMap<usize, Report>,
    /// Size of the largest report that was ever written.
    pub(super) largest: usize,
    /// When who wrote its report, and what it says.
    pub(super) written: Vec<(u64, usize, String)>,
    /// Directed links that lose everything, 1-based; `(i, 0)` is node i's cloud link.
    pub(super) cut: BTreeSet<(usize, usize)>,
    pub(super) loss_percent: u64,
    /// Where nodes are that are no longer where the roster says.
    pub(super) moved: BTreeMap<usize, SocketAddr>,
    /// Datagrams take up to so many milliseconds longer than others, drawn anew for each.
    pub(super) jitter_ms: u64,
    /// When whose wish to hold the Lease changed, and to what.
    pub(super) stands: Vec<(u64, usize, bool)>,
    /// Who would report if it had a link.
    pub(super) ranked: BTreeSet<usize>,
    /// Nodes whose kubelet is up.
    pub(super) kubelets: BTreeSet<usize>,
    /// Nodes whose kubelet shows a certificate that nobody knows.
    pub(super) strange_kubelets: BTreeSet<usize>,
    /// A firewall between nodes drops checks, and nothing else.
    pub(super) checks_are_dropped: bool,
    pub(super) notes: Vec<(u64, usize, Note)>,
    pub(super) sent_bytes: BTreeMap<usize, usize>,
    pub(super) lying: BTreeSet<usize>,
    /// Somebody floods it, so that budgets may hold up others as well.
    pub(super) is_flooded: bool,
    /// When who first asked about whom in a round.
    pub(super) rounds: BTreeMap<(usize, Nonce, MemberId), u64>,
    /// When who last sent a heartbeat directly to whom.
    pub(super) heartbeats: BTreeMap<(usize, usize), u64>,
    /// When who told whom what it sees of those that it watches.
    pub(super) edges: Vec<(u64, usize, usize)>,
    /// When who wanted to write a report.
    pub(super) reports: Vec<(u64, usize)>,
    /// When who wrote to prove its link.
    pub(super) proofs: Vec<(u64, usize)>,
    /// When who acknowledged a roster: its version, and how many members and voters were met.
    pub(super) acknowledged: Vec<(u64, usize, (u64, usize, usize))>,
    /// Who took which version of the roster from another member.
    pub(super) passed_on: Vec<(usize, u64)>,
    /// Whether rosters are signed, and engines take them from each other.
    pub(super) signed: bool,
    /// What was first asked in each round.
    pub(super) requests: BTreeMap<(usize, Nonce), ConfirmRequest>,
    /// How often each node was called because its deadline was reached.
    pub(super) ticks: BTreeMap<usize, usize>,
    /// When who read whose Lease.
    pub(super) reads: Vec<(u64, usize, usize)>,
    /// How long a reading takes; nothing if it is never answered.
    pub(super) read_ms: Option<u64>,
    /// Readings come back without a renewal.
    pub(super) reads_fail: bool,
    /// By node, its last renewal. Kubelets that reach the cloud renew every 10 s.
    pub(super) renewals: BTreeMap<usize, Renewal>,
    wanted: BTreeSet<usize>,
    /// What the controller gave out: the current challenge, and the one before it.
    challenges: Vec<Challenge>,
    seed: u64,
    lives: u64,
    /// Of the present life of each node's agent.
    pub(super) incarnations: BTreeMap<usize, u64>,
    draws: u64,
    flying: BTreeMap<(u64, u64), (usize, Event)>,
    memory: BTreeMap<usize, Met>,
    pub(super) standing: BTreeSet<usize>,
    lease: Option<(usize, u64)>,
    lease_is_frozen: bool,
    told: BTreeSet<usize>,
}

enum Event {
    Datagram(Datagram, SocketAddr),
    Checked(Question, MemberId, CheckResult),
    Write(Box<Report>),
    Written(bool),
    LeaseRead(MemberId, Option<Renewal>),
}

impl Net {
    /// A zone of `count` nodes that has run for 20 s.
    pub(super) fn settled(count: u8, seed: u64) -> Self {
        let mut net = Self::fresh(count, seed);
        net.run(20_000);
        net
    }

    /// A zone that begins, in which rosters are signed.
    pub(super) fn signed(count: u8, seed: u64) -> Self {
        let mut net = Self::fresh(count, seed);
        net.signed = true;
        for i in 1..=net.count() {
            net.start(i);
        }
        net
    }

    pub(super) fn fresh(count: u8, seed: u64) -> Self {
        Self::with_period(count, seed, Config::default().period_ms)
    }

    /// A zone whose members send heartbeats that often.
    pub(super) fn with_period(count: u8, seed: u64, period_ms: u64) -> Self {
        // Larger zones sign by the stand-in, because they send much.
        let zone = if count > 16 {
            Fixture::stand_in(count)
        } else {
            Fixture::new(count)
        };
        let mut spec = zone.spec();
        for (position, member) in spec.members.iter_mut().enumerate() {
            member.kubelet = Some(KubeletEndpoint {
                address: format!("127.77.0.{}:10250", position + 1),
                certificate_sha256: "00".into(),
            });
        }
        let all: BTreeSet<usize> = (1..=usize::from(count)).collect();
        let mut net = Self {
            config: Config {
                period_ms,
                ..Config::default()
            },
            now: 1_000_000,
            engines: all.iter().map(|_| None).collect(),
            spec,
            book: Book::verifying_with(zone.verifier()),
            zone,
            published: BTreeMap::new(),
            largest: 0,
            written: Vec::new(),
            cut: BTreeSet::new(),
            loss_percent: 0,
            moved: BTreeMap::new(),
            jitter_ms: 0,
            stands: Vec::new(),
            ranked: BTreeSet::new(),
            kubelets: all.clone(),
            strange_kubelets: BTreeSet::new(),
            checks_are_dropped: false,
            notes: Vec::new(),
            sent_bytes: BTreeMap::new(),
            lying: BTreeSet::new(),
            is_flooded: false,
            rounds: BTreeMap::new(),
            heartbeats: BTreeMap::new(),
            edges: Vec::new(),
            reports: Vec::new(),
            proofs: Vec::new(),
            acknowledged: Vec::new(),
            passed_on: Vec::new(),
            signed: false,
            requests: BTreeMap::new(),
            ticks: BTreeMap::new(),
            reads: Vec::new(),
            read_ms: Some(60),
            reads_fail: false,
            renewals: BTreeMap::new(),
            wanted: BTreeSet::new(),
            challenges: vec![Fixture::CHALLENGE],
            seed,
            lives: 0,
            incarnations: BTreeMap::new(),
            draws: 0,
            flying: BTreeMap::new(),
            memory: BTreeMap::new(),
            standing: BTreeSet::new(),
            lease: None,
            lease_is_frozen: false,
            told: BTreeSet::new(),
        };
        net.issue();
        for i in all {
            net.start(i);
        }
        net
    }

    /// Everybody learns the present roster.
    pub(super) fn introduce(&mut self) {
        for i in 1..=self.count() {
            self.teach(i, self.roster());
        }
    }

    /// One node learns a roster.
    pub(super) fn teach(&mut self, i: usize, roster: Roster) {
        self.feed(i, Input::Roster(Arc::new(roster)));
    }

    pub(super) fn count(&self) -> usize {
        self.engines.len()
    }

    pub(super) fn roster(&self) -> Roster {
        let key = self.zone.roster_key();
        let published = publish(&self.spec, Some(&*key).filter(|_| self.signed));
        Roster::reopen(&published, &self.roster_keys()).unwrap()
    }

    fn roster_keys(&self) -> RosterKeys {
        let key = self.zone.roster_key();
        let keys = if self.signed {
            vec![key.public().clone()]
        } else {
            Vec::new()
        };
        RosterKeys::new(keys).verifying_with(self.zone.verifier())
    }

    /// The nodes in their order as reporters.
    pub(super) fn rendezvous(&self) -> Vec<usize> {
        let roster = self.roster();
        let order = roster.rendezvous().iter();
        let ids = order.map(|index| roster.member(*index).unwrap().id);
        ids.map(|id| self.index(id)).collect()
    }

    /// The nodes that watch node `i`.
    pub(super) fn observers_of(&self, i: usize) -> Vec<usize> {
        let roster = self.roster();
        let subject = roster.position(Fixture::id(i)).unwrap();
        self.nodes(&roster, roster.observers_of(subject))
    }

    /// The nodes that node `i` watches.
    pub(super) fn subjects_of(&self, i: usize) -> Vec<usize> {
        let roster = self.roster();
        let observer = roster.position(Fixture::id(i)).unwrap();
        self.nodes(&roster, roster.subjects_of(observer))
    }

    fn nodes(&self, roster: &Roster, members: &[MemberIndex]) -> Vec<usize> {
        let ids = members.iter().map(|index| roster.member(*index).unwrap().id);
        ids.map(|id| self.index(id)).collect()
    }

    /// A new life of the agent of node `i`.
    pub(super) fn start(&mut self, i: usize) {
        self.lives += 1;
        let incarnation = self.draw(u64::MAX);
        self.incarnations.insert(i, incarnation);
        let identity = Identity {
            uid: Fixture::uid(i),
            key: self.zone.signer(i),
            incarnation,
            sequence_base: self.lives << 32,
            seed: keys::hash("test", &[&self.seed.to_be_bytes(), &self.lives.to_be_bytes()]),
            uptime_ms: 3_600_000,
            met: self.memory.get(&i).cloned().unwrap_or_default(),
        };
        let engine = Engine::new(self.config, identity, Arc::new(self.roster()), Millis(self.now));
        let engine = engine.verifying_with(self.zone.verifier());
        self.engines[i - 1] = Some(engine.trusting(self.roster_keys()));
        self.told.remove(&i);
        // A new process holds no Lease.
        self.lease = self.lease.filter(|(holder, _)| *holder != i);
    }

    /// Node `i` has another key from its next start on, as the roster says.
    pub(super) fn rekey(&mut self, i: usize, seed: u8) {
        self.zone.rekey(i, seed);
        self.spec.members[i - 1].public_key = self.zone.key(i).public().to_base64();
    }

    /// Whether all others that run have had an answer of node `i` within three periods.
    pub(super) fn reaches_all(&self, i: usize) -> bool {
        let reach = |j: usize| self.engines[j - 1].as_ref().map(Engine::reach);
        let all = |(within, watched)| within == watched;
        (1..=self.count()).all(|j| reach(j).is_none_or(all))
            && reach(i).is_some_and(|(_, watched)| watched > 0)
    }

    /// Whom several checks of node `i` did not find.
    pub(super) fn not_found_by(&self, i: usize) -> BTreeSet<usize> {
        let engine = self.engines[i - 1].as_ref();
        let members = engine.into_iter().flat_map(Engine::not_found);
        members.map(|member| self.index(member)).collect()
    }

    /// Whom node `i` has met.
    pub(super) fn memory_of(&self, i: usize) -> BTreeSet<MemberId> {
        self.memory[&i].seen_alive.keys().copied().collect()
    }

    /// Node `i` begins a new life that has met everybody.
    pub(super) fn meet_all(&mut self, i: usize) {
        self.memory.insert(i, met(&self.roster(), 1..=self.count()));
        self.start(i);
    }

    /// Power off: agent and kubelet.
    pub(super) fn kill(&mut self, i: usize) {
        self.stop_agent(i);
        self.kubelets.remove(&i);
    }

    pub(super) fn revive(&mut self, i: usize) {
        self.kubelets.insert(i);
        self.start(i);
    }

    pub(super) fn stop_agent(&mut self, i: usize) {
        self.engines[i - 1] = None;
        self.standing.remove(&i);
    }

    /// Cuts all links between two groups of nodes, both ways.
    pub(super) fn split(&mut self, left: &[usize], right: &[usize]) {
        for a in left {
            for b in right {
                self.cut.extend([(*a, *b), (*b, *a)]);
            }
        }
    }

    pub(super) fn verdict(&self, i: usize) -> Verdict {
        self.book.verdict(&Fixture::uid(i))
    }

    pub(super) fn is_dead(&self, i: usize) -> bool {
        matches!(self.verdict(i), Verdict::Dead(_))
    }

    pub(super) fn is_alive(&self, i: usize) -> bool {
        self.vouched(i).is_some()
    }

    /// What a majority says of a node that it vouches for now.
    pub(super) fn vouched(&self, i: usize) -> Option<Facts> {
        match self.verdict(i) {
            Verdict::Alive(alive) if alive.until > Millis(self.now) => Some(Facts {
                cloud: alive.cloud,
                kubelet: alive.kubelet,
                runtime: alive.runtime,
            }),
            _ => None,
        }
    }

    /// Whether the reporters list a node.
    pub(super) fn is_listed(&self, i: usize) -> bool {
        self.listed().contains_key(&format!("node-{i}"))
    }

    pub(super) fn leader(&self) -> usize {
        self.lease.expect("somebody holds the Lease").0
    }

    /// Runs until `done`, returns the milliseconds it took; fails with a story after `within`.
    pub(super) fn until(&mut self, what: &str, within: u64, done: impl Fn(&Self) -> bool) -> u64 {
        let began = self.now;
        while !done(self) {
            if self.now - began >= within {
                let story: Vec<String> = self
                    .notes
                    .iter()
                    .map(|(at, i, note)| format!("{at} node-{i}: {note}"))
                    .collect();
                panic!(
                    "not within {within} ms: {what} (seed {})\n{}\n{:?}",
                    self.seed,
                    story.join("\n"),
                    self.summary()
                );
            }
            self.step();
        }
        self.now - began
    }

    pub(super) fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.step();
        }
    }

    /// Runs and checks after every step.
    pub(super) fn run_checking(&mut self, ms: u64, check: impl Fn(&Self)) {
        let end = self.now + ms;
        while self.now < end {
            self.step();
            check(self);
        }
    }

    /// Lets time pass for everybody but node `i`, which does not run.
    pub(super) fn run_without(&mut self, i: usize, ms: u64) {
        self.run_without_checking(i, ms, |_| {});
    }

    /// The same, and checks after every step.
    pub(super) fn run_without_checking(&mut self, i: usize, ms: u64, check: impl Fn(&Self)) {
        let frozen = self.engines[i - 1].take();
        self.run_checking(ms, check);
        self.engines[i - 1] = frozen;
        // Its elector is the first to wake up, and knows by its own clock.
        let leading = self.lease.is_some_and(|(holder, _)| holder == i);
        self.feed(i, Input::Leading(leading));
    }

    fn step(&mut self) {
        self.now += STEP_MS;
        self.step_cloud();
        while let Some(entry) = self
            .flying
            .first_entry()
            .filter(|entry| entry.key().0 <= self.now)
        {
            let (i, event) = entry.remove();
            match event {
                Event::Datagram(bytes, source) => self.feed(i, Input::Datagram(&bytes, source)),
                Event::Checked(asked, suspect, result) => self.feed(
                    i,
                    Input::Checked {
                        asked,
                        suspect,
                        result,
                    },
                ),
                Event::Write(report) => self.write(i, *report),
                Event::Written(written) => self.feed(i, Input::ReportWritten { written }),
                Event::LeaseRead(member, renewal) => self.feed(i, Input::LeaseRead { member, renewal }),
            }
        }
        for i in 1..=self.count() {
            let due = self.engines[i - 1]
                .as_ref()
                .is_some_and(|engine| engine.deadline() <= Millis(self.now));
            if due {
                *self.ticks.entry(i).or_default() += 1;
                self.feed(i, Input::Tick);
            }
        }
    }

    /// Node `i` says what its agent does not say by itself. Returns the number of bytes.
    pub(super) fn says(&mut self, i: usize, to: usize, body: &Body) -> usize {
        let sealed = self.engines[i - 1]
            .as_mut()
            .unwrap()
            .cx
            .seal(Fixture::id(to), body);
        let (bytes, source) = (sealed.unwrap().1, self.address(i));
        let length = bytes.len();
        self.after(20, to, Event::Datagram(bytes, source));
        length
    }

    pub(super) fn feed(&mut self, i: usize, input: Input<'_>) {
        let Some(engine) = self.engines[i - 1].as_mut() else {
            return;
        };
        let outputs = engine.on(Millis(self.now), input);
        for output in outputs {
            self.carry_out(i, output);
        }
    }

    fn carry_out(&mut self, i: usize, output: Output) {
        match output {
            Output::Send { to, address, bytes } => {
                *self.sent_bytes.entry(i).or_default() += bytes.len();
                self.note_round(i, &bytes);
                let j = self.index(to);
                if kind(&bytes) == Some(HEARTBEAT) {
                    self.heartbeats.insert((i, j), self.now);
                } else if kind(&bytes) == Some(EDGES) {
                    self.edges.push((self.now, i, j));
                }
                let lost = self.cut.contains(&(i, j)) || self.draw(100) < self.loss_percent;
                let astray = address != self.address(j);
                if !lost && !astray && self.engines[j - 1].is_some() {
                    let delay = 20 + self.draw(self.jitter_ms + 1);
                    let source = self.address(i);
                    self.after(delay, j, Event::Datagram(bytes, source));
                }
            }
            Output::Check {
                asked,
                suspect,
                within_ms,
            } => {
                let j = self.index(suspect);
                let is_cut = self.cut.contains(&(i, j)) || self.cut.contains(&(j, i));
                let engine = self.engines[i - 1].as_ref();
                let published = engine.and_then(|engine| Some(engine.roster().get(suspect)?.address));
                let moved = engine.and_then(|engine| engine.moved_to(suspect));
                let is_cut = is_cut || moved.or(published) != Some(self.address(j));
                let open = !is_cut && !self.checks_are_dropped && self.kubelets.contains(&j);
                let (delay, result) = if open && self.strange_kubelets.contains(&j) {
                    (30, CheckResult::Inconclusive)
                } else if open {
                    (30, CheckResult::Identity)
                } else {
                    (within_ms, CheckResult::Failed)
                };
                self.after(delay, i, Event::Checked(asked, suspect, result));
            }
            Output::Report(report) => {
                self.reports.push((self.now, i));
                self.after(20, i, Event::Write(Box::new(report.report)));
            }
            Output::ReadLease(member) => {
                let j = self.index(member);
                self.reads.push((self.now, i, j));
                let renewal = self.renewals.get(&j).copied().unwrap_or(Renewal::NO_LEASE);
                let renewal = Some(renewal).filter(|_| !self.reads_fail);
                if let Some(delay) = self.read_ms.filter(|_| self.reaches_cloud(i)) {
                    self.after(delay, i, Event::LeaseRead(member, renewal));
                }
            }
            // The links of these nodes are judged by what their agents say, not by their writes.
            Output::ProveLink => {
                self.proofs.push((self.now, i));
                let written = self.reaches_cloud(i);
                self.feed(i, Input::LinkProof { written });
            }
            Output::Acknowledge {
                version,
                met,
                met_voters,
            } => {
                let written = self.reaches_cloud(i);
                if written {
                    self.acknowledged.push((self.now, i, (version, met, met_voters)));
                }
                self.feed(i, Input::Acknowledged { written });
            }
            Output::Stand(stands) => {
                self.stands.push((self.now, i, stands));
                keep(&mut self.standing, i, stands);
            }
            Output::Ranked(ranked) => keep(&mut self.ranked, i, ranked),
            Output::Met => {
                let met = self.engines[i - 1].as_ref().map(|engine| engine.met().clone());
                self.memory.extend(met.map(|met| (i, met)));
            }
            Output::Note(note) => self.notes.push((self.now, i, note)),
            Output::Roster(roster) => self.passed_on.push((i, roster.reference().version)),
            Output::Follow(_) | Output::Carry { .. } | Output::ReadOtherLease { .. } => {
                panic!("there is one cell: {output:?}")
            }
            Output::Refused(reason) => assert!(
                self.is_flooded || reason != "budget",
                "who keeps the rules is not held up"
            ),
        }
    }

    /// When node `i` asked about a suspect, round by round.
    pub(super) fn rounds_of(&self, i: usize, suspect: usize) -> Vec<u64> {
        let of = |((asker, _, about), at): (&(usize, Nonce, MemberId), &u64)| {
            (*asker == i && *about == Fixture::id(suspect)).then_some(*at)
        };
        let mut times: Vec<u64> = self.rounds.iter().filter_map(of).collect();
        times.sort_unstable();
        times
    }

    fn note_round(&mut self, i: usize, bytes: &[u8]) {
        // All other kinds are spared the check of a signature.
        if kind(bytes) != Some(CONFIRM) {
            return;
        }
        let Some(message) = self.zone.open(bytes) else {
            return;
        };
        if let Body::Confirm(request) = message.body {
            for suspect in &request.suspects {
                let question = (i, request.round, suspect.member);
                self.rounds.entry(question).or_insert(self.now);
            }
            self.requests.entry((i, request.round)).or_insert(request);
        }
    }

    fn write(&mut self, i: usize, report: Report) {
        let written = self.reaches_cloud(i) && !self.lying.contains(&i);
        // A liar's agent says that it has written, and the API server never sees it.
        let says = self.reaches_cloud(i);
        self.after(20, i, Event::Written(says));
        if !written {
            return;
        }
        self.written.push((self.now, i, report.summary.clone()));
        let mut refused = self.book.roster(Millis(self.now), ZONE, self.roster());
        refused.extend(
            self.book
                .report(Millis(self.now), ZONE, &format!("node-{i}"), &report),
        );
        // A round may decide about some of its suspects and not about others.
        refused.retain(|refusal| !matches!(refusal, Refusal::NoMajority { refused: 0, .. }));
        assert_eq!(refused, vec![], "an honest report is believed");
        self.largest = self.largest.max(stored_bytes(&report));
        self.published.insert(i, report);
    }

    /// What the reports list, of each node what was written about it last.
    pub(super) fn listed(&self) -> BTreeMap<String, ListedNode> {
        let nodes = self.published.values().flat_map(|report| &report.nodes);
        nodes.map(|node| (node.name.clone(), node.clone())).collect()
    }

    /// The reports in words.
    pub(super) fn summary(&self) -> String {
        format!(
            "{:?}",
            self.published
                .values()
                .map(|report| &report.summary)
                .collect::<Vec<_>>()
        )
    }

    fn after(&mut self, delay: u64, i: usize, event: Event) {
        self.draws += 1;
        self.flying.insert((self.now + delay, self.draws), (i, event));
    }

    fn address(&self, i: usize) -> SocketAddr {
        let moved = self.moved.get(&i).copied();
        moved.unwrap_or_else(|| Fixture::address(i))
    }

    fn index(&self, id: MemberId) -> usize {
        (1..=self.count()).find(|i| Fixture::id(*i) == id).unwrap()
    }

    fn draw(&mut self, bound: u64) -> u64 {
        self.draws += 1;
        let digest = keys::hash("net", &[&self.seed.to_be_bytes(), &self.draws.to_be_bytes()]);
        u64::from_be_bytes(keys::prefix(&digest)) % bound
    }
}

/// Has the set hold the member, or not.
fn keep(members: &mut BTreeSet<usize>, i: usize, holds: bool) {
    if holds {
        members.insert(i);
    } else {
        members.remove(&i);
    }
}
