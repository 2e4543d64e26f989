//! Fencing: what an old leader sends late is refused by the API server.
//!
//! The [gate](crate::gate) keeps a leader from sending writes that it has no right to. It cannot call back a write
//! that has left the machine: a process may be stopped between the check and the socket, a packet may lie in a queue,
//! and both may go on when somebody else has led for a minute. Only the receiver can refuse such a write. Kubernetes
//! knows no fencing tokens, but it compares `resourceVersion`, and that is enough for objects that the new leader has
//! *touched*:
//!
//! * Every write through [`Fence`] carries the version of the object as it was read a moment ago, and stamps the object
//!   with the writer's [`FencingToken`] in the annotation [`FENCING_TOKEN`].
//! * Before it writes, it looks at the stamp it found: that of a later term is a refusal ([`FenceError::Stale`]).
//! * After a 409 it reads, looks and decides anew.
//!
//! # What is guaranteed
//!
//! Once a leader has written to an object through [`Fence`], be it only by [`Fence::claim`], no write of an earlier
//! leader through [`Fence`] to that object takes effect any more, however late it arrives: what had been read before the
//! stamp is refused by the server with 409 for its version, what is read after it is refused here for its stamp. This
//! rests on the API server's compare-and-swap alone, not on any clock.
//!
//! So a new leader that **claims an object before it acts on it**, or decides from what [`Fence::claim`] returned,
//! cannot be interfered with by its predecessors.
//!
//! # What is not
//!
//! * **Objects that the new leader has not touched.** A late write to one of those succeeds. Claim those that matter.
//! * **Creates.** There is no version to compare. [`Fence::stamp`] marks what was created, and by whom in what term;
//!   names that follow from what is created for make a second create fail with `AlreadyExists`.
//! * **Writes that do not go through [`Fence`]**: those of other controllers and of people, of an old leader that is not
//!   fenced, and every subresource (`status`, `scale`, `eviction`). For those, [`Fence::read`] gives a checked object
//!   whose `uid` and `resourceVersion` can be made preconditions of whatever comes next; the stamp must be there before.
//! * **Effects outside of the API server**, which need a receiver that compares tokens by itself.
//! * **A token is as good as its Lease.** If the Lease is deleted and made again, tokens of the old and the new one
//!   have no order. Then the Lease itself is asked which one is current, if [`Fence::asking`] named it; otherwise the
//!   write is refused ([`FenceError::ForeignLease`]).
//! * Whoever may write an object may write its stamp. This is protection from delays, not from malice.

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
    /// A leader of a later term has written the object, or holds the Lease. Not worth a retry: this term is over, even
    /// if this process has not heard of it.
    #[error("{object} belongs to a later leader: its term is {found}, ours is {ours}")]
    Stale {
        /// Kind and name.
        object: String,
        /// The later token.
        found: FencingToken,
        /// Ours.
        ours: FencingToken,
    },
    /// The object was stamped under another Lease, and ours is not known to be the current one. Either this leader's
    /// Lease was deleted and made anew by others, or the fence does not know where to ask: see [`Fence::asking`].
    #[error(
        "{object} is stamped {found} by a leader of another Lease, and the Lease of ours, {ours}, is not known to be \
         the current one"
    )]
    ForeignLease {
        /// Kind and name.
        object: String,
        /// The token on the object.
        found: FencingToken,
        /// Ours.
        ours: FencingToken,
    },
    /// The annotation cannot be read. Remove it by hand after making sure that nobody else leads.
    #[error("annotation {FENCING_TOKEN} of {object} cannot be read; correct or remove it")]
    Malformed {
        /// Kind and name.
        object: String,
        /// What is wrong.
        #[source]
        source: MalformedToken,
    },
    /// The object was deleted, and another one made under its name, while we tried. Decide anew.
    #[error("{object} was replaced by another object of that name")]
    Replaced {
        /// Kind and name.
        object: String,
    },
    /// Others wrote the object before us each time. Worth a retry later.
    #[error("{object} was written by others {attempts} times in a row just before us")]
    Contended {
        /// Kind and name.
        object: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// The patch cannot carry the stamp. A mistake of the caller.
    #[error("a fenced patch of {object} must be a JSON object, and so must its metadata and annotations")]
    Patch {
        /// Kind and name.
        object: String,
    },
    /// A request failed. Worth a retry if that request is.
    #[error("cannot {verb} {object}")]
    Api {
        /// What was tried.
        verb: &'static str,
        /// Kind and name.
        object: String,
        /// Why it failed.
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

type Ask = Arc<dyn Fn() -> BoxFuture<'static, Result<Option<FencingToken>, kube::Error>> + Send + Sync>;

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
    ask: Option<Ask>,
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("gate", &self.gate)
            .field("asks", &self.ask.is_some())
            .finish()
    }
}

impl Fence {
    /// A fence of the leader whose gate this is. Objects stamped under another Lease are refused.
    pub fn new(gate: Gate) -> Self {
        Self { gate, ask: None }
    }

    /// Reads the Lease when an object was stamped under another one, to learn which is the current.
    #[must_use]
    pub fn asking(self, leases: Api<Lease>, name: &str) -> Self {
        let name: Arc<str> = name.into();
        self.asking_with(move || {
            let (leases, name) = (leases.clone(), Arc::clone(&name));
            Box::pin(async move { Ok(leases.get_opt(&name).await?.as_ref().and_then(token_of)) })
        })
    }

    /// As [`Self::asking`], for leadership that is not in a Lease: the token of the current lock object, read
    /// consistently, or `None` when there is no such object.
    #[must_use]
    pub fn asking_with<F>(mut self, ask: F) -> Self
    where
        F: Fn() -> BoxFuture<'static, Result<Option<FencingToken>, kube::Error>> + Send + Sync + 'static,
    {
        self.ask = Some(Arc::new(ask));
        self
    }

    /// The token of the present term. [`FenceError::Closed`] when not leading.
    pub fn token(&self) -> Result<FencingToken, FenceError> {
        Ok(self.gate.check()?)
    }

    /// Stamps an object about to be created. It says who made it; it prevents nothing, see the [module](self).
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

    /// The stamp is of another Lease. If ours is the current one, that one is of the past.
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
        let Some(ask) = &self.ask else {
            return Err(foreign(found));
        };
        let current = ask().await.map_err(|source| FenceError::Api {
            verb: "read the Lease to write",
            object: what.to_owned(),
            source,
        })?;
        match current {
            Some(current) => match current.compare(ours) {
                Some(Ordering::Equal) => Ok(()),
                Some(Ordering::Greater) => Err(stale(what, current, ours)),
                // Fewer transitions than when we took it: not the Lease as we know it.
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

/// The token of the term that a Lease is in; `None` for one that did not come from a server.
pub fn token_of(lease: &Lease) -> Option<FencingToken> {
    let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
    Some(FencingToken {
        lease_uid: lease.metadata.uid.clone()?,
        transitions: transitions.unwrap_or_default(),
    })
}

/// The stamp on an object; `None` when it was never stamped.
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
