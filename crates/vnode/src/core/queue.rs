//! A work queue with back-off, a rate limit and re-dirtying, of keys.
//!
//! A key that is added while it waits is there once; one that is added while it is worked on comes again
//! afterwards. Behaviour: virtual-kubelet's queue, whose list of tests this module's tests repeat.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

/// The queue. Times are monotonic, from any origin.
#[derive(Debug)]
pub struct Queue<K> {
    policy: Policy,
    items: HashMap<K, Item>,
    /// Those of `items` that wait, by time, then in the order in which they came.
    waiting: BTreeSet<(Duration, u64, K)>,
    /// How many of `items` are worked on.
    working: usize,
    /// Number of the next place in `waiting`.
    place: u64,
    limit: Option<Limit>,
}

/// How failures are retried.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Delay after the first failure, doubled with each; jitter is the caller's.
    pub first: Duration,
    /// The most of it.
    pub most: Duration,
    /// Failures after which a key is given up; `None`: never.
    pub tries: Option<u32>,
    /// Keys handed out per second over all, and how many at once after a rest; `None`: no limit.
    pub rate: Option<(f64, u32)>,
}

/// What is known of a key.
#[derive(Debug)]
struct Item {
    /// Failures in a row.
    failures: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    /// In `waiting`, at this place.
    Waits { at: Duration, place: u64 },
    /// Handed out. `again`: added meanwhile, for that time. `forgotten`: nothing follows, whatever comes of
    /// it.
    Worked {
        again: Option<Duration>,
        forgotten: bool,
    },
}

/// A bucket of tokens, written as the time at which it would be full: exact, so that the time which
/// [`Queue::due`] names is never an instant too early.
#[derive(Debug)]
struct Limit {
    /// Time in which one token comes.
    interval: Duration,
    /// How far `full` may lie ahead of the moment at which a token is taken.
    slack: Duration,
    full: Duration,
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// An empty queue.
    pub fn new(policy: Policy) -> Self {
        Self {
            limit: policy.rate.map(|(rate, burst)| Limit::new(rate, burst)),
            policy,
            items: HashMap::new(),
            waiting: BTreeSet::new(),
            working: 0,
            place: 0,
        }
    }

    /// To be worked on as soon as may be.
    pub fn add(&mut self, key: K, now: Duration) {
        self.add_after(key, Duration::ZERO, now);
    }

    /// To be worked on after `delay`, or earlier if it waits already for an earlier time.
    pub fn add_after(&mut self, key: K, delay: Duration, now: Duration) {
        let at = now.saturating_add(delay);
        let failures = match self.items.get_mut(&key) {
            None => 0,
            Some(Item {
                state: State::Worked { again, forgotten },
                ..
            }) => {
                *again = Some(again.map_or(at, |before| before.min(at)));
                *forgotten = false;
                return;
            }
            Some(item) => {
                if let State::Waits { at: before, place } = item.state {
                    if before <= at {
                        return;
                    }
                    self.waiting.remove(&(before, place, key.clone()));
                }
                item.failures
            }
        };
        self.wait(key, at, failures);
    }

    /// The next key whose time has come; it counts as being worked on until [`Queue::done`] or
    /// [`Queue::failed`].
    pub fn take(&mut self, now: Duration) -> Option<K> {
        if self.due()? > now {
            return None;
        }
        let (_, _, key) = self.waiting.pop_first()?;
        if let Some(limit) = &mut self.limit {
            limit.take(now);
        }
        if let Some(item) = self.items.get_mut(&key) {
            item.state = State::Worked {
                again: None,
                forgotten: false,
            };
            self.working += 1;
        }
        Some(key)
    }

    /// When [`Queue::take`] next has something; `None` while nothing waits.
    pub fn due(&self) -> Option<Duration> {
        let (at, _, _) = self.waiting.first()?;
        let open = self.limit.as_ref().map_or(Duration::ZERO, Limit::opens);
        Some((*at).max(open))
    }

    /// Worked on with success.
    pub fn done(&mut self, key: &K, now: Duration) {
        let Some((again, _, _)) = self.returned(key) else {
            return;
        };
        if let Some(at) = again {
            self.wait(key.clone(), at.max(now), 0);
        }
    }

    /// Worked on without: comes again after its back-off, or `delay`. Returns whether it was given up; one
    /// that was added meanwhile comes again all the same, as a new one.
    pub fn failed(&mut self, key: &K, delay: Option<Duration>, now: Duration) -> bool {
        let Some((again, forgotten, failures)) = self.returned(key) else {
            return false;
        };
        if forgotten {
            return false;
        }
        let failures = failures.saturating_add(1);
        let given_up = self.policy.tries.is_some_and(|tries| failures >= tries);
        if !given_up {
            let delay = delay.unwrap_or_else(|| self.policy.delay(failures));
            self.wait(key.clone(), now.saturating_add(delay), failures);
        } else if let Some(at) = again {
            self.wait(key.clone(), at.max(now), 0);
        }
        given_up
    }

    /// Neither waits nor comes again, with its failures forgotten.
    pub fn forget(&mut self, key: &K) {
        let Some(item) = self.items.get_mut(key) else {
            return;
        };
        match &mut item.state {
            State::Waits { at, place } => {
                self.waiting.remove(&(*at, *place, key.clone()));
                self.remove(key);
            }
            State::Worked { again, forgotten } => {
                *again = None;
                *forgotten = true;
                item.failures = 0;
            }
        }
    }

    /// Keys that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keys that are being worked on.
    pub fn working(&self) -> usize {
        self.working
    }

    fn wait(&mut self, key: K, at: Duration, failures: u32) {
        let place = self.place;
        self.place += 1;
        self.waiting.insert((at, place, key.clone()));
        let state = State::Waits { at, place };
        self.items.insert(key, Item { failures, state });
    }

    /// Takes out a key that was being worked on: when it is to come again, whether it was forgotten, its
    /// failures.
    fn returned(&mut self, key: &K) -> Option<(Option<Duration>, bool, u32)> {
        let item = self.items.get(key)?;
        let State::Worked { again, forgotten } = item.state else {
            return None;
        };
        let failures = item.failures;
        self.remove(key);
        self.working -= 1;
        Some((again, forgotten, failures))
    }

    fn remove(&mut self, key: &K) {
        self.items.remove(key);
        // A rush leaves no empty table behind.
        if self.items.len() < self.items.capacity() / 8 {
            self.items.shrink_to(self.items.len() * 2);
        }
    }
}

impl Policy {
    /// Back-off after so many failures in a row.
    fn delay(&self, failures: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.first.saturating_mul(factor).min(self.most)
    }
}

impl Limit {
    /// What is no rate lets the first `burst` keys out and no more.
    fn new(rate: f64, burst: u32) -> Self {
        // So that a whole burst of intervals still is a time.
        let most = Duration::MAX / burst.max(1).saturating_mul(4);
        let interval = Duration::try_from_secs_f64(rate.recip()).map_or(most, |interval| interval.min(most));
        Self {
            interval,
            slack: interval.saturating_mul(burst.saturating_sub(1)),
            full: Duration::ZERO,
        }
    }

    /// From when on a token is there.
    fn opens(&self) -> Duration {
        self.full.saturating_sub(self.slack)
    }

    fn take(&mut self, now: Duration) {
        self.full = self.full.max(now).saturating_add(self.interval);
    }
}

#[cfg(test)]
mod tests;
