//! A state of the model, and the state after each step.

use super::names;
use super::node::{Flight, Node, Request};
use super::{Budget, Model, Step};
use crate::GateCheck;
use crate::register::Register;
use evenkeel_election::core::{
    ConfigError, Event, FencingToken, Observation, ReadResult, State as Ended, WriteResult,
};
use jiff::Timestamp;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The time that every clock always shows. Time passes by moving all stored times into the past.
pub(super) const NOW: Duration = Duration::from_secs(1_000);

/// The earliest time that is distinguished. No rule looks back for longer than a lease duration.
pub(super) fn floor(model: &Model) -> Duration {
    NOW.saturating_sub(Duration::from_secs(2 * model.grid.lease))
}

/// Two candidates and the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) nodes: [Arc<Node>; 2],
    pub(super) register: Register,
    /// The object as it was before it last changed.
    pub(super) before: Option<Observation>,
    /// The newest term and its candidate; no candidate if its process has died since.
    pub(super) newest: Option<(FencingToken, Option<u8>)>,
    /// How many rare events may still happen.
    pub(super) budget: Budget,
    gate_check: GateCheck,
    /// The wall clock at the next write.
    pub(super) next_stamp: Timestamp,
}

/// A rule that was violated.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Violation {
    /// Both candidates may write.
    #[error("both gates are open")]
    TwoOpenGates,
    /// A term began with a token that is not greater than that of an earlier one, or with that of another
    /// candidate.
    #[error("a gate opens with {opened}, and {newest} was there before")]
    StaleToken {
        /// The token of the gate that opened.
        opened: FencingToken,
        /// The token of the newest term until then.
        newest: FencingToken,
    },
    /// A machine sent a request before it gave up, or saw answered, the one before.
    #[error("a second request while one is under way")]
    TwoRequests,
}

impl State {
    pub(super) fn new(model: &Model) -> Result<Self, ConfigError> {
        let mut state = Self {
            nodes: [Arc::new(Node::new("a", model)?), Arc::new(Node::new("b", model)?)],
            register: Register::default(),
            before: None,
            newest: None,
            budget: model.budget,
            gate_check: model.gate_check(),
            next_stamp: Timestamp::UNIX_EPOCH,
        };
        state.pass([0, 0], model);
        names::settle(&mut state, model);
        Ok(state)
    }

    /// Which gates are open now.
    pub(super) fn open_gates(&self) -> [bool; 2] {
        let open = |node: &Node| {
            node.gate
                .is_some_and(|until| self.gate_check == GateCheck::TaskOnly || NOW < until)
        };
        [open(&self.nodes[0]), open(&self.nodes[1])]
    }

    pub(super) fn gate_check(&self) -> GateCheck {
        self.gate_check
    }

    /// Whether a term of another process than that of the newest one began since `earlier`.
    pub(super) fn took_over(&self, earlier: &Self) -> bool {
        match (&self.newest, &earlier.newest) {
            (Some((_, Some(now))), Some((_, before))) => *before != Some(*now),
            _ => false,
        }
    }

    /// All steps, including those that cannot be taken now.
    pub(super) fn steps(model: &Model) -> Vec<Step> {
        let mut steps = Vec::new();
        for a in model.grid.advances {
            steps.extend(
                model
                    .grid
                    .advances
                    .iter()
                    .map(|b| Step::Pass([*a as u8, *b as u8])),
            );
        }
        steps.extend(Step::of(0));
        steps.extend(Step::of(1));
        steps.push(Step::Delete);
        steps
    }

