//! Requests that end.

use std::future::Future;
use std::time::Duration;

/// Longest time of one request: an answer that comes later than an election lasts is of no use.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why a request gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The API server said no, or could not be reached.
    #[error("{0}")]
    Answer(#[from] kube::Error),
    /// It said nothing.
    #[error("no answer within {0:?}")]
    Silence(Duration),
}

impl Failure {
    /// Somebody else was faster: look again.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Answer(kube::Error::Api(status)) if status.code == 409)
    }

    /// It is gone.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Answer(kube::Error::Api(status)) if status.code == 404)
    }
}

pub(super) async fn bounded<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Failure::Silence(TIMEOUT)),
    }
}
