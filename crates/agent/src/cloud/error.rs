//! Why a request has no result.

use evenkeel_api::names;
use kube::core::Status;
use kube::core::response::StatusSummary;
use std::time::Duration;

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CloudError {
    #[error("{what}: no answer within {after:?}")]
    Timeout { what: &'static str, after: Duration },
    #[error("{what}: {source}")]
    Request {
        what: &'static str,
        source: Box<kube::Error>,
    },
    #[error("{what}: the server ended the watch before its time")]
    Ended { what: &'static str },
    #[error("{what}: what came is no event: {source}")]
    Garbled {
        what: &'static str,
        source: serde_json::Error,
    },
    #[error("{name} cannot be understood: {source}")]
    Odd { name: String, source: serde_json::Error },
    #[error("Node {0} has no UID")]
    NoUid(String),
    #[error("Node {0} has no label {first} or {second}, and --zone-default is not given: it is in no zone", first = names::ZONE_LABELS[0], second = names::ZONE_LABELS[1])]
    NoZone(String),
}

impl CloudError {
    pub(super) fn request(what: &'static str, source: kube::Error) -> Self {
        let source = Box::new(source);
        Self::Request { what, source }
    }

    /// What the API server said, if it was that which answered.
    pub(super) fn status(&self) -> Option<&Status> {
        match self {
            Self::Request { source, .. } => match &**source {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// There is no such object.
    pub(super) fn is_missing(&self) -> bool {
        self.status().is_some_and(|status| status.code == 404)
    }

    /// The history from which a watch was to go on is gone.
    pub(super) fn is_expired(&self) -> bool {
        self.status().is_some_and(|status| status.code == 410)
    }

    /// The API server answered, though not with what was wanted: in its own words, because a gateway that
    /// does not reach it may answer anything in its place. Whose credentials it refuses reaches it in vain.
    pub(super) fn is_contact(&self) -> bool {
        match self {
            Self::Request { .. } => self.status().is_some_and(|status| {
                let own = status.status == Some(StatusSummary::Failure);
                own && status.code < 500 && status.code != 401
            }),
            Self::Timeout { .. } | Self::Ended { .. } | Self::Garbled { .. } => false,
            Self::Odd { .. } | Self::NoUid(_) | Self::NoZone(_) => true,
        }
    }
}

/// What a request returns within this time.
pub(super) async fn within<T>(
    time: Duration,
    what: &'static str,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CloudError> {
    match tokio::time::timeout(time, request).await {
        Ok(answer) => answer.map_err(|source| CloudError::request(what, source)),
        Err(_) => Err(CloudError::Timeout { what, after: time }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_without_its_server_is_no_contact() {
        let is_contact = |code: u16, own: bool| {
            let status = Status {
                code,
                status: own.then_some(StatusSummary::Failure),
                ..Status::default()
            };
            CloudError::request("reading", kube::Error::Api(Box::new(status))).is_contact()
        };
        let codes = [403, 404, 409, 410, 429, 401, 500, 502, 503, 504];
        assert_eq!(
            codes.map(|code| is_contact(code, true)),
            [true, true, true, true, true, false, false, false, false, false]
        );
        assert_eq!(codes.map(|code| is_contact(code, false)), [false; 10]);
    }
}
