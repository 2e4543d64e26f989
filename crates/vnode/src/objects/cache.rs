//! Answers that are shared, and kept for a moment.

use jiff::{SignedDuration, Timestamp};
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long an object serves.
const LIFE: Duration = Duration::from_secs(30);
/// One that cannot change. It can be deleted and made anew, which pods that come later see.
const IMMUTABLE_LIFE: Duration = Duration::from_secs(600);
/// How long "there is none" and errors serve: an object that appears is to be seen soon after.
const NEGATIVE_LIFE: Duration = Duration::from_secs(1);
/// Time between two requests for one object, however many new pods ask for it.
const BETWEEN: Duration = Duration::from_millis(100);
/// Time between two looks for what has expired.
const SWEEP: Duration = Duration::from_secs(10);
/// What an answer takes beside its text.
const OVERHEAD: usize = 256;

/// An object, none if there is no such object, or why it could not be read.
pub(super) type Answer<T> = Result<Option<Arc<T>>, Arc<str>>;

/// An object as it was read.
pub(super) struct Fetched<T> {
    pub(super) object: Option<T>,
    /// Bytes of its text.
    pub(super) size: usize,
    pub(super) immutable: bool,
}

/// Which answers serve a pod.
#[derive(Clone, Copy)]
pub(super) struct Need {
    /// When the pod was created, by the API server's clock, in whole seconds.
    pub(super) created: Option<Timestamp>,
    /// How old an answer may be that was read before that.
    pub(super) before: Duration,
}

/// Answers of one kind by namespace and name.
pub(super) struct Cache<T> {
    slots: Mutex<Slots<T>>,
    most: usize,
}

struct Slots<T> {
    by_name: HashMap<(String, String), Arc<Slot<T>>>,
    /// Bytes that were added since the last look; what was replaced counts until then.
    held: usize,
    swept: Instant,
}

/// Who holds the lock asks; the others wait for the answer. If the one is dropped, the next one asks.
struct Slot<T> {
    entry: tokio::sync::Mutex<Option<Entry<T>>>,
}

struct Entry<T> {
    /// When the request began.
    began: Instant,
    /// The same by the clock on the wall.
    began_at: Timestamp,
    until: Instant,
    size: usize,
    answer: Answer<T>,
}

impl<T> Cache<T> {
    /// Keeps `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self {
            slots: Mutex::new(Slots {
                by_name: HashMap::new(),
                held: 0,
                swept: Instant::now(),
            }),
            most,
        }
    }

    /// What is kept if it serves, or else what `fetch` brings.
    pub(super) async fn get<F>(
        &self,
        namespace: &str,
        name: &str,
        need: Need,
        fetch: impl FnOnce() -> F,
    ) -> Answer<T>
    where
        F: Future<Output = Result<Fetched<T>, String>>,
    {
        let asked = Instant::now();
        let slot = self.slot(namespace, name);
        let mut entry = slot.entry.lock().await;
        if let Some(kept) = &*entry {
            if kept.serves(need, asked) {
                return kept.answer.clone();
            }
            // All that ask until then are served by the one request.
            tokio::time::sleep_until(kept.began + BETWEEN).await;
        }
        let (began, began_at) = (Instant::now(), Timestamp::now());
        let fetched = fetch().await;
        let (life, size, answer) = match fetched {
            Ok(Fetched {
                object: Some(object),
                size,
                immutable,
            }) => {
                let life = if immutable { IMMUTABLE_LIFE } else { LIFE };
                (life, size, Ok(Some(Arc::new(object))))
            }
            Ok(_) => (NEGATIVE_LIFE, 0, Ok(None)),
            Err(message) => (NEGATIVE_LIFE, message.len(), Err(message.into())),
        };
        let size = size + namespace.len() + name.len() + OVERHEAD;
        *entry = Some(Entry {
            began,
            began_at,
            until: Instant::now() + life,
            size,
            answer: answer.clone(),
        });
        drop(entry);
        drop(slot);
        self.added(size);
        answer
    }

    fn slot(&self, namespace: &str, name: &str) -> Arc<Slot<T>> {
        let mut slots = self.lock();
        let slot = slots
            .by_name
            .entry((namespace.to_owned(), name.to_owned()))
            .or_insert_with(|| {
                Arc::new(Slot {
                    entry: tokio::sync::Mutex::new(None),
                })
            });
        slot.clone()
    }

    /// Looks after what is kept: every now and then, or when there is too much.
    fn added(&self, size: usize) {
        let now = Instant::now();
        let mut slots = self.lock();
        slots.held += size;
        if slots.held > self.most || now >= slots.swept + SWEEP {
            slots.sweep(now, self.most);
        }
    }

    /// A panic while it was held leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Slots<T>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers that are kept, and their bytes.
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        let slots = self.lock();
        (slots.by_name.len(), slots.held)
    }
}

impl<T> Slots<T> {
    /// Drops what has expired; and of the rest the oldest if there is too much, down to three quarters, so
    /// that it is not done for every answer.
    fn sweep(&mut self, now: Instant, most: usize) {
        let mut ages = Vec::new();
        let mut held = 0;
        self.by_name.retain(|_, slot| {
            // Somebody asks or waits.
            if Arc::strong_count(slot) > 1 {
                return true;
            }
            let Ok(entry) = slot.entry.try_lock() else {
                return true;
            };
            let Some(entry) = entry.as_ref().filter(|entry| entry.until > now) else {
                return false;
            };
            held += entry.size;
            ages.push((entry.began, entry.size));
            true
        });
        if held > most {
            ages.sort_unstable();
            let mut left = held;
            let last = ages.iter().find_map(|(began, size)| {
                left -= size;
                (left <= most / 4 * 3).then_some(*began)
            });
            self.by_name.retain(|_, slot| {
                if Arc::strong_count(slot) > 1 {
                    return true;
                }
                let Ok(entry) = slot.entry.try_lock() else {
                    return true;
                };
                match (&*entry, last) {
                    (Some(entry), Some(last)) if entry.began > last => true,
                    (Some(entry), _) => {
                        held -= entry.size;
                        false
                    }
                    (None, _) => false,
                }
            });
        }
        self.held = held;
        self.swept = now;
    }
}

impl<T> Entry<T> {
    /// Whether it serves a pod that asked at a time.
    fn serves(&self, need: Need, asked: Instant) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        // A silent API server is not asked by each in turn.
        if self.answer.is_err() || self.began >= asked || asked - self.began < need.before {
            return true;
        }
        // Creation times are cut to seconds: what was read within the pod's first second may be older than
        // the pod.
        need.created
            .is_none_or(|created| self.began_at.duration_since(created) >= SignedDuration::from_secs(1))
    }
}
