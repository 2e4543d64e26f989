//! What is remembered of one container.

use super::spec::Role;
use crate::core::Now;
use crate::core::reported::{Exit, Observed, Started};
use evenkeel_api::names::pods::STATUS_UNKNOWN;
use evenkeel_probe::core::{BackOff, Kind, Reading};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// One container. Most live long and end never: what belongs to an end, a delay or a kill is boxed.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) name: Arc<str>,
    pub(super) role: Role,
    pub(super) life: Life,
    /// The newest end; that of the instance before, while one runs.
    pub(super) ended: Option<Box<Ended>>,
    /// The end before that.
    pub(super) older: Option<Box<Ended>>,
    /// Why it is not started yet.
    pub(super) wait: Option<Box<Wait>>,
    /// What the provider said of an instance before the answer that names it.
    pub(super) early: Option<Box<Observed>>,
    /// The newest instance's restart count.
    pub(super) restarts: u32,
    /// Starts that failed in a row.
    pub(super) tries: u8,
    /// It runs again, however it ended.
    pub(super) again: bool,
    /// Delays between restarts, and when it ended last.
    pub(super) back_off: Option<Box<(BackOff, Duration)>>,
}

/// What a container does.
#[derive(Debug)]
pub(super) enum Life {
    /// Nothing: not yet, not any more, or not again yet.
    Idle,
    /// It is being started, with this image.
    Starting(Arc<str>),
    Running(Box<Run>),
}

/// An instance that runs.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: Arc<str>,
    pub(super) image: Arc<str>,
    pub(super) image_id: Arc<str>,
    pub(super) since: Timestamp,
    /// What the prober publishes of this instance: startup, readiness, liveness.
    pub(super) readings: [Option<Reading>; 3],
    /// What was recorded of it before this process came: started, ready.
    pub(super) recorded: Option<(bool, bool)>,
    /// Reason and message of a provider that holds it unready.
    pub(super) stalled: Option<Box<(String, String)>>,
    pub(super) stop: Option<Box<Stop>>,
}

/// A container that is being ended.
#[derive(Debug)]
pub(super) struct Stop {
    /// The provider was asked, and has not answered.
    pub(super) asked: bool,
    /// The pod's grace period by which it was asked; none for a kill.
    pub(super) pod_grace: Option<Duration>,
    /// The container's own.
    pub(super) grace: Duration,
    /// Refusals so far, and when it is asked again.
    pub(super) tries: u8,
    pub(super) due: Duration,
}

/// An instance that has ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) id: Arc<str>,
    pub(super) image: Arc<str>,
    pub(super) image_id: Arc<str>,
    pub(super) code: i32,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) started_at: Option<Timestamp>,
    pub(super) at: Option<Timestamp>,
}

/// Why a container does not run yet.
#[derive(Debug)]
pub(super) struct Wait {
    /// In `waiting.reason`; `None`: the pod's default.
    pub(super) reason: Option<String>,
    pub(super) message: String,
    /// When it is tried (again).
    pub(super) due: Duration,
    /// With which image it was tried.
    pub(super) image: Arc<str>,
}

impl Record {
    pub(super) fn new(name: &str, role: Role) -> Self {
        Self {
            name: name.into(),
            role,
            life: Life::Idle,
            ended: None,
            older: None,
            wait: None,
            early: None,
            restarts: 0,
            tries: 0,
            again: false,
            back_off: None,
        }
    }

    pub(super) fn run(&self) -> Option<&Run> {
        match &self.life {
            Life::Running(run) => Some(run),
            Life::Idle | Life::Starting(_) => None,
        }
    }

    pub(super) fn run_mut(&mut self) -> Option<&mut Run> {
        match &mut self.life {
            Life::Running(run) => Some(run),
            Life::Idle | Life::Starting(_) => None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.life, Life::Idle)
    }

    /// Whether no answer about it is outstanding.
    pub(super) fn is_at_rest(&self) -> bool {
        match &self.life {
            Life::Idle => true,
            Life::Starting(_) => false,
            Life::Running(run) => run.stop.as_ref().is_none_or(|stop| !stop.asked),
        }
    }

    /// Whether any instance of it ever was.
    pub(super) fn has_history(&self) -> bool {
        self.run().is_some() || self.ended.is_some() || self.restarts > 0
    }

    /// The restart count of the next instance.
    pub(super) fn next_attempt(&self) -> u32 {
        if self.has_history() {
            self.restarts.saturating_add(1)
        } else {
            0
        }
    }

    /// A new instance runs.
    pub(super) fn runs(&mut self, started: Started, image: Arc<str>) {
        self.restarts = self.next_attempt();
        self.wait = None;
        self.tries = 0;
        self.again = false;
        self.life = Life::Running(Box::new(Run::new(started, image)));
    }

