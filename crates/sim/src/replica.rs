//! A replica of the controller: the shipping World, planner and webhook core, in a model of their shell.

use crate::api::objects::EPOCH;
use crate::candidate::Candidate;
use crate::event::{Act, Acted, Call, Phase, ReplicaDue, Reply, Source};
use crate::sim::Sim;
use crate::watch::Client;
use evenkeel_api::names::{CONTROLLER_LEASE, NAMESPACE};
use evenkeel_failover_rules::admission::View;
use evenkeel_failover_rules::dispatch::{Dispatch, Ended};
use evenkeel_failover_rules::planner::Planner;
use evenkeel_failover_rules::planner::action::Action;
use evenkeel_failover_rules::world::services::Services;
use evenkeel_failover_rules::world::{Config, Kind, LastSigns, Role, Seen, World};
use evenkeel_judge::{Profile, Timing};
use evenkeel_zone::Millis;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The shell looks at least this often, and this long after an event.
const TICK: u64 = 500;
const GATHER: u64 = 50;
const RETRY_LEASE: u64 = 1_000;
/// A Lease that was not seen to change for this long is free.
const LEASE_LASTS: u64 = 6_000;
/// A leader that could not renew for this long writes nothing.
const RENEW_WITHIN: u64 = 4_000;
/// An audit without an answer within this time proves nothing.
const AUDIT_WITHIN: u64 = 3_000;

pub(crate) struct Replica {
    pub(crate) life: u64,
    process: Option<Process>,
}

struct Process {
    world: World,
    planner: Option<Planner>,
    dispatch: Dispatch,
    lease: Candidate,
    view: View,
    ready: bool,
    gathering: bool,
    /// By node UID: with which signs it was last found silent, and when.
    reads: BTreeMap<String, (LastSigns, u64)>,
    /// Audits under way.
    audits: BTreeMap<Kind, u64>,
}

impl Replica {
    /// Whether admission may ask it.
    pub(crate) fn is_ready(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.ready)
    }

    /// What it answers admission from.
    pub(crate) fn view(&self) -> Option<&View> {
        self.process
            .as_ref()
            .filter(|process| process.ready)
            .map(|process| &process.view)
    }

    fn of(&mut self, life: u64) -> Option<&mut Process> {
        let current = self.life == life;
        self.process.as_mut().filter(|_| current)
    }
}

impl Process {
    fn leads(&self, now: u64) -> bool {
        self.lease.holds(now, RENEW_WITHIN)
    }
}

impl Sim {
    pub(crate) fn begin_replicas(&mut self) {
        for replica in 0..2 {
            self.replicas.push(Replica {
                life: 0,
                process: None,
            });
            self.replica_power(replica, true);
        }
    }

    pub(crate) fn replica_power(&mut self, replica: usize, on: bool) {
        let delay = self.rng.between(100, 1_500);
        let Some(known) = self.replicas.get_mut(replica) else {
            return;
        };
        known.life += 1;
        known.process = None;
        let life = known.life;
        self.close_watches(Client::Replica(replica));
        if on {
            self.replica_later(replica, life, delay, ReplicaDue::Start);
        }
    }

    /// Kills whichever replica leads, if one does; or the one that a step has killed begins again.
    pub(crate) fn leader_power(&mut self, step: usize, on: bool) {
        if on {
            if let Some(replica) = self.killed_leaders.remove(&step) {
                self.replica_power(replica, true);
            }
            return;
        }
        let now = self.now;
        let leads = |replica: &Replica| replica.process.as_ref().is_some_and(|process| process.leads(now));
        if let Some(replica) = self.replicas.iter().position(leads) {
            self.killed_leaders.insert(step, replica);
            self.replica_power(replica, false);
        }
    }

    fn begin_replica(&mut self, replica: usize, life: u64) {
        let identity = format!("replica-{replica}-{life}");
        let profile = if self.script.edge {
            Profile::Edge
        } else {
            Profile::Builtin
        };
        let config = Config {
            timing: Timing::default(),
            profile,
            default_zone: None,
            default_toleration_seconds: 300,
            namespace: NAMESPACE.to_owned(),
            identity: identity.clone(),
            life: identity.clone(),
            mode: Default::default(),
        };
        let world = World::new(config, self.wall_of(replica))
            .verifying_with(Arc::clone(&self.verifier))
            .trusting(self.roster_keys());
        if let Some(known) = self.replicas.get_mut(replica) {
            known.process = Some(Process {
                world,
                planner: None,
                dispatch: Dispatch::default(),
                lease: Candidate::new(identity, LEASE_LASTS),
                view: View::default(),
                ready: false,
                gathering: false,
                reads: BTreeMap::new(),
                audits: BTreeMap::new(),
            });
        }
        self.open_watches(Client::Replica(replica), &Kind::ALL);
        self.replica_later(replica, life, 0, ReplicaDue::Tick);
        self.replica_later(replica, life, 300, ReplicaDue::Lease);
    }

