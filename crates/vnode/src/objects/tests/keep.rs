//! What is kept, for how long, and how much.

use super::super::cache::Fetched;
use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::time::{Instant, advance};

const ANY: Need = Need {
    created: None,
    before: Duration::ZERO,
};

fn fetched(value: u32, size: usize) -> Fetched<u32> {
    Fetched {
        object: Some(value),
        size,
        immutable: false,
    }
}

fn value(answer: Answer<u32>) -> Option<u32> {
    answer.unwrap().map(|value| *value)
}

/// Asks for `ns/a`; the answer is the number of the request.
struct Counting {
    cache: Cache<u32>,
    asked: AtomicUsize,
    immutable: bool,
}

impl Counting {
    fn new(immutable: bool) -> Self {
        Self {
            cache: Cache::new(1 << 20),
            asked: AtomicUsize::new(0),
            immutable,
        }
    }

    async fn get(&self, need: Need) -> u32 {
        let fetch = || async {
            let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok(Fetched {
                immutable: self.immutable,
                ..fetched(number as u32, 10)
            })
        };
        value(self.cache.get("ns", "a", need, fetch).await).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_serves_for_half_a_minute_and_an_immutable_one_longer() {
    let plain = Counting::new(false);
    let immutable = Counting::new(true);
    let mut seen = Vec::new();
    for wait in [0, 29, 2, 29, 541] {
        advance(Duration::from_secs(wait)).await;
        seen.push((plain.get(ANY).await, immutable.get(ANY).await));
    }
    assert_eq!(seen, [(1, 1), (1, 1), (2, 1), (2, 1), (3, 2)]);
}

#[tokio::test(start_paused = true)]
async fn an_absence_and_an_error_serve_for_a_second() {
    let cache = Cache::<u32>::new(1 << 20);
    let none = || async {
        Ok(Fetched {
            object: None,
            size: 0,
            immutable: false,
        })
    };
    let error = || async { Err("no".to_owned()) };
    let there = || async { Ok(fetched(7, 1)) };
    assert_eq!(value(cache.get("ns", "none", ANY, none).await), None);
    assert!(cache.get("ns", "error", ANY, error).await.is_err());
    advance(Duration::from_millis(900)).await;
    assert_eq!(value(cache.get("ns", "none", ANY, there).await), None);
    assert!(cache.get("ns", "error", ANY, there).await.is_err());
    advance(Duration::from_millis(200)).await;
    assert_eq!(value(cache.get("ns", "none", ANY, there).await), Some(7));
    assert_eq!(value(cache.get("ns", "error", ANY, there).await), Some(7));
}

#[tokio::test(start_paused = true)]
async fn new_pods_cause_ten_requests_a_second_at_the_most() {
    let counting = Counting::new(false);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        let need = || Need {
            created: Some(Timestamp::now()),
            before: Duration::ZERO,
        };
        join_all((0..20).map(|_| counting.get(need()))).await;
    }
    let asked = counting.asked.load(Ordering::Relaxed);
    assert!((10..=21).contains(&asked), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn what_may_be_a_little_older_serves_new_pods_too() {
    let counting = Counting::new(false);
    let need = || Need {
        created: Some(Timestamp::now()),
        before: Duration::from_secs(1),
    };
    assert_eq!(counting.get(need()).await, 1);
    advance(Duration::from_millis(900)).await;
    assert_eq!(counting.get(need()).await, 1);
    advance(Duration::from_millis(200)).await;
    assert_eq!(counting.get(need()).await, 2);
}

#[tokio::test]
async fn who_stops_asking_leaves_it_to_the_next() {
    let cache = Arc::new(Cache::<u32>::new(1 << 20));
    let begun = Arc::new(Notify::new());
    let first = tokio::spawn({
        let (cache, begun) = (cache.clone(), begun.clone());
        async move {
            let fetch = || async {
                begun.notify_one();
                std::future::pending::<Result<Fetched<u32>, String>>().await
            };
            cache.get("ns", "a", ANY, fetch).await
        }
    });
    begun.notified().await;
    let second = tokio::spawn({
        let cache = cache.clone();
        async move { value(cache.get("ns", "a", ANY, || async { Ok(fetched(2, 1)) }).await) }
    });
    first.abort();
    assert_eq!(second.await.unwrap(), Some(2));
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_bounded_and_the_oldest_goes_first() {
    let cache = Cache::<u32>::new(100_000);
    for number in 0..1000_u32 {
        advance(Duration::from_millis(1)).await;
        let fetch = || async { Ok(fetched(number, 10_000)) };
        let name = format!("n{number}");
        assert_eq!(value(cache.get("ns", &name, ANY, fetch).await), Some(number));
        let (_, bytes) = cache.kept();
        assert!(bytes <= 100_000, "{bytes} after {number}");
    }
    let (kept, _) = cache.kept();
    assert!((5..=10).contains(&kept), "{kept}");
    let again = || async { Err("asked again".to_owned()) };
    assert_eq!(value(cache.get("ns", "n999", ANY, again).await), Some(999));
    assert!(cache.get("ns", "n900", ANY, again).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn what_nobody_asks_for_any_more_is_dropped() {
    let cache = Cache::<u32>::new(1 << 20);
    for number in 0..100_u32 {
        let name = format!("n{number}");
        cache
            .get("ns", &name, ANY, || async { Ok(fetched(number, 10)) })
            .await
            .unwrap();
    }
    assert_eq!(cache.kept().0, 100);
    advance(Duration::from_secs(31)).await;
    cache
        .get("ns", "last", ANY, || async { Ok(fetched(1, 10)) })
        .await
        .unwrap();
    assert_eq!(cache.kept().0, 1);
}
