//! The run: a queue of events in virtual time over one world.

use crate::api::objects::{EPOCH, Object, cluster_key};
use crate::api::{Store, build};
use crate::event::{AgentDue, Call, Event, KubeletDue, ReplicaDue, Reply, Source, StockDue};
use crate::ledger::Ledger;
use crate::machine::Machine;
use crate::replica::Replica;
use crate::rng::Rng;
use crate::script::{Fault, Script};
use crate::stock::Stock;
use crate::watch::Watch;
use evenkeel_api::zone::{KubeletEndpoint, RosterMember};
use evenkeel_failover_rules::world::Kind;
use evenkeel_zone::Millis;
use evenkeel_zone::keys::stand_in::StandIn;
use evenkeel_zone::keys::{Ed25519, Signer, SigningKey, Verifier};
use evenkeel_zone::roster::{MemberId, zone_object_name};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Promises are looked at this often.
const CHECK_EVERY: u64 = 500;
/// A request without an answer after this time has none.
const REQUEST_MS: u64 = 2_000;

pub struct Sim {
    pub(crate) now: u64,
    /// Boxed, because a tree moves its entries around.
    queue: BTreeMap<(u64, u64), Box<Event>>,
    arrivals: u64,
    pub(crate) rng: Rng,
    pub(crate) script: Script,
    /// Whether our parts run. Without them this is stock Kubernetes.
    pub(crate) ours: bool,
    pub(crate) store: Store,
    pub(crate) machines: Vec<Machine>,
    pub(crate) by_id: BTreeMap<MemberId, usize>,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) stock: Stock,
    pub(crate) watches: Vec<Watch>,
    pub(crate) verifier: Arc<dyn Verifier>,
    pub(crate) ledger: Ledger,
    splits: BTreeMap<usize, BTreeSet<usize>>,
    cuts: BTreeMap<usize, usize>,
    pub(crate) api_down: usize,
    /// The stock controllers died with the API server, and begin anew with it.
    stock_died: bool,
    slow_writes: BTreeMap<usize, u64>,
    pub(crate) tracing: bool,
    pub(crate) trace: Vec<String>,
}

impl Sim {
    /// A run of a script. `ours`: with our parts; without them it is stock Kubernetes.
    pub fn new(script: Script, ours: bool) -> Self {
        let rng = Rng::new(script.seed).fork("run");
        let scheme = StandIn::new([7; 32]);
        let verifier: Arc<dyn Verifier> = if script.ed25519 {
            Arc::new(Ed25519)
        } else {
            Arc::new(scheme.clone())
        };
        let mut sim = Self {
            now: 0,
            queue: BTreeMap::new(),
            arrivals: 0,
            rng,
            ours,
            store: Store::default(),
            machines: Vec::new(),
            by_id: BTreeMap::new(),
            replicas: Vec::new(),
            stock: Stock::default(),
            watches: Vec::new(),
            verifier,
            ledger: Ledger::new(&script),
            splits: BTreeMap::new(),
            cuts: BTreeMap::new(),
            api_down: 0,
            stock_died: false,
            slow_writes: BTreeMap::new(),
            tracing: false,
            trace: Vec::new(),
            script,
        };
        sim.build(&scheme);
        sim
    }

