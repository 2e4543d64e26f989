//! The deadline of a command, and which signals it gets when: the pure part of the keeper.
//!
//! A keeper ends its command without being told to. It knows up to when the term is proven, and if it does
//! not hear of a renewal, it acts by its own clock. So a runner that hangs, is stopped or dies leaves no
//! command behind.

use super::deadlines::Deadlines;
use super::orders::Order;
use super::status::{Ended, Status};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// An input of [`CommandDeadline::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The runner sent an order.
    Order(Order),
    /// The socket to the runner has closed.
    RunnerGone,
    /// The keeper process itself received TERM, INT or HUP.
    Terminated,
    /// The main process has ended. Other processes of the command may still run.
    MainEnded(Status),
    /// Another process of the command has ended.
    OtherEnded,
    /// The time of [`CommandDeadline::wake_at`] has come. Harmless at any other time.
    Wake,
}

/// An output of [`CommandDeadline::step`]: which processes get which signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalAction {
    /// Send the signal with this number to the main process.
    Main(i32),
    /// Send the signal with this number to all processes of the command, and continue those that are stopped.
    All(i32),
    /// Send KILL to all processes of the command.
    KillAll,
}

/// Decides when a running command gets which signal.
#[derive(Clone, Debug)]
pub(crate) struct CommandDeadline {
    lease: Deadlines,
    /// Time between TERM and KILL for processes that outlive the main one.
    grace: Duration,
    /// Set once the command has been told to end: the latest time at which it gets KILL.
    kill: Option<Duration>,
    /// Set once KILL was sent.
    killed: bool,
    /// How the main process has ended; `None` while it runs.
    main: Option<Status>,
    /// Whether the command was told to end before its main process ended.
    stopped: bool,
}

const TERM: i32 = nix::sys::signal::Signal::SIGTERM as i32;

impl CommandDeadline {
    /// The command runs under these deadlines. `grace` is the time between TERM and KILL for processes that
    /// it leaves behind when it ends by itself.
    pub(crate) fn new(lease: Deadlines, grace: Duration) -> Self {
        Self {
            lease,
            grace,
            kill: None,
            killed: false,
            main: None,
            stopped: false,
        }
    }

    /// When [`Event::Wake`] is wanted.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        (!self.killed).then(|| match self.kill {
            None => self.lease.terminate,
            Some(kill) => kill.min(self.lease.kill),
        })
    }

    /// Whether the main process has not been reaped yet.
    pub(crate) fn main_lives(&self) -> bool {
        self.main.is_none()
    }

    /// What to report once no process of the command is left.
    pub(crate) fn ended(&self) -> Ended {
        Ended {
            status: self.main.unwrap_or(Status::NotStarted),
            stopped: self.stopped,
        }
    }

    pub(crate) fn step(&mut self, now: Duration, event: Event) -> Vec<SignalAction> {
        match event {
            Event::Order(Order::Until(lease)) => {
                self.lease = lease;
                Vec::new()
            }
            Event::Order(Order::Forward(signal)) => match self.main {
                None => vec![SignalAction::Main(signal)],
                Some(_) => Vec::new(),
            },
            Event::Order(Order::Stop { signal, kill }) => self.stop(signal, kill),
            Event::Order(Order::Kill) => self.kill(),
            Event::RunnerGone => self.stop(TERM, self.lease.kill.min(now + self.grace)),
            Event::Terminated => self.stop(TERM, now + self.grace),
            Event::MainEnded(status) => {
                self.main = Some(status);
                if self.killed {
                    return vec![SignalAction::KillAll];
                }
                self.stop(TERM, now + self.grace)
            }
            // The ended process may have left children, which the kernel has given to the keeper: they get
            // KILL, too.
            Event::OtherEnded if self.killed => vec![SignalAction::KillAll],
            Event::OtherEnded => Vec::new(),
            Event::Wake => match self.wake_at() {
                Some(at) if now >= at => match self.kill {
                    Some(_) => self.kill(),
                    None if now >= self.lease.kill => self.kill(),
                    None => self.stop(TERM, self.lease.kill),
                },
                _ => Vec::new(),
            },
        }
    }

    /// Sends the signal if the command is not ending yet. If it is, this only brings KILL forward.
    fn stop(&mut self, signal: i32, kill: Duration) -> Vec<SignalAction> {
        let first = self.kill.is_none();
        self.kill = Some(self.kill.map_or(kill, |earlier| earlier.min(kill)));
        self.stopped |= first && self.main.is_none();
        if first && !self.killed {
            vec![SignalAction::All(signal)]
        } else {
            Vec::new()
        }
    }

    fn kill(&mut self) -> Vec<SignalAction> {
        self.stopped |= self.main.is_none();
        self.killed = true;
        vec![SignalAction::KillAll]
    }
}
