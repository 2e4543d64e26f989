//! What agents do: the shipping engine in a model of their shell.

use crate::api::objects::EPOCH;
use crate::api::objects::Object;
use crate::candidate::Candidate;
use crate::carrying::asked_of;
use crate::event::{AgentDue, Call, Event, LeaseTry, Reply, Source};
use crate::machine::{Agent, Following};
use crate::script::Level;
use crate::sim::Sim;
use evenkeel_api::crd::ZoneHealth;
use evenkeel_api::names::zone_lease;
use evenkeel_api::zone::RosterAcknowledgement;
use evenkeel_zone::Millis;
use evenkeel_zone::engine::{CheckResult, Config, Engine, Identity, Input, Output, Question};
use evenkeel_zone::roster::{CellRef, MemberId, Roster};
use evenkeel_zone::verdict::Health;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// The agent looks at its own kubelet this often, and calls it failing after so many failures.
const OWN_KUBELET_EVERY: u64 = 2_000;
const OWN_KUBELET_WITHIN: u64 = 1_000;
const KUBELET_FAILURES: u32 = 3;
const REGISTER_AGAIN: u64 = 2_000;
/// Node and AgentStatus are compared with what they should be after this time and up to half as much again.
const REGISTER_EVERY: u64 = 240_000;
/// Of the cell's Lease, as agents have them by default.
const LEASE_LASTS: u64 = 31_000;
const RENEW_WITHIN: u64 = 20_000;
const RETRY_LEASE: u64 = 10_000;
/// A life of an agent begins this many bits above the last one.
const SEQUENCE_BLOCK_BITS: u32 = 20;

impl Sim {
    pub(crate) fn stop_agent(&mut self, node: usize) {
        if let Some(machine) = self.machines.get_mut(node - 1) {
            machine.agent_life += 1;
            machine.paused_until = None;
            if let Some(agent) = machine.agent.take() {
                machine.sequence = agent.engine.sequence();
                machine.roster = agent.engine.roster().clone();
                machine.met = agent.engine.met().clone();
            }
        }
    }

    pub(crate) fn start_agent(&mut self, node: usize) {
        if self.level == Level::Stock {
            return;
        }
        let delay = self.rng.between(200, 1_500);
        if let Some(machine) = self.machines.get(node - 1).filter(|machine| machine.powered) {
            let life = machine.agent_life;
            self.agent_later(node, life, delay, AgentDue::Start);
        }
    }

    fn begin_agent(&mut self, node: usize) {
        let now = self.now;
        let Some(machine) = self
            .machines
            .get(node - 1)
            .filter(|machine| machine.agent.is_none())
        else {
            return;
        };
        let sequence = sequence_base(machine.sequence, EPOCH + machine.clock.of_day(now));
        let roster = machine.roster.clone();
        let Some(engine) = self.engine(node, roster, sequence) else {
            return;
        };
        let lease = self.rng.draw();
        let Some(machine) = self.machines.get_mut(node - 1) else {
            return;
        };
        // As the agent names itself in its zone's Lease: another candidate in each life.
        let me = format!("node-{node}_{lease:016x}");
        machine.agent = Some(Agent {
            engine,
            tick_at: u64::MAX,
            current: BTreeMap::new(),
            standing: false,
            ranked: false,
            leading: false,
            lease: Candidate::new(me, LEASE_LASTS),
            following: Following::default(),
            others: BTreeMap::new(),
            publishing: false,
            proving: false,
            proofs: None,
            failures: 0,
        });
        let life = machine.agent_life;
        let begins = self.rng.between(10, 400);
        self.follow_later(node, life, begins);
        self.agent_later(node, life, 100, AgentDue::OwnKubelet);
        self.agent_later(node, life, 1, AgentDue::Tick);
        if let Some(agent) = self
            .machines
            .get_mut(node - 1)
            .and_then(|machine| machine.agent.as_mut())
        {
            agent.tick_at = now + 1;
        }
        self.request(Source::Agent(node, life), Call::Register);
    }

