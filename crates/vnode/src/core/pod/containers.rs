//! What is to be done about the containers of a pod that is to run (kubelet's `computePodActions`).

use super::Action;
use super::machine::{Machine, World};
use super::record::{Life, Record, Run, Stop, Wait};
use super::spec::{Role, Spec, seconds_of, title};
use super::words::{note, time, warning};
use crate::core::Event;
use evenkeel_api::names::events::KILLING;
use evenkeel_api::names::pods::{BACK_OFF, CRASH_LOOP};
use evenkeel_probe::core::{
    self as probe, BackOff, Kind, LEAST_GRACE, Reading, all_restart, kill_grace, runs_again_when_killed,
};
use std::time::Duration;

impl Run {
    /// Whether it has started: by its startup probe, or since nothing says otherwise.
    pub(super) fn is_started(&self, spec: &Spec<'_>) -> bool {
        match self.reading(Kind::Startup) {
            Some(reading) => reading == Reading::Success,
            None if self.recorded.is_some_and(|(started, _)| started) => true,
            None => spec.startup.is_none(),
        }
    }

    /// Whether it is ready.
    pub(super) fn is_ready(&self, spec: &Spec<'_>) -> bool {
        if self.stalled.is_some() || !self.is_started(spec) {
            return false;
        }
        match (spec.readiness, self.reading(Kind::Readiness)) {
            (None, _) => true,
            (Some(_), Some(reading)) => reading == Reading::Success,
            (Some(_), None) => self.recorded.is_some_and(|(_, ready)| ready),
        }
    }
}

impl Machine {
    /// Ends what must not go on, starts what must run.
    pub(super) fn run_containers(&mut self, world: &World<'_>, out: &mut Vec<Action>) {
        if self.restart_all(world, out) {
            return;
        }
        for index in 0..self.records.len() {
            self.kill_if_due(index, world, out);
        }
        let ready = self.ready_to_start(world);
        for index in ready {
            self.start(index, world, out);
        }
    }

    /// Whether an end of this container asks that all run again.
    pub(super) fn asks_for_all(&self, view: &probe::Pod, record: &Record) -> bool {
        let Some(ended) = record.ended.as_ref().filter(|_| !self.rules.is_empty()) else {
            return false;
        };
        if !record.is_idle() || record.again {
            return false;
        }
        let status = probe::ContainerStatus {
            name: record.name.clone(),
            id: ended.id.clone(),
            state: probe::ContainerState::Terminated {
                exit_code: ended.code,
            },
            started: None,
            ready: false,
            taken_over: false,
        };
        all_restart(
            view,
            &probe::PodStatus {
                containers: vec![status],
                ..probe::PodStatus::default()
            },
        )
    }

    /// Ends all containers where a rule wants all to run again, until all have ended. Returns whether that is
    /// going on.
    fn restart_all(&mut self, world: &World<'_>, out: &mut Vec<Action>) -> bool {
        if self.rules.is_empty() {
            return false;
        }
        if !self.presence.is_restarting_all() {
            let view = self.view(world);
            let mut counting = self
                .records
                .iter()
                .filter(|record| record.role != Role::Ephemeral);
            if !counting.any(|record| self.asks_for_all(&view, record)) {
                return false;
            }
            self.presence.restart_all(true);
        }
        for index in (0..self.records.len()).rev() {
            let record = &self.records[index];
            if record.role == Role::Ephemeral {
                continue;
            }
            let message = format!("Stopping container {}", record.name);
            self.kill(index, LEAST_GRACE, world, out, |_| killing(message));
        }
        let mut counting = self
            .records
            .iter_mut()
            .filter(|record| record.role != Role::Ephemeral);
        if !counting.all(|record| record.is_idle()) {
            return true;
        }
        for record in self
            .records
            .iter_mut()
            .filter(|record| record.role != Role::Ephemeral)
        {
            record.again |= record.ended.is_some();
        }
        self.presence.restart_all(false);
        self.initialised = false;
        false
    }

    /// A container whose probe has failed, or whose image is another by now, ends.
    fn kill_if_due(&mut self, index: usize, world: &World<'_>, out: &mut Vec<Action>) {
        let spec = &world.specs[index];
        let record = &self.records[index];
        let Some(run) = record.run() else { return };
        if let Some(stop) = &run.stop {
            if !stop.asked && stop.due <= world.now.mono {
                let grace = stop.grace;
                self.kill(index, grace, world, out, |_| killing(String::new()));
            }
            return;
        }
        if !matches!(record.role, Role::Sidecar | Role::Regular) {
            return;
        }
        let own = world.pod.spec.as_ref();
        let grace = own.and_then(|spec| spec.termination_grace_period_seconds);
        let grace = seconds_of(grace.unwrap_or(30));
        // An image that is not known (of a start nobody waited for) counts as the one that was asked for.
        if *run.image != *spec.image && !run.image.is_empty() {
            let name = spec.name;
            let message = match record.role {
                Role::Regular => format!("Container {name} definition changed, will be restarted"),
                _ => format!("Init container {name} definition changed"),
            };
            self.kill(index, grace.max(LEAST_GRACE), world, out, |record| {
                record.again = true;
                // Another image is another container: its delays are its own.
                record.back_off = None;
                killing(message)
            });
            return;
        }
        let failed = [Kind::Liveness, Kind::Startup];
        let Some(kind) = failed
            .into_iter()
            .find(|kind| run.reading(*kind) == Some(Reading::Failure))
        else {
            return;
        };
        let view = self.view(world);
        let Some(container) = view.container(spec.name) else {
            return;
        };
        let grace = kill_grace(container, kind, grace);
        self.kill(index, grace, world, out, |record| {
            record.again = runs_again_when_killed(&view, container);
            Event::killing(kind, &view, container)
        });
    }

