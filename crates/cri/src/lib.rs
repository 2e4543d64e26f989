//! Client of container runtimes: the part of the Container Runtime Interface (`runtime.v1`) that we need,
//! over a Unix socket.
//!
//! ```no_run
//! # async fn example() -> Result<(), evenkeel_cri::Error> {
//! use evenkeel_cri::Client;
//! use std::time::Duration;
//!
//! let client = Client::connect("/run/containerd/containerd.sock").await?;
//! for container in client.containers("default", "web-0").await? {
//!     let command = ["cat".to_owned(), "/tmp/health".to_owned()];
//!     let exec = client.exec(&container.id, &command, Duration::from_secs(1)).await?;
//!     println!("{}: exit code {}", container.name, exec.exit_code);
//! }
//! # Ok(())
//! # }
//! ```

mod container;
mod error;
mod proto;

pub use container::{Container, Sandbox, State};
pub use error::Error;

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;
use tower::service_fn;

/// How long a call other than `ExecSync` may take.
const CALL: Duration = Duration::from_secs(30);
/// How much longer than its command `ExecSync` may take, for the runtime to clean up (the kubelet's
/// `runtimeRequestTimeout`).
const CLEANUP: Duration = Duration::from_secs(120);
/// Largest answer that is read: two outputs, which a runtime cuts at 16 MiB each, and what is around them.
const ANSWER: usize = (32 << 20) + (64 << 10);

/// What a runtime calls itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// `containerd`: also the scheme of its containers' IDs in the Kubernetes API.
    pub runtime: String,
    /// The runtime's own version.
    pub version: String,
    /// The version of the interface, `v1`.
    pub api: String,
}

/// How a command in a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// 0 is a success.
    pub exit_code: i32,
    /// At most 16 MiB.
    pub stdout: Vec<u8>,
    /// At most 16 MiB.
    pub stderr: Vec<u8>,
}

/// A connection to a container runtime, made anew when it breaks. Clones share it.
#[derive(Clone, Debug)]
pub struct Client {
    socket: Arc<Path>,
    channel: Channel,
    deadline: Duration,
}

impl Client {
    /// Connects to the socket of a runtime (a path, with or without `unix://`) and makes sure that a runtime
    /// is there.
    pub async fn connect(socket: impl AsRef<Path>) -> Result<Self, Error> {
        Self::connect_within(socket, CALL).await
    }

    /// The same with another limit for each call but [`exec`](Self::exec).
    pub async fn connect_within(socket: impl AsRef<Path>, deadline: Duration) -> Result<Self, Error> {
        let socket = socket.as_ref();
        let path = socket
            .to_str()
            .and_then(|text| text.strip_prefix("unix://"))
            .map_or(socket, Path::new);
        let socket: Arc<Path> = path.into();
        let dialed = Arc::clone(&socket);
        let connector = service_fn(move |_| {
            let socket = Arc::clone(&dialed);
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let client = Self {
            socket,
            // Nobody resolves this name; it is what gRPC over Unix sockets says.
            channel: Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector),
            deadline,
        };
        client.version().await?;
        Ok(client)
    }

    /// The socket's path.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Who is there.
    pub async fn version(&self) -> Result<Version, Error> {
        let answer: proto::VersionResponse = self
            .call("Version", proto::VersionRequest::default(), self.deadline)
            .await?;
        Ok(Version {
            runtime: answer.runtime_name,
            version: answer.runtime_version,
            api: answer.runtime_api_version,
        })
    }

    /// Runs a command in a container (its ID, with or without the scheme of the Kubernetes API) and waits for
    /// its end. The runtime kills it after `timeout`, in whole seconds rounded up, and so it does when the
    /// future is dropped.
    pub async fn exec(&self, container: &str, command: &[String], timeout: Duration) -> Result<Exec, Error> {
        let id = container.split_once("://").map_or(container, |(_, id)| id);
        if id.is_empty() {
            return Err(Error::NoId);
        }
        let seconds =
            timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0 && timeout.as_secs() < u64::MAX);
        let request = proto::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command.to_vec(),
            // Zero would be no limit at all.
            timeout: i64::try_from(seconds).unwrap_or(i64::MAX).max(1),
        };
        let deadline = Duration::from_secs(seconds).saturating_add(CLEANUP);
        let answer: proto::ExecSyncResponse = self.call("ExecSync", request, deadline).await?;
        Ok(Exec {
            exit_code: answer.exit_code,
            stdout: answer.stdout,
            stderr: answer.stderr,
        })
    }

    /// Calls any method of `runtime.v1.RuntimeService`: the caller brings its messages, and a limit.
    pub async fn call<Q, A>(&self, method: &'static str, request: Q, deadline: Duration) -> Result<A, Error>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let silent = || Error::Silent {
            socket: self.socket.to_path_buf(),
            method,
            after: deadline,
        };
        let call = async {
            let mut client = Grpc::new(self.channel.clone()).max_decoding_message_size(ANSWER);
            let path = PathAndQuery::try_from(format!("/runtime.v1.RuntimeService/{method}"))
                .map_err(|error| tonic::Status::internal(error.to_string()))?;
            client
                .ready()
                .await
                .map_err(|error| tonic::Status::from_error(error.into()))?;
            let codec = ProstCodec::<Q, A>::default();
            client.unary(tonic::Request::new(request), path, codec).await
        };
        tokio::time::timeout(deadline, Box::pin(call))
            .await
            .map_err(|_| silent())?
            .map(tonic::Response::into_inner)
            .map_err(|status| Error::of_call(&self.socket, method, status))
    }
}

#[cfg(test)]
mod tests;
