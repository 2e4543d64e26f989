//! Requests with a time limit.

use std::future::Future;
use std::time::Duration;

/// Time limit of one request. An election takes about as long, so a later answer is of no use.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The API server refused the request, or could not be reached.
    #[error("{0}")]
    Request(#[from] kube::Error),
    /// There was no answer in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

impl Failure {
    /// Whether somebody else wrote the object first, so that it must be read again.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Request(kube::Error::Api(status)) if status.code == 409)
    }

    /// Whether the object does not exist any more.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Request(kube::Error::Api(status)) if status.code == 404)
    }
}

pub(super) async fn bounded<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Failure::Timeout(TIMEOUT)),
    }
}