    /// Asks for a container's end, if nobody has.
    fn kill(
        &mut self,
        index: usize,
        grace: Duration,
        world: &World<'_>,
        out: &mut Vec<Action>,
        event: impl FnOnce(&mut Record) -> Event,
    ) {
        let record = &mut self.records[index];
        let Life::Running(run) = &mut record.life else {
            return;
        };
        if run
            .stop
            .as_ref()
            .is_some_and(|stop| stop.asked || stop.due > world.now.mono)
        {
            return;
        }
        let (id, name, first) = (run.id.clone(), record.name.clone(), run.stop.is_none());
        let stop = run.stop.get_or_insert_with(|| {
            Box::new(Stop {
                asked: false,
                pod_grace: None,
                grace,
                tries: 0,
                due: world.now.mono,
            })
        });
        stop.asked = true;
        if first {
            let event = event(record);
            out.push(note(Some(name.clone()), event.reason, event.message));
        }
        out.push(Action::Stop {
            container: name,
            id,
            grace,
        });
    }

    /// Which containers may be started now, in their order; delays aside.
    fn ready_to_start(&mut self, world: &World<'_>) -> Vec<usize> {
        if self.initialised && !self.records.iter().any(Record::is_idle) {
            return Vec::new();
        }
        let view = self.view(world);
        let wanted = |role: Role| -> Vec<usize> {
            let of = (0..self.records.len()).filter(|index| {
                let record = &self.records[*index];
                record.role == role && record.is_idle() && self.will_run(&view, record)
            });
            of.collect()
        };
        let mut ready = wanted(Role::Ephemeral);
        let (initialised, init) = self.initialise(world, &view);
        ready.extend(init);
        if initialised {
            ready.extend(wanted(Role::Regular));
        }
        self.initialised = initialised;
        ready
    }

    /// Whether init containers are done, and which of them may be started.
    fn initialise(&self, world: &World<'_>, view: &probe::Pod) -> (bool, Vec<usize>) {
        let all: Vec<usize> = (0..self.records.len())
            .filter(|index| matches!(self.records[*index].role, Role::Init | Role::Sidecar))
            .collect();
        let sidecars = |among: &[usize]| -> Vec<usize> {
            let idle = |index: &&usize| {
                let record = &self.records[**index];
                record.role == Role::Sidecar && record.is_idle()
            };
            among.iter().filter(idle).copied().collect()
        };
        if self.initialised {
            return (true, sidecars(&all));
        }
        // The furthest that has begun decides; sidecars before it are only kept up.
        let begun = |index: &usize| {
            let record = &self.records[*index];
            let fresh = record.ended.is_some() && !record.again;
            !record.is_idle() || record.wait.is_some() || fresh
        };
        let at = all.iter().rposition(begun).unwrap_or(0);
        let mut ready = sidecars(&all[..at.min(all.len())]);
        for (place, index) in all.iter().enumerate().skip(at) {
            let (record, spec) = (&self.records[*index], &world.specs[*index]);
            let done = match (record.role, &record.life) {
                (Role::Sidecar, Life::Running(run)) => run.is_started(spec) && run.stop.is_none(),
                (Role::Init, Life::Idle) => {
                    !record.again && record.ended.as_ref().is_some_and(|ended| ended.code == 0)
                }
                _ => false,
            };
            if done {
                continue;
            }
            if record.is_idle() && self.will_run(view, record) {
                ready.push(all[place]);
            }
            return (false, ready);
        }
        (true, ready)
    }

    /// Starts a container, unless it must wait.
    fn start(&mut self, index: usize, world: &World<'_>, out: &mut Vec<Action>) {
        let (now, settings) = (world.now.mono, world.settings);
        let image = world.specs[index].image;
        let record = &mut self.records[index];
        if record.wait.as_ref().is_some_and(|wait| *wait.image != *image) {
            record.wait = None;
            record.back_off = None;
            record.tries = 0;
        }
        if record.wait.as_ref().is_some_and(|wait| wait.due > now) {
            return;
        }
        let (mut back_off, ended) = record
            .back_off
            .as_deref()
            .copied()
            .unwrap_or((BackOff::default(), now));
        let failed_to_start = record.tries > 0;
        if record.ended.is_some() && !failed_to_start {
            let delay = back_off.delay(ended, settings.back_off_max);
            let due = ended.saturating_add(delay);
            if due > now {
                let (name, title) = (record.name.clone(), title(world.pod));
                let message = format!("Back-off restarting failed container {name} in pod {title}");
                out.push(warning(Some(name.clone()), BACK_OFF, message));
                let delay = time(delay);
                record.wait = Some(Box::new(Wait {
                    reason: Some(CRASH_LOOP.to_owned()),
                    message: format!("back-off {delay} restarting failed container={name} pod={title}"),
                    due,
                    image: image.into(),
                }));
                return;
            }
            back_off.advance(ended, now, settings.back_off, settings.back_off_max);
            record.back_off = Some(Box::new((back_off, ended)));
        }
        record.life = Life::Starting(image.into());
        out.push(Action::Start {
            container: record.name.clone(),
            attempt: record.next_attempt(),
        });
    }
}

fn killing(message: String) -> Event {
    Event {
        warning: false,
        reason: KILLING,
        message,
    }
}
