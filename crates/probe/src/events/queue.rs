//! Events that wait to be written: so many, then the oldest go.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: Mutex<Waiting<T>>,
    filled: Notify,
    capacity: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    items: VecDeque<T>,
    /// Since the queue overflowed; reported once there is room again.
    lost: u64,
    /// Events lost since the start.
    lost_ever: u64,
}

impl<T> Queue<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            waiting: Mutex::new(Waiting {
                items: VecDeque::new(),
                lost: 0,
                lost_ever: 0,
            }),
            filled: Notify::new(),
            capacity,
        }
    }

    /// Each change of the contents is complete before anything could panic.
    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an item at the end; a full queue loses its oldest.
    pub(super) fn push(&self, item: T) {
        let mut waiting = self.lock();
        if waiting.items.len() >= self.capacity {
            waiting.items.pop_front();
            waiting.lost += 1;
            waiting.lost_ever += 1;
        }
        waiting.items.push_back(item);
        drop(waiting);
        self.filled.notify_one();
    }

    /// The oldest item, and how many were lost before it since the last call that said so.
    pub(super) fn try_next(&self) -> Option<(T, u64)> {
        let mut waiting = self.lock();
        let item = waiting.items.pop_front()?;
        Some((item, std::mem::take(&mut waiting.lost)))
    }

    pub(super) async fn next(&self) -> (T, u64) {
        loop {
            if let Some(next) = self.try_next() {
                return next;
            }
            self.filled.notified().await;
        }
    }

    /// How many were lost ever.
    pub(super) fn lost_ever(&self) -> u64 {
        self.lock().lost_ever
    }
}
