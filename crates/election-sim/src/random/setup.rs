//! The settings of a world, drawn from its seed.

use super::Fault;
use evenkeel_election::core::{Compat, Config};
use rand::Rng as _;
use rand::rngs::StdRng;
use std::fmt;
use std::time::Duration;

/// The rules under which the candidates run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// This library's rules, with clock rates within the documented ratio.
    #[default]
    Evenkeel,
    /// This library's rules, but the gate does not read the clock.
    NoDeadlineCheck,
    /// This library's rules, with clock rates up to 1.5 times beyond the documented ratio.
    RatesBeyond,
    /// client-go's rules, with clocks that agree, and without deletions of the lock and shared names (see
    /// `Fault`), which client-go does not claim to survive.
    ClientGo,
    /// The same with no faults other than links that are slow or cut, to show what slow answers alone can do.
    ClientGoNeverPaused,
}

/// Timings, in milliseconds: lease duration, renew deadline, retry period.
const TIMINGS: [(u64, u64, u64); 4] = [
    (5_000, 3_000, 1_000),
    (15_000, 10_000, 2_000),
    (10_000, 6_000, 2_000),
    (2_000, 1_200, 300),
];

/// Slowest and fastest rate of a clock, in parts per million.
const RATES: (u32, u32) = (700_000, 1_300_000);

/// The settings of one world.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) rules: Rules,
    pub(super) candidates: usize,
    pub(super) timing: (u64, u64, u64),
    pub(super) rates: (u32, u32),
    /// Latency of a request or a reply on a good link.
    pub(super) latency: Duration,
    /// Mean time between faults.
    pub(super) fault_every: Duration,
    /// Share of requests, replies and changes that are lost on a good link.
    pub(super) loss: f64,
    /// Share of requests and replies that take up to 20 s on a good link.
    pub(super) late: f64,
    /// How long the faults go on.
    pub(super) chaos: Duration,
}

impl Setup {
    pub(super) fn draw(rules: Rules, random: &mut StdRng) -> Self {
        let timing = match rules {
            Rules::ClientGo | Rules::ClientGoNeverPaused => TIMINGS[1],
            _ => TIMINGS[random.random_range(0..TIMINGS.len())],
        };
        let rates = rates(rules, timing, random);
        let lease = Duration::from_millis(timing.0);
        Self {
            rules,
            candidates: random.random_range(2..=4),
            timing,
            rates,
            latency: Duration::from_micros(random.random_range(200..40_000)),
            fault_every: lease.mul_f64(random.random_range(0.2..2.0)),
            loss: [0.0, 0.01, 0.1][random.random_range(0..3)],
            late: [0.0, 0.01, 0.05][random.random_range(0..3)],
            chaos: lease * random.random_range(40..120),
        }
    }

    pub(super) fn config(&self, identity: &str) -> Config {
        let base = match self.rules {
            Rules::ClientGo | Rules::ClientGoNeverPaused => Config {
                release_on_cancel: true,
                ..Config::client_go(identity)
            },
            _ => Config::new(identity),
        };
        Config {
            lease_duration: Duration::from_millis(self.timing.0),
            renew_deadline: Duration::from_millis(self.timing.1),
            retry_period: Duration::from_millis(self.timing.2),
            ..base
        }
    }

    /// Time limit of one request, as the shell sets it.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timing.1 / 2)
    }

    pub(super) fn compat(&self) -> Compat {
        self.config("").compat
    }

    /// Whether this kind of fault happens here. Runs that show what a rule is for leave out the faults that
    /// could break other rules.
    pub(super) fn has(&self, fault: Fault) -> bool {
        match self.rules {
            Rules::Evenkeel => true,
            Rules::ClientGoNeverPaused => {
                matches!(fault, Fault::SlowLink | Fault::BlackHole | Fault::ApiErrors)
            }
            _ => !matches!(fault, Fault::Delete | Fault::SameName),
        }
    }

    /// Whether fencing tokens must be in order. client-go has none.
    pub(super) fn fences(&self) -> bool {
        self.compat() == Compat::Evenkeel
    }

    /// How long after the last fault somebody leads at the latest: what is late arrives (20 s), work ends (10
    /// s), a process starts (1 s); then the lock expires, on the slowest clock, and before that perhaps once
    /// more for a write that came late, once for a lock that was deleted, and once for a candidate that
    /// handed over and lets the others come first; then a few attempts.
    pub(super) fn settles_within(&self) -> Duration {
        let (lease, deadline, retry) = self.timing;
        let waits = Duration::from_millis(4 * lease + deadline + 10 * retry);
        Duration::from_secs(31) + waits.mul_f64(1e6 / f64::from(self.rates.0))
    }
}

/// The rates of the slowest and of the fastest clock of a world.
fn rates(rules: Rules, (lease, deadline, _): (u64, u64, u64), random: &mut StdRng) -> (u32, u32) {
    let limit = lease as f64 / deadline as f64;
    let slowest = random.random_range(RATES.0..=1_000_000);
    let fastest = match rules {
        Rules::ClientGo | Rules::ClientGoNeverPaused => slowest,
        Rules::RatesBeyond => (f64::from(slowest) * limit * 1.5) as u32,
        Rules::Evenkeel | Rules::NoDeadlineCheck => RATES.1.min((f64::from(slowest) * limit) as u32),
    };
    (slowest, fastest)
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lease, deadline, retry) = self.timing;
        write!(
            f,
            "{:?}, {} candidates, {lease}/{deadline}/{retry} ms, rates {:.3} to {:.3}, latency {:?}, {} % lost, {} % late, a fault every {:?}",
            self.rules,
            self.candidates,
            f64::from(self.rates.0) / 1e6,
            f64::from(self.rates.1) / 1e6,
            self.latency,
            self.loss * 100.0,
            self.late * 100.0,
            self.fault_every,
        )
    }
}
