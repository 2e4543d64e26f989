//! When the command starts and ends, and how the runner exits: the pure part of the runner.

use super::deadlines::Deadlines;
use super::event::{Action, DUPLICATE, Event, FAILED, LOST, OnLost};
use super::status::{Ended, Status};
use evenkeel_election::{FencingToken, Loss, StopReason};
use nix::sys::signal::Signal;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// What the runner is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Running(Run),
    /// The command has been told to end.
    Ending {
        /// The command that ends.
        run: Run,
        /// Whether this candidate still leads, so that renewals give the command more time to end.
        leads: bool,
        /// When it gets KILL at the latest.
        kill: Duration,
        /// What follows its end.
        then: Then,
    },
    /// No command runs, and the candidate is releasing the lease.
    Withdrawing {
        /// The exit code once it has.
        code: u8,
        /// The runner was told to stop, so that it does not wait for the release when it is told again.
        asked: bool,
    },
    /// [`Action::Exit`] was returned; nothing happens any more.
    Over,
}

/// A command that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    /// Fencing token of the term in which it was started.
    token: FencingToken,
    /// Until when it may run, as of the last renewal.
    deadlines: Deadlines,
    /// Whether the runner has killed keeper and command.
    destroyed: bool,
}

/// What follows the end of a command that was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The command is started again in the next term.
    Campaign,
    /// The lease is released, and the runner exits with this code.
    Withdraw(u8),
    /// The lease is released. The runner was told to stop by this signal, and its exit code depends on how
    /// the command ends.
    Asked(Signal),
    /// The runner exits with this code without releasing the lease.
    Exit(u8),
}

/// The state machine of a runner.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    on_lost: OnLost,
    /// Time between a stop signal to the runner and KILL.
    grace: Duration,
    phase: Phase,
    /// The term in which this candidate leads; `None` while it does not.
    term: Option<(FencingToken, Deadlines)>,
    /// Whether the candidate has ended.
    election_ended: bool,
}

impl Runner {
    /// A runner without a command. `grace` is the time between a stop signal to the runner and KILL.
    pub(crate) fn new(on_lost: OnLost, grace: Duration) -> Self {
        Self {
            on_lost,
            grace,
            phase: Phase::Idle,
            term: None,
            election_ended: false,
        }
    }

