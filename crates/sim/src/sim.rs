//! The run: a queue of events in virtual time over one world.

use crate::api::objects::{EPOCH, Object};
use crate::api::{Store, build};
use crate::clock::Clock;
use crate::event::{AgentDue, Call, CellKey, Event, KubeletDue, ReplicaDue, Reply, Source};
use crate::ledger::Ledger;
use crate::machine::Machine;
use crate::network::Links;
use crate::queue::{Payloads, Queue};
use crate::replica::Replica;
use crate::rng::Rng;
use crate::script::{Fault, Level, Script};
use crate::stock::Stock;
use crate::watch::Watch;
use crate::zones::Reader;
use evenkeel_api::zone::{KubeletEndpoint, RosterMember};
use evenkeel_failover_rules::planner::roster::Progress;
use evenkeel_zone::Millis;
use evenkeel_zone::keys::stand_in::StandIn;
use evenkeel_zone::keys::{Ed25519, Signer, SigningKey, Verifier};
use evenkeel_zone::roster::{Roster, RosterKeys};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// Promises are looked at this often.
const CHECK_EVERY: u64 = 500;
/// Within that time, which may hold the budget of a second, a member that keeps the rules sends no more
/// datagrams than this because of one that does not. In a cell of 64 that second has four searches for all:
/// 256 suspects are looked for, of which each gets up to three probes, directly and through another member,
/// within that time. The rest is its own traffic in a round about a whole cell.
const MOST_SENT: u64 = 2_000;
/// What a socket's receive buffer of the usual size holds of datagrams like ours: 212,992 bytes, of which
/// each takes 768.
const SOCKET_HOLDS: u32 = 277;
/// A request without an answer after this time has none.
const REQUEST_MS: u64 = 2_000;

pub struct Sim {
    pub(crate) now: u64,
    queue: Queue,
    pub(crate) payloads: Payloads,
    pub(crate) rng: Rng,
    pub(crate) script: Script,
    pub(crate) level: Level,
    pub(crate) links: Links,
    pub(crate) store: Store,
    pub(crate) machines: Vec<Machine>,
    pub(crate) replicas: Vec<Replica>,
    /// Which replica a step has killed.
    pub(crate) killed_leaders: BTreeMap<usize, usize>,
    /// What a step is to restore.
    pub(crate) backups: BTreeMap<usize, Vec<Rc<Object>>>,
    /// Who reads reports where there are no replicas.
    pub(crate) reader: Reader,
    /// By zone object: its roster as it was read last. Hundreds of agents read the same one.
    pub(crate) rosters: BTreeMap<String, Arc<Roster>>,
    /// The nodes of each cell, and what its keeper knows of its roster; in a run of zones alone.
    pub(crate) cells: BTreeMap<CellKey, Vec<usize>>,
    pub(crate) progress: BTreeMap<CellKey, Progress>,
    scheme: StandIn,
    /// Bytes of the largest report that was written, as JSON; in a run of zones alone.
    pub(crate) largest_report: usize,
    pub(crate) stock: Stock,
    pub(crate) watches: Vec<Watch>,
    pub(crate) verifier: Arc<dyn Verifier>,
    /// The controllers' key, which signs rosters.
    pub(crate) roster_key: Arc<dyn Signer>,
    pub(crate) ledger: Ledger,
    pub(crate) cuts: BTreeMap<usize, usize>,
    pub(crate) api_down: usize,
    /// The stock controllers died with the API server, and begin anew with it.
    pub(crate) stock_died: bool,
    /// Faults that drop checks of kubelets.
    pub(crate) checks_dropped: usize,
    pub(crate) slow_writes: BTreeMap<usize, u64>,
    pub(crate) stale_reads: BTreeMap<usize, u64>,
    /// Who sent the datagram that an agent looks at now, or the last one.
    pub(crate) heard_from: usize,
    pub(crate) tracing: bool,
    pub(crate) trace: Vec<String>,
}