    fn build(&mut self, scheme: &StandIn) {
        build::home(&mut self.store);
        let mut node = 0;
        for (zone, count) in self.script.zones.clone().into_iter().enumerate() {
            let name = format!("zone-{}", zone + 1);
            let mut members = Vec::new();
            for _ in 0..count {
                node += 1;
                let seed = [u8::try_from(node).unwrap_or(u8::MAX); 32];
                let signer: Arc<dyn Signer> = match SigningKey::from_seed(&seed) {
                    Ok(key) if self.script.ed25519 => Arc::new(key),
                    _ => Arc::new(scheme.signer(&seed)),
                };
                members.push(RosterMember {
                    name: build::node_name(node),
                    uid: build::node_uid(node),
                    address: format!("127.77.0.{node}:7946"),
                    public_key: signer.public().to_base64(),
                    kubelet: Some(KubeletEndpoint {
                        address: format!("127.77.0.{node}:10250"),
                        certificate_sha256: "00".to_owned(),
                    }),
                });
                self.by_id.insert(MemberId::of(&build::node_uid(node)), node);
                let boot = self.rng.below(1 << 30);
                self.machines.push(Machine::new(&name, signer, boot));
            }
            build::zone(&mut self.store, &name, &members);
        }
        for index in 0..self.script.steps.len() {
            let Some((at, ends)) = self.script.steps.get(index).map(|step| (step.at, step.ends())) else {
                continue;
            };
            self.at(at, Event::Step { index, begins: true });
            self.at(ends, Event::Step { index, begins: false });
        }
        self.begin_stock();
        for node in 1..=self.machines.len() {
            self.power_on(node);
        }
        if self.ours {
            self.begin_replicas();
        }
        let _ = self.store.news();
        self.at(CHECK_EVERY, Event::Check);
    }

    /// Keeps a readable trace.
    #[must_use]
    pub fn traced(mut self) -> Self {
        self.tracing = true;
        self
    }

    /// Plays to the end, or to the first broken promise; returns what was noted.
    pub fn play(mut self) -> (Ledger, Vec<String>) {
        let end = self.script.end();
        while self.now < end && !self.ledger.is_broken() {
            let Some(((at, _), event)) = self.queue.pop_first() else {
                break;
            };
            self.now = at.max(self.now);
            self.happen(*event);
            let ready = self.replicas.iter().filter(|replica| replica.is_ready()).count();
            self.ledger.guarded(self.now, ready);
            self.notify_watches();
        }
        self.ledger.finish(self.now, &self.store);
        (self.ledger, self.trace)
    }

    /// The wall clock, which is the same for all controllers.
    pub(crate) fn wall(&self) -> Millis {
        Millis(EPOCH + self.now)
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        if self.tracing {
            self.trace
                .push(format!("{:>9.3}  {}", self.now as f64 / 1000.0, text()));
        }
    }

    pub(crate) fn at(&mut self, at: u64, event: Event) {
        self.arrivals += 1;
        self.queue
            .insert((at.max(self.now), self.arrivals), Box::new(event));
    }