    /// The engine of a new life.
    pub(crate) fn engine(&mut self, node: usize, roster: Arc<Roster>, sequence_base: u64) -> Option<Engine> {
        let (incarnation, seed) = (self.rng.draw(), self.rng.bytes());
        let machine = self.machines.get(node - 1)?;
        let identity = Identity {
            uid: crate::api::build::node_uid(node),
            key: Arc::clone(&machine.signer),
            incarnation,
            sequence_base,
            seed,
            uptime_ms: machine.uptime(self.now),
            met: machine.met.clone(),
        };
        let clock = Millis(machine.clock.local(self.now));
        let engine = Engine::new(Config::default(), identity, roster, clock);
        let engine = engine
            .verifying_with(Arc::clone(&self.verifier))
            .trusting(self.roster_keys());
        let engine = match node % 3 {
            0 if self.script.mixed_versions => engine.of_former_version(),
            1 if self.script.mixed_versions => engine.of_next_version(),
            _ => engine,
        };
        Some(if self.reader.rules.no_bounds {
            engine.without_bounds()
        } else {
            engine
        })
    }

    pub(crate) fn agent_hears(&mut self, from: usize, node: usize, payload: u32) {
        let source = self.address(from);
        let life = self.machines.get(node - 1).map(|machine| machine.agent_life);
        if let (Some(life), Some(bytes)) = (life, self.payloads.take(payload)) {
            if self.hostile_hears(node, from, &bytes) {
                return;
            }
            self.heard_from = from;
            self.feed(node, life, Input::Datagram(&bytes, source));
        }
    }

    pub(crate) fn agent_due(&mut self, node: usize, life: u64, due: AgentDue) {
        let now = self.now;
        let Some(machine) = self
            .machines
            .get_mut(node - 1)
            .filter(|machine| machine.agent_life == life)
        else {
            return;
        };
        if matches!(due, AgentDue::Start) {
            return self.begin_agent(node);
        }
        let slow = machine.kubelet_slow;
        let answers = machine.kubelet_up && (slow == 0 || self.rng.below(slow + 1) < OWN_KUBELET_WITHIN);
        let Some(agent) = machine.agent.as_mut() else {
            return;
        };
        match due {
            AgentDue::Start => {}
            AgentDue::Tick => {
                if agent.tick_at <= now {
                    agent.tick_at = u64::MAX;
                    self.feed(node, life, Input::Tick);
                }
            }
            AgentDue::Follow(epoch) => self.follow(node, life, epoch),
            AgentDue::Ping(epoch) => self.ping(node, life, epoch),
            AgentDue::Sees(epoch, object) => self.agent_sees(node, life, epoch, object),
            AgentDue::FollowOther(cell) => self.follow_other(node, life, cell),
            AgentDue::SeesOther(cell, object) => self.sees_other(node, life, cell, object),
            AgentDue::OwnKubelet => {
                agent.failures = if answers { 0 } else { agent.failures + 1 };
                let kubelet = match agent.failures {
                    0 => Some(Health::Ok),
                    failures if failures >= KUBELET_FAILURES => Some(Health::Failing),
                    _ => None,
                };
                self.agent_later(node, life, OWN_KUBELET_EVERY, AgentDue::OwnKubelet);
                if let Some(kubelet) = kubelet {
                    let runtime = Health::Unknown;
                    self.feed(node, life, Input::Facts { kubelet, runtime });
                }
            }
            AgentDue::Register => self.request(Source::Agent(node, life), Call::Register),
            AgentDue::Lease => self.campaign(node, life),
            AgentDue::Checked(asked, suspect, result) => {
                self.feed(
                    node,
                    life,
                    Input::Checked {
                        asked,
                        suspect,
                        result,
                    },
                );
            }
        }
    }

    /// The agent of a node, if it is still the process of this life.
    pub(crate) fn agent_of(&mut self, node: usize, life: u64) -> Option<&mut Agent> {
        self.machines.get_mut(node - 1)?.agent_of(life)
    }

    /// One step of standing for the zone's Lease.
    fn campaign(&mut self, node: usize, life: u64) {
        let now = self.now;
        let name = zone_lease(&self.cell_of(node));
        let Some(machine) = self.machines.get_mut(node - 1) else {
            return;
        };
        let Some(agent) = machine.agent_of(life) else {
            return;
        };
        if !agent.standing {
            agent.lease.campaigning = false;
            return;
        }
        let attempt = agent.lease.attempt(&name, now);
        let leading = agent.lease.holds(now, RENEW_WITHIN);
        let changed = std::mem::replace(&mut agent.leading, leading) != leading;
        self.agent_later(node, life, RETRY_LEASE, AgentDue::Lease);
        if changed {
            self.feed(node, life, Input::Leading(leading));
        }
        if let Some(attempt) = attempt {
            self.request(Source::Agent(node, life), Call::Lease(attempt));
        }
    }