const ROSTER_KEY: [u8; 32] = [255; 32];

impl Sim {
    /// A run of a script.
    pub fn new(script: Script, level: Level) -> Self {
        let rng = Rng::new(script.seed).fork("run");
        let scheme = StandIn::new([7; 32]);
        let verifier: Arc<dyn Verifier> = if script.ed25519 {
            Arc::new(Ed25519)
        } else {
            Arc::new(scheme.clone())
        };
        let roster_key: Arc<dyn Signer> = match SigningKey::from_seed(&ROSTER_KEY) {
            Ok(key) if script.ed25519 => Arc::new(key),
            _ => Arc::new(scheme.signer(&ROSTER_KEY)),
        };
        let mut sim = Self {
            now: 0,
            queue: Queue::default(),
            payloads: Payloads::default(),
            rng,
            level,
            links: Links::new(script.network, script.seed),
            store: Store::default(),
            machines: Vec::new(),
            replicas: Vec::new(),
            killed_leaders: BTreeMap::new(),
            backups: BTreeMap::new(),
            reader: Reader::new(Arc::clone(&verifier)),
            rosters: BTreeMap::new(),
            cells: BTreeMap::new(),
            progress: BTreeMap::new(),
            scheme,
            largest_report: 0,
            stock: Stock::default(),
            watches: Vec::new(),
            verifier,
            roster_key,
            ledger: Ledger::new(&script),
            cuts: BTreeMap::new(),
            api_down: 0,
            stock_died: false,
            checks_dropped: 0,
            slow_writes: BTreeMap::new(),
            stale_reads: BTreeMap::new(),
            heard_from: 0,
            tracing: false,
            trace: Vec::new(),
            script,
        };
        sim.build();
        sim
    }

    fn build(&mut self) {
        build::home(&mut self.store);
        let joins = |step: &crate::script::Step| match step.fault {
            Fault::Join(node) => Some(node),
            _ => None,
        };
        let later: Vec<usize> = self.script.steps.iter().filter_map(joins).collect();
        let drift = i64::try_from(self.script.drift).unwrap_or_default();
        let mut node = 0;
        for (zone, count) in self.script.zones.clone().into_iter().enumerate() {
            let first = node + 1;
            for _ in 0..count {
                node += 1;
                let clock = Clock {
                    boot: self.rng.below(1 << 30),
                    rate: i64::try_from(self.rng.below(2 * self.script.drift + 1)).unwrap_or_default()
                        - drift,
                    wall: 0,
                };
                let signer = self.signer(node);
                self.machines
                    .push(Machine::new(&build::zone_name(zone), signer, clock));
            }
            self.build_zone(zone, (first..=node).collect(), &later);
        }
        for index in 0..self.script.steps.len() {
            let Some((at, ends)) = self.script.steps.get(index).map(|step| (step.at, step.ends())) else {
                continue;
            };
            self.at(at, Event::Step { index, begins: true });
            self.at(ends, Event::Step { index, begins: false });
        }
        if self.level == Level::Zones {
            self.begin_reader();
        } else {
            self.begin_stock();
        }
        for node in (1..=self.machines.len()).filter(|node| !later.contains(node)) {
            self.power_on(node);
        }
        if self.level == Level::System {
            self.begin_replicas();
        }
        let _ = self.store.news();
        self.at(CHECK_EVERY, Event::Check);
    }

    /// The key that the agent of a node signs with now.
    pub(crate) fn signer(&self, node: usize) -> Arc<dyn Signer> {
        let keys = self.machines.get(node - 1).map_or(0, |machine| machine.keys);
        let mut seed = [keys; 32];
        let bytes = (node as u64).to_be_bytes();
        for (to, from) in seed.iter_mut().zip(bytes) {
            *to = from;
        }
        match SigningKey::from_seed(&seed) {
            Ok(key) if self.script.ed25519 => Arc::new(key),
            _ => Arc::new(self.scheme.signer(&seed)),
        }
    }

