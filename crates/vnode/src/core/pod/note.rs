//! Taking note of what happened.

use super::calls::Call;
use super::end::Fate;
use super::machine::{Machine, Object, World};
use super::presence::{Hindrance, Presence};
use super::record::{Ended, Life, Wait, lost, pause, recheck, steady};
use super::recorded;
use super::spec::Role;
use super::words::{note, warning};
use super::{Action, Input, Trouble};
use crate::core::reported::{Exit, Fault, FaultKind, PodState, Refusal, Sandbox, Started};
use evenkeel_api::names::pods::{
    CONFIG_ERROR, CREATED, FAILED, FAILED_KILL, FAILED_SANDBOX, PROVIDER_CREATE_FAILED,
    PROVIDER_DELETE_FAILED, PROVIDER_STATUS_FAILED, PROVIDER_UPDATE_FAILED, STARTED, UNSUPPORTED,
};
use evenkeel_probe::core::Phase;
use std::time::Duration;

/// Exit code of a container that could never be started (a container runtime's own).
const NEVER: i32 = 128;

impl Machine {
    pub(super) fn note(&mut self, world: &World<'_>, input: Input, out: &mut Vec<Action>) {
        match input {
            Input::Seen => self.posting.sees(world.pod),
            Input::Gone => self.object = Object::Gone,
            Input::Adopted(result) => {
                if self.calls.answer(Call::Adopt) {
                    self.adopted(world, result, out);
                }
            }
            Input::Created(result) => {
                if self.calls.answer(Call::Create) {
                    self.created(world, result, out);
                }
            }
            Input::Updated(result) => {
                if self.calls.answer(Call::Update) {
                    match result {
                        Ok(()) => self.calls.succeed(),
                        Err(fault) => {
                            out.push(warning(None, PROVIDER_UPDATE_FAILED, fault.message));
                            self.later(world);
                            // Somebody who cannot do it now is asked again; who cannot do it ever is not.
                            if fault.kind == FaultKind::Later {
                                self.known = None;
                            }
                        }
                    }
                }
            }
            Input::Started { container, result } => self.started(world, &container, result, out),
            Input::Stopped { container, result } => self.stopped(world, &container, result, out),
            Input::Deleted(result) => {
                if self.calls.answer(Call::Delete) {
                    match result {
                        Err(fault) if fault.kind != FaultKind::NotFound => {
                            if self.calls.tries() == 0 {
                                out.push(warning(None, PROVIDER_DELETE_FAILED, fault.message));
                            }
                            self.later(world);
                        }
                        Ok(()) | Err(_) => {
                            self.calls.succeed();
                            self.presence.remove();
                        }
                    }
                }
            }
            Input::Posted(posted) => self.posting.posted(posted, world.now),
            Input::Removed(gone) => {
                if self.calls.answer(Call::Remove) {
                    if gone {
                        self.object = Object::Gone;
                    } else {
                        self.later(world);
                    }
                }
            }
            Input::Observed { container, observed } => {
                if let Some(record) = self.records.iter_mut().find(|record| record.name == container) {
                    match self.presence {
                        Presence::Unknown => record.early = Some(Box::new(observed)),
                        Presence::Up { .. } => record.observes(observed, world.now),
                        Presence::Absent { .. } | Presence::Removed { .. } => {}
                    }
                }
            }
            Input::Probed {
                container,
                id,
                kind,
                reading,
            } => {
                let record = self.records.iter_mut().find(|record| record.name == container);
                if let Some(run) = record
                    .and_then(|record| record.run_mut())
                    .filter(|run| run.id == id)
                {
                    run.readings[kind as usize] = Some(reading);
                }
            }
            Input::Tick => self.wake = None,
        }
    }

    /// The call is made again after a while.
    fn later(&mut self, world: &World<'_>) {
        let tries = self.calls.tries();
        self.after(pause(tries, world.chance(tries)), world);
    }

    /// Likewise, after this pause.
    fn after(&mut self, pause: Duration, world: &World<'_>) {
        self.calls.fail(world.now.mono.saturating_add(pause));
    }

