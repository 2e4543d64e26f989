//! Answers kept for a while. A question that is under way is not asked twice.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// A question's digest: what was asked is not kept itself, for it may be a secret.
pub(super) type Key = [u8; 32];

/// At most `bound` answers, the older half of which is forgotten when there are more.
#[derive(Debug)]
pub(super) struct Cache<V> {
    bound: usize,
    /// Those asked for since `old` was filled, and those before.
    generations: Mutex<[HashMap<Key, Slot<V>>; 2]>,
}

/// An answer, if it is there, and until when it counts.
type Slot<V> = Arc<OnceCell<(V, Instant)>>;

impl<V: Clone> Cache<V> {
    pub(super) fn new(bound: usize) -> Self {
        Self {
            bound,
            generations: Mutex::default(),
        }
    }

    /// The answer to `key`, from memory or from `ask`, which tells for how long it counts. Who asks while
    /// another's question is under way gets that one's answer, even if it counts for no time at all.
    pub(super) async fn get<F>(&self, key: Key, ask: impl FnOnce() -> F) -> V
    where
        F: Future<Output = (V, Duration)>,
    {
        let slot = self.slot(key);
        let answer = slot.get_or_init(|| async {
            let (value, counts) = ask().await;
            (value, Instant::now() + counts)
        });
        answer.await.0.clone()
    }

    fn slot(&self, key: Key) -> Slot<V> {
        // A holder that panics leaves whole maps behind.
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let [young, old] = &mut *generations;
        let known = young.get(&key).cloned().or_else(|| old.remove(&key));
        let counts = |slot: &Slot<V>| slot.get().is_none_or(|(_, until)| *until > Instant::now());
        let slot = known.filter(counts).unwrap_or_default();
        if young.len() >= self.bound / 2 && !young.contains_key(&key) {
            *old = std::mem::take(young);
        }
        young.insert(key, slot.clone());
        slot
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.generations.lock().unwrap().iter().map(HashMap::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    const A: Key = [1; 32];
    const B: Key = [2; 32];

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_as_long_as_it_says() {
        let cache = Cache::new(8);
        let asked = AtomicU32::new(0);
        let ask = || async { (asked.fetch_add(1, Ordering::Relaxed), Duration::from_secs(30)) };
        assert_eq!(cache.get(A, ask).await, 0);
        tokio::time::advance(Duration::from_secs(29)).await;
        assert_eq!(cache.get(A, ask).await, 0);
        assert_eq!(cache.get(B, ask).await, 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(cache.get(A, ask).await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_under_way_is_not_asked_twice_and_its_failure_is_not_kept() {
        let cache = Cache::new(8);
        let asked = AtomicU32::new(0);
        let ask = || async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            (asked.fetch_add(1, Ordering::Relaxed), Duration::ZERO)
        };
        let answers = futures::future::join_all((0..50).map(|_| cache.get(A, ask))).await;
        assert!(answers.iter().all(|answer| *answer == 0), "{answers:?}");
        assert_eq!(cache.get(A, ask).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_asking_leaves_the_question_to_the_next() {
        let cache = Cache::new(8);
        let never = cache.get(A, std::future::pending::<(u32, Duration)>);
        let given_up = tokio::time::timeout(Duration::from_secs(1), never).await;
        assert!(given_up.is_err());
        assert_eq!(cache.get(A, || async { (7, Duration::ZERO) }).await, 7);
    }

    #[tokio::test]
    async fn no_flood_of_questions_fills_the_memory() {
        let cache = Cache::new(64);
        for number in 0..10_000_u32 {
            let mut key = Key::default();
            key[..4].copy_from_slice(&number.to_be_bytes());
            cache
                .get(key, || async { (number, Duration::from_secs(600)) })
                .await;
        }
        assert!(cache.len() <= 64, "{}", cache.len());
        let last = cache.get(
            {
                let mut key = Key::default();
                key[..4].copy_from_slice(&9_999_u32.to_be_bytes());
                key
            },
            || async { (0, Duration::ZERO) },
        );
        assert_eq!(last.await, 9_999);
    }
}