    pub(crate) fn replica_due(&mut self, replica: usize, life: u64, due: ReplicaDue) {
        let now = self.now;
        let Some(known) = self.replicas.get_mut(replica).filter(|known| known.life == life) else {
            return;
        };
        if due == ReplicaDue::Start {
            return self.begin_replica(replica, life);
        }
        let Some(process) = known.of(life) else {
            return;
        };
        match due {
            ReplicaDue::Start => {}
            ReplicaDue::Tick => {
                self.replica_later(replica, life, TICK, ReplicaDue::Tick);
                self.replica_looks(replica, life);
            }
            ReplicaDue::Gathered => {
                process.gathering = false;
                self.replica_looks(replica, life);
            }
            ReplicaDue::Lease => {
                let attempt = process.lease.attempt(CONTROLLER_LEASE, now);
                self.replica_later(replica, life, RETRY_LEASE, ReplicaDue::Lease);
                if let Some(attempt) = attempt {
                    self.request(Source::Replica(replica, life), Call::Lease(attempt));
                }
            }
        }
    }

    pub(crate) fn replica_sees(&mut self, replica: usize, seen: Seen) {
        let now = self.wall_of(replica);
        let Some(known) = self.replicas.get_mut(replica) else {
            return;
        };
        let life = known.life;
        let Some(process) = known.of(life) else {
            return;
        };
        let urgent = process.world.take(now, seen);
        if urgent {
            self.replica_looks(replica, life);
        } else {
            self.gather(replica, life);
        }
    }

    fn gather(&mut self, replica: usize, life: u64) {
        let process = self.replicas.get_mut(replica).and_then(|known| known.of(life));
        if process.is_some_and(|process| !std::mem::replace(&mut process.gathering, true)) {
            self.replica_later(replica, life, GATHER, ReplicaDue::Gathered);
        }
    }

    /// One look, as the shell's loop does it.
    fn replica_looks(&mut self, replica: usize, life: u64) {
        let (now, wall) = (self.now, self.wall_of(replica));
        let Some(process) = self.replicas.get_mut(replica).and_then(|known| known.of(life)) else {
            return;
        };
        let leads = process.leads(now);
        match (leads, &process.planner) {
            (true, None) => {
                process.dispatch = Dispatch::default();
                process.planner = Some(Planner::new(process.world.config().clone()));
            }
            // Another leads by now: what this one remembers is void. A leader that is only late keeps its
            // planner.
            (false, Some(_)) if !process.lease.holds(now, u64::MAX) => process.planner = None,
            _ => {}
        }
        let role = if leads { Role::Leads } else { Role::Follows };
        let wants = process.world.look(wall, role);
        if !wants.services.is_empty() {
            // There are no Services here: no endpoint is the last of one.
            process
                .world
                .take_services(Services::of(&wants.services, []), wall);
        }
        let late = |since: &u64| now - since >= AUDIT_WITHIN;
        let failed: Vec<Kind> = process
            .audits
            .iter()
            .filter(|(_, since)| late(since))
            .map(|(kind, _)| *kind)
            .collect();
        for kind in failed {
            process.audits.remove(&kind);
            process.world.audited(wall, kind, None);
        }
        for kind in &wants.audits {
            process.audits.insert(*kind, now);
        }
        let complete = process.world.missing().is_empty();
        if complete {
            process.ready = true;
            process.view = View::of(process.world.decisions(), process.world.cluster(), wall);
        }
        for kind in wants.restart {
            self.note(|| {
                format!(
                    "replica {replica}: the watch of {} does not deliver, beginning it anew",
                    kind.name()
                )
            });
            self.restart_watch(replica, kind);
        }
        for kind in wants.audits {
            self.request(Source::Replica(replica, life), Call::Audit(kind));
        }
        if complete && leads {
            self.replica_plans(replica, life, wall);
        }
    }

