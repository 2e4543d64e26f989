//! Messages on their way to an actor.
//!
//! Ten thousand mailboxes are empty most of the time: these take no memory then. A channel of tokio's keeps
//! blocks of 32 messages, a kibibyte each, of which several stay after a rush.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::task::coop;

/// Messages in the order in which they were put in. Anybody puts in; one takes out.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    waiting: Mutex<Waiting<T>>,
    came: Notify,
}

#[derive(Debug)]
struct Waiting<T> {
    messages: VecDeque<T>,
    closed: bool,
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> Self {
        let waiting = Waiting {
            messages: VecDeque::new(),
            closed: false,
        };
        Self {
            waiting: Mutex::new(waiting),
            came: Notify::new(),
        }
    }

    /// Puts a message in; once closed, it is dropped.
    pub(crate) fn put(&self, message: T) {
        let mut waiting = self.lock();
        if waiting.closed {
            return;
        }
        waiting.messages.push_back(message);
        drop(waiting);
        self.came.notify_one();
    }

    /// The next message; waits for one. `None` once closed and empty. Cancel safe.
    pub(crate) async fn take(&self) -> Option<T> {
        loop {
            // Who is never without messages lets others run now and then.
            coop::consume_budget().await;
            if let Some(message) = self.try_take() {
                return Some(message);
            }
            if self.is_closed() {
                return None;
            }
            self.came.notified().await;
        }
    }

    /// The next message, if there is one.
    pub(crate) fn try_take(&self) -> Option<T> {
        let mut waiting = self.lock();
        let message = waiting.messages.pop_front();
        if waiting.messages.is_empty() {
            waiting.messages = VecDeque::new();
        }
        message
    }

    /// From now on nothing is put in.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.came.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Each change of the contents is complete before anything could panic.
    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn messages_are_taken_in_their_order_and_waited_for() {
        let mailbox = Arc::new(Mailbox::new());
        for number in 0..100 {
            mailbox.put(number);
        }
        for number in 0..100 {
            assert_eq!(mailbox.take().await, Some(number));
        }
        assert_eq!(mailbox.try_take(), None);
        let waiting = tokio::spawn({
            let mailbox = mailbox.clone();
            async move { mailbox.take().await }
        });
        tokio::task::yield_now().await;
        mailbox.put(100);
        assert_eq!(waiting.await.unwrap(), Some(100));
    }

    #[test]
    fn a_mailbox_that_is_empty_takes_no_memory() {
        let mailbox = Mailbox::new();
        for number in 0..100 {
            mailbox.put(number);
        }
        while mailbox.try_take().is_some() {}
        assert_eq!(mailbox.lock().messages.capacity(), 0);
    }

    #[tokio::test]
    async fn once_closed_what_is_there_is_taken_and_nothing_comes_after_it() {
        let mailbox = Mailbox::new();
        mailbox.put(1);
        mailbox.close();
        mailbox.put(2);
        assert_eq!((mailbox.take().await, mailbox.take().await), (Some(1), None));
    }
}
