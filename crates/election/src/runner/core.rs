//! What to do with the command: the pure part of the runner.
//!
//! [`Runner`] takes events and a time and returns actions. It knows no process, clock or lease.

use super::deadlines::Deadlines;
use super::status::{Ended, Status};
use crate::core::{FencingToken, Loss, StopReason};
use nix::sys::signal::Signal;
use std::time::Duration;

mod event;
#[cfg(test)]
mod tests;

pub use event::{Action, DUPLICATE, Event, FAILED, LOST, OnLost};

/// What the runner is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// No command runs.
    Idle,
    /// The command runs.
    Running(Run),
    /// The command has been told to end.
    Ending {
        /// Which.
        run: Run,
        /// Whether renewals still count for it: it drains, and leads until it has ended.
        leads: bool,
        /// It gets KILL then, or before.
        kill_at: Duration,
        /// What comes next.
        then: Then,
    },
    /// No command runs, the candidacy is being ended.
    Withdrawing {
        /// Exit code.
        code: u8,
    },
    /// The exit code has been given.
    Over,
}

/// A command that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    /// In which term.
    token: FencingToken,
    /// Last word on how long it may run.
    deadlines: Deadlines,
    /// The runner has killed keeper and command.
    destroyed: bool,
}

/// What follows the end of a command that was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The next term.
    Campaign,
    /// Withdrawal, and this exit code.
    Withdraw(u8),
    /// Withdrawal; the runner was asked to stop with this signal, and the command's end decides the exit code.
    Asked(Signal),
    /// Exit with this code, at once.
    Exit(u8),
}

/// The decisions of a runner.
#[derive(Clone, Debug)]
pub struct Runner {
    on_lost: OnLost,
    /// Between a stop signal and KILL.
    grace: Duration,
    phase: Phase,
    /// The term that this candidate leads in.
    term: Option<(FencingToken, Deadlines)>,
    /// Whether the candidate has ended.
    election_ended: bool,
}

impl Runner {
    /// Nothing runs. `grace` is the time between a stop signal to the runner and KILL.
    pub fn new(on_lost: OnLost, grace: Duration) -> Self {
        Self {
            on_lost,
            grace,
            phase: Phase::Idle,
            term: None,
            election_ended: false,
        }
    }

    /// When [`Event::Wake`] is wanted.
    pub fn wake_at(&self) -> Option<Duration> {
        let run = match &self.phase {
            Phase::Running(run) | Phase::Ending { run, .. } if !run.destroyed => run,
            _ => return None,
        };
        Some(self.destroy_at(run))
    }

    /// A keeper that has not ended its command by then does not work.
    fn destroy_at(&self, run: &Run) -> Duration {
        match &self.phase {
            Phase::Ending { kill_at, .. } => run.deadlines.destroy_at.min(*kill_at + run.deadlines.slack()),
            _ => run.deadlines.destroy_at,
        }
    }

    /// The transition function.
    pub fn step(&mut self, now: Duration, event: Event) -> Vec<Action> {
        match event {
            Event::Leads { token, deadlines } => self.leads(now, token, deadlines),
            Event::Follows => {
                self.term = None;
                self.lost(now)
            }
            Event::ElectionEnded(reason) => self.election_ended(now, reason),
            Event::Signal(signal) => self.signal(now, signal),
            Event::Ended(ended) => self.ended(now, ended),
            Event::KeeperGone => self.keeper_gone(now),
            Event::Wake => self.wake(now),
        }
    }

    fn leads(&mut self, now: Duration, token: FencingToken, deadlines: Deadlines) -> Vec<Action> {
        // The keeper, too, has to know: it may be the first to see that the time is over.
        let deadlines = match self.on_lost {
            OnLost::Kill => deadlines.without_grace(),
            OnLost::Stop | OnLost::Exit => deadlines,
        };
        self.term = Some((token.clone(), deadlines));
        match &mut self.phase {
            Phase::Idle => self.next_term(now),
            Phase::Running(run) | Phase::Ending { run, leads: true, .. } if run.token == token => {
                if run.deadlines == deadlines {
                    return Vec::new();
                }
                run.deadlines = deadlines;
                vec![Action::Extend(deadlines)]
            }
            // The end of the old term was missed: its command must not run into the new one.
            Phase::Running(_) | Phase::Ending { leads: true, .. } => self.lost(now),
            Phase::Ending { .. } | Phase::Withdrawing { .. } | Phase::Over => Vec::new(),
        }
    }

    /// Starts the command, if there is a term with some time left.
    fn next_term(&mut self, now: Duration) -> Vec<Action> {
        self.phase = Phase::Idle;
        let Some((token, deadlines)) = self.term.clone() else {
            return Vec::new();
        };
        if now >= deadlines.term_at {
            return Vec::new();
        }
        self.phase = Phase::Running(Run {
            token: token.clone(),
            deadlines,
            destroyed: false,
        });
        vec![Action::Start { token, deadlines }]
    }

