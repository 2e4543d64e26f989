//! How many calls may begin at a time.

use std::future::Future;
use std::time::Duration;
use tokio::sync::Semaphore;

/// A bound on calls that begin, over a whole fleet.
///
/// A hundred thousand pods must not ask their provider all at once, and neither may calls that hang hold up
/// the others: one that takes longer than [`Limit::HELD`] gives its permit back and goes on without. So at
/// least `size` calls begin each second whatever the others do.
#[derive(Debug)]
pub(crate) struct Limit {
    permits: Semaphore,
}

impl Limit {
    /// How long a call holds its permit.
    const HELD: Duration = Duration::from_secs(1);

    pub(crate) fn new(size: usize) -> Self {
        Self {
            permits: Semaphore::new(size.max(1)),
        }
    }

    /// Does `call` once there is a permit for it. It is not even made before.
    pub(crate) async fn run<F: Future>(&self, call: impl FnOnce() -> F) -> F::Output {
        let permit = self.permits.acquire().await.ok();
        let mut call = std::pin::pin!(call());
        tokio::select! {
            done = &mut call => return done,
            () = tokio::time::sleep(Self::HELD) => drop(permit),
        }
        call.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(start_paused = true)]
    async fn only_so_many_run_at_a_time() {
        let limit = Arc::new(Limit::new(3));
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let calls = (0..20).map(|_| {
            let (limit, running, most) = (limit.clone(), running.clone(), most.clone());
            tokio::spawn(async move {
                limit
                    .run(|| async {
                        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        running.fetch_sub(1, Ordering::SeqCst);
                    })
                    .await;
            })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_hang_do_not_hold_up_the_others() {
        let limit = Arc::new(Limit::new(2));
        for _ in 0..10 {
            let limit = limit.clone();
            tokio::spawn(async move { limit.run(std::future::pending::<()>).await });
        }
        tokio::task::yield_now().await;
        let begun = tokio::time::Instant::now();
        limit.run(|| async {}).await;
        assert!(begun.elapsed() <= Duration::from_secs(6), "{:?}", begun.elapsed());
    }
}
