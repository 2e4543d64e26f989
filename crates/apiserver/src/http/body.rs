//! Bodies on their way in.

use bytes::Bytes;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use http_body_util::{BodyExt, LengthLimitError, Limited};

/// Largest body that is read; upstream's number.
const LIMIT: usize = 3 * 1024 * 1024;

/// The body of a request on its way through the server.
pub(crate) enum Incoming {
    Unread(axum::body::Body),
    /// It was read before its turn, to be recorded. What was wrong with it is told when its turn comes.
    Read(ApiResult<Bytes>),
}

impl Incoming {
    /// The whole body.
    pub(super) async fn whole(self) -> ApiResult<Bytes> {
        match self {
            Self::Unread(body) => read(body).await,
            Self::Read(read) => read,
        }
    }

    /// The body as a stream.
    pub(super) fn stream(self) -> ApiResult<axum::body::Body> {
        match self {
            Self::Unread(body) => Ok(body),
            Self::Read(read) => read.map(axum::body::Body::from),
        }
    }
}

/// Reads a whole body.
pub(crate) async fn read(body: axum::body::Body) -> ApiResult<Bytes> {
    match Limited::new(body, LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {LIMIT}"),
        )),
        Err(error) => Err(ApiError::bad_request(format!(
            "cannot read the request body: {error}"
        ))),
    }
}
