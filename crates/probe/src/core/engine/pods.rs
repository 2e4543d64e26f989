//! Pods come and go, and their workers with them.

use super::schedule::{Plan, period, phase};
use super::snapshot::{Kept, take};
use super::{Engine, Entry, Notice, Slot, State, Tally};
use crate::core::{Compat, Container, Key, Kind, Now, Pod, Role, Worker};
use std::collections::HashSet;
use std::sync::Arc;

impl Engine {
    /// Adds a pod and starts its workers (upstream's `AddPod`: startup, readiness, liveness of regular
    /// containers, then of sidecars; a worker that exists ends the call). A pod without probes is known too.
    pub fn add_pod(&mut self, pod: Arc<Pod>, now: Now) {
        let index = match self.index.get(&pod.uid) {
            Some(index) => *index,
            None => self.enter(pod.clone()),
        };
        let mut kept = self.aside.remove(&pod.uid).unwrap_or_default();
        for container in probed(&pod) {
            for kind in Kind::ALL {
                if container.probe(kind).is_none() {
                    continue;
                }
                let Some(entry) = self.pods.get(index) else { return };
                if self.find(entry, &container.name, kind).is_some() {
                    return;
                }
                self.start(index, &pod, container, kind, &mut kept, now);
            }
        }
        if let Some(entry) = self.pods.get_mut(index) {
            // No worker of an earlier call holds to another specification.
            entry.pod = pod;
        }
    }

    fn enter(&mut self, pod: Arc<Pod>) -> u32 {
        let uid = pod.uid.clone();
        let index = self.pods.insert(Entry {
            pod,
            status: None,
            workers: Vec::new(),
            lines: Default::default(),
        });
        self.index.insert(uid, index);
        index
    }

    /// Starts a worker; does nothing without a probe.
    pub(super) fn start(
        &mut self,
        index: u32,
        pod: &Pod,
        container: &Arc<Container>,
        kind: Kind,
        kept: &mut Vec<Kept>,
        now: Now,
    ) -> Option<u32> {
        let probe = container.probe(kind)?.clone();
        let key = Key {
            pod: pod.uid.clone(),
            container: container.name.clone(),
            kind,
        };
        let policy = self.config.policy;
        let period = period(&probe);
        let phase = phase(self.config.seed, &key, period);
        let (grid, state) = match policy.compat {
            Compat::Kubelet if period > now.mono.saturating_sub(policy.started.mono) => {
                let first = now.mono.saturating_add(phase);
                (first, State::Asleep(first))
            }
            Compat::Kubelet => (now.mono, State::Waiting(Some(now.mono))),
            Compat::Strict => (phase, State::Waiting(Some(now.mono))),
        };
        let restored = take(kept, &container.name, kind);
        let was_kept = restored.is_some();
        let (worker, tally) = restored.unwrap_or_else(|| (Worker::new(kind), Tally::default()));
        let id = self.workers.insert(Slot {
            key,
            pod: index,
            container: container.clone(),
            probe,
            worker,
            tally,
            plan: Plan::new(grid),
            state,
            restored: was_kept,
            untold: was_kept,
            too_late: None,
            undelayed: None,
        });
        if let State::Asleep(at) | State::Waiting(Some(at)) = state {
            self.timers.insert((at, id));
        }
        if let Some(entry) = self.pods.get_mut(index) {
            entry.workers.push(id);
        }
        Some(id)
    }

    /// Ends liveness and startup workers of a pod's regular containers: it is going away, and nobody is to
    /// restart it. Sidecars go on, so that they can be restarted while they serve containers that end.
    pub fn stop_liveness_and_startup(&mut self, pod: &str) {
        for id in self.workers_of(pod) {
            let ends = self
                .workers
                .get(id)
                .is_some_and(|slot| slot.key.kind != Kind::Readiness && slot.container.role == Role::Regular);
            if ends {
                self.end(id);
            }
        }
    }

    /// Ends all workers of a pod and forgets it. Outcomes of attempts under way are dropped.
    pub fn remove_pod(&mut self, pod: &str) {
        for id in self.workers_of(pod) {
            self.end(id);
        }
        if let Some(index) = self.index.remove(pod) {
            self.pods.remove(index);
        }
        self.aside.remove(pod);
    }

    /// Forgets all pods but these (upstream's `CleanupPods`), those of a snapshot included.
    pub fn retain_pods(&mut self, desired: &HashSet<Arc<str>>) {
        let mut undesired: Vec<(u32, Arc<str>)> = self
            .index
            .iter()
            .filter(|(uid, _)| !desired.contains(*uid))
            .map(|(uid, index)| (*index, uid.clone()))
            .collect();
        // A map has no order; the notices shall have one.
        undesired.sort_unstable();
        for (_, uid) in undesired {
            self.remove_pod(&uid);
        }
        self.aside.retain(|uid, _| desired.contains(uid));
    }

    fn workers_of(&self, pod: &str) -> Vec<u32> {
        let entry = self.index.get(pod).and_then(|index| self.pods.get(*index));
        entry.map(|entry| entry.workers.clone()).unwrap_or_default()
    }

    /// Ends a worker for good, whatever it is at.
    pub(super) fn end(&mut self, id: u32) {
        self.halt(id);
        let Some(slot) = self.workers.remove(id) else {
            return;
        };
        if let State::Running(ticket) = slot.state
            && let Some(flight) = self.flights.get_mut(&ticket)
        {
            // Whoever makes the attempt is not done: it keeps its place under the limits until it is settled.
            flight.worker = None;
        }
        if let Some(entry) = self.pods.get_mut(slot.pod) {
            entry.workers.retain(|other| *other != id);
        }
        self.notices.push(Notice::Stopped { key: slot.key });
    }
}

/// Containers with probes, in upstream's order.
pub(super) fn probed(pod: &Pod) -> impl Iterator<Item = &Arc<Container>> {
    let of = |role: Role| {
        pod.containers
            .iter()
            .filter(move |container| container.role == role)
    };
    of(Role::Regular).chain(of(Role::Sidecar))
}
