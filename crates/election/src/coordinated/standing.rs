//! Keeps the LeaseCandidate of a candidate up to date.

use super::candidacy::{Candidacy, CandidacyError};
use super::object;
use super::requests::{Failure, bounded};
use crate::core::coordinated::{Answer, Candidate, answer};
use futures::stream::StreamExt as _;
use k8s_openapi::api::coordination::v1beta1::LeaseCandidate;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The wait after a failure; it is doubled each time, up to [`LONGEST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How often the object is read while it cannot be watched. An election waits 5 s for an answer.
const POLL: Duration = Duration::from_secs(2);

/// Keeps the LeaseCandidate of a candidacy until `shutdown`: creates it, answers pings, renews it every five
/// minutes, and creates it again if somebody deletes it. Cancel `shutdown` when the elector has stopped.
///
/// The account needs `create`, `get`, `patch` and `delete` on LeaseCandidates; with `list` and `watch` on its
/// own (`resourceNames`) a ping is seen at once, without them within 2 s. Requests that fail are logged and
/// repeated.
///
/// # Errors
/// The candidacy is invalid. Nothing was done.
pub async fn stand(
    client: Client,
    candidacy: Candidacy,
    shutdown: CancellationToken,
) -> Result<(), CandidacyError> {
    candidacy.validate()?;
    let mut standing = Standing {
        api: Api::namespaced(client, &candidacy.namespace),
        wanted: candidacy.wanted(),
        candidacy,
        found: Found::Unknown,
        retry: FIRST_RETRY,
        failing: false,
    };
    shutdown.run_until_cancelled(standing.keep()).await;
    standing.withdraw().await;
    Ok(())
}

/// What is known about the object.
enum Found {
    /// It was not read yet, or not lately.
    Unknown,
    /// It does not exist.
    Missing,
    /// This was its content when it was last seen.
    Object(Box<LeaseCandidate>),
}

impl From<Option<LeaseCandidate>> for Found {
    fn from(object: Option<LeaseCandidate>) -> Self {
        object.map_or(Self::Missing, |object| Self::Object(Box::new(object)))
    }
}

struct Standing {
    api: Api<LeaseCandidate>,
    candidacy: Candidacy,
    wanted: Candidate,
    found: Found,
    retry: Duration,
    failing: bool,
}

impl Standing {
    async fn keep(&mut self) {
        let mut changes = watcher::watch_object(self.api.clone(), &self.wanted.name)
            .default_backoff()
            .boxed();
        let mut watching = false;
        loop {
            let step = self.step().await;
            let wait = match step {
                Ok(wait) if watching => wait,
                Ok(wait) => wait.min(POLL),
                Err(failure) => self.failed(&failure),
            };
            tokio::select! {
                Some(change) = changes.next() => match change {
                    Ok(object) => {
                        watching = true;
                        self.found = object.into();
                    }
                    Err(error) => {
                        tracing::debug!(candidate = %self.wanted.name, %error, "cannot watch the lease candidate");
                        watching = false;
                    }
                },
                () = tokio::time::sleep(wait) => self.found = Found::Unknown,
            }
        }
    }

    /// Brings the object up to date. Returns after what time to do so again.
    async fn step(&mut self) -> Result<Duration, Failure> {
        if matches!(self.found, Found::Unknown) {
            self.found = bounded(self.api.get_opt(&self.wanted.name)).await?.into();
        }
        let found = match &self.found {
            Found::Object(object) => Some(object::candidate(object)),
            Found::Unknown | Found::Missing => None,
        };
        let now = object::now();
        let written = match answer(found.as_ref(), &self.wanted, now) {
            Answer::Wait { at_most } => {
                self.succeeded();
                return Ok(at_most);
            }
            Answer::Foreign { lease_name } => {
                tracing::error!(
                    candidate = %self.wanted.name, lease = %self.wanted.lease_name, other = %lease_name,
                    "another process stands for another lease under this identity; choose a unique one"
                );
                return Ok(LONGEST_RETRY);
            }
            Answer::Create => {
                let object = object::new_candidate(&self.candidacy.namespace, &self.wanted, now);
                bounded(self.api.create(&PostParams::default(), &object)).await
            }
            Answer::Renew { renew_time } => {
                let patch = Patch::Merge(object::renewal(&self.wanted, renew_time));
                bounded(self.api.patch(&self.wanted.name, &PatchParams::default(), &patch)).await
            }
        };
        // The write has changed the object, or may have.
        self.found = Found::Unknown;
        let object = written?;
        self.succeeded();
        let renewed = object::candidate(&object);
        self.found = Found::Object(Box::new(object));
        Ok(match answer(Some(&renewed), &self.wanted, now) {
            Answer::Wait { at_most } => at_most,
            // Another ping came while the last one was answered.
            _ => Duration::ZERO,
        })
    }

    fn succeeded(&mut self) {
        self.retry = FIRST_RETRY;
        if std::mem::take(&mut self.failing) {
            tracing::info!(candidate = %self.wanted.name, "the lease candidate is up to date again");
        }
    }

    fn failed(&mut self, failure: &Failure) -> Duration {
        self.found = Found::Unknown;
        let (candidate, lease) = (&self.wanted.name, &self.wanted.lease_name);
        if std::mem::replace(&mut self.failing, true) {
            tracing::debug!(%candidate, %lease, %failure, "cannot keep the lease candidate");
        } else {
            tracing::warn!(%candidate, %lease, %failure, "cannot keep the lease candidate; trying again");
        }
        let wait = self.retry;
        self.retry = (wait * 2).min(LONGEST_RETRY);
        wait
    }

    /// Deletes the object if it still is the one that was kept here.
    async fn withdraw(&mut self) {
        let Found::Object(object) = &self.found else {
            return;
        };
        if !self.candidacy.withdraw_on_stop || object::candidate(object).lease_name != self.wanted.lease_name
        {
            return;
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: object.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let deleted = bounded(self.api.delete(&self.wanted.name, &params)).await;
        if let Err(failure) = deleted
            && !failure.is_missing()
        {
            tracing::warn!(
                candidate = %self.wanted.name, %failure,
                "cannot delete the lease candidate; the coordinator does once it has expired"
            );
        }
    }
}
