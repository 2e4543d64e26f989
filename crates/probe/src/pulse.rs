//! Did the prober get to run? A machine that is out of CPU time must not take its own lateness for a
//! container's failure.
//!
//! Each attempt carries its own beat, in its own task: a timer that is due several times within what would
//! matter. How late the beat comes is how late everything else of the attempt may have come too, its timeouts
//! above all: whether the whole process was stopped, or only the thread that the attempt happened to be on.
//! An attempt that ends before its first beat costs no timer.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

/// Lateness that is nobody's fault: timers are that coarse on a machine with something to do.
const FLOOR: Duration = Duration::from_millis(25);

/// How late is too late for an attempt with this timeout: a quarter of it, and at least 25 ms.
pub(crate) fn tolerance(timeout: Duration) -> Duration {
    FLOOR.max(timeout / 4)
}

/// Runs an attempt for `limit` at most. Says what came of it, `None` when the limit was reached, and whether
/// there was a time in which it could not run for longer than [`tolerance`], one that has only just ended
/// included.
pub(crate) async fn watch<F: Future>(
    attempt: F,
    timeout: Duration,
    limit: Duration,
) -> (Option<F::Output>, bool) {
    let tolerance = tolerance(timeout);
    let beat = tolerance / 8;
    let begun = Instant::now();
    let mut attempt = pin!(attempt);
    let mut next = begun + beat;
    let mut latest = Duration::ZERO;
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut attempt => break Some(ended),
            () = tokio::time::sleep_until(next) => {}
        }
        let now = Instant::now();
        latest = latest.max(now.saturating_duration_since(next));
        if now.saturating_duration_since(begun) >= limit {
            break None;
        }
        next = now + beat;
    };
    // A stall of less than a beat's length beyond the tolerance hides between two beats: so it is added to
    // what was seen.
    let latest = latest.max(Instant::now().saturating_duration_since(next));
    (ended, latest.saturating_add(beat) > tolerance)
}

#[cfg(test)]
mod tests;
