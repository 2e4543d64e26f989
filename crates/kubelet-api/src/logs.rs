//! `/containerLogs`: a container's output, as it comes.

mod missing;
mod options;

use super::{Node, Server, Wanted, call, text};
use crate::Term;
use crate::{FaultKind, LogStream};
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::stream::unfold;
use futures::{Stream, StreamExt as _};
use http::{StatusCode, header};
use jiff::Timestamp;
use options::Bad;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;

/// Bad queries are refused before anything is looked up, as the kubelet does.
pub(super) async fn container(
    State(server): State<Server>,
    Extension(node): Extension<Node>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let query = match options::read(&query, Timestamp::now()) {
        Ok(query) => query,
        Err(Bad::Unreadable) => {
            return text(
                StatusCode::BAD_REQUEST,
                r#"{"message": "Unable to decode query."}"#,
            );
        }
        Err(Bad::Invalid) => {
            return text(
                StatusCode::UNPROCESSABLE_ENTITY,
                r#"{"message": "Invalid request."}"#,
            );
        }
    };
    let known = match server.backend.pod(&node.name, &namespace, &pod, None).await {
        Ok((_, known)) => known,
        Err(fault) if fault.kind == FaultKind::NotFound => {
            return text(StatusCode::NOT_FOUND, format!("pod {pod:?} does not exist"));
        }
        Err(fault) => return call::refusal(fault),
    };
    if !missing::specified(&known, &container) {
        let words = format!("container {container:?} not found in pod {pod:?}");
        return text(StatusCode::NOT_FOUND, words);
    }
    let wanted = Wanted {
        node: node.name.clone(),
        namespace,
        pod,
        uid: None,
        container,
        previous: query.previous,
    };
    let (pod, id) = match server.backend.container(&wanted).await {
        Ok(found) => found,
        Err(fault) if fault.kind == FaultKind::NotFound => {
            let words = missing::why(&known, &wanted.container, wanted.previous);
            return text(StatusCode::BAD_REQUEST, words);
        }
        Err(fault) => return call::refusal(fault),
    };
    let opening = server.backend.logs(&pod, &id, &query.options);
    match call::ask(&node, server.settings.call, "opening logs", opening).await {
        Ok(stream) => {
            let body = Body::from_stream(output(stream, query.options.limit, node.term));
            ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
        }
        Err(fault) => call::refusal(fault),
    }
}

/// The provider's stream, `limit` bytes of it at the most, until the node is served here no more. An error
/// becomes its last words: the status has been sent before. Dropping it drops the provider's.
fn output(
    stream: LogStream,
    limit: Option<u64>,
    term: Term,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let stream = AssertUnwindSafe(stream).catch_unwind().fuse();
    unfold(Some((stream, limit.unwrap_or(u64::MAX))), move |state| {
        let term = term.clone();
        async move {
            let (mut stream, left) = state?;
            loop {
                let next = term.run(stream.next()).await??;
                let last_words = match next {
                    Ok(Ok(chunk)) if chunk.is_empty() => continue,
                    Ok(Ok(mut chunk)) => {
                        let room = usize::try_from(left).unwrap_or(usize::MAX);
                        chunk.truncate(room);
                        let left = left - chunk.len() as u64;
                        // At its limit it ends at once, not only when there is more.
                        return Some((Ok(chunk), (left > 0).then_some((stream, left))));
                    }
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "the provider panicked".to_owned(),
                };
                tracing::debug!(error = last_words, "a provider's log ended with an error");
                return Some((Ok(Bytes::from(last_words)), None));
            }
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt as _, stream};

    async fn read(stream: LogStream, limit: Option<u64>) -> String {
        let chunks: Vec<_> = output(stream, limit, Term::default()).collect().await;
        chunks
            .into_iter()
            .flat_map(|chunk| chunk.unwrap())
            .map(char::from)
            .collect()
    }

    fn follow(chunks: &'static [&'static str]) -> LogStream {
        let chunks = chunks
            .iter()
            .map(|chunk| Ok(Bytes::from_static(chunk.as_bytes())));
        stream::iter(chunks).chain(stream::pending()).boxed()
    }

    #[tokio::test]
    async fn a_followed_log_ends_at_its_limit_without_waiting_for_more() {
        assert_eq!(read(follow(&["one\n", "", "two\n"]), Some(6)).await, "one\ntw");
        assert_eq!(read(follow(&["one\n", "two\n"]), Some(8)).await, "one\ntwo\n");
    }

    #[tokio::test]
    async fn errors_and_panics_are_last_words() {
        let bad = stream::iter([Ok(Bytes::from("one\n")), Err(std::io::Error::other("disk gone"))]).boxed();
        assert_eq!(read(bad, None).await, "one\ndisk gone");
        let panicking = stream::poll_fn(|_| panic!("a defect")).boxed();
        assert_eq!(read(panicking, None).await, "the provider panicked");
    }

    #[tokio::test]
    async fn a_node_that_moves_ends_its_logs() {
        let term = Term::default();
        let mut log = output(follow(&["one\n", "two\n"]), None, term.clone()).boxed();
        assert!(log.next().await.is_some());
        // Nothing more is read of it, even where there is something.
        term.stop().cancel();
        assert!(log.next().await.is_none());
        let term = Term::default();
        let mut log = output(follow(&[]), None, term.clone()).boxed();
        assert!(log.next().now_or_never().is_none());
        term.stop().cancel();
        assert!(log.next().await.is_none());
    }
}
