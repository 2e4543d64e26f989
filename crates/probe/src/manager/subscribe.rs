//! Who hears of changes, each at its own pace.

use crate::core::{Key, Reading};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::Notify;

/// What a subscriber is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The probe whose reading changed.
    pub key: Key,
    /// The container, by ID.
    pub container_id: Arc<str>,
    /// What is published about it now.
    pub reading: Reading,
    /// Why, in one line for people.
    pub why: String,
}

/// A reader of what is published. Holds at most one change per worker of pods that the manager knows.
#[derive(Debug)]
pub struct Subscription {
    inbox: Arc<Inbox>,
}

impl Subscription {
    /// The next change, the one that has waited longest first; `None` after the manager's shutdown, once all
    /// have been read. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Change> {
        loop {
            {
                let mut pending = self.inbox.lock();
                if let Some(change) = pending.pop() {
                    return Some(change);
                }
                if pending.closed {
                    return None;
                }
            }
            self.inbox.filled.notified().await;
        }
    }
}

#[derive(Debug, Default)]
struct Inbox {
    pending: Mutex<Pending>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    /// In order of the first change not read.
    order: VecDeque<Key>,
    latest: HashMap<Key, Change>,
    closed: bool,
}

impl Inbox {
    /// Each change of the contents is complete before anything could panic.
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    fn push(&mut self, change: Change) {
        if self.latest.insert(change.key.clone(), change.clone()).is_none() {
            self.order.push_back(change.key);
        }
    }

    fn pop(&mut self) -> Option<Change> {
        let key = self.order.pop_front()?;
        self.latest.remove(&key)
    }

    fn retain(&mut self, kept: impl Fn(&Key) -> bool) {
        self.order.retain(&kept);
        self.latest.retain(|key, _| kept(key));
    }
}

/// The subscribers of a manager, by what they want to know.
#[derive(Default)]
pub(super) struct Hub(Vec<Weak<Inbox>>);

impl Hub {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn subscribe(&mut self, closed: bool) -> Subscription {
        let inbox = Arc::new(Inbox::default());
        inbox.lock().closed = closed;
        self.0.retain(|subscriber| subscriber.strong_count() > 0);
        self.0.push(Arc::downgrade(&inbox));
        Subscription { inbox }
    }

    /// Puts a change into each inbox; subscribers that are gone are forgotten.
    pub(super) fn publish(&mut self, change: &Change) {
        self.each(|inbox| {
            inbox.lock().push(change.clone());
            inbox.filled.notify_one();
        });
    }

    /// Takes back what nobody need hear any more.
    pub(super) fn retain(&mut self, kept: impl Fn(&Key) -> bool) {
        self.each(|inbox| inbox.lock().retain(&kept));
    }

    pub(super) fn close(&mut self) {
        self.each(|inbox| {
            inbox.lock().closed = true;
            inbox.filled.notify_one();
        });
    }

    fn each(&mut self, act: impl Fn(&Inbox)) {
        self.0.retain(|subscriber| {
            let Some(inbox) = subscriber.upgrade() else {
                return false;
            };
            act(&inbox);
            true
        });
    }
}
