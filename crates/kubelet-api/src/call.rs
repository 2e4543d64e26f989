//! Questions to backend and provider: with a deadline, panics caught.

use super::{Node, text};
use crate::{Fault, FaultKind};
use axum::response::Response;
use futures::FutureExt as _;
use http::StatusCode;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// The HTTP status of a fault.
pub(super) fn status(fault: &Fault) -> StatusCode {
    match fault.kind {
        FaultKind::NotFound => StatusCode::NOT_FOUND,
        FaultKind::Invalid => StatusCode::BAD_REQUEST,
        FaultKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        FaultKind::Later | FaultKind::Never | FaultKind::Fatal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The answer that a fault is.
pub(super) fn refusal(fault: Fault) -> Response {
    text(status(&fault), fault.message)
}

/// A question's answer. It is a fault when it takes longer than `deadline`, when who was asked panics, and
/// when the node is served here no more.
pub(super) async fn ask<T>(
    node: &Node,
    deadline: Duration,
    what: &str,
    question: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    match tokio::time::timeout(deadline, guarded(node, what, question)).await {
        Ok(answer) => answer,
        Err(_) => Err(Fault::new(
            FaultKind::Later,
            "DeadlineExceeded",
            format!("{what}: no answer within {deadline:?}"),
        )),
    }
}

/// The same without a deadline.
pub(super) async fn guarded<T>(
    node: &Node,
    what: &str,
    question: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    // Nothing of ours is shared with what may be half done: the future is dropped after a panic.
    let caught = AssertUnwindSafe(question).catch_unwind();
    match node.term.run(caught).await {
        Some(Ok(answer)) => answer,
        Some(Err(_)) => {
            tracing::error!(call = what, node = %node.name, "the provider has panicked");
            let message = format!("{what}: the provider panicked");
            Err(Fault::new(FaultKind::Never, "ProviderPanicked", message))
        }
        None => {
            let message = format!("node {:?} is no longer served here", node.name);
            Err(Fault::new(FaultKind::Later, "NodeMoved", message))
        }
    }
}
