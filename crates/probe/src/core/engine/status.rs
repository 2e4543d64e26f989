//! What is reported about containers: upstream's `UpdatePodStatus`, and who is to be asked because of it.

use super::{Engine, Entry, Report};
use crate::core::{ContainerState, ContainerStatus, Kind, Now, PodStatus, Reading, Role};

impl Engine {
    /// Takes the status of a pod's containers, and says what to report as `started` and `ready`
    /// (upstream's `UpdatePodStatus`), in the order of the status.
    ///
    /// `started: Some(true)` counts, as it does upstream unless the gate
    /// `ChangeContainerStatusOnKubeletRestart` is on; what the engine itself has found stays true for the
    /// container's ID. A container that is not started keeps the `ready` it came with. The status of an
    /// unknown pod is not kept, and answered by nothing: add the pod first.
    ///
    /// A readiness worker that has not succeeded is asked at once, whatever the update says (the kubelet's
    /// manual trigger). In strict mode workers are asked at once when something changed about their
    /// container, and else keep to their schedule; one that has probed the container waits even so for the
    /// next point of its schedule, but for readiness that has not succeeded.
    pub fn update_status(&mut self, pod: &str, mut status: PodStatus, now: Now) -> Vec<Report> {
        let Some(index) = self.index.get(pod).copied() else {
            return Vec::new();
        };
        let Some(entry) = self.pods.get(index) else {
            return Vec::new();
        };
        let strict = self.is_strict();
        let everything = entry.status.as_ref().is_none_or(|old| {
            (old.phase, old.address, old.restarting_all)
                != (status.phase, status.address, status.restarting_all)
        });
        let (pod_ready, mut asked) = (status.ready, Vec::new());
        for container in &mut status.containers {
            let prior = entry
                .status
                .as_ref()
                .and_then(|old| old.container(&container.name));
            let same = prior.filter(|prior| prior.id == container.id && !prior.id.is_empty());
            if let Some(prior) = same {
                // One copy of a long name for as long as the container lives.
                container.id = prior.id.clone();
                if prior.started == Some(true) && container.started != Some(true) {
                    container.started = Some(true);
                }
            }
            if let Some(prior) = prior {
                container.name = prior.name.clone();
            }
            let started = self.is_started(entry, container);
            container.started = Some(started);
            let manual = self.set_ready(entry, container, started, pod_ready, now);
            let changed = everything
                || same.is_none_or(|prior| {
                    prior.started != container.started
                        || std::mem::discriminant(&prior.state) != std::mem::discriminant(&container.state)
                });
            if strict && changed {
                let kinds = Kind::ALL.into_iter();
                asked.extend(kinds.filter_map(|kind| self.find(entry, &container.name, kind)));
            } else if manual && !strict {
                asked.extend(self.find(entry, &container.name, Kind::Readiness));
            }
        }
        let reports = status
            .containers
            .iter()
            .map(|container| Report {
                container: container.name.clone(),
                started: container.started == Some(true),
                ready: container.ready,
            })
            .collect();
        if let Some(entry) = self.pods.get_mut(index) {
            entry.status = Some(status);
        }
        for id in asked {
            self.trigger(id, now);
        }
        reports
    }

    /// Upstream's `isContainerStarted`.
    fn is_started(&self, entry: &Entry, container: &ContainerStatus) -> bool {
        if !container.state.is_running() {
            return false;
        }
        if let Some(reading) = self.published(entry, &container.name, Kind::Startup, &container.id) {
            return reading == Reading::Success;
        }
        if !self.config.policy.change_status_on_restart && container.started == Some(true) {
            return true;
        }
        let worker = self.find(entry, &container.name, Kind::Startup);
        // One that was added too late for this container holds nothing back.
        worker
            .and_then(|id| self.workers.get(id))
            .is_none_or(|slot| slot.too_late.as_ref() == Some(&container.id))
    }

    /// Sets `ready` as upstream does, and says whether the readiness worker is to be asked at once.
    fn set_ready(
        &self,
        entry: &Entry,
        container: &mut ContainerStatus,
        started: bool,
        pod_ready: bool,
        now: Now,
    ) -> bool {
        let spec = entry.pod.container(&container.name);
        if spec.is_some_and(|spec| spec.role == Role::Init) {
            if container.state == (ContainerState::Terminated { exit_code: 0 }) {
                container.ready = true;
            }
            return false;
        }
        if !started {
            return false;
        }
        let policy = &self.config.policy;
        let reading = self.published(entry, &container.name, Kind::Readiness, &container.id);
        if reading == Some(Reading::Success) {
            container.ready = true;
            return false;
        }
        let worker = self.find(entry, &container.name, Kind::Readiness);
        container.ready = worker.is_none();
        if let Some(spec) = spec
            && !policy.change_status_on_restart
            && policy.is_met_again(container, now)
        {
            // The prober is new, the container is not: its readiness neither goes nor comes for that.
            container.ready |= reading.is_none();
            container.ready &= spec.readiness.is_none() || pod_ready;
        }
        worker.is_some()
    }

    /// A startup probe has ended, well or not: its container is started, or is not, at once.
    pub(super) fn startup_ended(&mut self, id: u32, now: Now) {
        let Some(slot) = self.workers.get(id) else { return };
        let (index, name) = (slot.pod, slot.key.container.clone());
        let (known, started) = (
            slot.worker.container_id().cloned(),
            slot.worker.published() == Some(Reading::Success),
        );
        let status = self.pods.get_mut(index).and_then(|entry| entry.status.as_mut());
        let present = status.and_then(|status| status.containers.iter_mut().find(|c| c.name == name));
        let Some(present) = present.filter(|present| Some(&present.id) == known.as_ref()) else {
            return;
        };
        present.started = Some(started);
        if started {
            self.released(index, &name, now);
        }
    }

    /// A container has become started: who was held back is asked at once. The kubelet does so for readiness
    /// alone, by the way of the pod's next status.
    fn released(&mut self, index: u32, container: &str, now: Now) {
        let kinds: &[Kind] = if self.is_strict() {
            &[Kind::Readiness, Kind::Liveness]
        } else {
            &[Kind::Readiness]
        };
        for kind in kinds {
            let entry = self.pods.get(index);
            if let Some(id) = entry.and_then(|entry| self.find(entry, container, *kind)) {
                if let Some(slot) = self.workers.get_mut(id) {
                    // Now is the time, even for a prober that has just started.
                    slot.plan.released = true;
                }
                self.trigger(id, now);
            }
        }
    }

    /// The pod's probes have changed: containers that no startup probe holds back any more are started.
    pub(super) fn recompute_started(&mut self, index: u32, now: Now) {
        let Some(entry) = self.pods.get(index) else { return };
        let containers = entry.status.iter().flat_map(|status| &status.containers);
        let released: Vec<_> = containers
            .filter(|container| container.started != Some(true) && self.is_started(entry, container))
            .map(|container| container.name.clone())
            .collect();
        for name in released {
            let status = self.pods.get_mut(index).and_then(|entry| entry.status.as_mut());
            if let Some(container) =
                status.and_then(|status| status.containers.iter_mut().find(|c| c.name == name))
            {
                container.started = Some(true);
            }
            self.released(index, &name, now);
        }
    }
}
