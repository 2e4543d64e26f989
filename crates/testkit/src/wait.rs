//! The waiting words: a condition is asked for again and again until it holds, or the test fails with what
//! was waited for.

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Far longer than anything takes that waits for no timer, on a busy machine too.
pub const SOON: Duration = Duration::from_secs(60);

/// How long to wait before a condition is asked for again.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until `probe` returns `Some`, asking again every 20 ms; fails the test after `deadline` with `what`.
pub async fn eventually<T, F, Fut>(what: &str, deadline: Duration, mut probe: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let end = Instant::now() + deadline;
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until `holds` is true, for [`SOON`] at most.
pub async fn until(what: &str, holds: impl AsyncFnMut() -> bool) {
    until_within(what, SOON, holds).await;
}

/// Waits until `holds` is true, for `deadline` at most.
pub async fn until_within(what: &str, deadline: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + deadline;
    while !holds().await {
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// [`eventually`] for tests without a runtime, for [`SOON`] at most. `what` is made only when the test fails,
/// so that it can show what was there instead.
pub fn eventually_here<T>(what: impl Fn() -> String, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + SOON;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < end, "not within {SOON:?}: {}", what());
        std::thread::sleep(PAUSE);
    }
}

/// The value of a channel once it is as wanted; fails the test after `deadline` with `what` and the value
/// that is there.
pub async fn becomes<T: Clone + Debug>(
    what: &str,
    deadline: Duration,
    mut values: watch::Receiver<T>,
    wanted: impl FnMut(&T) -> bool,
) -> T {
    let found = tokio::time::timeout(deadline, values.wait_for(wanted)).await;
    let found = found.map(|found| found.expect("whoever sends lives").clone());
    found.unwrap_or_else(|_| unreachable!("not within {deadline:?}: {what}; it is {:?}", *values.borrow()))
}

/// What `work` returns; fails the test when it takes longer than [`SOON`].
pub async fn ends<T>(what: &str, work: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(SOON, work).await;
    ended.unwrap_or_else(|_| unreachable!("not within {SOON:?}: {what}"))
}
