//! Probes that change while their containers run (KEP-6318, `MutableContainerProbes`).

use super::pods::probed;
use super::schedule::{Plan, period, phase};
use super::{Engine, State};
use crate::core::{Compat, Container, Kind, Now, Pod, Probe};
use std::sync::Arc;
use std::time::Duration;

impl Engine {
    /// Takes a changed specification of a pod: probes are added, removed and changed in place, by the rules
    /// of KEP-6318.
    ///
    /// A changed threshold resets the run counter; a changed initial delay matters only before the first
    /// probe of a container; a changed period counts from the end of the last attempt; a startup probe that
    /// is new takes effect at the next start of its container. Workers that have ended are not started again.
    /// An unknown pod is added.
    pub fn update_pod(&mut self, pod: Arc<Pod>, now: Now) {
        let Some(index) = self.index.get(&pod.uid).copied() else {
            return self.add_pod(pod, now);
        };
        let Some(entry) = self.pods.get_mut(index) else {
            return;
        };
        let old = std::mem::replace(&mut entry.pod, pod.clone());
        for id in entry.workers.clone() {
            let Some(slot) = self.workers.get(id) else {
                continue;
            };
            let kind = slot.key.kind;
            let container = probed(&pod).find(|container| container.name == slot.key.container);
            match container.and_then(|container| Some((container, container.probe(kind)?))) {
                Some((container, probe)) => self.change(id, container, probe, now),
                None => self.end(id),
            }
        }
        for container in probed(&pod) {
            for kind in Kind::ALL {
                let before = old.container(&container.name).and_then(|old| old.probe(kind));
                if before.is_none() && !(pod.deleting && kind != Kind::Readiness) {
                    self.add_late(index, &pod, container, kind, now);
                }
            }
        }
        self.recompute_started(index, now);
        if self.is_strict() && old.deleting != pod.deleting {
            let workers = self.pods.get(index).map(|entry| entry.workers.clone());
            for id in workers.into_iter().flatten() {
                self.trigger(id, now);
            }
        }
    }

    fn add_late(&mut self, index: u32, pod: &Pod, container: &Arc<Container>, kind: Kind, now: Now) {
        let Some(entry) = self.pods.get(index) else { return };
        if self.find(entry, &container.name, kind).is_some() {
            return;
        }
        let status = entry
            .status
            .as_ref()
            .and_then(|status| status.container(&container.name));
        let too_late = status
            .filter(|status| kind == Kind::Startup && status.state.is_running() && !status.id.is_empty())
            .map(|status| status.id.clone());
        if let Some(id) = self.start(index, pod, container, kind, &mut Vec::new(), now)
            && let Some(slot) = self.workers.get_mut(id)
        {
            slot.too_late = too_late;
        }
    }

    fn change(&mut self, id: u32, container: &Arc<Container>, probe: &Arc<Probe>, now: Now) {
        let (policy, seed) = (self.config.policy, self.config.seed);
        let Some(slot) = self.workers.get_mut(id) else {
            return;
        };
        slot.container = container.clone();
        let old = std::mem::replace(&mut slot.probe, probe.clone());
        if old == *probe {
            return;
        }
        let thresholds = |probe: &Probe| {
            let extras = &probe.extras;
            (
                (probe.success_threshold, probe.failure_threshold),
                (extras.error_threshold, extras.window),
            )
        };
        let strict = policy.compat == Compat::Strict;
        if thresholds(&old) != thresholds(probe) || strict && old.handler != probe.handler {
            slot.worker.reset_run();
        }
        let delayed = probe.initial_delay > old.initial_delay || slot.undelayed.is_some();
        slot.undelayed = slot
            .worker
            .container_id()
            .filter(|_| delayed && !slot.plan.fresh)
            .map(|container_id| {
                let mut undelayed = Probe::clone(probe);
                undelayed.initial_delay = Duration::ZERO;
                Box::new((container_id.clone(), undelayed))
            });
        let (exec, state) = (slot.is_exec(), slot.state);
        let (fresh, completed) = (slot.plan.fresh, slot.plan.completed);
        let period_changed = period(&old) != period(probe);
        if period_changed {
            let period = period(probe);
            slot.plan = Plan {
                grid: match policy.compat {
                    Compat::Strict => phase(seed, &slot.key, period),
                    Compat::Kubelet => completed.unwrap_or(now.mono).saturating_add(period),
                },
                ..slot.plan
            };
        }
        match state {
            // It may have to wait in the other line.
            State::Ready { due, exec: was } if was != exec => {
                self.halt(id);
                self.park(id, Some(due));
            }
            // What it waits for may be nearer or farther now; asked again it says so.
            State::Waiting(_) if strict && fresh => self.trigger(id, now),
            State::Waiting(Some(at)) if period_changed && at > now.mono => {
                let next = completed.unwrap_or(now.mono).saturating_add(period(probe));
                self.halt(id);
                self.park(id, Some(next.max(now.mono)));
            }
            _ => {}
        }
    }
}