    fn replica_plans(&mut self, replica: usize, life: u64, wall: Millis) {
        let now = self.now;
        let Some(process) = self.replicas.get_mut(replica).and_then(|known| known.of(life)) else {
            return;
        };
        let Some(planner) = process.planner.as_mut() else {
            return;
        };
        let plan = planner.tick(process.world.cluster(), process.world.decisions(), wall);
        process.dispatch.prune(Millis(now));
        let mut begun = Vec::new();
        for action in plan.actions {
            // Events are for people.
            if !matches!(action, Action::Event(_)) && process.dispatch.admit(&action, Millis(now)) {
                let signs = depends_on(&action)
                    .map(|node| process.world.last_signs(node))
                    .unwrap_or_default();
                begun.push(Act {
                    action: Box::new(action),
                    signs,
                    phase: Phase::Begin,
                });
            }
        }
        let mut news = Vec::new();
        for (name, judged) in &process.world.decisions().nodes {
            let (state, reason) = (judged.decision.state(), judged.decision.reason);
            if self.ledger.is_state(now, name, state, judged.decision.held) {
                news.push((name.clone(), state, reason, judged.evidence));
            }
        }
        for (name, state, reason, evidence) in news {
            self.note(|| {
                format!(
                    "replica {replica} leads: {name} is {state}: {reason} ({:?} {:?} {:?})",
                    evidence.verdict, evidence.life, evidence.sight
                )
            });
        }
        for act in begun {
            self.begin_act(replica, life, act);
        }
    }

    /// A consistent read speaks for all evictions that begin within 5 s.
    fn begin_act(&mut self, replica: usize, life: u64, mut act: Act) {
        let now = self.now;
        if let (Action::Evict { node, .. }, Some(process)) = (
            &*act.action,
            self.replicas.get_mut(replica).and_then(|known| known.of(life)),
        ) {
            let fresh = |(signs, at): &&(LastSigns, u64)| *signs == act.signs && now - at < 5_000;
            if process.reads.get(&node.uid).as_ref().is_some_and(fresh) {
                act.phase = Phase::Silent(None);
            }
        }
        self.request(Source::Replica(replica, life), Call::Act(act));
    }

    pub(crate) fn replica_answered(&mut self, replica: usize, life: u64, reply: Reply) {
        let (now, wall) = (self.now, self.wall_of(replica));
        let Some(process) = self.replicas.get_mut(replica).and_then(|known| known.of(life)) else {
            return;
        };
        match reply {
            Reply::Lease { held, seen, sent } => {
                let led = process.leads(now);
                process.lease.answered(now, held, seen, sent);
                let leads = process.leads(now);
                if led != leads {
                    let missing = process.world.missing();
                    self.note(|| format!("replica {replica}: leads={leads}, not listed yet: {missing:?}"));
                }
            }
            Reply::Versions(kind, found) => {
                // One that came too late counts as failed already.
                let in_time = process.audits.remove(&kind).is_some();
                if in_time {
                    process.world.audited(wall, kind, Some(&found));
                }
                self.gather(replica, life);
            }
            Reply::Acted(act, acted) => {
                let leads = process.leads(now);
                if let (Phase::Begin, Acted::Next(_), Action::Evict { node, .. }) =
                    (&act.phase, &acted, &*act.action)
                {
                    process.reads.insert(node.uid.clone(), (act.signs.clone(), now));
                }
                match acted {
                    Acted::Next(phase) if leads => {
                        return self.request(Source::Replica(replica, life), Call::Act(Act { phase, ..act }));
                    }
                    acted => {
                        let ended = match acted {
                            Acted::Done => Ended::Done,
                            Acted::Stale => Ended::Stale,
                            Acted::Next(_) | Acted::Refused => Ended::Failed,
                        };
                        process.dispatch.ended(*act.action, ended, Millis(now));
                    }
                }
                self.gather(replica, life);
            }
            Reply::Lost(call) => match *call {
                Call::Lease(_) => process.lease.lost(),
                Call::Audit(kind) => {
                    process.audits.remove(&kind);
                    process.world.audited(wall, kind, None);
                }
                Call::Act(act) => {
                    process.dispatch.ended(*act.action, Ended::Failed, Millis(now));
                    self.gather(replica, life);
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// What the gate asks before each write: does the replica lead now?
    pub(crate) fn replica_leads(&self, replica: usize) -> bool {
        let process = self
            .replicas
            .get(replica)
            .and_then(|known| known.process.as_ref());
        process.is_some_and(|process| process.leads(self.now))
    }

    /// The view of any replica that admission may ask, and the time there.
    pub(crate) fn any_view(&mut self) -> Option<(View, Millis)> {
        let ready: Vec<usize> = (0..self.replicas.len())
            .filter(|replica| self.replicas.get(*replica).is_some_and(Replica::is_ready))
            .collect();
        let chosen = *self.rng.pick(&ready)?;
        let view = self.replicas.get(chosen)?.view()?.clone();
        Some((view, self.wall_of(chosen)))
    }

    /// An instant of the wall clock as the run counts it.
    pub(crate) fn of_wall(at: Millis) -> u64 {
        at.0.saturating_sub(EPOCH)
    }
}

fn depends_on(action: &Action) -> Option<&str> {
    match action {
        Action::Taint {
            node, proof: Some(_), ..
        }
        | Action::Evict { node, .. }
        | Action::EvictFromKept { node, .. } => Some(&node.name),
        _ => None,
    }
}