    pub(crate) fn agent_answered(&mut self, node: usize, life: u64, reply: Reply) {
        let now = self.now;
        let Some(agent) = self.agent_of(node, life) else {
            return;
        };
        match reply {
            Reply::Cell(epoch, objects) => self.follows(node, life, epoch, objects),
            Reply::Pong(epoch) => self.pong(node, life, epoch),
            Reply::Registered => {
                let wait = REGISTER_EVERY + self.rng.below(REGISTER_EVERY / 2);
                self.agent_later(node, life, wait, AgentDue::Register);
            }
            Reply::LeaseRead(member, renewal) => {
                let renewal = Some(renewal);
                self.feed(node, life, Input::LeaseRead { member, renewal });
            }
            Reply::OtherCell(cell, objects) => self.follows_other(node, life, cell, objects),
            Reply::OtherLeaseRead(cell, member, renewal) => {
                self.other_lease_read(node, life, cell, (member, Some(renewal)));
            }
            Reply::CarriedWritten(cell, sequence) => self.carried(node, life, cell, (sequence, true)),
            Reply::Published => {
                agent.publishing = false;
                self.feed(node, life, Input::ReportWritten { written: true });
            }
            Reply::Proven(count) => {
                agent.proving = false;
                agent.proofs = Some(count);
                self.feed(node, life, Input::LinkProof { written: true });
            }
            Reply::Acknowledged => self.feed(node, life, Input::Acknowledged { written: true }),
            Reply::Lease { held, seen, sent } => {
                agent.lease.answered(now, held, seen, sent);
                let leading = agent.standing && agent.lease.holds(now, RENEW_WITHIN);
                if std::mem::replace(&mut agent.leading, leading) != leading {
                    self.feed(node, life, Input::Leading(leading));
                }
            }
            Reply::Lost(call) => self.agent_got_nothing(node, life, &call),
            Reply::Renewed { .. } | Reply::Done(_) | Reply::Versions(..) | Reply::Acted(..) => {}
        }
    }

    fn agent_got_nothing(&mut self, node: usize, life: u64, call: &Call) {
        let Some(agent) = self.agent_of(node, life) else {
            return;
        };
        match call {
            Call::WatchCell { epoch } | Call::Ping { epoch } => self.follows_no_more(node, life, *epoch),
            Call::ReadLease(member) => {
                let (member, renewal) = (*member, None);
                self.feed(node, life, Input::LeaseRead { member, renewal });
            }
            Call::Publish(_) => {
                agent.publishing = false;
                self.feed(node, life, Input::ReportWritten { written: false });
            }
            Call::WatchOther { cell } => self.follow_other_later(node, life, *cell),
            Call::ReadOtherLease { cell, member } => {
                self.other_lease_read(node, life, *cell, (*member, None));
            }
            Call::Carry { cell, sequence, .. } => self.carried(node, life, *cell, (*sequence, false)),
            Call::ProveLink { .. } => {
                agent.proving = false;
                agent.proofs = agent.proofs.map(|count| count + 1);
                self.feed(node, life, Input::LinkProof { written: false });
            }
            Call::Acknowledge(_) => self.feed(node, life, Input::Acknowledged { written: false }),
            Call::Lease(_) => agent.lease.lost(),
            Call::Register => self.agent_later(node, life, REGISTER_AGAIN, AgentDue::Register),
            _ => {}
        }
    }

    /// ZoneHealth or ZoneChallenge as it was read.
    pub(crate) fn agent_reads(&mut self, node: usize, life: u64, object: Rc<Object>) {
        let Some(agent) = self.agent_of(node, life) else {
            return;
        };
        let version = object
            .meta()
            .resource_version
            .as_deref()
            .and_then(|version| version.parse().ok());
        let version: u64 = version.unwrap_or_default();
        let name = object.meta().name.clone().unwrap_or_default();
        let known = agent.current.entry((object.kind(), name)).or_default();
        if *known >= version {
            return;
        }
        *known = version;
        match &*object {
            Object::Zone(zone) => {
                if let Some(roster) = self.roster_of(zone) {
                    self.moves(node, life, &roster);
                    self.feed(node, life, Input::Roster(roster));
                }
            }
            Object::Challenge(asked) => {
                let (challenge, wanted) = asked_of(asked);
                self.feed(node, life, Input::Challenge { challenge, wanted });
            }
            _ => {}
        }
    }