    /// A node as a roster has it, by what its agent says of itself now.
    pub(crate) fn member(&self, node: usize) -> RosterMember {
        let machine = self.machines.get(node - 1);
        let moves = machine.map_or(0, |machine| machine.moves);
        let key = machine.map(|machine| machine.signer.public().to_base64());
        let host = format!("10.{moves}.{}.{}", node / 256, node % 256);
        RosterMember {
            name: build::node_name(node),
            uid: build::node_uid(node),
            address: format!("{host}:7959"),
            public_key: key.unwrap_or_default(),
            kubelet: Some(KubeletEndpoint {
                address: format!("{host}:10250"),
                certificate_sha256: "00".to_owned(),
            }),
            next_public_key: None,
            learner: false,
        }
    }

    /// Where the agent of a node listens now.
    pub(crate) fn address(&self, node: usize) -> SocketAddr {
        let moves = self.machines.get(node - 1).map_or(0, |machine| machine.moves);
        let [.., high, low] = (node as u32).to_be_bytes();
        SocketAddr::from(([10, moves, high, low], 7959))
    }

    /// Who may publish rosters.
    pub(crate) fn roster_keys(&self) -> RosterKeys {
        let keys = RosterKeys::new(vec![self.roster_key.public().clone()]);
        keys.verifying_with(Arc::clone(&self.verifier))
    }

    /// The node that has an address; none has an address that its node has left.
    pub(crate) fn node_at(&self, address: &SocketAddr) -> Option<usize> {
        let SocketAddr::V4(address) = address else {
            return None;
        };
        let [_, moves, high, low] = address.ip().octets();
        let node = usize::from(high) * 256 + usize::from(low);
        let machine = self.machines.get(node.checked_sub(1)?)?;
        (machine.moves == moves).then_some(node)
    }

    /// Keeps a readable trace.
    #[must_use]
    pub fn traced(mut self) -> Self {
        self.tracing = true;
        self
    }

    /// Plays to the end, or to the first broken promise; returns what was noted.
    pub fn play(mut self) -> (Ledger, Vec<String>) {
        self.play_until(self.script.end());
        self.ledger.finish(self.now, &self.store);
        self.finish_reader();
        (self.ledger, self.trace)
    }

    /// Plays to an instant, or to the first broken promise.
    pub(crate) fn play_until(&mut self, end: u64) {
        while self.now < end && !self.ledger.is_broken() {
            let Some((at, event)) = self.queue.pop() else {
                break;
            };
            self.now = at.max(self.now);
            self.happen(event);
            if self.level == Level::System {
                let ready = self.replicas.iter().filter(|replica| replica.is_ready()).count();
                self.ledger.guarded(self.now, ready);
            }
            self.notify_watches();
        }
    }

    /// The wall clock of a replica of the controller. That of the first one is true.
    pub(crate) fn wall_of(&self, replica: usize) -> Millis {
        let apart = self.script.replicas_apart;
        Millis((EPOCH + self.now).saturating_add_signed(if replica == 0 { 0 } else { apart }))
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        if self.tracing {
            self.trace
                .push(format!("{:>9.3}  {}", self.now as f64 / 1000.0, text()));
        }
    }

    pub(crate) fn at(&mut self, at: u64, event: Event) {
        self.queue.push(at.max(self.now), event);
    }

