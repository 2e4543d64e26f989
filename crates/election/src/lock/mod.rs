//! Where the election record is kept: a [`LeaseLock`], the annotations of older times ([`AnnotationLock`]), both at once
//! while a deployment moves from one to the other ([`MultiLock`]), or a register in memory for tests ([`MemoryLock`]).

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
pub use kind::{LockKind, LockKindError};
pub use lease::LeaseLock;
pub use memory::{Announcement, Call, Fault, MemoryLock, Op, Outcome, Rule, Write};
pub use multi::{MultiLock, UNKNOWN_LEADER};
pub use target::LockNameError;

use crate::core::{Observation, Record};
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt as _};
use std::sync::Arc;

/// One lock object. Requests need not bound themselves in time: the elector does.
pub trait Lock: Send + Sync + 'static {
    /// `namespace/name`, for messages and metrics.
    fn describe(&self) -> String;

    /// The record as it is now, read consistently; `None` when the object does not exist.
    fn get(&self) -> BoxFuture<'static, Result<Option<Observation>, LockError>>;

    /// Makes the object. [`LockError::Conflict`] when it exists.
    fn create(&self, record: Record) -> BoxFuture<'static, Result<Observation, LockError>>;

    /// Replaces the record that was observed at `version`. [`LockError::Conflict`] when anybody wrote in between.
    fn update(&self, record: Record, version: String) -> BoxFuture<'static, Result<Observation, LockError>>;

    /// Changes that come without asking, also old ones; `None` when the object was deleted. Reconnects by itself; a
    /// lock that knows no watch never yields.
    fn changes(&self) -> BoxStream<'static, Option<Observation>> {
        futures::stream::pending().boxed()
    }

    /// Tells the cluster, as an Event of reason `LeaderElection` on the lock object. Failing to is logged, not returned.
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

/// Why a request on a lock gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Somebody else wrote first, or created first. Read again.
    #[error("somebody else wrote the lock first")]
    Conflict,
    /// The API server said no. Worth a retry: rights and objects can be given while we ask.
    #[error("{0}")]
    Refused(String),
    /// The record cannot be read. Worth a retry: it can be repaired.
    #[error("{0}")]
    Malformed(String),
    /// The API server could not be asked. Worth a retry.
    #[error("{0}")]
    Unreachable(String),
}
