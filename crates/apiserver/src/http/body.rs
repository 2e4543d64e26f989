//! Bodies on their way in.

use bytes::Bytes;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use http_body_util::{BodyExt, LengthLimitError, Limited};

/// Largest body that is read; upstream's number.
const LIMIT: usize = 3 * 1024 * 1024;

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