    fn adopted(&mut self, world: &World<'_>, result: Result<Option<PodState>, Fault>, out: &mut Vec<Action>) {
        let state = match result {
            Ok(state) => state,
            Err(fault) if fault.kind == FaultKind::NotFound => None,
            // Whatever there is of it, it is to go.
            Err(_) if self.is_gone() => return,
            Err(fault) => {
                // Once is usual where everything begins at the same time.
                if self.calls.tries() > 0 {
                    out.push(warning(None, PROVIDER_STATUS_FAILED, fault.message));
                }
                return self.later(world);
            }
        };
        self.calls.succeed();
        for (record, spec) in self.records.iter_mut().zip(world.specs) {
            recorded::take_over(record, world.pod, spec.image, state.as_ref(), world.now);
            if let Some(early) = record.early.take() {
                record.observes(*early, world.now);
            }
        }
        let regular = |role: Role| role == Role::Regular;
        self.initialised = self
            .records
            .iter()
            .any(|record| regular(record.role) && record.has_history());
        if let Some(state) = state {
            self.presence = Presence::up(state.sandbox);
            return;
        }
        self.presence = Presence::absent(true);
        // A new sandbox is initialised anew, unless nothing is going to run in it.
        let view = self.view(world);
        let mut rest = self.records.iter().filter(|record| regular(record.role));
        if rest.any(|record| self.will_run(&view, record)) {
            self.initialised = false;
            for record in self.records.iter_mut().filter(|record| record.role == Role::Init) {
                let again = record.ended.as_ref().is_some_and(|ended| ended.code == 0);
                record.again |= again;
            }
        }
    }

    fn created(&mut self, world: &World<'_>, result: Result<Sandbox, Trouble>, out: &mut Vec<Action>) {
        let trouble = match result {
            Ok(sandbox) => {
                self.calls.succeed();
                self.presence = Presence::up(sandbox);
                return;
            }
            Err(trouble) => trouble,
        };
        self.presence.hinder(None);
        let again = steady(world.chance(self.calls.tries()));
        let fault = match trouble {
            Trouble::Refused(refusal) => {
                let (reason, message) = if refusal.reason == UNSUPPORTED {
                    (UNSUPPORTED, refusal.message.clone())
                } else {
                    (PROVIDER_CREATE_FAILED, refusal.to_string())
                };
                self.record_repeated(reason, message, out);
                return self.cannot_run(refusal, world);
            }
            Trouble::Fault(fault) => fault,
            // Who found it out has recorded it.
            Trouble::Config(_) => return self.after(again, world),
            Trouble::Volume(_) => return self.later(world),
        };
        self.presence = Presence::absent(true);
        let message = format!("Failed to create pod sandbox: {}", fault.message);
        self.record_repeated(FAILED_SANDBOX, message, out);
        match fault.kind {
            FaultKind::Later | FaultKind::NotFound => {
                self.presence.hinder(Some(Hindrance {
                    reason: None,
                    message: fault.message,
                }));
                self.after(again, world);
            }
            FaultKind::Never | FaultKind::Fatal | FaultKind::Invalid | FaultKind::Unsupported => {
                let Fault { reason, message, .. } = fault;
                self.cannot_run(Refusal { reason, message }, world);
            }
        }
    }

    /// The pod waits until it can run here, or fails if that is wanted.
    fn cannot_run(&mut self, refusal: Refusal, world: &World<'_>) {
        if world.settings.fail_refused {
            let fate = Fate {
                phase: Phase::Failed,
                reason: refusal.reason,
                message: format!("Pod was rejected: {}", refusal.message),
            };
            return self.doom(fate, world.now.mono);
        }
        self.presence.hinder(Some(Hindrance {
            reason: Some(refusal.reason),
            message: refusal.message,
        }));
        self.after(recheck(world.chance(self.calls.tries())), world);
    }

