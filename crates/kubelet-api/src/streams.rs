//! `/exec`, `/attach`, `/portForward` and `/run`.

use super::stream::{attach as join, port_forward as forward, remote_command};
use super::{Node, Server, Wanted, call, json, text};
use crate::Term;
use crate::{ContainerId, Duplex, ExecIo, Fault, FaultKind, Kept, PodId};
use axum::Extension;
use axum::extract::{Path, Query, Request, State};
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// What is kept of a command's output: the bound of CRI's ExecSync.
const OUTPUT: usize = 16 * 1024 * 1024;

/// A container in a path.
#[derive(Debug, Deserialize)]
pub(super) struct OfContainer {
    namespace: String,
    pod: String,
    #[serde(default)]
    uid: Option<String>,
    container: String,
}

/// A pod in a path.
#[derive(Debug, Deserialize)]
pub(super) struct OfPod {
    namespace: String,
    pod: String,
    #[serde(default)]
    uid: Option<String>,
}

type Pairs = Query<Vec<(String, String)>>;

/// Runs a command in a container; its words are the query's `command`s.
pub(super) async fn exec(
    State(server): State<Server>,
    Extension(node): Extension<Node>,
    Path(path): Path<OfContainer>,
    Query(query): Pairs,
    request: Request,
) -> Response {
    let words = query.into_iter().filter(|(name, _)| name == "command");
    let command: Vec<String> = words.map(|(_, word)| word).collect();
    if command.is_empty() {
        return text(StatusCode::BAD_REQUEST, "the query names no command");
    }
    let (pod, container) = match find(&server, &node, path).await {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    let backend = server.backend.clone();
    remote_command(request, server.settings.streams, move |io| {
        Box::pin(async move {
            let running = backend.exec(&pod, &container, &command, io);
            call::guarded(&node, "running a command", running).await
        })
    })
}

/// Joins a container's main process.
pub(super) async fn attach(
    State(server): State<Server>,
    Extension(node): Extension<Node>,
    Path(path): Path<OfContainer>,
    request: Request,
) -> Response {
    let (pod, container) = match find(&server, &node, path).await {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    let backend = server.backend.clone();
    join(request, server.settings.streams, move |io| {
        Box::pin(async move {
            let attached = backend.attach(&pod, &container, io);
            call::guarded(&node, "attaching", attached).await
        })
    })
}

/// Opens connections to ports of a pod.
pub(super) async fn port_forward(
    State(server): State<Server>,
    Extension(node): Extension<Node>,
    Path(path): Path<OfPod>,
    request: Request,
) -> Response {
    let found = server
        .backend
        .pod(&node.name, &path.namespace, &path.pod, None)
        .await;
    let pod = match found {
        Ok((pod, _)) => pod,
        Err(fault) => return no_pod(fault),
    };
    if path.uid.is_some_and(|uid| *uid != *pod.uid) {
        return text(StatusCode::NOT_FOUND, "pod not found");
    }
    let backend = server.backend.clone();
    let deadline = server.settings.call;
    forward(request, server.settings.streams, move |port| {
        let (backend, pod, node) = (backend.clone(), pod.clone(), node.clone());
        Box::pin(async move {
            let connecting = backend.port_forward(&pod, port);
            let inner = call::ask(&node, deadline, "connecting to a port", connecting).await?;
            let ends: Box<dyn Duplex> = Box::new(Ends::with(inner, node.term));
            Ok(ends)
        })
    })
}

/// Runs a command without streams (`cmd`, split at spaces) and answers with its output.
pub(super) async fn run(
    State(server): State<Server>,
    Extension(node): Extension<Node>,
    Path(path): Path<OfContainer>,
    Query(query): Pairs,
) -> Response {
    let cmd = query.into_iter().find(|(name, _)| name == "cmd");
    let cmd = cmd.map(|(_, cmd)| cmd).unwrap_or_default();
    let command: Vec<String> = cmd.split(' ').map(str::to_owned).collect();
    let (pod, container) = match find(&server, &node, path).await {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    let (stdout, stderr) = (Kept::up_to(OUTPUT), Kept::up_to(OUTPUT));
    let io = ExecIo {
        stdin: None,
        stdout: Some(Box::new(stdout.clone())),
        stderr: Some(Box::new(stderr.clone())),
        terminal: None,
    };
    let running = server.backend.exec(&pod, &container, &command, io);
    // No deadline, as the kubelet has none; a client that goes away ends it.
    match call::guarded(&node, "running a command", running).await {
        Ok(0) => {
            let mut output = stdout.take();
            output.extend(stderr.take());
            json(output)
        }
        Ok(code) => {
            let stderr = stderr.take();
            let words = format!(
                "command '{cmd}' exited with {code}: {}",
                String::from_utf8_lossy(&stderr)
            );
            text(StatusCode::INTERNAL_SERVER_ERROR, words)
        }
        Err(fault) => text(StatusCode::INTERNAL_SERVER_ERROR, fault.message),
    }
}

/// The container that a path names, or the kubelet's refusal.
async fn find(server: &Server, node: &Node, path: OfContainer) -> Result<(PodId, ContainerId), Response> {
    let pod = server
        .backend
        .pod(&node.name, &path.namespace, &path.pod, None)
        .await;
    pod.map_err(no_pod)?;
    let wanted = Wanted {
        node: node.name.clone(),
        namespace: path.namespace,
        pod: path.pod,
        uid: path.uid,
        container: path.container,
        previous: false,
    };
    server
        .backend
        .container(&wanted)
        .await
        .map_err(|fault| match fault.kind {
            // The kubelet's status and words, which kubectl shows.
            FaultKind::NotFound => text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("container not found ({:?})", wanted.container),
            ),
            _ => call::refusal(fault),
        })
}

fn no_pod(fault: Fault) -> Response {
    match fault.kind {
        FaultKind::NotFound => text(StatusCode::NOT_FOUND, "pod does not exist"),
        _ => call::refusal(fault),
    }
}

/// A connection that ends when its node is served here no more.
struct Ends {
    inner: Box<dyn Duplex>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    term: Term,
    /// Behind `inner`, which is dropped before it.
    _share: TaskTrackerToken,
}

impl Ends {
    fn with(inner: Box<dyn Duplex>, term: Term) -> Self {
        Self {
            inner,
            closed: Box::pin(term.stop().clone().cancelled_owned()),
            _share: term.share(),
            term,
        }
    }

    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        self.closed.as_mut().poll(cx).is_ready() || self.term.is_over()
    }
}

impl AsyncRead for Ends {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_over(cx) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Ends {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_over(cx) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn a_nodes_connection_neither_reads_nor_writes_once_the_node_is_closed() {
        let (mut pod, inner) = tokio::io::duplex(8);
        let term = Term::default();
        let mut ends = Ends::with(Box::new(inner), term.clone());
        ends.write_all(b"before").await.unwrap();
        pod.write_all(b"unread").await.unwrap();
        // More than fits: it waits when the node is closed.
        let stuck = async { ends.write_all(b"0123456789").await };
        let (written, ()) = tokio::join!(stuck, async { term.stop().cancel() });
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let mut read = Vec::new();
        assert_eq!(ends.read_to_end(&mut read).await.unwrap(), 0);
    }
}
