//! Fencing: the API server refuses what a former leader sends late.
//!
//! The [gate](crate::gate) keeps a candidate from sending writes while it does not lead. It cannot call back
//! a write that has left the machine: a process may be stopped between the check and the socket, or a packet
//! may wait in a queue, and both may go on when somebody else has led for a minute. Only the receiver can
//! refuse such a write. Kubernetes has no fencing tokens, but it compares `resourceVersion`, and that is
//! enough for objects that the new leader has *touched*:
//!
//! * Every write through [`Fence`] carries the version of the object as it was read a moment ago, and stamps
//!   the object with the writer's [`FencingToken`] in the annotation [`FENCING_TOKEN`].
//! * Before it writes, it compares the stamp on the object with its own. It refuses to write if that one is
//!   of a later term ([`FenceError::Stale`]).
//! * After a 409 it reads the object and compares again.
//!
//! # What is guaranteed
//!
//! Once a leader has written to an object through [`Fence`], for which [`Fence::claim`] is enough, no write
//! of an earlier leader through [`Fence`] to that object takes effect any more, however late it arrives. If
//! the earlier leader read the object before the stamp, the server refuses its write with 409 because of the
//! version; if it read it later, [`Fence`] refuses the write because of the stamp. This depends only on the
//! API server's compare-and-swap, and on no clock.
//!
//! So a new leader that **claims an object before it acts on it**, or decides from what [`Fence::claim`]
//! returned, cannot be interfered with by its predecessors.
//!
//! # What is not guaranteed
//!
//! * **Objects that the new leader has not touched.** A late write to one of those succeeds. Claim those that
//!   matter.
//! * **Creates.** There is no version to compare. [`Fence::stamp`] records in which term an object was
//!   created. If its name is derived from its purpose, a second create fails with `AlreadyExists`.
//! * **Writes that do not go through [`Fence`]**: those of other controllers and of people, of an old leader
//!   that is not fenced, and every subresource (`status`, `scale`, `eviction`). For those, [`Fence::read`]
//!   gives a checked object whose `uid` and `resourceVersion` can be made preconditions of the next request;
//!   the object must be stamped before.
//! * **Effects outside of the API server**, which need a receiver that compares tokens by itself.
//! * **A deleted Lease.** If the Lease is deleted and created again, tokens of the old and the new one have
//!   no order. Then the Lease is read to learn which one is current, if [`Fence::with_lease`] named it;
//!   otherwise the write is refused ([`FenceError::ForeignLease`]).
//! * Whoever may write an object may write its stamp. This protects from delays, not from attacks.

use crate::core::{FencingToken, MalformedToken};
use crate::gate::{Gate, GateClosed};
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ObjectMeta;
use kube::{Api, Resource};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

mod write;

pub use evenkeel_api::names::annotations::FENCING_TOKEN;

/// Why a fenced write was not made.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// The gate is closed. Try again when leading.
    #[error(transparent)]
    Closed(#[from] GateClosed),
    /// A leader of a later term has written the object, or holds the Lease. Not worth a retry: this term is
    /// over, even if this process has not heard of it.
    #[error("{object} belongs to a later leader: its term is {found}, ours is {ours}")]
    Stale {
        /// Path of the object at the API server.
        object: String,
        /// The token of the later term.
        found: FencingToken,
        /// The token of this leader's term.
        ours: FencingToken,
    },
    /// The object was stamped under another Lease, and ours is not known to be the current one. Either this
    /// leader's Lease was deleted and created again by others, or the fence does not know the Lease: see
    /// [`Fence::with_lease`].
    #[error(
        "{object} is stamped {found} by a leader of another Lease, and the Lease of ours, {ours}, is not known to be \
         the current one"
    )]
    ForeignLease {
        /// Path of the object at the API server.
        object: String,
        /// The token on the object.
        found: FencingToken,
        /// The token of this leader's term.
        ours: FencingToken,
    },
    /// The annotation cannot be read. Remove it by hand after making sure that nobody else leads.
    #[error("annotation {FENCING_TOKEN} of {object} cannot be read; correct or remove it")]
    Malformed {
        /// Path of the object at the API server.
        object: String,
        /// Why the annotation is no token.
        #[source]
        source: MalformedToken,
    },
    /// The object was deleted and another one was created under its name between two attempts. Decide again.
    #[error("{object} was replaced by another object of that name")]
    Replaced {
        /// Path of the object at the API server.
        object: String,
    },
    /// Others wrote the object first at each attempt. A later retry can succeed.
    #[error("{object} was written by others {attempts} times in a row just before us")]
    Contended {
        /// Path of the object at the API server.
        object: String,
        /// The number of attempts.
        attempts: u32,
    },
    /// The stamp cannot be added to the patch. This is a mistake of the caller.
    #[error("a fenced patch of {object} must be a JSON object, and so must its metadata and annotations")]
    Patch {
        /// Path of the object at the API server.
        object: String,
    },
    /// A request failed. A retry helps if it helps that request.
    #[error("cannot {verb} {object}")]
    Api {
        /// What the request was for, such as "read".
        verb: &'static str,
        /// Path of the object at the API server.
        object: String,
        /// The error of the request.
        #[source]
        source: kube::Error,
    },
}

impl FenceError {
    /// Whether a retry by this leader is pointless because another one has taken over.
    pub fn is_overtaken(&self) -> bool {
        matches!(self, Self::Stale { .. } | Self::ForeignLease { .. })
    }
}

