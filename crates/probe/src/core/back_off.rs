//! When a container that has ended starts again, and how long one has that is killed.

use super::{Container, Kind};
use std::time::Duration;

/// Delays between restarts of one container as a kubelet makes them (`CrashLoopBackOff`): none before the
/// first, then `first`, doubled each time up to `most`; forgotten once it was quiet for twice the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackOff {
    /// The delay before the next restart, and when it was set.
    next: Option<(Duration, Duration)>,
}

impl BackOff {
    /// The kubelet's first delay.
    pub const FIRST: Duration = Duration::from_secs(10);
    /// The kubelet's longest.
    pub const MOST: Duration = Duration::from_secs(300);

    /// How long to wait after an end at `ended`.
    pub fn delay(&self, ended: Duration, most: Duration) -> Duration {
        match self.next {
            Some((delay, set)) if ended.saturating_sub(set) <= most.saturating_mul(2) => delay,
            _ => Duration::ZERO,
        }
    }

    /// The container starts again at `now`, after its end at `ended`.
    pub fn advance(&mut self, ended: Duration, now: Duration, first: Duration, most: Duration) {
        let waited = self.delay(ended, most);
        let next = if waited.is_zero() {
            first
        } else {
            waited.saturating_mul(2).min(most)
        };
        self.next = Some((next, now));
    }
}

/// What a kubelet gives a container between TERM and KILL at the least, whatever the manifest says.
pub const LEAST_GRACE: Duration = Duration::from_secs(2);

/// The time between TERM and KILL for a container that failed this probe: the probe's own, else the pod's,
/// but [`LEAST_GRACE`] at the least.
pub fn kill_grace(container: &Container, kind: Kind, pod: Duration) -> Duration {
    let own = container
        .probe(kind)
        .and_then(|probe| probe.termination_grace_period);
    own.unwrap_or(pod).max(LEAST_GRACE)
}

#[cfg(test)]
mod tests;
