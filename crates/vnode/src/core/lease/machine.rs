//! When which request is made.

use super::object::{Held, renewed};
use super::{Answer, Input, Owner, Request, Settings};
use crate::core::Now;
use std::time::Duration;

/// Updates in a row: without a pause where somebody wrote between, after one where the API server failed.
const TRIES: u8 = 5;
/// Spread of the interval: uniform in `[1, 1.04)` of it.
const JITTER: f64 = 0.04;
/// Pause after the first failure, doubled with each further one …
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// … up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(7);
/// Spread of the pauses: uniform in `[1, 1.5)` of each.
const PAUSE_JITTER: f64 = 0.5;

/// Keeps the Lease of one node renewed.
#[derive(Debug)]
pub struct Machine {
    phase: Phase,
    held: Option<Held>,
    /// When it was last written, on the clock of [`Now::mono`].
    renewed: Option<Duration>,
    doubts: u32,
}

/// What it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The next renewal.
    Resting { until: Duration },
    /// The answer to an update.
    Updating(Burst),
    /// The answer to a read, after which the burst goes on or, without one, begins.
    Reading { then: Option<Burst>, failures: u8 },
    /// The answer to a creation.
    Creating { then: Option<Burst>, failures: u8 },
    /// The end of a pause after an update that failed.
    Waiting { until: Duration, burst: Burst },
    /// The end of a pause between failures to read or create.
    Pausing {
        until: Duration,
        then: Option<Burst>,
        failures: u8,
    },
}

