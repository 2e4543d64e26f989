//! Streams of exec, attach and port-forward over WebSocket and SPDY.
//!
//! | module | what it holds |
//! |---|---|
//! | `handshake` | which protocol, and what is answered to requests that ask for none |
//! | `options` | what a request's query asks for |
//! | `remote` | a command's streams over SPDY and over WebSocket, how it ended |
//! | `forward` | connections to ports over SPDY, SPDY in a WebSocket, and WebSocket alone |
//! | `channel` | several streams over one WebSocket |
//! | `tunnel` | one connection over one WebSocket |
//! | `resize` | sizes of terminals |
//! | `pings` | clients that only want answers |
//! | `until` | the end of a node, and what is waited for then |

#![expect(
    clippy::result_large_err,
    reason = "a refusal is a whole answer, and made once per request"
)]

mod channel;
mod forward;
mod handshake;
mod options;
mod pings;
mod remote;
mod resize;
mod tunnel;
mod until;

use crate::spdy;
use crate::{Duplex, ExecIo, Fault};
use axum::extract::Request;
use axum::response::Response;
use futures::future::BoxFuture;
use std::time::Duration;

/// How long streams may idle, and take to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Without a byte in any direction. 4 h.
    pub idle: Duration,
    /// Until all streams of a request are there. 30 s.
    pub creation: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(4 * 60 * 60),
            creation: Duration::from_secs(30),
        }
    }
}

impl Limits {
    fn spdy(self) -> spdy::Limits {
        spdy::Limits {
            idle: self.idle,
            ..spdy::Limits::default()
        }
    }
}

/// Upgrades an exec request (query `command`, `input`, `output`, `error`, `tty`) and runs it: SPDY/3.1 with
/// `v1` to `v4.channel.k8s.io`, or WebSocket with `channel.k8s.io`, `base64.channel.k8s.io`, `v4` of both,
/// and `v5`.
///
/// What `run` returns is told as the kubelet does; the future is dropped when the client leaves. Where the
/// request carries a [`Node`](crate::Node) as an extension, all of it ends with the node.
pub fn remote_command<F>(request: Request, limits: Limits, run: F) -> Response
where
    F: FnOnce(ExecIo) -> BoxFuture<'static, Result<i32, Fault>> + Send + 'static,
{
    remote::serve(request, limits, remote::Verb::Exec, run)
}

/// The same for attach, which reports no exit code: a container's end is in its status.
pub fn attach<F>(request: Request, limits: Limits, run: F) -> Response
where
    F: FnOnce(ExecIo) -> BoxFuture<'static, Result<i32, Fault>> + Send + 'static,
{
    remote::serve(request, limits, remote::Verb::Attach, run)
}

/// Upgrades a port-forward request: SPDY/3.1, SPDY in a WebSocket (`SPDY/3.1+portforward.k8s.io`), or
/// WebSocket with `v4.channel.k8s.io` and the query `port`.
///
/// Connections end with the node where the request carries a [`Node`](crate::Node) as an extension. Errors
/// name the pod where the request carries its [`PodId`](crate::PodId) as one.
pub fn port_forward<F>(request: Request, limits: Limits, connect: F) -> Response
where
    F: Fn(u16) -> BoxFuture<'static, Result<Box<dyn Duplex>, Fault>> + Send + Sync + 'static,
{
    forward::serve(request, limits, connect)
}
