//! One queue of deadlines for all containers of all pods: a container that has none costs nothing.

use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Deadlines in their order. A deadline that means nothing any more is found so when it is due.
#[derive(Debug, Default)]
pub(super) struct Timers {
    queue: Mutex<Queue>,
    sooner: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    due: BTreeMap<(Timestamp, u64), Due>,
    count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// UID of the pod.
    pub(super) pod: Arc<str>,
    pub(super) number: u64,
}

impl Timers {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Every operation leaves the queue whole, so a panic elsewhere says nothing of it.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, at: Timestamp, due: Due) {
        let mut queue = self.queue();
        let first = queue
            .due
            .first_key_value()
            .is_none_or(|((first, _), _)| at < *first);
        queue.count += 1;
        let key = (at, queue.count);
        queue.due.insert(key, due);
        drop(queue);
        if first {
            self.sooner.notify_one();
        }
    }

    /// What is due by now, in its order.
    pub(super) fn take(&self, now: Timestamp) -> Vec<Due> {
        let mut queue = self.queue();
        let mut due = Vec::new();
        while let Some(first) = queue.due.first_entry()
            && first.key().0 <= now
        {
            due.push(first.remove());
        }
        due
    }

    /// When the first is due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.queue().due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Returns once a deadline was added that is due before all others.
    pub(super) async fn sooner(&self) {
        self.sooner.notified().await;
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.queue().due.len()
    }
}
