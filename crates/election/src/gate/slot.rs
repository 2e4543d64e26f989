//! The place of a write in flight between two polls, from which closing the gate can take it away from its
//! caller.

use super::registry::lock;
use futures::future::BoxFuture;
use http::Response;
use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::Waker;
use tower::BoxError;

/// A write in flight, as the gate uses it.
pub(super) trait InFlight: Send + Sync {
    /// Takes the write away for good. `None` when it has ended, or while a thread has taken it; that thread
    /// then drops it.
    fn cut(&self) -> Option<Cut>;
    /// Waits until no thread has taken it.
    fn wait_released(&self);
    /// Wakes its caller, so that it is polled again.
    fn wake(&self);
}

/// A write that was cut. Dropping this drops the write, then wakes the caller that waits for it.
pub(super) struct Cut {
    _work: Box<dyn Any + Send>,
    _wake: WakeOnDrop,
}

struct WakeOnDrop(Option<Waker>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        if let Some(waker) = self.0.take() {
            waker.wake();
        }
    }
}

/// How far a write has come.
pub(super) enum Work<B> {
    /// The response head has not arrived; the request may not even have been sent.
    Request(BoxFuture<'static, Result<Response<B>, BoxError>>),
    /// The caller has the response head and reads the body.
    Body(Pin<Box<B>>),
}

/// One write in flight.
pub(super) struct Slot<B> {
    held: Mutex<Held<B>>,
    /// Notified when a thread releases a write that was to be cut.
    released: Condvar,
}

enum Held<B> {
    /// The write waits for its next poll.
    Idle {
        work: Work<B>,
        /// The waker of the last poll that had to wait.
        waker: Option<Waker>,
    },
    /// A thread has taken the write, to poll or to drop it.
    Busy {
        /// The gate was closed meanwhile, so the thread has to drop the write.
        cut: bool,
        /// The write was woken meanwhile, so the thread has to have it polled again.
        woken: bool,
    },
    /// The gate has taken the write away.
    Cut,
    /// The write was answered, has failed, or was given up by its caller.
    Over,
}

impl<B> Slot<B> {
    pub(super) fn new(work: Work<B>) -> Self {
        Self {
            held: Mutex::new(Held::Idle { work, waker: None }),
            released: Condvar::new(),
        }
    }

    /// Takes the work, for the one caller whose write it is; `None` when the gate has taken it.
    pub(super) fn take(&self) -> Option<Taken<'_, B>> {
        let mut held = lock(&self.held);
        let busy = Held::Busy {
            cut: false,
            woken: false,
        };
        match std::mem::replace(&mut *held, busy) {
            Held::Idle { work, .. } => Some(Taken {
                slot: self,
                work: Some(work),
                _inside: Inside::enter(),
            }),
            other => {
                *held = other;
                None
            }
        }
    }

    /// Inspects the work without taking it; `None` when it is not there.
    pub(super) fn peek<T>(&self, inspect: impl FnOnce(&Work<B>) -> T) -> Option<T> {
        match &*lock(&self.held) {
            Held::Idle { work, .. } => Some(inspect(work)),
            Held::Busy { .. } | Held::Cut | Held::Over => None,
        }
    }
}

impl<B: Send + 'static> InFlight for Slot<B> {
    fn cut(&self) -> Option<Cut> {
        let mut held = lock(&self.held);
        match std::mem::replace(&mut *held, Held::Cut) {
            Held::Idle { work, waker } => Some(Cut {
                _work: Box::new(work),
                _wake: WakeOnDrop(waker),
            }),
            Held::Busy { woken, .. } => {
                *held = Held::Busy { cut: true, woken };
                None
            }
            over => {
                *held = over;
                None
            }
        }
    }

    fn wait_released(&self) {
        let mut held = lock(&self.held);
        while matches!(*held, Held::Busy { .. }) {
            held = self.released.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wake(&self) {
        let waker = match &mut *lock(&self.held) {
            Held::Idle { waker, .. } => waker.clone(),
            Held::Busy { woken, .. } => {
                *woken = true;
                None
            }
            Held::Cut | Held::Over => None,
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The work of a write that a thread has taken. Dropping this drops the work, also after a panic in its poll,
/// and then notifies those that wait for it.
pub(super) struct Taken<'a, B> {
    slot: &'a Slot<B>,
    /// `None` once put back.
    work: Option<Work<B>>,
    _inside: Inside,
}

impl<B> Taken<'_, B> {
    pub(super) fn work(&mut self) -> Option<&mut Work<B>> {
        self.work.as_mut()
    }

    /// Puts the work back for the next poll, with the waker for it. Returns `false` when the gate was closed
    /// meanwhile; then the work is dropped.
    pub(super) fn put_back(mut self, waker: Option<&Waker>) -> bool {
        let mut held = lock(&self.slot.held);
        let (cut, woken) = match *held {
            Held::Busy { cut, woken } => (cut, woken),
            Held::Idle { .. } | Held::Cut | Held::Over => (true, false),
        };
        let Some(work) = self.work.take_if(|_| !cut) else {
            drop(held);
            return false;
        };
        *held = Held::Idle {
            work,
            waker: waker.cloned(),
        };
        drop(held);
        if woken && let Some(waker) = waker {
            waker.wake_by_ref();
        }
        true
    }
}

impl<B> Drop for Taken<'_, B> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            let _released = Released(self.slot);
            drop(work);
        }
    }
}

/// Notifies those that wait for the work to be dropped, also when its destructor panics.
struct Released<'a, B>(&'a Slot<B>);

impl<B> Drop for Released<'_, B> {
    fn drop(&mut self) {
        *lock(&self.0.held) = Held::Over;
        self.0.released.notify_all();
    }
}

thread_local! {
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// Marks that this thread is inside the poll or the destructor of a gated write, where it must not wait for
/// one to end.
pub(super) struct Inside(PhantomData<*const ()>);

impl Inside {
    pub(super) fn enter() -> Self {
        INSIDE.with(|depth| depth.set(depth.get() + 1));
        Self(PhantomData)
    }

    pub(super) fn is() -> bool {
        INSIDE.with(|depth| depth.get() > 0)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|depth| depth.set(depth.get().saturating_sub(1)));
    }
}
