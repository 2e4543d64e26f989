//! The kinds of faults, and how they are drawn.

use rand::Rng as _;
use rand::rngs::StdRng;
use std::fmt;
use std::time::Duration;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Fault {
    /// A process is paused for up to 120 s (SIGSTOP), while its clocks run on.
    Pause,
    /// A process dies; another starts later, under its name or a new one.
    Crash,
    /// A candidate is told to stop, and started again later.
    Stop,
    /// A candidate is told to hand over.
    HandOver,
    /// No request passes between a candidate and the lock.
    BlackHole,
    /// Its requests arrive, the replies are lost.
    RepliesLost,
    /// Its requests and replies take up to 6 s each.
    SlowLink,
    /// Its requests are refused at once.
    ApiErrors,
    /// No candidate reaches the lock.
    Outage,
    /// A candidate's watch is silent.
    DeafWatch,
    /// A watch delivers an old state of the lock to a candidate.
    StaleChange,
    /// A wall clock is set, by up to an hour either way.
    WallStep,
    /// A clock changes its rate.
    RateChange,
    /// An administrator deletes the lock.
    Delete,
    /// A process starts under the name of another one that may still run.
    SameName,
}

/// The relative frequency of each kind.
const WEIGHTS: [(Fault, u32); 15] = [
    (Fault::Pause, 12),
    (Fault::Crash, 10),
    (Fault::Stop, 10),
    (Fault::HandOver, 12),
    (Fault::BlackHole, 8),
    (Fault::RepliesLost, 6),
    (Fault::SlowLink, 6),
    (Fault::ApiErrors, 4),
    (Fault::Outage, 2),
    (Fault::DeafWatch, 4),
    (Fault::StaleChange, 8),
    (Fault::WallStep, 6),
    (Fault::RateChange, 8),
    (Fault::Delete, 1),
    (Fault::SameName, 2),
];

impl Fault {
    pub(super) fn draw(random: &mut StdRng) -> Self {
        let all: u32 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut left = random.random_range(0..all);
        for (fault, weight) in WEIGHTS {
            if left < weight {
                return fault;
            }
            left -= weight;
        }
        Self::Pause
    }
}

/// A random duration from 1 ms to `most`, in which every order of magnitude is equally likely.
pub(super) fn spell(random: &mut StdRng, most: Duration) -> Duration {
    let orders = (most.as_secs_f64() * 1e3).log10();
    Duration::from_secs_f64(10_f64.powf(random.random_range(0.0..orders)) / 1e3)
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pause => "pauses",
            Self::Crash => "crashes",
            Self::Stop => "stops",
            Self::HandOver => "hand-overs",
            Self::BlackHole => "black holes",
            Self::RepliesLost => "links losing replies",
            Self::SlowLink => "slow links",
            Self::ApiErrors => "links with errors",
            Self::Outage => "outages",
            Self::DeafWatch => "silent watches",
            Self::StaleChange => "stale changes",
            Self::WallStep => "wall clock steps",
            Self::RateChange => "rate changes",
            Self::Delete => "deletions",
            Self::SameName => "shared names",
        })
    }
}