    /// When [`Event::Wake`] is wanted.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        let run = match &self.phase {
            Phase::Running(run) | Phase::Ending { run, .. } if !run.destroyed => run,
            _ => return None,
        };
        Some(self.destroy(run))
    }

    /// When the runner kills keeper and command: if the command still runs then, the keeper does not work.
    fn destroy(&self, run: &Run) -> Duration {
        match &self.phase {
            Phase::Ending { kill, .. } => run.deadlines.destroy.min(*kill + run.deadlines.slack()),
            _ => run.deadlines.destroy,
        }
    }

    pub(crate) fn step(&mut self, now: Duration, event: Event) -> Vec<Action> {
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
        // These deadlines are also sent to the keeper, which may be the first to see that the time is over.
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
            // The runner did not hear that the old term ended. A command must not run on into another term.
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
        if now >= deadlines.terminate {
            return Vec::new();
        }
        self.phase = Phase::Running(Run {
            token: token.clone(),
            deadlines,
            destroyed: false,
        });
        vec![Action::Start { token, deadlines }]
    }

    /// Ends the command because leadership is lost.
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
        // At the renew deadline both times are the same. A loss that is seen earlier means that somebody else
        // may lead already, so the command gets no more time than it would at the deadline.
        let kill = run.deadlines.kill.min(now + run.deadlines.grace());
        let kills = self.on_lost == OnLost::Kill;
        self.phase = Phase::Ending {
            run,
            leads: false,
            kill: if kills { now } else { kill },
            then,
        };
        if kills {
            vec![Action::Kill]
        } else {
            let signal = Signal::SIGTERM;
            vec![Action::Stop { signal, kill }]
        }
    }

    fn election_ended(&mut self, now: Duration, reason: Option<StopReason>) -> Vec<Action> {
        let code = code_of(reason.as_ref());
        self.term = None;
        self.election_ended = true;
        let actions = self.lost(now);
        match &mut self.phase {
            Phase::Idle => self.exit(code),
            Phase::Withdrawing { code: known, .. } => {
                // A twin is the reason why the term was lost.
                let is_twin = *known == LOST && code == DUPLICATE;
                let code = if is_twin { code } else { *known };
                self.exit(code)
            }
            Phase::Ending { then, .. } => {
                *then = match *then {
                    // The reason gives a more precise exit code.
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
        let kill = now + self.grace;
        match &mut self.phase {
            Phase::Running(_) | Phase::Ending { .. } if !stops => vec![Action::Forward(signal)],
            _ if !stops => Vec::new(),
            Phase::Idle => self.withdraw(0, true),
            Phase::Running(run) => {
                let run = run.clone();
                self.phase = Phase::Ending {
                    run,
                    leads: true,
                    kill,
                    then: Then::Asked(signal),
                };
                vec![Action::Stop { signal, kill }]
            }
            Phase::Ending {
                then: then @ (Then::Asked(_) | Then::Exit(128..)),
                kill,
                ..
            } => {
                *then = second;
                *kill = now;
                vec![Action::Kill]
            }
            Phase::Ending { then, .. } => {
                // The command is ending for another reason. The signal changes only what follows its end.
                *then = Then::Asked(signal);
                Vec::new()
            }
            Phase::Withdrawing { asked: true, .. } => self.exit(128 + signal as u8),
            Phase::Withdrawing { asked, .. } => {
                *asked = true;
                Vec::new()
            }
            Phase::Over => Vec::new(),
        }
    }

    fn ended(&mut self, now: Duration, ended: Ended) -> Vec<Action> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            // The keeper ended the command at the deadline, because it did not hear of a renewal in time.
            Phase::Running(_) if ended.stopped => match self.on_lost {
                OnLost::Stop | OnLost::Kill => self.next_term(now),
                OnLost::Exit => self.withdraw(LOST, false),
            },
            Phase::Running(_) => self.withdraw(ended.status.exit_code(), false),
            Phase::Ending { then, .. } => match then {
                Then::Campaign => self.next_term(now),
                Then::Withdraw(code) => self.withdraw(code, false),
                Then::Asked(signal) => self.withdraw(code_when_asked(ended.status, signal), true),
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
            Phase::Running(_) => self.withdraw(FAILED, false),
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
            // The actions are dropped: keeper and command are killed below.
            self.lost(now);
        }
        if let Phase::Ending { run, .. } = &mut self.phase {
            run.destroyed = true;
        }
        vec![Action::Destroy]
    }

    /// Has the lease released, and exits with this code after that. `asked`: the runner was told to stop.
    fn withdraw(&mut self, code: u8, asked: bool) -> Vec<Action> {
        if self.election_ended {
            return self.exit(code);
        }
        self.phase = Phase::Withdrawing { code, asked };
        vec![Action::Withdraw]
    }

    fn exit(&mut self, code: u8) -> Vec<Action> {
        self.phase = Phase::Over;
        vec![Action::Exit(code)]
    }
}

/// Exit code after the candidate has ended for this reason; `None` stands for a defect.
fn code_of(reason: Option<&StopReason>) -> u8 {
    match reason {
        None => FAILED,
        Some(StopReason::Cancelled { .. }) => 0,
        Some(StopReason::Lost(Loss::DuplicateIdentity) | StopReason::DuplicateIdentity) => DUPLICATE,
        Some(StopReason::Lost(_) | StopReason::RecoveryDeadline) => LOST,
    }
}

/// Exit code after the runner was told to stop. A command that ends by the signal that it was sent has
/// complied.
fn code_when_asked(status: Status, asked: Signal) -> u8 {
    match status {
        Status::Signal(signal) if signal == asked as i32 || signal == Signal::SIGTERM as i32 => 0,
        other => other.exit_code(),
    }
}