    /// The roster of a zone object. It is read once for all agents.
    pub(crate) fn roster_of(&mut self, zone: &ZoneHealth) -> Option<Arc<Roster>> {
        let name = zone.metadata.name.clone().unwrap_or_default();
        let published = zone.spec.signed_roster.as_ref()?;
        let known = self.rosters.get(&name);
        if let Some(known) = known.filter(|known| **known.published() == *published) {
            return Some(Arc::clone(known));
        }
        let cell = CellRef {
            name: &name,
            uid: zone.metadata.uid.as_deref().unwrap_or_default(),
        };
        let roster = Arc::new(Roster::open(published, cell, &self.roster_keys()).ok()?);
        self.rosters.insert(name, Arc::clone(&roster));
        Some(roster)
    }

    /// The one place where an engine is driven.
    pub(crate) fn feed(&mut self, node: usize, life: u64, input: Input<'_>) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(node - 1) else {
            return;
        };
        let clock = machine.clock;
        let Some(agent) = machine.agent_of(life) else {
            return;
        };
        let mut outputs = Vec::new();
        agent.engine.handle(Millis(clock.local(now)), input, &mut outputs);
        let deadline = clock.truly(agent.engine.deadline().0).max(now + 1);
        if deadline < agent.tick_at {
            agent.tick_at = deadline;
            self.at(
                deadline,
                Event::Agent {
                    node,
                    life,
                    due: AgentDue::Tick,
                },
            );
        }
        for output in outputs {
            self.agent_does(node, life, output);
        }
    }

    fn agent_does(&mut self, node: usize, life: u64, output: Output) {
        match output {
            Output::Send { address, bytes, .. } => {
                self.hostile_sends(node, &bytes);
                self.send(node, &address, bytes.to_vec());
            }
            Output::Check {
                asked,
                suspect,
                within_ms,
            } => self.check_kubelet(node, life, asked, suspect, within_ms),
            Output::Note(note) => self.note(|| format!("agent {node}: {note}")),
            Output::Refused(why) => {
                self.note(|| format!("agent {node}: datagram refused: {why}"));
                // Budgets are for those who break the rules.
                if why == "budget" && self.malice(self.heard_from).is_none() && !self.was_flooded(node) {
                    let text = format!("agent {node} refused a datagram of one that keeps the rules");
                    self.ledger.breaks(self.now, "budgets hold nobody up", text);
                }
            }
            Output::ReadLease(member) => {
                self.request(Source::Agent(node, life), Call::ReadLease(member));
            }
            Output::Report(draft) => {
                if let Some(agent) = self.agent_of(node, life).filter(|agent| !agent.publishing) {
                    agent.publishing = true;
                    let report = Box::new(self.hostile_publishes(node, draft.report));
                    self.request(Source::Agent(node, life), Call::Publish(report));
                }
            }
            Output::Follow(cells) => self.follow_others(node, life, &cells),
            Output::Carry { cell, draft } => {
                let (sequence, report) = (draft.report.sequence, Box::new(draft.report));
                let call = Call::Carry {
                    cell,
                    sequence,
                    report,
                };
                self.request(Source::Agent(node, life), call);
            }
            Output::ReadOtherLease { cell, member, .. } => {
                self.request(Source::Agent(node, life), Call::ReadOtherLease { cell, member });
            }
            Output::ProveLink => {
                if let Some(agent) = self.agent_of(node, life).filter(|agent| !agent.proving) {
                    agent.proving = true;
                    let count = agent.proofs;
                    self.request(Source::Agent(node, life), Call::ProveLink { count });
                }
            }
            Output::Acknowledge {
                version,
                met,
                met_voters,
            } => {
                let cell = self.cell_of(node);
                let acknowledged = RosterAcknowledgement {
                    cell_uid: self.uid_of_cell(&cell),
                    cell,
                    public_key: self.member(node).public_key,
                    version: version as i64,
                    met: met as i32,
                    met_voters: met_voters as i32,
                };
                self.request(Source::Agent(node, life), Call::Acknowledge(acknowledged));
            }
            // These are written to the disk when the agent ends.
            Output::Met => {}
            Output::Roster(roster) => self.note(|| format!("agent {node}: {roster:?} from another member")),
            Output::Stand(stand) => self.stand(node, life, stand),
            Output::Ranked(ranked) => self.rank(node, life, ranked),
        }
    }

    pub(crate) fn stand(&mut self, node: usize, life: u64, stand: bool) {
        self.note(|| {
            format!(
                "agent {node}: {} for the zone's Lease",
                if stand { "stands" } else { "no longer stands" }
            )
        });
        let now = self.now;
        let name = zone_lease(&self.cell_of(node));
        let Some(machine) = self.machines.get_mut(node - 1) else {
            return;
        };
        let Some(agent) = machine.agent_of(life) else {
            return;
        };
        agent.standing = stand;
        machine.meter.stands += 1;
        let Some(agent) = machine.agent_of(life) else {
            return;
        };
        if stand {
            if !std::mem::replace(&mut agent.lease.campaigning, true) {
                self.agent_later(node, life, 0, AgentDue::Lease);
            }
            return;
        }
        let held = agent.lease.holds(now, RENEW_WITHIN);
        let was_leading = std::mem::replace(&mut agent.leading, false);
        let me = agent.lease.me.clone();
        agent.lease.give_up();
        if held {
            let release = LeaseTry {
                name,
                me,
                expired: None,
                release: true,
            };
            self.request(Source::Agent(node, life), Call::Lease(release));
        }
        if was_leading {
            self.feed(node, life, Input::Leading(false));
        }
    }

    pub(crate) fn send(&mut self, from: usize, address: &SocketAddr, bytes: Vec<u8>) {
        if let Some(machine) = self.machines.get_mut(from - 1) {
            machine.meter.sent(bytes.len());
        }
        let Some(to) = self.node_at(address) else {
            return;
        };
        let ways = self.links.carry(from, to, self.now, &mut self.rng);
        for way in ways.iter().flatten().filter(|way| way.corrupted) {
            let mut changed = bytes.clone();
            let at = usize::try_from(self.rng.below(bytes.len() as u64)).unwrap_or_default();
            if let Some(byte) = changed.get_mut(at) {
                *byte ^= 1 << self.rng.below(8);
            }
            let payload = self.payloads.put(changed, 1);
            self.after(way.delay, Event::Datagram { from, to, payload });
        }
        let whole = || ways.iter().flatten().filter(|way| !way.corrupted);
        let copies = u32::try_from(whole().count()).unwrap_or_default();
        if copies > 0 {
            let payload = self.payloads.put(bytes, copies);
            for way in whole() {
                self.after(way.delay, Event::Datagram { from, to, payload });
            }
        }
    }

    /// A check of a suspect's kubelet, where the agent's roster has it. A machine that is up refuses
    /// connections to a kubelet that is down.
    fn check_kubelet(&mut self, node: usize, life: u64, asked: Question, suspect: MemberId, within: u64) {
        let address = self.agent_of(node, life).and_then(|agent| {
            let member = agent.engine.roster().get(suspect)?;
            member.kubelet.as_ref()?.address.parse().ok()
        });
        let other = address
            .and_then(|address| self.node_at(&address))
            .unwrap_or_default();
        let open =
            self.checks_dropped == 0 && self.links.passes(node, other) && self.links.passes(other, node);
        let machine = self.machines.get(other.wrapping_sub(1)).filter(|_| open);
        let stranger = machine.is_some_and(|machine| machine.stranger);
        let stalled = machine.and_then(|machine| machine.stalled_until);
        let stalled = stalled.map_or(0, |until| until.saturating_sub(self.now));
        let powered = machine.is_some_and(|machine| machine.powered);
        let up = machine.is_some_and(|machine| machine.kubelet_up);
        let slow = machine.map_or(0, |machine| machine.kubelet_slow);
        let late = stalled + if slow > 0 { self.rng.below(slow + 1) } else { 0 };
        let (delay, result) = match (stranger, powered && late + 30 < within, up) {
            (true, ..) => (35, CheckResult::Inconclusive),
            (_, true, true) => (late + 30, CheckResult::Identity),
            (_, true, false) => (stalled + 5, CheckResult::Inconclusive),
            (_, false, _) => (within, CheckResult::Failed),
        };
        self.agent_later(node, life, delay, AgentDue::Checked(asked, suspect, result));
    }
}

/// Where the sequences of a life begin: a block above what is remembered, and no lower than the wall clock
/// says, as `evenkeel_agent::state::StateDir::open` has it.
fn sequence_base(remembered: u64, unix_ms: u64) -> u64 {
    let next = (remembered >> SEQUENCE_BLOCK_BITS) + 1;
    next.max(unix_ms.min(u64::MAX >> (SEQUENCE_BLOCK_BITS + 1))) << SEQUENCE_BLOCK_BITS
}