    /// The state after a step; `None` if the step cannot be taken.
    pub(super) fn after(&self, step: Step, model: &Model) -> Option<Result<Self, Violation>> {
        let mut next = self.clone();
        let done = match step {
            Step::Pass(by) => {
                next.pass(by, model);
                Ok(())
            }
            Step::Wake(i) => next.feed(i, Event::Wake, model),
            Step::Commit(i) => {
                let node = Arc::make_mut(next.nodes.get_mut(usize::from(i))?);
                let flight = node.flight.as_mut().filter(|flight| flight.reply.is_none())?;
                let request = flight.request.clone();
                let reply = next.change(|register| request.commit(register, model));
                let node = Arc::make_mut(next.nodes.get_mut(usize::from(i))?);
                node.flight = Some(Flight {
                    request: Request::Get,
                    reply: Some(reply),
                });
                Ok(())
            }
            Step::Answer(i) => {
                let node = Arc::make_mut(next.nodes.get_mut(usize::from(i))?);
                node.flight.as_ref()?.reply.as_ref()?;
                let reply = node.flight.take()?.reply?;
                let event = reply.event(model, &node.machine.config().identity);
                next.feed(i, event, model)
            }
            Step::Fail(i) => {
                let node = Arc::make_mut(next.nodes.get_mut(usize::from(i))?);
                let failed = match node.flight.as_ref()? {
                    Flight {
                        reply: Some(super::node::Reply::Read(_)),
                        ..
                    }
                    | Flight {
                        request: Request::Get,
                        reply: None,
                    } => Event::Read(ReadResult::Failed),
                    _ => Event::Written(WriteResult::Failed),
                };
                node.give_up();
                next.feed(i, failed, model)
            }
            Step::Late(i) => {
                let late = Arc::make_mut(next.nodes.get_mut(usize::from(i))?).late.take()?;
                next.change(|register| late.commit(register, model));
                Ok(())
            }
            Step::Change(i) => {
                let now = next.register.get().ok();
                next.feed(i, Event::Seen(now), model)
            }
            Step::StaleChange(i) => {
                next.budget.stale_changes = next.budget.stale_changes.checked_sub(1)?;
                let before = next.before.clone();
                next.feed(i, Event::Seen(before), model)
            }
            Step::Drained(i) => {
                let node = Arc::make_mut(next.nodes.get_mut(usize::from(i))?);
                if !std::mem::take(&mut node.draining) {
                    return None;
                }
                next.feed(i, Event::Drained, model)
            }
            Step::Crash(i) => {
                next.budget.crashes = next.budget.crashes.checked_sub(1)?;
                next.restart(i, model)?;
                Ok(())
            }
            Step::Cancel(i) => {
                next.budget.stops = next.budget.stops.checked_sub(1)?;
                next.feed(i, Event::Cancel, model)
            }
            Step::HandOver(i) => {
                next.budget.hand_overs = next.budget.hand_overs.checked_sub(1)?;
                next.feed(i, Event::StepDown, model)
            }
            Step::Delete => {
                next.budget.deletions = next.budget.deletions.checked_sub(1)?;
                next.register.get().ok()?;
                let knows = |node: &Arc<Node>| node.machine.observed().is_some();
                if !next.nodes.iter().all(knows) {
                    return None;
                }
                next.change(|register| {
                    let _gone = register.delete();
                });
                Ok(())
            }
        };
        if let Err(violation) = done {
            return Some(Err(violation));
        }
        if next.open_gates() == [true, true] {
            return Some(Err(Violation::TwoOpenGates));
        }
        names::settle(&mut next, model);
        Some(Ok(next))
    }

    fn pass(&mut self, by: [u8; 2], model: &Model) {
        for (node, by) in self.nodes.iter_mut().zip(by) {
            Arc::make_mut(node).pass(Duration::from_secs(by.into()), model);
        }
    }

    /// Applies a change to the lock, and remembers the object as it was before.
    fn change<T>(&mut self, how: impl FnOnce(&mut Register) -> T) -> T {
        let before = self.register.get().ok();
        let result = how(&mut self.register);
        if before != self.register.get().ok() {
            self.before = before;
        }
        result
    }

    fn feed(&mut self, i: u8, event: Event, model: &Model) -> Result<(), Violation> {
        let wall = self.next_stamp;
        let node = Arc::make_mut(&mut self.nodes[usize::from(i)]);
        let opened = node.step(event, wall, model)?;
        for token in opened {
            self.opens(i, token)?;
        }
        let node = &self.nodes[usize::from(i)];
        if matches!(node.machine.state(), Ended::Stopped { .. }) {
            self.restart(i, model);
        }
        Ok(())
    }

    fn restart(&mut self, i: u8, model: &Model) -> Option<()> {
        Arc::make_mut(&mut self.nodes[usize::from(i)])
            .restart(model)
            .ok()?;
        if let Some((_, owner)) = &mut self.newest
            && *owner == Some(i)
        {
            *owner = None;
        }
        Some(())
    }

    fn opens(&mut self, i: u8, opened: FencingToken) -> Result<(), Violation> {
        if let Some((newest, owner)) = &self.newest
            && newest.lease_uid == opened.lease_uid
        {
            let goes_on = opened == *newest && *owner == Some(i);
            if opened.transitions <= newest.transitions && !goes_on {
                let newest = newest.clone();
                return Err(Violation::StaleToken { opened, newest });
            }
        }
        self.newest = Some((opened, Some(i)));
        Ok(())
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.register.get() {
            Ok(found) if found.record.holder.is_empty() => write!(f, "released"),
            Ok(found) => write!(f, "held by {}", found.record.holder),
            Err(_) => write!(f, "no lock"),
        }?;
        write!(f, ", {}", self.gates())
    }
}
