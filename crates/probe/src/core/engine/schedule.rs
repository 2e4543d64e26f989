//! When a worker is asked: its grid of times, and what moves it.

use crate::core::{Compat, Key, Probe};
use std::time::Duration;

/// Shortest period, so that a probe with an impossible period of zero costs little.
const LEAST_PERIOD: Duration = Duration::from_millis(1);

/// From one attempt to the next.
pub(super) fn period(probe: &Probe) -> Duration {
    probe.period.max(LEAST_PERIOD)
}

/// A worker's place in its period, in `[0, period)`: the same in each process with the same seed.
pub(super) fn phase(seed: u64, key: &Key, period: Duration) -> Duration {
    let kind = [key.kind as u8];
    // A byte that is in neither name keeps "a"+"bc" and "ab"+"c" apart.
    let bytes = [key.pod.as_bytes(), &[0xff], key.container.as_bytes(), &kind].concat();
    let share = u128::from(mixed(seed, &bytes) >> 32);
    // 94 bits of nanoseconds at most, and 32 of the hash.
    from_nanos((share * period.as_nanos()) >> 32).unwrap_or(Duration::ZERO)
}

/// FNV-1a, then the finalizer of SplitMix64, since FNV leaves the upper bits of short inputs alike.
fn mixed(seed: u64, bytes: &[u8]) -> u64 {
    let fnv = bytes.iter().fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut mix = fnv.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix = (mix ^ mix >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mix = (mix ^ mix >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mix ^ mix >> 31
}

/// The first of `point`, `point + period`, … that is later than `after`; `None` if no [`Duration`] holds it.
pub(super) fn next_point(point: Duration, period: Duration, after: Duration) -> Option<Duration> {
    if point > after {
        return Some(point);
    }
    let period = period.as_nanos().max(1);
    let steps = after.saturating_sub(point).as_nanos() / period + 1;
    from_nanos(point.as_nanos() + steps * period)
}

fn from_nanos(nanos: u128) -> Option<Duration> {
    const SECOND: u128 = 1_000_000_000;
    let seconds = u64::try_from(nanos / SECOND).ok()?;
    Some(Duration::new(seconds, (nanos % SECOND) as u32))
}

/// What is to come of a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// A point of the grid: the next one, once the worker has been asked.
    pub(super) grid: Duration,
    /// The tick under way, or about to come, was asked for and is not on the grid.
    pub(super) manual: bool,
    /// Asked for while the worker was busy: one more tick right after.
    pub(super) signal: bool,
    /// No attempt yet at the container that the worker knows.
    pub(super) fresh: bool,
    /// What held it back is gone: the next attempt need not wait for the grid.
    pub(super) released: bool,
    /// When the last attempt ended.
    pub(super) completed: Option<Duration>,
}

impl Plan {
    /// A plan whose grid holds `grid`.
    pub(super) fn new(grid: Duration) -> Self {
        Self {
            grid,
            manual: false,
            signal: false,
            fresh: true,
            released: false,
            completed: None,
        }
    }

    /// A tick is taken at `now`: moves to the point of the grid after it.
    ///
    /// Kubelet mode is Go's ticker: points that pass while the worker is busy are lost but for the latest,
    /// and a manual tick starts the grid anew. In strict mode the grid stays, so that workers stay spread;
    /// after an attempt off the grid at least half a period passes.
    pub(super) fn advance(&mut self, compat: Compat, period: Duration, now: Duration, attempt: bool) {
        let next = match compat {
            Compat::Kubelet if self.manual => now.checked_add(period),
            Compat::Strict if attempt && (self.manual || self.fresh) => {
                let half = (period / 2).saturating_sub(Duration::from_nanos(1));
                now.checked_add(half)
                    .and_then(|least| next_point(self.grid, period, least))
            }
            Compat::Kubelet | Compat::Strict => next_point(self.grid, period, now),
        };
        self.grid = next.unwrap_or(Duration::MAX);
        self.manual = false;
        if attempt {
            (self.fresh, self.released) = (false, false);
        }
    }
}