    fn started(
        &mut self,
        world: &World<'_>,
        container: &str,
        result: Result<Started, Trouble>,
        out: &mut Vec<Action>,
    ) {
        let Some(record) = self.records.iter_mut().find(|record| *record.name == *container) else {
            return;
        };
        let Life::Starting(image) = &record.life else {
            return;
        };
        let image = image.clone();
        record.life = Life::Idle;
        let name = Some(record.name.clone());
        let early = record.early.take();
        let trouble = match result {
            Ok(started) => {
                self.initialised |= record.role == Role::Regular;
                record.runs(started, image);
                if let Some(early) = early {
                    record.observes(*early, world.now);
                }
                out.push(note(name.clone(), CREATED, "Container created".to_owned()));
                out.push(note(name, STARTED, "Container started".to_owned()));
                return;
            }
            Err(trouble) => trouble,
        };
        let now = world.now;
        let tries = record.tries;
        record.tries = tries.saturating_add(1);
        let chance = world.chance(tries);
        let (reason, message, delay) = match trouble {
            Trouble::Volume(_) => (None, String::new(), pause(tries, chance)),
            Trouble::Config(message) => (Some(CONFIG_ERROR.to_owned()), message, steady(chance)),
            Trouble::Refused(refusal) => (Some(refusal.reason), refusal.message, recheck(chance)),
            Trouble::Fault(fault) => {
                out.push(warning(name, FAILED, format!("Error: {}", fault.message)));
                let settings = world.settings;
                match fault.kind {
                    FaultKind::Never | FaultKind::Fatal | FaultKind::Invalid | FaultKind::Unsupported
                        if fault.kind != FaultKind::Fatal || settings.fail_refused =>
                    {
                        let fate = (fault.kind == FaultKind::Fatal).then(|| Fate {
                            phase: Phase::Failed,
                            reason: fault.reason.clone(),
                            message: fault.message.clone(),
                        });
                        record.restarts = record.next_attempt();
                        record.wait = None;
                        record.tries = 0;
                        record.again = false;
                        let failed = Ended {
                            code: NEVER,
                            reason: fault.reason,
                            message: fault.message,
                            at: Some(super::record::timestamp(now)),
                            ..Ended::lost("".into(), image, "".into())
                        };
                        record.push(failed, now);
                        if let Some(fate) = fate {
                            self.doom(fate, now.mono);
                        }
                        return;
                    }
                    _ => {
                        let delay = settings.back_off.saturating_mul(1 << tries.min(20));
                        (
                            Some(fault.reason),
                            fault.message,
                            delay.min(settings.back_off_max),
                        )
                    }
                }
            }
        };
        record.wait = Some(Box::new(Wait {
            reason,
            message,
            due: now.mono.saturating_add(delay),
            image,
        }));
        if let Some(early) = early {
            // The answer says no, the provider that it runs: the provider knows.
            record.observes(*early, now);
        }
    }

    fn stopped(
        &mut self,
        world: &World<'_>,
        container: &str,
        result: Result<Exit, Fault>,
        out: &mut Vec<Action>,
    ) {
        let now = world.now;
        let Some(record) = self.records.iter_mut().find(|record| *record.name == *container) else {
            return;
        };
        let record_name = record.name.clone();
        let Some(stop) = record
            .run_mut()
            .and_then(|run| run.stop.as_mut())
            .filter(|stop| stop.asked)
        else {
            return;
        };
        match result {
            Ok(exit) => record.ends(exit, now),
            Err(fault) if fault.kind == FaultKind::NotFound => record.ends(lost(now), now),
            Err(fault) => {
                // Once is enough: each further try says the same.
                if stop.tries == 0 {
                    let name = Some(record_name.clone());
                    out.push(warning(
                        name,
                        FAILED_KILL,
                        format!("error killing pod: {}", fault.message),
                    ));
                }
                stop.asked = false;
                stop.due = now
                    .mono
                    .saturating_add(pause(stop.tries, world.chance(stop.tries)));
                stop.tries = stop.tries.saturating_add(1);
            }
        }
    }
}