/// Updates one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Burst {
    /// How many have ended.
    tried: u8,
    /// It began with the Lease as it was last written here, unread since.
    is_optimistic: bool,
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine {
    /// Writes as soon as it is asked.
    pub fn new() -> Self {
        Self {
            phase: Phase::Resting {
                until: Duration::ZERO,
            },
            held: None,
            renewed: None,
            doubts: 0,
        }
    }

    /// Notes what happened and says what to ask the API server; there is one request at a time. `random` is
    /// uniform in `[0, 1)`.
    pub fn step(
        &mut self,
        settings: &Settings,
        owner: Owner<'_>,
        input: Input,
        now: Now,
        random: f64,
    ) -> Option<Request> {
        match input {
            Input::Tick => self.tick(settings, owner, now, random),
            Input::Answered(answer) => self.answered(settings, owner, answer, now, random),
        }
    }

    /// When [`Input::Tick`] is next of use, on the clock of [`Now::mono`]; `None` while a request is under
    /// way.
    pub fn due(&self) -> Option<Duration> {
        match self.phase {
            Phase::Resting { until } | Phase::Waiting { until, .. } | Phase::Pausing { until, .. } => {
                Some(until)
            }
            Phase::Updating(_) | Phase::Reading { .. } | Phase::Creating { .. } => None,
        }
    }

    /// When it was last written, on the clock of [`Now::mono`].
    pub fn renewed(&self) -> Option<Duration> {
        self.renewed
    }

    /// How often an update failed that was not the first of its burst, conflicts aside: upstream's reason to
    /// doubt the connection.
    pub fn doubts(&self) -> u32 {
        self.doubts
    }

    fn tick(&mut self, settings: &Settings, owner: Owner<'_>, now: Now, random: f64) -> Option<Request> {
        match self.phase {
            Phase::Resting { until } if until <= now.mono => {
                if self.held.is_none() {
                    return Some(self.read(None, 0));
                }
                let burst = Burst {
                    tried: 0,
                    is_optimistic: true,
                };
                self.update(settings, owner, burst, now, random)
            }
            Phase::Waiting { until, burst } if until <= now.mono => {
                self.update(settings, owner, burst, now, random)
            }
            Phase::Pausing {
                until,
                then,
                failures,
            } if until <= now.mono => Some(self.read(then, failures)),
            _ => None,
        }
    }

    fn answered(
        &mut self,
        settings: &Settings,
        owner: Owner<'_>,
        answer: Answer,
        now: Now,
        random: f64,
    ) -> Option<Request> {
        match (self.phase, answer) {
            (Phase::Updating(_) | Phase::Creating { .. }, Answer::Done(lease)) => {
                self.held = Some(Held::of(*lease, settings, owner));
                self.written(settings, now, random);
                None
            }
            (Phase::Updating(mut burst), Answer::NotFound | Answer::Conflict) => {
                burst.tried += 1;
                Some(self.read(Some(burst), 0))
            }
            (Phase::Updating(mut burst), Answer::Failed(_)) => {
                if burst.tried > 0 {
                    self.doubts = self.doubts.saturating_add(1);
                }
                let wait = pause(burst.tried, random);
                burst.tried += 1;
                if burst.tried >= TRIES && !burst.is_optimistic {
                    self.rest(settings, now, random);
                } else {
                    // Ten thousand nodes may fail at the same moment: none of them tries again at once.
                    let until = now.mono.saturating_add(wait);
                    self.phase = Phase::Waiting { until, burst };
                }
                None
            }
            (Phase::Reading { then, .. }, Answer::Done(lease)) => {
                self.held = Some(Held::of(*lease, settings, owner));
                let burst = then.unwrap_or(Burst {
                    tried: 0,
                    is_optimistic: false,
                });
                self.update(settings, owner, burst, now, random)
            }
            (Phase::Reading { then, failures }, Answer::NotFound) => {
                self.held = None;
                let Some(lease) = renewed(settings, owner, None, now) else {
                    self.rest(settings, now, random);
                    return None;
                };
                self.phase = Phase::Creating { then, failures };
                Some(Request::Create(lease))
            }
            (Phase::Reading { then, failures }, Answer::Conflict | Answer::Failed(_))
            | (Phase::Creating { then, failures }, Answer::Conflict | Answer::NotFound | Answer::Failed(_)) =>
            {
                self.phase = Phase::Pausing {
                    until: now.mono.saturating_add(pause(failures, random)),
                    then,
                    failures: failures.saturating_add(1),
                };
                None
            }
            // Nothing was asked: a late answer says nothing about now.
            (Phase::Resting { .. } | Phase::Waiting { .. } | Phase::Pausing { .. }, _) => None,
        }
    }

    /// The burst's next update, or what follows its last.
    fn update(
        &mut self,
        settings: &Settings,
        owner: Owner<'_>,
        burst: Burst,
        now: Now,
        random: f64,
    ) -> Option<Request> {
        if burst.tried >= TRIES {
            if burst.is_optimistic {
                return Some(self.read(None, 0));
            }
            self.rest(settings, now, random);
            return None;
        }
        let Some(lease) = renewed(settings, owner, self.held.as_ref(), now) else {
            self.rest(settings, now, random);
            return None;
        };
        self.phase = Phase::Updating(burst);
        Some(Request::Update(lease))
    }

    fn read(&mut self, then: Option<Burst>, failures: u8) -> Request {
        self.phase = Phase::Reading { then, failures };
        Request::Get
    }

    fn written(&mut self, settings: &Settings, now: Now, random: f64) {
        let is_first = self.renewed.is_none();
        self.renewed = Some(now.mono);
        if is_first {
            self.phase = Phase::Resting {
                until: now.mono.saturating_add(settings.interval.mul_f64(part(random))),
            };
        } else {
            self.rest(settings, now, random);
        }
    }

    fn rest(&mut self, settings: &Settings, now: Now, random: f64) {
        let interval = settings.interval.mul_f64(1.0 + JITTER * part(random));
        self.phase = Phase::Resting {
            until: now.mono.saturating_add(interval),
        };
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }
}

/// The number within its range, whatever a caller says.
fn part(random: f64) -> f64 {
    if random.is_nan() {
        0.0
    } else {
        random.clamp(0.0, 1.0)
    }
}

fn pause(failures: u8, random: f64) -> Duration {
    FIRST_PAUSE
        .saturating_mul(1 << u32::from(failures.min(10)))
        .min(LONGEST_PAUSE)
        .mul_f64(1.0 + PAUSE_JITTER * part(random))
}
