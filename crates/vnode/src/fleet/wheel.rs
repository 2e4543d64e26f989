//! One timer wheel for all nodes and pods.

use super::directory::Handle;
use crate::pods::Message;
use futures::StreamExt as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::time::{DelayQueue, delay_queue};

/// What a timer is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The node's machine.
    Node,
    /// The next look for pods that only the provider knows.
    Strays,
    /// The machine of the pod with this UID.
    Pod(Arc<str>),
}

/// The wheel, as who sets timers holds it.
#[derive(Clone, Debug)]
pub(crate) struct Wheel {
    orders: mpsc::UnboundedSender<Order>,
}

#[derive(Debug)]
enum Order {
    Set(Arc<Handle>, Timer, Instant),
    Clear(u64, Timer),
    ClearAll(u64),
}

/// The longest time that the queue behind it takes.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

impl Wheel {
    /// Starts the wheel in a task of its own.
    pub(crate) fn start(stop: CancellationToken) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        tokio::spawn(turn(received, stop));
        Self { orders }
    }

    /// Notifies `handle` after `delay`. Replaces an earlier time.
    pub(crate) fn set(&self, handle: &Arc<Handle>, timer: Timer, delay: Duration) {
        let at = Instant::now() + delay.min(LONGEST);
        // The wheel ends with the fleet, and so does whoever waits for it.
        let _ = self.orders.send(Order::Set(handle.clone(), timer, at));
    }

    /// Takes a time back.
    pub(crate) fn clear(&self, handle: &Handle, timer: Timer) {
        let _ = self.orders.send(Order::Clear(handle.id, timer));
    }

    /// Takes all times of a node back.
    pub(crate) fn clear_all(&self, handle: &Handle) {
        let _ = self.orders.send(Order::ClearAll(handle.id));
    }
}

async fn turn(mut orders: mpsc::UnboundedReceiver<Order>, stop: CancellationToken) {
    let mut queue: DelayQueue<(Arc<Handle>, Timer)> = DelayQueue::new();
    // By the actor's number.
    let mut known: BTreeMap<(u64, Timer), delay_queue::Key> = BTreeMap::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            order = orders.recv() => match order {
                None => return,
                Some(Order::Set(handle, timer, at)) => {
                    let of = (handle.id, timer);
                    if let Some(key) = known.get(&of) {
                        queue.reset_at(key, at);
                    } else {
                        let key = queue.insert_at((handle, of.1.clone()), at);
                        known.insert(of, key);
                    }
                }
                Some(Order::Clear(id, timer)) => {
                    if let Some(key) = known.remove(&(id, timer)) {
                        queue.remove(&key);
                    }
                }
                Some(Order::ClearAll(id)) => {
                    // The first timer of this actor, and of the next.
                    let all = (id, Timer::Node)..(id + 1, Timer::Node);
                    let of: Vec<_> = known.range(all).map(|(of, _)| of.clone()).collect();
                    for key in of.iter().filter_map(|of| known.remove(of)) {
                        queue.remove(&key);
                    }
                }
            },
            Some(expired) = queue.next(), if !queue.is_empty() => {
                let (handle, timer) = expired.into_inner();
                let of = (handle.id, timer);
                known.remove(&of);
                handle.send(Message::Tick(of.1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str) -> Timer {
        Timer::Pod(uid.into())
    }

    #[tokio::test(start_paused = true)]
    async fn times_come_in_order_and_a_later_word_replaces_an_earlier_one() {
        let wheel = Wheel::start(CancellationToken::new());
        let (one, told) = Handle::new(1, "one".into());
        let (two, other) = Handle::new(2, "two".into());
        for (timer, delay) in [
            (Timer::Node, 10),
            (pod("a"), 20),
            (pod("b"), 5),
            (pod("gone"), 1),
            (pod("a"), 2),
        ] {
            wheel.set(&one, timer, Duration::from_secs(delay));
        }
        wheel.set(&two, Timer::Node, Duration::from_secs(1));
        wheel.set(&two, pod("c"), Duration::from_secs(2));
        wheel.clear(&one, pod("gone"));
        wheel.clear_all(&two);
        let begun = Instant::now();
        for (expected, after) in [(pod("a"), 2), (pod("b"), 5), (Timer::Node, 10)] {
            let Some(Message::Tick(timer)) = told.recv().await else {
                panic!("a tick")
            };
            assert_eq!((timer, begun.elapsed().as_secs()), (expected, after));
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(told.try_recv().is_none() && other.try_recv().is_none());
        wheel.set(&one, pod("a"), Duration::ZERO);
        assert!(matches!(told.recv().await, Some(Message::Tick(Timer::Pod(_)))));
    }
}
