//! The pod's phase (kubelet's `getPhase`).

use super::machine::{Machine, World};
use super::record::{Life, Record};
use super::spec::{self, Role};
use evenkeel_probe::core::{self as probe, Phase, runs_again};

/// As Kubernetes writes it.
pub(super) fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
        Phase::Unknown => "Unknown",
    }
}

impl Machine {
    /// The pod as the rules for restarts see it.
    pub(super) fn view(&self, world: &World<'_>) -> probe::Pod {
        spec::view(world.pod, world.specs, &self.rules)
    }

    /// Whether a container that does not run is going to.
    pub(super) fn will_run(&self, view: &probe::Pod, record: &Record) -> bool {
        match (&record.life, record.role) {
            (Life::Starting(_) | Life::Running(_), _) => true,
            (Life::Idle, Role::Ephemeral) => record.ended.is_none(),
            (Life::Idle, Role::Sidecar) => true,
            (Life::Idle, Role::Init | Role::Regular) => {
                let Some(ended) = &record.ended else { return true };
                if record.again || self.presence.is_restarting_all() {
                    return true;
                }
                // An init container that has done its work is done.
                if record.role == Role::Init && ended.code == 0 && !self.asks_for_all(view, record) {
                    return false;
                }
                let nothing = probe::PodStatus::default();
                let container = view.container(&record.name);
                container.is_some_and(|container| runs_again(view, container, ended.code, &nothing))
            }
        }
    }

    /// How the pod has ended, once its containers are done for good. Sidecars do not count.
    pub(super) fn finished(&self, world: &World<'_>) -> Option<Phase> {
        let mut regular = self
            .records
            .iter()
            .filter(|record| record.role == Role::Regular)
            .peekable();
        regular.peek()?;
        // Nearly always something runs, and no rules need be looked at.
        let init_failed = |record: &Record| {
            let failed = record.ended.as_ref().is_some_and(|ended| ended.code != 0);
            record.role == Role::Init && record.is_idle() && failed && !self.initialised
        };
        if !self.records.iter().any(init_failed)
            && !regular
                .clone()
                .all(|record| record.is_idle() && record.ended.is_some())
        {
            return None;
        }
        let view = self.view(world);
        let never = |record: &Record| init_failed(record) && !self.will_run(&view, record);
        if self.records.iter().any(never) {
            return Some(Phase::Failed);
        }
        if regular.clone().any(|record| self.will_run(&view, record)) {
            return None;
        }
        let failed = regular.any(|record| record.ended.as_ref().is_none_or(|ended| ended.code != 0));
        Some(if failed { Phase::Failed } else { Phase::Succeeded })
    }

    /// The phase of a pod that is ended and of which nothing runs.
    pub(super) fn last_phase(&self) -> Phase {
        if let Some(fate) = self.end.fate() {
            return fate.phase;
        }
        let well = |record: &Record| record.ended.as_ref().is_some_and(|ended| ended.code == 0);
        let mut regular = self
            .records
            .iter()
            .filter(|record| record.role == Role::Regular)
            .peekable();
        if regular.peek().is_some() && regular.all(well) {
            Phase::Succeeded
        } else {
            Phase::Failed
        }
    }

    /// The phase as it is to be said now.
    pub(super) fn present_phase(&self, world: &World<'_>) -> Phase {
        if let Some(over) = self.end.over() {
            return over;
        }
        let initialised = self.initialised;
        let (mut pending, mut waiting, mut running, mut stopped) = (false, false, false, false);
        for (record, spec) in self.records.iter().zip(world.specs) {
            match (record.role, record.run(), &record.ended) {
                (Role::Init, Some(_), _) => pending |= !initialised,
                (Role::Init, None, Some(ended)) => pending |= ended.code == 0 && record.again && !initialised,
                (Role::Init, None, None) => pending |= !initialised,
                (Role::Sidecar, Some(run), _) => {
                    running = true;
                    pending |= !run.is_started(spec) && !initialised;
                }
                (Role::Sidecar, None, Some(_)) | (Role::Ephemeral, _, _) => {}
                (Role::Sidecar, None, None) => {
                    pending |= !initialised;
                    waiting = true;
                }
                (Role::Regular, Some(_), _) => running = true,
                (Role::Regular, None, Some(_)) => stopped = true,
                (Role::Regular, None, None) => waiting = true,
            }
        }
        if pending || waiting || !(running || stopped) {
            return Phase::Pending;
        }
        Phase::Running
    }
}
