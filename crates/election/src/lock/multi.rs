//! Two locks as one, for the time in which a deployment moves from one to the other.

use super::{Lock, LockError};
use crate::core::{Observation, Record};
use futures::future::{self, BoxFuture, FutureExt as _};
use std::sync::Arc;

/// Holder of a pair of locks that do not agree. Nobody is called that, so everybody waits for a full lease duration.
pub const UNKNOWN_LEADER: &str = "leaderelection.k8s.io/unknown";

/// A pair of locks, both held by the leader: candidates that know only the primary, and later those that know only the
/// secondary, take part in the same election.
///
/// To move a deployment from lock X to lock Y without two leaders, in three releases, each rolled out completely before
/// the next: X; `MultiLock` of X and Y; Y.
///
/// Reads, creates and updates in the order of client-go's MultiLock (removed there with the last annotation lock). It
/// differs where that one can make two leaders:
/// * `create` does not pass over a primary that somebody else made meanwhile, only over one that names us;
/// * `update` does not overwrite a secondary that somebody else wrote since it was read.
///
/// Both are a [`LockError::Conflict`]. A write that fails half-way leaves the two in disagreement, which everybody
/// treats as held by [`UNKNOWN_LEADER`].
///
/// It has no [`Lock::changes`]: a change of one says nothing without reading the other, and reading both at each
/// renewal would cost more than asking every retry period does. So hand-overs are as slow as client-go's while the
/// move lasts.
///
/// The version of an [`Observation`] holds those of both, as a JSON list; the UID is the primary's.
#[derive(Clone)]
pub struct MultiLock {
    primary: Arc<dyn Lock>,
    secondary: Arc<dyn Lock>,
    identity: Arc<str>,
}

impl MultiLock {
    /// `identity` is that of this candidate: a primary that names us while the secondary is missing has to be
    /// completed, one that names another is held by a candidate that knows only the primary.
    pub fn new(primary: impl Lock, secondary: impl Lock, identity: &str) -> Self {
        Self {
            primary: Arc::new(primary),
            secondary: Arc::new(secondary),
            identity: Arc::from(identity),
        }
    }

    async fn read(self) -> Result<Option<Observation>, LockError> {
        let Some(mut primary) = self.primary.get().await? else {
            return Ok(None);
        };
        let Some(secondary) = self.secondary.get().await? else {
            let ours = primary.record.holder == *self.identity;
            primary.version = join(&primary.version, None);
            // Ours, but not whole: as if there were none, so that it is created.
            return Ok((!ours).then_some(primary));
        };
        if primary.record.holder != secondary.record.holder {
            UNKNOWN_LEADER.clone_into(&mut primary.record.holder);
            primary.raw = primary.record.raw();
        }
        Ok(Some(both(primary, &secondary)))
    }

    async fn make(self, record: Record) -> Result<Observation, LockError> {
        let primary = match self.primary.create(record.clone()).await {
            Err(LockError::Conflict) => match self.primary.get().await? {
                Some(found) if found.record.holder == *self.identity => found,
                _ => return Err(LockError::Conflict),
            },
            made => made?,
        };
        let secondary = self.secondary.create(record).await?;
        Ok(Observation {
            record: secondary.record.clone(),
            ..both(primary, &secondary)
        })
    }

    async fn write(self, record: Record, version: String) -> Result<Observation, LockError> {
        let (expected, expected_secondary) = split(&version)?;
        let primary = self.primary.update(record.clone(), expected).await?;
        let secondary = match (self.secondary.get().await?, expected_secondary) {
            (None, _) => self.secondary.create(record).await?,
            // On the version that was seen, not on the one just read.
            (Some(_), Some(expected)) => self.secondary.update(record, expected).await?,
            (Some(_), None) => return Err(LockError::Conflict),
        };
        Ok(both(primary, &secondary))
    }
}

impl Lock for MultiLock {
    fn describe(&self) -> String {
        self.primary.describe()
    }

    fn get(&self) -> BoxFuture<'static, Result<Option<Observation>, LockError>> {
        self.clone().read().boxed()
    }

    fn create(&self, record: Record) -> BoxFuture<'static, Result<Observation, LockError>> {
        self.clone().make(record).boxed()
    }

    fn update(&self, record: Record, version: String) -> BoxFuture<'static, Result<Observation, LockError>> {
        self.clone().write(record, version).boxed()
    }

    fn announce(&self, message: String) -> BoxFuture<'static, ()> {
        let (first, second) = (
            self.primary.announce(message.clone()),
            self.secondary.announce(message),
        );
        async move {
            future::join(first, second).await;
        }
        .boxed()
    }
}

fn both(primary: Observation, secondary: &Observation) -> Observation {
    Observation {
        version: join(&primary.version, Some(&secondary.version)),
        raw: format!("{},{}", primary.raw, secondary.raw),
        ..primary
    }
}

/// Versions are opaque text: a list in JSON cannot be mistaken.
fn join(primary: &str, secondary: Option<&str>) -> String {
    serde_json::json!([primary, secondary]).to_string()
}

fn split(version: &str) -> Result<(String, Option<String>), LockError> {
    serde_json::from_str(version).map_err(|error| {
        LockError::Refused(format!(
            "version `{version}` is not of this pair of locks ({error}); update only what it gave"
        ))
    })
}

#[cfg(test)]
mod tests;
