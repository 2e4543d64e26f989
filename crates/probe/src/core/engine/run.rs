//! Ticks and attempts.

use super::schedule::period;
use super::tally::text;
use super::{Engine, Flight, Notice, State, why};
use crate::core::{
    Attempt, Event, Kind, Now, Outcome, Reading, Settled, Step, Target, Verdict, Worker, World,
};
use std::time::Duration;

impl Engine {
    /// The next attempt to make, if one is due and the limits allow it. Pods take turns.
    pub fn next_attempt(&mut self, now: Now) -> Option<Attempt> {
        self.ripen(now);
        while let Some((pod, exec)) = self.turn() {
            let Some(lines) = self.pods.get_mut(pod).map(|entry| &mut entry.lines) else {
                break;
            };
            let Some(id) = self.queue.take(pod, lines, exec) else {
                continue;
            };
            let Some(State::Ready { due, .. }) = self.workers.get(id).map(|slot| slot.state) else {
                continue;
            };
            self.park(id, None);
            // The world may have changed while it waited.
            match self.ask(id, now) {
                Step::Probe => return self.launch(id, due, now),
                step => self.follow(id, step, now),
            }
            // It may have been asked for again meanwhile, and be due.
            self.ripen(now);
        }
        None
    }

    /// Asks all whose time has come; who is to make an attempt gets in line.
    fn ripen(&mut self, now: Now) {
        while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now.mono) {
            self.halt(id);
            match self.ask(id, now) {
                Step::Probe => self.line_up(id, at),
                step => self.follow(id, step, now),
            }
        }
    }

    /// Whose turn it is, as far as the limits allow.
    pub(super) fn turn(&self) -> Option<(u32, bool)> {
        if self.flights.len() >= self.config.concurrency.max(1) {
            return None;
        }
        self.queue.turn(self.execs < self.config.exec_concurrency.max(1))
    }

    /// A worker waits no longer for what it waited for. A running attempt goes on.
    pub(super) fn halt(&mut self, id: u32) {
        let Some(slot) = self.workers.get_mut(id) else {
            return;
        };
        match slot.state {
            State::Asleep(at) | State::Waiting(Some(at)) => {
                self.timers.remove(&(at, id));
                // Kept as asleep would be a lie from here on.
                slot.state = State::Waiting(None);
            }
            State::Ready { exec, .. } => {
                if let Some(entry) = self.pods.get_mut(slot.pod) {
                    self.queue.remove(&mut entry.lines, id, exec);
                }
                slot.state = State::Waiting(None);
            }
            State::Waiting(None) | State::Running(_) => {}
        }
    }

    /// Lets a worker wait until `at`. It waits for nothing else.
    pub(super) fn park(&mut self, id: u32, at: Option<Duration>) {
        if let Some(slot) = self.workers.get_mut(id) {
            slot.state = State::Waiting(at);
            if let Some(at) = at {
                self.timers.insert((at, id));
            }
        }
    }

    fn line_up(&mut self, id: u32, due: Duration) {
        let Some(slot) = self.workers.get_mut(id) else {
            return;
        };
        let exec = slot.is_exec();
        slot.state = State::Ready { due, exec };
        if let Some(entry) = self.pods.get_mut(slot.pod) {
            self.queue.push(slot.pod, &mut entry.lines, id, exec);
        }
    }

    /// Asks a worker, and returns what comes of it.
    fn ask(&mut self, id: u32, now: Now) -> Step {
        let strict = self.is_strict();
        let Some(slot) = self.workers.get_mut(id) else {
            return Step::Idle;
        };
        let Some(entry) = self.pods.get(slot.pod) else {
            return Step::Idle;
        };
        let status = entry.status.as_ref();
        let seen = status
            .and_then(|status| status.container(&slot.container.name))
            .filter(|seen| !seen.id.is_empty());
        if let Some(seen) = seen {
            if slot.too_late.as_ref() == Some(&seen.id) && seen.state.is_running() {
                return Step::Idle;
            }
            slot.too_late = None;
            if slot.restored && slot.worker.container_id() != Some(&seen.id) {
                slot.worker = Worker::new(slot.key.kind);
                (slot.restored, slot.untold) = (false, false);
            }
            slot.undelayed = slot.undelayed.take().filter(|undelayed| undelayed.0 == seen.id);
        }
        let (known, published) = (slot.worker.container_id().cloned(), slot.worker.published());
        let world = World {
            policy: &self.config.policy,
            pod: &entry.pod,
            container: &slot.container,
            status,
            probe: slot
                .undelayed
                .as_ref()
                .map_or(&*slot.probe, |undelayed| &undelayed.1),
        };
        let step = slot.worker.tick(&world, now);
        let met = known.as_ref() != slot.worker.container_id();
        if met {
            slot.plan.fresh = true;
        }
        let again = seen.is_some() && std::mem::take(&mut slot.untold);
        let changed = met || published != slot.worker.published();
        if (changed || again)
            && let (Some(container_id), Some(reading)) = (slot.worker.container_id(), slot.worker.published())
        {
            self.notices.push(Notice::Published {
                key: slot.key.clone(),
                container_id: container_id.clone(),
                reading,
                why: if changed {
                    why::asked(slot.key.kind, entry.pod.deleting, seen, reading)
                } else {
                    why::KEPT.to_owned()
                },
            });
        }
        if strict
            && step == Step::Probe
            && slot.plan.fresh
            && !slot.plan.released
            && (slot.restored || seen.is_some_and(|seen| self.config.policy.is_met_again(seen, now)))
        {
            // Not the container is new but the prober: its containers must not all be probed at once.
            (slot.plan.fresh, slot.plan.manual, slot.restored) = (false, false, false);
            return Step::Idle;
        }
        let unserving = slot.key.kind == Kind::Readiness && slot.worker.published() != Some(Reading::Success);
        if strict
            && step == Step::Probe
            && slot.plan.grid > now.mono
            && !(slot.plan.fresh || slot.plan.released || unserving)
        {
            // Thresholds are so many periods: news of a container must not make three failures of one moment.
            return Step::Idle;
        }
        step
    }

    /// Does what a worker said that is not to make an attempt now.
    fn follow(&mut self, id: u32, step: Step, now: Now) {
        match step {
            Step::Stop => self.end(id),
            Step::Until(at) if at > now.mono => self.park(id, Some(at)),
            Step::Until(_) | Step::Idle | Step::Probe => {
                let compat = self.config.policy.compat;
                if let Some(slot) = self.workers.get_mut(id) {
                    slot.plan.advance(compat, period(&slot.probe), now.mono, false);
                }
                self.rest(id, now);
            }
        }
    }

    /// Lets a worker wait for the next point of its grid, or for the tick that was asked for while it was
    /// busy.
    fn rest(&mut self, id: u32, now: Now) {
        let Some(slot) = self.workers.get_mut(id) else {
            return;
        };
        if std::mem::take(&mut slot.plan.signal) {
            slot.plan.manual = true;
            self.park(id, Some(now.mono));
        } else {
            let next = Some(slot.plan.grid).filter(|next| *next > now.mono);
            self.park(id, next);
        }
    }

    fn launch(&mut self, id: u32, due: Duration, now: Now) -> Option<Attempt> {
        let ticket = self.next_ticket;
        let compat = self.config.policy.compat;
        let slot = self.workers.get_mut(id)?;
        let address = self
            .pods
            .get(slot.pod)?
            .status
            .as_ref()
            .and_then(|status| status.address);
        let container_id = slot.worker.container_id()?.clone();
        slot.plan.advance(compat, period(&slot.probe), now.mono, true);
        (slot.state, slot.restored) = (State::Running(ticket), false);
        let exec = slot.is_exec();
        let lag = now.mono.saturating_sub(due);
        self.next_ticket += 1;
        self.execs += usize::from(exec);
        self.flights.insert(
            ticket,
            Flight {
                worker: Some(id),
                exec,
                started: now.mono,
                lag,
            },
        );
        Some(Attempt {
            ticket,
            key: slot.key.clone(),
            target: Target {
                address,
                source: self.config.source,
                container: slot.container.clone(),
                container_id,
            },
            probe: slot.probe.clone(),
            compat,
            lag,
        })
    }

    /// Takes the end of an attempt. `starved`: the prober did not get to run in time meanwhile; in strict
    /// mode only a success counts then. A ticket that is unknown, or settled, or whose worker has ended is no
    /// error.
    pub fn settle(&mut self, ticket: u64, mut outcome: Outcome, starved: bool, now: Now) {
        let Some(flight) = self.flights.remove(&ticket) else {
            return;
        };
        self.execs = self.execs.saturating_sub(usize::from(flight.exec));
        let Some(id) = flight.worker else { return };
        let strict = self.is_strict();
        let Some(slot) = self.workers.get_mut(id) else {
            return;
        };
        slot.state = State::Waiting(None);
        slot.plan.completed = Some(now.mono);
        let settled = match Settled::of(&outcome) {
            Settled::Result(Reading::Success) => Settled::Result(Reading::Success),
            _ if starved && strict => Settled::Starved,
            counts => counts,
        };
        let starved = settled == Settled::Starved;
        if starved {
            outcome.verdict = Verdict::Unknown;
        }
        let took = now.mono.saturating_sub(flight.started);
        slot.tally.record(&outcome, starved, took, flight.lag, now.wall);

        let status = self.pods.get(slot.pod).and_then(|entry| entry.status.as_ref());
        let present = status.and_then(|status| status.container(&slot.container.name));
        // The answer is about a container that is gone. The kubelet publishes it under the old ID.
        let stale = strict && present.map(|present| &present.id) != slot.worker.container_id();
        let before = (slot.worker.published(), slot.worker.run());
        let held = slot.worker.on_hold();
        if !stale {
            slot.worker.settle(settled, &slot.probe, &self.config.policy);
        }
        let published = slot.worker.published();
        // A container that was seen before it ran has failed already, by what is published. Who kills it
        // waits for the failure that it is held for.
        let is_held_now = slot.worker.on_hold() && !held;
        let change = published
            .filter(|_| published != before.0 || is_held_now)
            .zip(slot.worker.container_id().cloned())
            .map(|(reading, container_id)| Notice::Published {
                key: slot.key.clone(),
                container_id,
                reading,
                why: why::settled(settled, before.1, slot, text(&outcome), strict),
            });
        let key = slot.key.clone();
        let event = Event::of(key.kind, &outcome).filter(|_| !starved && !stale);
        self.notices.push(Notice::Ended {
            key: key.clone(),
            outcome,
            took,
            lag: flight.lag,
            starved,
        });
        self.notices
            .extend(event.map(|event| Notice::Event { key, event }));
        let started = change.is_some() && slot.key.kind == Kind::Startup;
        self.notices.extend(change);
        self.recover(id, now);
        if started {
            self.startup_ended(id, now);
        }
    }

    /// Lets a worker rest after an attempt. Kubelet mode keeps one tick that passed meanwhile, as Go's ticker
    /// does.
    fn recover(&mut self, id: u32, now: Now) {
        let strict = self.is_strict();
        let Some(slot) = self.workers.get_mut(id) else {
            return;
        };
        if !slot.plan.signal && slot.plan.grid <= now.mono {
            if !strict {
                return self.park(id, Some(now.mono));
            }
            let compat = self.config.policy.compat;
            slot.plan.advance(compat, period(&slot.probe), now.mono, false);
        }
        self.rest(id, now);
    }

    /// Asks for a tick at once, or, if the worker is busy, for one right after. Repeating it changes nothing.
    pub(super) fn trigger(&mut self, id: u32, now: Now) {
        let Some(slot) = self.workers.get_mut(id) else {
            return;
        };
        match slot.state {
            State::Asleep(_) | State::Running(_) => slot.plan.signal = true,
            // It has yet to be asked.
            State::Ready { .. } => slot.plan.manual = true,
            State::Waiting(Some(at)) if at <= now.mono => slot.plan.manual = true,
            State::Waiting(_) => {
                slot.plan.manual = true;
                self.halt(id);
                self.park(id, Some(now.mono));
            }
        }
    }
}
