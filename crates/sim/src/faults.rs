//! What a step of a script does when it begins and when it ends.

use crate::api::objects::{Object, cluster_key, node_of};
use crate::api::{Writer, build};
use crate::event::{Event, StockDue};
use crate::network::Cut;
use crate::script::{Fault, Level, Step};
use crate::sim::Sim;
use evenkeel_api::names::{NODE_LEASE_NAMESPACE, ZONE_LABELS};
use evenkeel_failover_rules::world::Kind;

/// A part of a node that a fault stops.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Machine,
    Stall,
    Kubelet,
    Agent,
    Pause,
}

impl Part {
    fn of(fault: &Fault) -> Option<Self> {
        Some(match fault {
            Fault::PowerOff(_) | Fault::DiskLost(_) => Self::Machine,
            Fault::Stall(_) => Self::Stall,
            Fault::KubeletDown(_) => Self::Kubelet,
            Fault::AgentDown(_) | Fault::AgentUpgrade(_) => Self::Agent,
            Fault::PauseAgent(_) => Self::Pause,
            _ => return None,
        })
    }
}

/// What a restore takes back, beside what agents acknowledge. Nodes and pods are written anew by kubelets,
/// and what else agents say of themselves by them.
const RESTORED: [Kind; 3] = [Kind::Zone, Kind::Challenge, Kind::Report];

impl Sim {
    pub(crate) fn step(&mut self, index: usize, begins: bool) {
        let Some(step) = self.script.steps.get(index).cloned() else {
            return;
        };
        self.note(|| format!("{} {}", if begins { "begins:" } else { "ends:  " }, step.fault));
        if let Some(cut) = Cut::of(&step.fault) {
            if begins {
                self.links.cut(index, cut);
            } else {
                self.links.mend(index);
            }
            return;
        }
        match step.fault {
            Fault::SplitLan(_) | Fault::CutOneWay(..) | Fault::CutPair(..) => {}
            Fault::ChecksDropped if begins => self.checks_dropped += 1,
            Fault::ChecksDropped => self.checks_dropped -= 1,
            Fault::LossyLan(lost) if begins => self.links.lose(index, lost),
            Fault::LossyLan(_) => self.links.mend(index),
            Fault::CutCloud(node) => {
                let count = self.cuts.entry(node).or_default();
                *count = if begins {
                    *count + 1
                } else {
                    count.saturating_sub(1)
                };
            }
            Fault::SlowWrites(by) => Self::set(&mut self.slow_writes, index, by, begins),
            Fault::StaleReads(by) => Self::set(&mut self.stale_reads, index, by, begins),
            Fault::ApiDown { stock_dies } => self.api_server(begins, stock_dies),
            Fault::HalfOpen(replica, kind) => self.half_open(replica, kind, begins),
            Fault::ReplicaDown(replica) if self.level == Level::System => {
                self.replica_power(replica, !begins);
            }
            Fault::LeaderDown if self.level == Level::System => self.leader_power(index, !begins),
            Fault::ReplicaDown(_) | Fault::LeaderDown => {}
            Fault::StockDown if self.level == Level::Zones => {}
            Fault::StockDown => {
                self.stop_stock();
                if !begins {
                    self.begin_stock();
                }
            }
            Fault::Restored => self.restored(index, begins),
            Fault::EmptiedReport(zone) if begins => self.empty_report(zone),
            Fault::EmptiedReport(_) => {}
            _ => self.step_of_node(&step, begins),
        }
    }

    fn set(values: &mut std::collections::BTreeMap<usize, u64>, index: usize, by: u64, begins: bool) {
        if begins {
            values.insert(index, by);
        } else {
            values.remove(&index);
        }
    }

    /// Whether a fault lasts that stops the same part of the node.
    fn is_stopped(&self, node: usize, part: Part) -> bool {
        let lasts = |step: &Step| step.at <= self.now && self.now < step.ends();
        self.script
            .faults_of(node)
            .any(|step| Part::of(&step.fault) == Some(part) && lasts(step))
    }

