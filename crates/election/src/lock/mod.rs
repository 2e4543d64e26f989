//! Where the election record is kept: a [`LeaseLock`], the annotations of older times ([`AnnotationLock`]),
//! both at once while a deployment moves from one to the other ([`MultiLock`]), or a register in memory for
//! tests ([`MemoryLock`]).

/// Has a lock that wraps an `ObjectLock` do what that does.
macro_rules! delegate_to_object {
    ($lock:ty) => {
        impl Lock for $lock {
            fn describe(&self) -> String {
                self.0.describe()
            }

            fn get(&self) -> BoxFuture<'static, Result<Option<Observation>, LockError>> {
                self.0.get()
            }

            fn create(&self, record: Record) -> BoxFuture<'static, Result<Observation, LockError>> {
                self.0.create(record)
            }

            fn update(
                &self,
                record: Record,
                version: String,
            ) -> BoxFuture<'static, Result<Observation, LockError>> {
                self.0.update(record, version)
            }

            fn changes(&self) -> BoxStream<'static, Option<Observation>> {
                self.0.changes()
            }

            fn announce(&self, message: String) -> BoxFuture<'static, ()> {
                self.0.announce(message)
            }
        }
    };
}

mod annotation;
mod announcer;
mod kind;
mod lease;
mod memory;
mod multi;
mod object;
mod refusal;
mod target;

pub use annotation::{AnnotationLock, LEADER_ANNOTATION};
pub use kind::{LockKindError, check_lock_kind};
pub use lease::LeaseLock;
pub use memory::{Announcement, Call, Fault, MemoryLock, Op, Outcome, Rule, Write};
pub use multi::{MultiLock, UNKNOWN_LEADER};
pub use target::LockNameError;

use crate::core::{Observation, Record};
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt as _};
use std::sync::Arc;

/// One lock object. Requests need no time limit of their own: the elector sets one.
pub trait Lock: Send + Sync + 'static {
    /// `namespace/name`, for messages and metrics.
    fn describe(&self) -> String;

    /// The record as it is now, read consistently; `None` when the object does not exist.
    fn get(&self) -> BoxFuture<'static, Result<Option<Observation>, LockError>>;

    /// Creates the object. [`LockError::Conflict`] when it exists.
    fn create(&self, record: Record) -> BoxFuture<'static, Result<Observation, LockError>>;

    /// Replaces the record that was observed at `version`. [`LockError::Conflict`] when somebody wrote in
    /// between.
    fn update(&self, record: Record, version: String) -> BoxFuture<'static, Result<Observation, LockError>>;

    /// Changes of the object as they happen, maybe late; `None` when it was deleted. The stream reconnects by
    /// itself. A lock that cannot be watched never yields a change.
    fn changes(&self) -> BoxStream<'static, Option<Observation>> {
        futures::stream::pending().boxed()
    }

    /// Records an Event of reason `LeaderElection` on the lock object. A failure is logged, not returned.
    fn announce(&self, message: String) -> BoxFuture<'static, ()>;
}

impl<L: Lock + ?Sized> Lock for Arc<L> {
    fn describe(&self) -> String {
        (**self).describe()
    }

    fn get(&self) -> BoxFuture<'static, Result<Option<Observation>, LockError>> {
        (**self).get()
    }

    fn create(&self, record: Record) -> BoxFuture<'static, Result<Observation, LockError>> {
        (**self).create(record)
    }

    fn update(&self, record: Record, version: String) -> BoxFuture<'static, Result<Observation, LockError>> {
        (**self).update(record, version)
    }

    fn changes(&self) -> BoxStream<'static, Option<Observation>> {
        (**self).changes()
    }

    fn announce(&self, message: String) -> BoxFuture<'static, ()> {
        (**self).announce(message)
    }
}

/// Why a request on a lock failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Somebody else wrote or created the object first. Read it again.
    #[error("somebody else wrote the lock first")]
    Conflict,
    /// The API server refused the request. Retry: rights can be granted and objects created meanwhile.
    #[error("{0}")]
    Refused(String),
    /// The record cannot be read. Retry: it can be corrected meanwhile.
    #[error("{0}")]
    Malformed(String),
    /// The API server could not be reached, or did not answer. Retry.
    #[error("{0}")]
    Unreachable(String),
}