type LookUp = Arc<dyn Fn() -> BoxFuture<'static, Result<Option<FencingToken>, kube::Error>> + Send + Sync>;

/// Makes the token of the present term a precondition of writes. See the [module](self).
///
/// ```no_run
/// # use evenkeel_election::{fence::{Fence, FenceError}, gate::Gate};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # async fn f(gate: Gate, maps: kube::Api<ConfigMap>) -> Result<(), FenceError> {
/// let fence = Fence::new(gate);
/// let map = fence.claim(&maps, "settings").await?; // from here on, no earlier leader can change it
/// let patch = serde_json::json!({"data": {"mode": "active"}});
/// fence.patch(&maps, "settings", &Default::default(), &patch).await?;
/// # drop(map); Ok(()) }
/// ```
#[derive(Clone)]
pub struct Fence {
    gate: Gate,
    look_up: Option<LookUp>,
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("gate", &self.gate)
            .field("knows_lease", &self.look_up.is_some())
            .finish()
    }
}

impl Fence {
    /// A fence for the leader that has this gate. It refuses to write objects that were stamped under another
    /// Lease.
    pub fn new(gate: Gate) -> Self {
        Self { gate, look_up: None }
    }

    /// Names the Lease. It is read when an object was stamped under another Lease, to learn which one is
    /// current.
    #[must_use]
    pub fn with_lease(self, leases: Api<Lease>, name: &str) -> Self {
        let name: Arc<str> = name.into();
        self.with_lookup(move || {
            let (leases, name) = (leases.clone(), Arc::clone(&name));
            Box::pin(async move { Ok(leases.get_opt(&name).await?.as_ref().and_then(token_of)) })
        })
    }

    /// As [`Self::with_lease`], for locks that are no Leases. `look_up` returns the token of the current lock
    /// object from a consistent read; `None` when there is no such object.
    #[must_use]
    pub fn with_lookup<F>(mut self, look_up: F) -> Self
    where
        F: Fn() -> BoxFuture<'static, Result<Option<FencingToken>, kube::Error>> + Send + Sync + 'static,
    {
        self.look_up = Some(Arc::new(look_up));
        self
    }

    /// The token of the present term. [`FenceError::Closed`] when not leading.
    pub fn token(&self) -> Result<FencingToken, FenceError> {
        Ok(self.gate.check()?)
    }

    /// Stamps an object that is about to be created. This records in which term it was created, and prevents
    /// nothing: see the [module](self).
    pub fn stamp(&self, meta: &mut ObjectMeta) -> Result<(), FenceError> {
        let token = self.token()?;
        put(meta, &token);
        Ok(())
    }

    /// Whether `ours` may write `object` as it was read.
    async fn check<K>(&self, object: &K, ours: &FencingToken, what: &str) -> Result<(), FenceError>
    where
        K: Resource,
    {
        let found = found_in(object.meta().annotations.as_ref()).map_err(|source| FenceError::Malformed {
            object: what.to_owned(),
            source,
        })?;
        let Some(found) = found else { return Ok(()) };
        match found.compare(ours) {
            Some(Ordering::Less | Ordering::Equal) => Ok(()),
            Some(Ordering::Greater) => Err(stale(what, found, ours)),
            None => self.check_lease(found, ours, what).await,
        }
    }

    /// The stamp is of another Lease. Writing is allowed if ours is the current one.
    async fn check_lease(
        &self,
        found: FencingToken,
        ours: &FencingToken,
        what: &str,
    ) -> Result<(), FenceError> {
        let foreign = |found| FenceError::ForeignLease {
            object: what.to_owned(),
            found,
            ours: ours.clone(),
        };
        let Some(look_up) = &self.look_up else {
            return Err(foreign(found));
        };
        let current = look_up().await.map_err(|source| FenceError::Api {
            verb: "read the Lease to write",
            object: what.to_owned(),
            source,
        })?;
        match current {
            Some(current) => match current.compare(ours) {
                Some(Ordering::Equal) => Ok(()),
                Some(Ordering::Greater) => Err(stale(what, current, ours)),
                // A Lease with fewer transitions than when we took it is not the one that we took.
                Some(Ordering::Less) | None => Err(foreign(found)),
            },
            None => Err(foreign(found)),
        }
    }
}

fn stale(what: &str, found: FencingToken, ours: &FencingToken) -> FenceError {
    FenceError::Stale {
        object: what.to_owned(),
        found,
        ours: ours.clone(),
    }
}

/// The token of a Lease's present term; `None` for one that was not read from a server.
pub fn token_of(lease: &Lease) -> Option<FencingToken> {
    let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
    Some(FencingToken {
        lease_uid: lease.metadata.uid.clone()?,
        transitions: transitions.unwrap_or_default(),
    })
}

/// The stamp on an object; `None` if it was never stamped.
pub fn stamp_of<K: Resource>(object: &K) -> Result<Option<FencingToken>, MalformedToken> {
    found_in(object.meta().annotations.as_ref())
}

fn found_in(annotations: Option<&BTreeMap<String, String>>) -> Result<Option<FencingToken>, MalformedToken> {
    annotations
        .and_then(|annotations| annotations.get(FENCING_TOKEN))
        .map(|text| text.parse())
        .transpose()
}

fn put(meta: &mut ObjectMeta, token: &FencingToken) {
    meta.annotations
        .get_or_insert_default()
        .insert(FENCING_TOKEN.to_owned(), token.to_string());
}

#[cfg(test)]
mod tests;
