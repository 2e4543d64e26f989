//! Where a write in flight is kept between two polls, so that closing the gate can take it away from its caller.

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

/// A write, seen from the gate.
pub(super) trait InFlight: Send + Sync {
    /// Takes it away for good. `None` when it has ended, or while a thread has it in hands, which then lets go of it.
    fn cut(&self) -> Option<Cut>;
    /// Waits until no thread has it in hands.
    fn settle(&self);
    /// Has it polled again.
    fn wake(&self);
}

/// A write that was taken away: dropping it drops first the write, then wakes who waits for it.
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
    /// Sent or about to be; the response head has not come.
    Request(BoxFuture<'static, Result<Response<B>, BoxError>>),
    /// The head was handed over, the body is being read.
    Body(Pin<Box<B>>),
}

/// One write in flight.
pub(super) struct Slot<B> {
    held: Mutex<Held<B>>,
    /// Notified when a thread lets go of a write that was to be cut.
    let_go: Condvar,
}

enum Held<B> {
    /// Waits for its next poll.
    Idle {
        work: Work<B>,
        /// Of the last poll that had to wait.
        waker: Option<Waker>,
    },
    /// In the hands of a thread that polls or drops it.
    Busy {
        /// The gate was closed meanwhile: to be dropped.
        cut: bool,
        /// It was woken meanwhile: to be polled again.
        woken: bool,
    },
    /// Taken away.
    Cut,
    /// Answered, failed, or given up by its caller.
    Over,
}

impl<B> Slot<B> {
    pub(super) fn new(work: Work<B>) -> Self {
        Self {
            held: Mutex::new(Held::Idle { work, waker: None }),
            let_go: Condvar::new(),
        }
    }

    /// Takes the work in hands; `None` when the gate has it. For the one caller whose write it is.
    pub(super) fn take(&self) -> Option<InHands<'_, B>> {
        let mut held = lock(&self.held);
        let busy = Held::Busy {
            cut: false,
            woken: false,
        };
        match std::mem::replace(&mut *held, busy) {
            Held::Idle { work, .. } => Some(InHands {
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

    /// Looks at the work without taking it; `None` when it is not there.
    pub(super) fn peek<T>(&self, look: impl FnOnce(&Work<B>) -> T) -> Option<T> {
        match &*lock(&self.held) {
            Held::Idle { work, .. } => Some(look(work)),
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

    fn settle(&self) {
        let mut held = lock(&self.held);
        while matches!(*held, Held::Busy { .. }) {
            held = self.let_go.wait(held).unwrap_or_else(PoisonError::into_inner);
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

/// Work in the hands of a thread. Dropping it drops the work, also when its poll panics, and then says so.
pub(super) struct InHands<'a, B> {
    slot: &'a Slot<B>,
    /// `None` once put back.
    work: Option<Work<B>>,
    _inside: Inside,
}

impl<B> InHands<'_, B> {
    /// The work.
    pub(super) fn work(&mut self) -> Option<&mut Work<B>> {
        self.work.as_mut()
    }

    /// Puts it back for the next poll, and whom to wake for it. `false` when the gate was closed meanwhile: then the
    /// work is dropped.
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

impl<B> Drop for InHands<'_, B> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            let _let_go = LetGo(self.slot);
            drop(work);
        }
    }
}

/// Says that the work is gone, also when its destructor panics.
struct LetGo<'a, B>(&'a Slot<B>);

impl<B> Drop for LetGo<'_, B> {
    fn drop(&mut self) {
        *lock(&self.0.held) = Held::Over;
        self.0.let_go.notify_all();
    }
}

thread_local! {
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// Marks that this thread is inside the poll or the destructor of a gated write, and must not wait for one to end.
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