    pub(crate) fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now + delay, event);
    }

    fn happen(&mut self, event: Event) {
        // A stalled machine does nothing until it goes on; some of what its network card gets meanwhile is
        // lost.
        if let Some(node) = target(&event)
            && let Some(until) = self
                .machines
                .get(node - 1)
                .and_then(|machine| machine.stalled_until)
        {
            let lost = matches!(event, Event::Datagram { .. }) && self.rng.in_thousand(500);
            if !lost {
                self.at(until.max(self.now + 1), event);
            }
            return;
        }
        match event {
            Event::Step { index, begins } => self.step(index, begins),
            Event::Datagram { to, bytes } => self.agent_hears(to, &bytes),
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
            Event::Check => {
                self.check();
                self.after(CHECK_EVERY, Event::Check);
            }
        }
    }

    fn check(&mut self) {
        self.ledger.look(self.now, &self.store, self.ours);
    }

    fn step(&mut self, index: usize, begins: bool) {
        let Some(fault) = self.script.steps.get(index).map(|step| step.fault.clone()) else {
            return;
        };
        let ends = self.script.steps.get(index).map_or(0, crate::script::Step::ends);
        self.note(|| format!("{} {fault}", if begins { "begins:" } else { "ends:  " }));
        match fault {
            Fault::CutCloud(node) => {
                let count = self.cuts.entry(node).or_default();
                *count = if begins {
                    *count + 1
                } else {
                    count.saturating_sub(1)
                };
            }
            Fault::SplitLan(nodes) => {
                if begins {
                    self.splits.insert(index, nodes.into_iter().collect());
                } else {
                    self.splits.remove(&index);
                }
            }
            Fault::SlowWrites(by) => {
                if begins {
                    self.slow_writes.insert(index, by);
                } else {
                    self.slow_writes.remove(&index);
                }
            }
            Fault::PowerOff(node) if begins => self.power_off(node),
            Fault::PowerOff(node) => self.power_on(node),
            Fault::Stall(node) => {
                let machine = self.machines.get_mut(node - 1);
                if let Some(machine) = machine.filter(|machine| machine.powered) {
                    machine.stalled_until = begins.then_some(ends);
                }
            }
            Fault::KubeletDown(node) if begins => self.stop_kubelet(node),
            Fault::KubeletDown(node) => self.start_kubelet(node),
            Fault::AgentDown(node) | Fault::AgentUpgrade(node) if begins => self.stop_agent(node),
            Fault::AgentDown(node) => self.start_agent(node),
            Fault::AgentUpgrade(node) => {
                if let Some(machine) = self.machines.get_mut(node - 1) {
                    machine.version += 1;
                }
                self.start_agent(node);
            }
            Fault::ApiDown { stock_dies } => self.api_server(begins, stock_dies),
            Fault::HalfOpen(replica, kind) => self.half_open(replica, kind, begins),
            Fault::ReplicaDown(replica) if self.ours => self.replica_power(replica, !begins),
            Fault::ReplicaDown(_) => {}
            Fault::StockDown => {
                self.stop_stock();
                if !begins {
                    self.begin_stock();
                }
            }
        }
    }

    fn api_server(&mut self, begins: bool, stock_dies: bool) {
        if begins {
            self.api_down += 1;
            self.break_all_watches();
            if stock_dies {
                self.stop_stock();
                self.stock_died = true;
            }
        } else {
            self.api_down = self.api_down.saturating_sub(1);
            if self.api_down == 0 && std::mem::take(&mut self.stock_died) {
                let life = self.stock.life;
                let delay = self.rng.between(1_000, 15_000);
                self.after(
                    delay,
                    Event::Stock {
                        life,
                        due: StockDue::Start,
                    },
                );
            }
        }
    }

    /// Whether a datagram or a connection gets from one node to another.
    pub(crate) fn reaches(&self, from: usize, to: usize) -> bool {
        !self
            .splits
            .values()
            .any(|few| few.contains(&from) != few.contains(&to))
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

    /// Name of the ZoneHealth of the node's cell: as its agent was told, else the zone's first.
    pub(crate) fn cell_of(&self, node: usize) -> String {
        let agent = self.store.get(Kind::Agent, &cluster_key(&build::node_name(node)));
        let told = agent.and_then(|agent| match &**agent {
            Object::Agent(agent) => agent.status.as_ref().map(|status| status.cell.clone()),
            _ => None,
        });
        let zone = self
            .machines
            .get(node.wrapping_sub(1))
            .map(|machine| machine.zone.as_str());
        told.filter(|told| !told.is_empty())
            .unwrap_or_else(|| zone_object_name(zone.unwrap_or_default()))
    }

    /// The ZoneHealth of the node's cell, as it stands.
    pub(crate) fn zone_object(&self, node: usize) -> Option<std::rc::Rc<Object>> {
        self.store
            .get(Kind::Zone, &cluster_key(&self.cell_of(node)))
            .cloned()
    }

    fn power_on(&mut self, node: usize) {
        if let Some(machine) = self.machines.get_mut(node - 1) {
            machine.powered = true;
            machine.stalled_until = None;
        }
        self.start_agent(node);
        self.start_kubelet(node);
    }

    fn power_off(&mut self, node: usize) {
        if let Some(machine) = self.machines.get_mut(node - 1) {
            machine.powered = false;
            machine.stalled_until = None;
        }
        self.stop_agent(node);
        self.stop_kubelet(node);
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

/// The machine that an event needs in order to happen.
fn target(event: &Event) -> Option<usize> {
    match event {
        Event::Datagram { to: node, .. }
        | Event::Agent { node, .. }
        | Event::Kubelet { node, .. }
        | Event::Answer {
            to: Source::Agent(node, _) | Source::Kubelet(node, _),
            ..
        } => Some(*node),
        _ => None,
    }
}