    fn step_of_node(&mut self, step: &Step, begins: bool) {
        let ends = step.ends();
        let Some(node) = step.fault.node() else {
            return;
        };
        // Of faults that overlap the last one ends it.
        if !begins && Part::of(&step.fault).is_some_and(|part| self.is_stopped(node, part)) {
            return;
        }
        match step.fault {
            Fault::PowerOff(_) if begins => self.power_off(node),
            Fault::DiskLost(_) if begins => {
                self.power_off(node);
                if let Some(machine) = self.machines.get_mut(node - 1) {
                    machine.lose_disk();
                }
            }
            Fault::PowerOff(_) | Fault::DiskLost(_) => self.boot(node),
            Fault::KubeletDown(_) if begins => self.stop_kubelet(node),
            Fault::KubeletDown(_) => self.start_kubelet(node),
            Fault::AgentDown(_) | Fault::AgentUpgrade(_) if begins => self.stop_agent(node),
            Fault::AgentDown(_) => self.start_agent(node),
            Fault::AgentUpgrade(_) => {
                if let Some(machine) = self.machines.get_mut(node - 1) {
                    machine.version += 1;
                }
                self.start_agent(node);
            }
            Fault::Join(_) if begins => self.join(node),
            Fault::Leave(_) if begins => self.leave(node),
            Fault::Hostile(_, malice) => self.turn(node, begins.then_some(malice)),
            Fault::NewAddress(_) | Fault::NewKey(_) if begins => self.change_identity(node, &step.fault),
            Fault::Relabel(_) => self.relabel(node, begins),
            _ => {
                let Some(machine) = self.machines.get_mut(node - 1) else {
                    return;
                };
                match step.fault {
                    Fault::Stall(_) if machine.powered => {
                        machine.stalled_until = begins
                            .then_some(ends)
                            .max(machine.stalled_until.filter(|_| begins));
                    }
                    Fault::PauseAgent(_) if machine.powered => {
                        machine.paused_until = begins
                            .then_some(ends)
                            .max(machine.paused_until.filter(|_| begins));
                    }
                    Fault::SlowKubelet(_, by) => machine.kubelet_slow = if begins { by } else { 0 },
                    Fault::StrangeKubelet(_) => machine.stranger = begins,
                    Fault::SlowAgent(_, by) => machine.slow = if begins { by } else { 0 },
                    Fault::WallClock(_, by) if begins => machine.clock.wall += by,
                    _ => {}
                }
            }
        }
    }

    /// A node with a name that was not known before.
    fn join(&mut self, node: usize) {
        let member = self.member(node);
        let zone = self.machines.get(node - 1).map(|machine| machine.zone.clone());
        if let (Level::System | Level::Stock, Some(zone)) = (self.level, zone) {
            build::node(&mut self.store, self.now, &zone, &member);
        }
        self.power_on(node);
    }

    /// Somebody switches the node off for good, and deletes it. Its pods and its agent's object go with it.
    fn leave(&mut self, node: usize) {
        self.power_off(node);
        let name = build::node_name(node);
        let pods: Vec<_> = self
            .store
            .list(Kind::Pod)
            .filter(|(_, object)| matches!(&***object, Object::Pod(pod) if node_of(pod) == name))
            .map(|(key, _)| key.clone())
            .collect();
        for key in pods {
            self.store.remove(self.now, Writer::Stock, Kind::Pod, &key);
        }
        let lease = (NODE_LEASE_NAMESPACE.to_owned(), name.clone());
        self.store
            .remove(self.now, Writer::Stock, Kind::NodeLease, &lease);
        for kind in [Kind::Agent, Kind::Node] {
            self.store
                .remove(self.now, Writer::Stock, kind, &cluster_key(&name));
        }
    }

