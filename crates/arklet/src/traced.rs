//! One span for each call of a base.

use crate::command::Command;
use crate::tunnel::{Base, TunnelError};
use std::future::Future;
use tracing::field::{Empty, display};
use tracing::{Instrument as _, debug_span};

/// Makes a call in a span of its own, whose status is the call's. `over`: which protocol.
pub(crate) async fn traced<T>(
    base: &Base,
    command: Command,
    over: &'static str,
    call: impl Future<Output = Result<T, TunnelError>>,
) -> Result<T, TunnelError> {
    let span = debug_span!(
        "arklet",
        otel.name = command.id(),
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
        %base,
        over,
    );
    let result = call.instrument(span.clone()).await;
    if let Err(error) = &result {
        span.record("otel.status_code", "ERROR");
        span.record("otel.status_description", display(error));
    }
    result
}
