//! A command's streams, and how it ended.

mod spdy;
mod status;
mod websocket;

use super::handshake::{self, Spdy, Wanted};
use super::options::Options;
use super::until::Task;
use super::{Limits, resize};
use crate::{ExecIo, Fault};
use axum::extract::Request;
use axum::response::Response;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use status::Status;
use std::panic::AssertUnwindSafe;
use tokio::io::AsyncRead;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Protocols over SPDY. The fifth is for WebSockets alone.
const SPDY: [&str; 4] = [
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
];

/// Protocols over WebSocket; none means the first.
const WEBSOCKET: [&str; 6] = [
    "",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "v5.channel.k8s.io",
];

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// A command is run, and its exit code told.
    Exec,
    /// A container is joined.
    Attach,
}

/// A command with what is known of it.
struct Command<F> {
    verb: Verb,
    options: Options,
    run: F,
}

pub(super) fn serve<F>(request: Request, limits: Limits, verb: Verb, run: F) -> Response
where
    F: FnOnce(ExecIo) -> BoxFuture<'static, Result<i32, Fault>> + Send + 'static,
{
    upgrade(request, limits, verb, run).unwrap_or_else(|refusal| refusal)
}

fn upgrade<F>(request: Request, limits: Limits, verb: Verb, run: F) -> Result<Response, Response>
where
    F: FnOnce(ExecIo) -> BoxFuture<'static, Result<i32, Fault>> + Send + 'static,
{
    let options = Options::new(request.uri())?;
    let command = Command { verb, options, run };
    let task = Task::of(&request);
    let closing = task.closing.clone();
    match handshake::wanted(&request)? {
        Wanted::WebSocket(theirs) => {
            let (upgrade, protocol) = handshake::websocket(request, &theirs, &WEBSOCKET)?;
            Ok(upgrade.on_upgrade(move |socket| {
                task.run(websocket::serve(socket, protocol, limits, command, closing))
            }))
        }
        Wanted::Spdy => {
            let spdy = Spdy::negotiate(request, &SPDY)?;
            let protocol = spdy.protocol;
            Ok(spdy.serve(task, move |socket| {
                spdy::serve(socket, protocol, limits, command, closing)
            }))
        }
    }
}

impl<F> Command<F>
where
    F: FnOnce(ExecIo) -> BoxFuture<'static, Result<i32, Fault>> + Send + 'static,
{
    /// Runs it to its end. `sizes`: where the terminal's sizes come from, if it has one that can change.
    async fn run(
        self,
        mut io: ExecIo,
        sizes: Option<impl AsyncRead + Unpin>,
        closing: &CancellationToken,
    ) -> Status {
        let sizes = async move |sender: Option<mpsc::Sender<_>>| {
            if let (Some(source), Some(sender)) = (sizes, sender) {
                resize::forward(source, sender).await;
            }
            std::future::pending().await
        };
        let mut sender = None;
        if self.options.tty {
            let (send, receive) = mpsc::channel(1);
            sender = Some(send);
            io.terminal = Some(receive);
        }
        let run = self.run;
        let run = AssertUnwindSafe(async move { run(io).await }).catch_unwind();
        let ended = tokio::select! {
            biased;
            ended = run => ended,
            never = sizes(sender) => never,
            () = closing.cancelled() => return Status::fault(self.verb, "the node is no longer served here"),
        };
        match (ended, self.verb) {
            (Ok(Ok(0)), _) | (Ok(Ok(_)), Verb::Attach) => Status::success(),
            (Ok(Ok(code)), Verb::Exec) => Status::exit(&self.options.command, code),
            (Ok(Err(fault)), verb) => Status::fault(verb, &fault.message),
            (Err(_), verb) => {
                tracing::error!(call = ?verb, "the provider has panicked");
                Status::fault(verb, "the provider panicked")
            }
        }
    }
}