    /// The agent ends and begins anew, somewhere else or with another key.
    fn change_identity(&mut self, node: usize, fault: &Fault) {
        self.stop_agent(node);
        if let Some(machine) = self.machines.get_mut(node - 1) {
            match fault {
                Fault::NewAddress(_) => machine.moves += 1,
                _ => machine.keys += 1,
            }
        }
        let signer = self.signer(node);
        if let Some(machine) = self.machines.get_mut(node - 1) {
            machine.signer = signer;
        }
        self.start_agent(node);
    }

    /// Somebody labels the node for a zone without others, or for its own again.
    fn relabel(&mut self, node: usize, begins: bool) {
        let zone = self.machines.get(node - 1).map(|machine| machine.zone.clone());
        let zone = zone.filter(|_| !begins).unwrap_or_else(|| "elsewhere".to_owned());
        let key = cluster_key(&build::node_name(node));
        // In a run of zones alone there are no Nodes.
        let _ = self
            .store
            .change(self.now, Writer::Stock, Kind::Node, &key, None, |object| {
                if let Object::Node(node) = object {
                    let labels = node.metadata.labels.get_or_insert_default();
                    labels.insert(ZONE_LABELS[0].to_owned(), zone);
                }
            });
    }

    fn restored(&mut self, step: usize, begins: bool) {
        if begins {
            self.backups.insert(step, self.store.backup(&RESTORED));
            return;
        }
        let backup = self.backups.remove(&step).unwrap_or_default();
        self.store.restore(self.now, &RESTORED, &backup);
        self.rewrite(
            Kind::Agent,
            |_| true,
            |object| {
                if let Object::Agent(agent) = object {
                    agent.spec.roster = None;
                }
            },
        );
        for replica in 0..self.replicas.len() {
            self.replica_power(replica, false);
            self.replica_power(replica, true);
        }
    }

    /// Somebody who may write it leaves everybody out of a report.
    fn empty_report(&mut self, zone: usize) {
        let of_zone = |object: &Object| matches!(object, Object::Report(report) if report.spec.zone == build::zone_name(zone));
        self.rewrite(Kind::Report, of_zone, |object| {
            if let Object::Report(object) = object {
                let report = &mut object.spec.report;
                report.nodes.clear();
                report.rounds.clear();
                report.sequence = report.sequence.wrapping_add(1);
            }
        });
    }

    /// Changes what is meant of the objects that agents write.
    fn rewrite(&mut self, kind: Kind, is_meant: impl Fn(&Object) -> bool, change: impl Fn(&mut Object)) {
        let all = self.store.list(kind);
        let keys: Vec<_> = all
            .filter(|(_, object)| is_meant(object))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            let _ = self
                .store
                .change(self.now, Writer::Agent, kind, &key, None, &change);
        }
    }

    fn api_server(&mut self, begins: bool, stock_dies: bool) {
        if begins {
            self.api_down += 1;
            self.break_all_watches();
            if stock_dies && self.level != Level::Zones {
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

    /// Power is back after a cut.
    fn boot(&mut self, node: usize) {
        let now = self.now;
        if let Some(machine) = self.machines.get_mut(node - 1) {
            machine.boot(now);
        }
        self.power_on(node);
    }

    pub(crate) fn power_on(&mut self, node: usize) {
        if let Some(machine) = self.machines.get_mut(node - 1) {
            machine.powered = true;
            (machine.stalled_until, machine.paused_until) = (None, None);
        }
        if !self.is_stopped(node, Part::Agent) {
            self.start_agent(node);
        }
        if !self.is_stopped(node, Part::Kubelet) {
            self.start_kubelet(node);
        }
    }

    fn power_off(&mut self, node: usize) {
        if let Some(machine) = self.machines.get_mut(node - 1) {
            machine.powered = false;
            (machine.stalled_until, machine.paused_until) = (None, None);
        }
        self.stop_agent(node);
        self.stop_kubelet(node);
    }
}