    /// Leadership is lost: the command ends.
    fn lost(&mut self, now: Duration) -> Vec<Action> {
        let then = match self.on_lost {
            OnLost::Stop | OnLost::Kill => Then::Campaign,
            OnLost::Exit => Then::Withdraw(LOST),
        };
        let (run, then) = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Running(run) => (run, then),
            Phase::Ending {
                run,
                leads: true,
                then,
                ..
            } => (run, then),
            other => {
                self.phase = other;
                return Vec::new();
            }
        };
        // At the deadline the two are the same. Before it somebody else may lead already, against the rules.
        let kill_at = run.deadlines.kill_at.min(now + run.deadlines.grace());
        let kills = self.on_lost == OnLost::Kill;
        self.phase = Phase::Ending {
            run,
            leads: false,
            kill_at: if kills { now } else { kill_at },
            then,
        };
        if kills {
            vec![Action::Kill]
        } else {
            let signal = Signal::SIGTERM;
            vec![Action::Stop { signal, kill_at }]
        }
    }

    fn election_ended(&mut self, now: Duration, reason: Option<StopReason>) -> Vec<Action> {
        let code = code_of(reason.as_ref());
        self.term = None;
        self.election_ended = true;
        let actions = self.lost(now);
        match &mut self.phase {
            Phase::Idle => self.exit(code),
            Phase::Withdrawing { code } => {
                let code = *code;
                self.exit(code)
            }
            Phase::Ending { then, .. } => {
                *then = match *then {
                    // The reason says it better.
                    Then::Campaign | Then::Withdraw(LOST) => Then::Exit(code),
                    Then::Withdraw(code) | Then::Exit(code) => Then::Exit(code),
                    asked @ Then::Asked(_) => asked,
                };
                actions
            }
            Phase::Running(_) | Phase::Over => actions,
        }
    }

    fn signal(&mut self, now: Duration, signal: Signal) -> Vec<Action> {
        let stops = matches!(signal, Signal::SIGTERM | Signal::SIGINT);
        let second = Then::Exit(128 + signal as u8);
        let kill_at = now + self.grace;
        match &mut self.phase {
            Phase::Running(_) | Phase::Ending { .. } if !stops => vec![Action::Forward(signal)],
            _ if !stops => Vec::new(),
            Phase::Idle => self.withdraw(0),
            Phase::Running(run) => {
                let run = run.clone();
                self.phase = Phase::Ending {
                    run,
                    leads: true,
                    kill_at,
                    then: Then::Asked(signal),
                };
                vec![Action::Stop { signal, kill_at }]
            }
            Phase::Ending {
                then: then @ (Then::Asked(_) | Then::Exit(128..)),
                kill_at,
                ..
            } => {
                *then = second;
                *kill_at = now;
                vec![Action::Kill]
            }
            Phase::Ending { then, .. } => {
                // It is ending already; what was to follow will not.
                *then = Then::Asked(signal);
                Vec::new()
            }
            Phase::Withdrawing { .. } => self.exit(128 + signal as u8),
            Phase::Over => Vec::new(),
        }
    }

    fn ended(&mut self, now: Duration, ended: Ended) -> Vec<Action> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            // By the keeper, on its own deadline: it has not heard of a renewal in time.
            Phase::Running(_) if ended.stopped => match self.on_lost {
                OnLost::Stop | OnLost::Kill => self.next_term(now),
                OnLost::Exit => self.withdraw(LOST),
            },
            Phase::Running(_) => self.withdraw(ended.status.exit_code()),
            Phase::Ending { then, .. } => match then {
                Then::Campaign => self.next_term(now),
                Then::Withdraw(code) => self.withdraw(code),
                Then::Asked(signal) => self.withdraw(code_when_asked(ended.status, signal)),
                Then::Exit(code) => self.exit(code),
            },
            other => {
                self.phase = other;
                Vec::new()
            }
        }
    }

    fn keeper_gone(&mut self, now: Duration) -> Vec<Action> {
        match &self.phase {
            Phase::Running(_) => self.withdraw(FAILED),
            Phase::Ending { .. } => {
                let status = Status::Signal(Signal::SIGKILL as i32);
                self.ended(
                    now,
                    Ended {
                        status,
                        stopped: true,
                    },
                )
            }
            Phase::Idle | Phase::Withdrawing { .. } | Phase::Over => Vec::new(),
        }
    }

    fn wake(&mut self, now: Duration) -> Vec<Action> {
        if self.wake_at().is_none_or(|at| now < at) {
            return Vec::new();
        }
        if matches!(self.phase, Phase::Running(_)) {
            // What `lost` would have the keeper do is past.
            self.lost(now);
        }
        if let Phase::Ending { run, .. } = &mut self.phase {
            run.destroyed = true;
        }
        vec![Action::Destroy]
    }

    /// Gives the lease back, then exits.
    fn withdraw(&mut self, code: u8) -> Vec<Action> {
        if self.election_ended {
            return self.exit(code);
        }
        self.phase = Phase::Withdrawing { code };
        vec![Action::Withdraw]
    }

    fn exit(&mut self, code: u8) -> Vec<Action> {
        self.phase = Phase::Over;
        vec![Action::Exit(code)]
    }
}

/// Exit code after an election that has ended by itself.
fn code_of(reason: Option<&StopReason>) -> u8 {
    match reason {
        None => FAILED,
        Some(StopReason::Cancelled { .. }) => 0,
        Some(StopReason::Lost(Loss::DuplicateIdentity) | StopReason::DuplicateIdentity) => DUPLICATE,
        Some(StopReason::Lost(_) | StopReason::RecoveryDeadline) => LOST,
    }
}

/// Exit code after a stop that was asked for: a command that ends by the signal it was sent has done as it was told.
fn code_when_asked(status: Status, asked: Signal) -> u8 {
    match status {
        Status::Signal(signal) if signal == asked as i32 || signal == Signal::SIGTERM as i32 => 0,
        other => other.exit_code(),
    }
}
