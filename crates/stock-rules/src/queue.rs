//! The queue of nodes of a zone that wait for their NoExecute taint.
//!
//! A name enters once and blocks its duplicates until it is removed, also after it was served: a node is
//! tainted once per failure.

use super::limiter::Limiter;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// A node in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    /// UID of the Node when it was queued.
    pub uid: String,
}

/// Ordered by the time at which an entry is due, then by arrival.
#[derive(Clone, Debug)]
pub struct TimedQueue {
    waiting: BTreeMap<(Timestamp, u64), Entry>,
    names: BTreeSet<String>,
    arrivals: u64,
    limiter: Limiter,
}

impl TimedQueue {
    pub fn new(rate: f64, now: Timestamp) -> Self {
        Self {
            waiting: BTreeMap::new(),
            names: BTreeSet::new(),
            arrivals: 0,
            limiter: Limiter::new(rate, now),
        }
    }

    /// Queues a node, due at once; `false` if its name is blocked.
    pub fn add(&mut self, name: &str, uid: &str, now: Timestamp) -> bool {
        if !self.names.insert(name.to_owned()) {
            return false;
        }
        let entry = Entry {
            name: name.to_owned(),
            uid: uid.to_owned(),
        };
        self.put(entry, now);
        true
    }

    /// Takes a node out of the queue and unblocks its name. An entry that is being served is not queued
    /// again.
    pub fn remove(&mut self, name: &str) -> bool {
        self.waiting.retain(|_, entry| entry.name != name);
        self.names.remove(name)
    }

    /// The next entry to serve, or none. As upstream, a token is taken before the time of the head is looked
    /// at, so that a head which is not due costs a token.
    pub fn next(&mut self, now: Timestamp) -> Option<Entry> {
        let (&(due, _), _) = self.waiting.first_key_value()?;
        if !self.limiter.try_accept(now) || due > now {
            return None;
        }
        self.waiting.pop_first().map(|(_, entry)| entry)
    }

    /// Serving failed: it is due again at `at`, unless it was removed meanwhile.
    pub fn retry(&mut self, entry: Entry, at: Timestamp) {
        let queued = self.waiting.values().any(|waiting| waiting.name == entry.name);
        if self.names.contains(&entry.name) && !queued {
            self.put(entry, at);
        }
    }

    /// Another rate from now on.
    pub fn swap_limiter(&mut self, rate: f64, now: Timestamp) {
        self.limiter.swap(rate, now);
    }

    /// Names that wait, in order.
    pub fn waiting(&self) -> Vec<&str> {
        self.waiting.values().map(|entry| entry.name.as_str()).collect()
    }

    fn put(&mut self, entry: Entry, due: Timestamp) {
        self.arrivals += 1;
        self.waiting.insert((due, self.arrivals), entry);
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
