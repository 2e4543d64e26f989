//! When a keeper signals its command: the pure part of the keeper.
//!
//! A keeper needs nobody's word to end its command: it knows up to when the term is proven, and without news of a
//! renewal it acts by its own clock. So a runner that hangs, is stopped or dies leaves no command behind.

use super::deadlines::Deadlines;
use super::orders::Order;
use super::status::{Ended, Status};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The runner said so.
    Order(Order),
    /// The runner is gone.
    RunnerGone,
    /// The keeper itself was told to end.
    Asked,
    /// The main process has ended; others may be left.
    MainEnded(Status),
    /// Another process of the command has ended.
    OtherEnded,
    /// The time of [`Leash::wake_at`] has come. Harmless at any other time.
    Wake,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A signal to the main process.
    Main(i32),
    /// A signal to all of the command's processes, and what lets stopped ones receive it.
    All(i32),
    /// KILL to all.
    KillAll,
}

/// The decisions of a keeper. Its command has been started.
#[derive(Clone, Debug)]
pub struct Leash {
    lease: Deadlines,
    /// For processes that outlive the main one.
    grace: Duration,
    /// Set once the command has been told to end: when it gets KILL, or before.
    kill_at: Option<Duration>,
    /// Set once KILL was sent.
    killed: bool,
    main: Option<Status>,
    /// Whether it was told to end before it did.
    stopped: bool,
}

const TERM: i32 = nix::sys::signal::Signal::SIGTERM as i32;

impl Leash {
    /// The command runs under these deadlines. `grace` is for processes that it leaves behind when it ends by itself.
    pub fn new(lease: Deadlines, grace: Duration) -> Self {
        Self {
            lease,
            grace,
            kill_at: None,
            killed: false,
            main: None,
            stopped: false,
        }
    }

    /// When [`Event::Wake`] is wanted.
    pub fn wake_at(&self) -> Option<Duration> {
        (!self.killed).then(|| match self.kill_at {
            None => self.lease.term_at,
            Some(kill_at) => kill_at.min(self.lease.kill_at),
        })
    }

    /// Whether the main process has not been reaped.
    pub fn main_lives(&self) -> bool {
        self.main.is_none()
    }

    /// The report once no process is left.
    pub fn ended(&self) -> Ended {
        Ended {
            status: self.main.unwrap_or(Status::NotStarted),
            stopped: self.stopped,
        }
    }

    /// The transition function.
    pub fn step(&mut self, now: Duration, event: Event) -> Vec<Deed> {
        match event {
            Event::Order(Order::Until(lease)) => {
                self.lease = lease;
                Vec::new()
            }
            Event::Order(Order::Forward(signal)) => match self.main {
                None => vec![Deed::Main(signal)],
                Some(_) => Vec::new(),
            },
            Event::Order(Order::Stop { signal, kill_at }) => self.stop(signal, kill_at),
            Event::Order(Order::Kill) => self.kill(),
            Event::RunnerGone => self.stop(TERM, self.lease.kill_at.min(now + self.grace)),
            Event::Asked => self.stop(TERM, now + self.grace),
            Event::MainEnded(status) => {
                self.main = Some(status);
                if self.killed {
                    return vec![Deed::KillAll];
                }
                self.stop(TERM, now + self.grace)
            }
            // Its children are the keeper's now.
            Event::OtherEnded if self.killed => vec![Deed::KillAll],
            Event::OtherEnded => Vec::new(),
            Event::Wake => match self.wake_at() {
                Some(at) if now >= at => match self.kill_at {
                    Some(_) => self.kill(),
                    None if now >= self.lease.kill_at => self.kill(),
                    None => self.stop(TERM, self.lease.kill_at),
                },
                _ => Vec::new(),
            },
        }
    }

    /// Begins the end, or brings it forward.
    fn stop(&mut self, signal: i32, kill_at: Duration) -> Vec<Deed> {
        let first = self.kill_at.is_none();
        self.kill_at = Some(self.kill_at.map_or(kill_at, |earlier| earlier.min(kill_at)));
        self.stopped |= first && self.main.is_none();
        if first && !self.killed {
            vec![Deed::All(signal)]
        } else {
            Vec::new()
        }
    }

    fn kill(&mut self) -> Vec<Deed> {
        self.stopped |= self.main.is_none();
        self.killed = true;
        vec![Deed::KillAll]
    }
}