    pub(crate) fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now + delay, event);
    }

    fn happen(&mut self, event: Event) {
        let held = target(&event).and_then(|target| self.held(target, &event));
        match (held, event) {
            (None, event) => self.do_now(event),
            (Some(Held::Until(at)), event) => self.at(at, event),
            (Some(Held::Late(at)), event) => self.at(at, Event::Late(Box::new(event))),
            (Some(Held::Lost), Event::Datagram { payload, .. }) => drop(self.payloads.take(payload)),
            (Some(Held::Lost), _) => {}
        }
    }

    /// What keeps the machine of an event from seeing to it now.
    fn held(&mut self, target: Target, event: &Event) -> Option<Held> {
        let now = self.now;
        let (node, of_agent) = match target {
            Target::Agent(node) => (node, true),
            Target::Machine(node) => (node, false),
        };
        let machine = self.machines.get_mut(node - 1)?;
        // A stalled machine does nothing until it goes on; some of what its network card gets meanwhile is
        // lost.
        if let Some(until) = machine.stalled_until {
            let lost = matches!(event, Event::Datagram { .. }) && self.rng.in_thousand(500);
            return Some(if lost || !has_room(machine, event) {
                Held::Lost
            } else {
                Held::Until(until.max(now + 1))
            });
        }
        if !of_agent {
            return None;
        }
        // What a stopped process does not read waits in its sockets.
        if let Some(until) = machine.paused_until {
            return Some(if has_room(machine, event) {
                Held::Until(until.max(now + 1))
            } else {
                Held::Lost
            });
        }
        machine.unread = 0;
        if machine.slow == 0 || matches!(event, Event::Late(_)) {
            return None;
        }
        // A slow agent keeps the order of its events.
        let at = (now + self.rng.below(machine.slow + 1)).max(machine.slow_until);
        machine.slow_until = at;
        Some(Held::Late(at))
    }

    fn do_now(&mut self, event: Event) {
        match event {
            Event::Step { index, begins } => self.step(index, begins),
            Event::Datagram { from, to, payload } => self.agent_hears(from, to, payload),
            Event::Late(event) => self.do_now(*event),
            Event::Roster(cell) => self.keep_roster(cell),
            Event::Wanted(cell) => self.keep_wanted(cell),
            Event::Challenge(cell) => self.keep_challenge(cell),
            Event::Agent { node, life, due } => self.agent_due(node, life, due),
            Event::Kubelet { node, life, due } => self.kubelet_due(node, life, due),
            Event::Replica { replica, life, due } => self.replica_due(replica, life, due),
            Event::Stock { life, due } => self.stock_due(life, due),
            Event::Arrive { from, call, sent } => self.arrive(from, call, sent),
            Event::Answer { to, reply } => self.answer(to, reply),
            Event::Deliver {
                watch,
                epoch,
                delivery,
            } => self.deliver(watch, epoch, delivery),
            Event::Connect { watch, epoch } => self.connect(watch, epoch),
            Event::Hostile { node } => self.hostile_acts(node),
            Event::Check => {
                self.check();
                self.after(CHECK_EVERY, Event::Check);
            }
        }
    }

    /// What a hostile member can make the others send is bounded by their budgets.
    fn look_at_traffic(&mut self) {
        let now = self.now;
        let mut worst = None;
        for (node, machine) in (1..).zip(&mut self.machines) {
            let sent = machine.meter.datagrams;
            let more = sent - std::mem::replace(&mut machine.sent_before, sent);
            if more > MOST_SENT && machine.hostile.is_none() {
                worst = worst.max(Some((more, node)));
            }
        }
        if let Some((more, node)) = worst {
            let text = format!("node {node} sent {more} datagrams within {CHECK_EVERY} ms");
            self.ledger
                .breaks(now, "49: budgets bound what one member costs", text);
        }
    }

    fn check(&mut self) {
        if self.script.group.is_hostile() {
            self.look_at_traffic();
        }
        match self.level {
            Level::System => self.ledger.look(self.now, &self.store),
            Level::Stock => {}
            Level::Zones => self.look_at_reader(),
        }
    }

    /// Whether the node reaches the cloud.
    pub(crate) fn has_link(&self, node: usize) -> bool {
        self.cuts.get(&node).is_none_or(|count| *count == 0)
    }

    fn has_way(&self, source: Source) -> bool {
        match source {
            Source::Agent(node, _) | Source::Kubelet(node, _) => self.has_link(node),
            Source::Replica(..) => true,
        }
    }

    /// Sends a request to the API server. The answer, or that there is none, comes as an event.
    pub(crate) fn request(&mut self, from: Source, call: Call) {
        let mut delay = self.rng.between(2, 40);
        if call.is_write() {
            delay += self.slow_writes.values().max().copied().unwrap_or_default();
        }
        match from {
            Source::Agent(node, _) => {
                if let Some(machine) = self.machines.get_mut(node - 1) {
                    machine.meter.requests += call.requests();
                }
            }
            Source::Kubelet(node, _) => {
                let slow = self
                    .machines
                    .get(node - 1)
                    .map_or(0, |machine| machine.kubelet_slow);
                if slow > 0 {
                    delay += self.rng.below(slow + 1);
                }
            }
            Source::Replica(..) => {}
        }
        let sent = self.now;
        if self.has_way(from) {
            self.after(delay, Event::Arrive { from, call, sent });
        } else {
            self.lose(from, call, sent);
        }
    }

    fn lose(&mut self, to: Source, call: Call, sent: u64) {
        let reply = Reply::Lost(Box::new(call));
        self.at(sent + REQUEST_MS, Event::Answer { to, reply });
    }

    fn arrive(&mut self, from: Source, call: Call, sent: u64) {
        if self.api_down > 0 {
            let delay = self.rng.between(5, 500);
            let reply = Reply::Lost(Box::new(call));
            return self.after(delay, Event::Answer { to: from, reply });
        }
        let asked = call.husk();
        let reply = self.serve(from, call, sent);
        let delay = self.rng.between(2, 40);
        if self.has_way(from) {
            self.after(delay, Event::Answer { to: from, reply });
        } else {
            // It was done, and who asked for it does not learn so.
            self.lose(from, asked, sent);
        }
    }

    fn answer(&mut self, to: Source, reply: Reply) {
        match to {
            Source::Agent(node, life) => self.agent_answered(node, life, reply),
            Source::Kubelet(node, life) => self.kubelet_answered(node, life, reply),
            Source::Replica(replica, life) => self.replica_answered(replica, life, reply),
        }
    }

    /// Schedules what a process does again and again.
    pub(crate) fn agent_later(&mut self, node: usize, life: u64, delay: u64, due: AgentDue) {
        self.after(delay, Event::Agent { node, life, due });
    }

    pub(crate) fn kubelet_later(&mut self, node: usize, life: u64, delay: u64, due: KubeletDue) {
        self.after(delay, Event::Kubelet { node, life, due });
    }

    pub(crate) fn replica_later(&mut self, replica: usize, life: u64, delay: u64, due: ReplicaDue) {
        self.after(delay, Event::Replica { replica, life, due });
    }
}

/// Whether what arrives while nobody reads waits until somebody does.
fn has_room(machine: &mut Machine, event: &Event) -> bool {
    if !matches!(event, Event::Datagram { .. }) {
        return true;
    }
    machine.unread += 1;
    machine.unread <= SOCKET_HOLDS
}

/// Why an event does not happen now.
enum Held {
    /// Its machine or process stands still until then.
    Until(u64),
    /// Its agent is slow, and gets to it then.
    Late(u64),
    /// It never happens.
    Lost,
}

/// The machine that an event needs in order to happen, and whether its agent has to run.
enum Target {
    Agent(usize),
    Machine(usize),
}

fn target(event: &Event) -> Option<Target> {
    match event {
        Event::Datagram { to: node, .. }
        | Event::Agent { node, .. }
        | Event::Answer {
            to: Source::Agent(node, _),
            ..
        } => Some(Target::Agent(*node)),
        Event::Kubelet { node, .. }
        | Event::Answer {
            to: Source::Kubelet(node, _),
            ..
        } => Some(Target::Machine(*node)),
        Event::Late(event) => target(event),
        _ => None,
    }
}