    /// The instance that runs has ended; of one that does not run nothing is known.
    pub(super) fn ends(&mut self, exit: Exit, now: Now) {
        let Life::Running(run) = std::mem::replace(&mut self.life, Life::Idle) else {
            return;
        };
        let started_at = exit.started_at.or(Some(run.since));
        self.push(
            Ended {
                id: run.id,
                image: run.image,
                image_id: run.image_id,
                reason: reason(&exit),
                code: exit.code,
                message: exit.message,
                started_at,
                at: Some(exit.at),
            },
            now,
        );
    }

    /// An end comes on top of those before.
    pub(super) fn push(&mut self, ended: Ended, now: Now) {
        self.older = self.ended.replace(Box::new(ended));
        let back_off = self
            .back_off
            .as_ref()
            .map_or_else(BackOff::default, |known| known.0);
        self.back_off = Some(Box::new((back_off, now.mono)));
    }

    /// The provider says what an instance does. Of instances that are over it may say what it likes.
    pub(super) fn observes(&mut self, observed: Observed, now: Now) {
        use crate::core::reported::Doing;
        if let Life::Starting(_) = self.life {
            let ended = |known: &Observed| known.id == observed.id && matches!(known.doing, Doing::Ended(_));
            if !self.early.as_deref().is_some_and(ended) {
                self.early = Some(Box::new(observed));
            }
            return;
        }
        if let Some(run) = self.run_mut() {
            if *run.id != *observed.id.0 {
                return;
            }
            match observed.doing {
                Doing::Running { .. } => run.stalled = None,
                Doing::Stalled { reason, message, .. } => run.stalled = Some(Box::new((reason, message))),
                Doing::Ended(exit) => self.ends(exit, now),
            }
            return;
        }
        let known =
            |ended: &Option<Box<Ended>>| ended.as_ref().is_some_and(|ended| *ended.id == *observed.id.0);
        if known(&self.ended) || known(&self.older) {
            return;
        }
        // A start that nobody waits for any more has come off all the same.
        if let Some(since) = observed.doing.since() {
            let image = self
                .wait
                .as_ref()
                .map(|wait| wait.image.clone())
                .unwrap_or_default();
            let started = Started {
                id: observed.id.clone(),
                image_id: String::new(),
                at: since,
            };
            self.runs(started, image);
            self.observes(observed, now);
        }
    }
}

impl Run {
    pub(super) fn new(started: Started, image: Arc<str>) -> Self {
        Self {
            id: started.id.0,
            image,
            image_id: started.image_id.into(),
            since: started.at,
            readings: [None; 3],
            recorded: None,
            stalled: None,
            stop: None,
        }
    }

    pub(super) fn reading(&self, kind: Kind) -> Option<Reading> {
        self.readings[kind as usize]
    }
}

impl Ended {
    /// Nobody knows how it ended; it is held to have failed.
    pub(super) fn lost(id: Arc<str>, image: Arc<str>, image_id: Arc<str>) -> Self {
        Self {
            id,
            image,
            image_id,
            code: LOST,
            reason: STATUS_UNKNOWN.to_owned(),
            message: LOST_MESSAGE.to_owned(),
            started_at: None,
            at: None,
        }
    }
}

/// Exit code of a container that is lost: SIGKILL's.
pub(super) const LOST: i32 = 137;
/// The kubelet's words.
pub(super) const LOST_MESSAGE: &str = "The container could not be located when the pod was terminated";

/// How a container is held to have ended that its provider does not know any more.
pub(super) fn lost(now: Now) -> Exit {
    Exit {
        code: LOST,
        reason: STATUS_UNKNOWN.to_owned(),
        message: LOST_MESSAGE.to_owned(),
        started_at: None,
        at: timestamp(now),
    }
}

fn reason(exit: &Exit) -> String {
    match (exit.reason.is_empty(), exit.code) {
        (false, _) => exit.reason.clone(),
        (true, 0) => "Completed".to_owned(),
        (true, _) => "Error".to_owned(),
    }
}

/// The wall clock's time.
pub(super) fn timestamp(now: Now) -> Timestamp {
    let seconds = i64::try_from(now.wall.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

/// Doubled each time: 1 s up to 2 min, and up to a half more.
pub(super) fn pause(tries: u8, chance: f64) -> Duration {
    spread((1 << tries.min(7)).min(120), chance)
}

/// The same each time, for what comes right without anybody telling: 10 s, and up to a half more (the
/// kubelet's).
pub(super) fn steady(chance: f64) -> Duration {
    spread(10, chance)
}

/// For a pod that cannot run as it is: 5 s, and up to a half more. Nothing but a look at it is done, and what
/// was mended is to run soon.
pub(super) fn recheck(chance: f64) -> Duration {
    spread(5, chance)
}

/// Pods that fail together do not all try again together. `chance` is within `[0, 1)`.
fn spread(seconds: u64, chance: f64) -> Duration {
    Duration::from_secs(seconds).mul_f64(1.0 + 0.5 * chance.clamp(0.0, 1.0))
}
