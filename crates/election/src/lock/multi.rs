//! Two locks used as one, while a deployment moves from the first to the second.

use super::{Lock, LockError};
use crate::core::{Observation, Record, whole_seconds};
use futures::future::{self, BoxFuture, FutureExt as _};
use std::sync::Arc;

/// The holder that is reported while two locks do not agree. No candidate has this name, so all of them wait
/// for a full lease duration.
pub const UNKNOWN_LEADER: &str = "leaderelection.k8s.io/unknown";

/// A pair of locks, both held by the leader: candidates that know only the primary, and later those that know
/// only the secondary, take part in the same election.
///
/// To move a deployment from lock X to lock Y without two leaders, in three releases, each rolled out
/// completely before the next: X; `MultiLock` of X and Y; Y.
///
/// It reads, creates and updates in the order of client-go's MultiLock, which was removed there together with
/// the last annotation lock. It differs where that one can let two candidates lead:
/// * `create` accepts an existing primary only if it names this candidate, not if somebody else has created
///   it meanwhile; it renews it, and keeps its number of transitions, so that no token is given twice;
/// * `update` does not overwrite a secondary that somebody else has written since it was read.
///
/// In both cases the result is [`LockError::Conflict`]. A write that fails between the two locks leaves them
/// in disagreement, and every candidate then sees the holder [`UNKNOWN_LEADER`].
///
/// It does not support [`Lock::changes`]: after a change of one lock the other one would have to be read,
/// which costs more requests than reading both every retry period. So hand-overs are as slow as client-go's
/// during the move.
///
/// The version of an [`Observation`] contains those of both locks, as a JSON list; the UID is that of the
/// primary.
#[derive(Clone)]
pub struct MultiLock {
    primary: Arc<dyn Lock>,
    secondary: Arc<dyn Lock>,
    identity: Arc<str>,
}

impl MultiLock {
    /// `identity` is that of this candidate. If the secondary is missing and the primary names this
    /// candidate, the secondary is created; if the primary names another one, that candidate uses only the
    /// primary.
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
            // The primary is ours and the secondary is missing: report no lock, so that the pair is created.
            return Ok((!ours).then_some(primary));
        };
        if primary.record.holder != secondary.record.holder {
            UNKNOWN_LEADER.clone_into(&mut primary.record.holder);
            // One of them may have been released, which makes its duration short, while the other one is
            // held: who waits for less than the holder's duration takes the lock from it.
            let (first, other) = (&mut primary.record, &secondary.record);
            first.lease_duration_seconds = first.lease_duration_seconds.max(other.lease_duration_seconds);
            first.transitions = first.transitions.max(other.transitions);
            primary.raw = primary.record.raw();
        }
        Ok(Some(both(primary, &secondary)))
    }

    async fn make(self, mut record: Record) -> Result<Observation, LockError> {
        let primary = match self.primary.create(record.clone()).await {
            Err(LockError::Conflict) => match self.primary.get().await? {
                Some(found) if found.record.holder == *self.identity => {
                    record.transitions = record.transitions.max(found.record.transitions);
                    self.primary.update(record.clone(), found.version).await?
                }
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
            // The condition is the version that the caller has seen, not the one that was just read.
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

/// The renew time is cut to whole seconds, so that candidates take each new version of either lock for a
/// renewal: the secondary may be renewed by somebody who knows only that one.
fn both(mut primary: Observation, secondary: &Observation) -> Observation {
    primary.record.renew_time = primary.record.renew_time.map(whole_seconds);
    Observation {
        version: join(&primary.version, Some(&secondary.version)),
        raw: format!("{},{}", primary.raw, secondary.raw),
        ..primary
    }
}

/// Versions may contain any characters, so they are joined as JSON, which can be split again.
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
