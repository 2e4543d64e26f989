//! The HTTP API of a kubelet, for anything that runs pods: logs, exec, attach, port-forward and statistics,
//! over TLS, with the kubelet's authentication and authorization, in the kubelet's words.
//!
//! Whoever runs the pods implements [`Backend`]. `kubelet::KubeletApi` puts together what a process needs
//! to serve the API for its nodes: each node has a listener of its own, since requests do not name the
//! node; certificate, authentication and authorization are shared.
//!
//! # Using this crate alone
//! Everything that serves HTTP needs the feature `server`. Without it there are the types alone that a
//! [`Backend`] and a framework of virtual nodes share, and no HTTP library; [`Serve`] is where both meet.
//!
//! ```no_run
//! # #[cfg(feature = "server")] mod example {
//! use evenkeel_kubelet_api::{Backend, auth::Rules, kubelet::*, listeners, tls::signed};
//! use std::{error::Error, net::SocketAddr, sync::Arc};
//! use tokio_util::sync::CancellationToken;
//!
//! async fn serve(backend: Arc<dyn Backend>, client: kube::Client) -> Result<SocketAddr, Box<dyn Error>> {
//!     let address = [10, 0, 0, 7].into();
//!     let api = KubeletApi {
//!         listeners: listeners::Settings { address, first_port: 10_250 },
//!         certificate: Certificate::Signed(signed::Settings::new("my-kubelet"), [address].into()),
//!         clients: Clients::Published,
//!         rules: Rules::default(),
//!     };
//!     let stop = CancellationToken::new();
//!     let listeners = api.prepare().await?.begin(&client, &stop).serve(backend, stop);
//!     Ok(listeners.open("my-node")?)
//! }
//! # }
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `kubelet` | listeners, certificate, authority of clients and authorization, put together |
//! | `listeners` | one listener per node |
//! | `auth` | who may ask what: TokenReview and SubjectAccessReview |
//! | `tls` | certificates from files or from the cluster's signer, and whose client certificates count |
//! | `stream` | exec, attach and port-forward over SPDY and WebSocket, for who serves them under other paths |
//! | `spdy` | SPDY/3.1, as far as Kubernetes speaks it |

#[cfg(feature = "server")]
pub mod auth;
mod backend;
#[cfg(feature = "server")]
mod call;
mod fault;
#[cfg(feature = "server")]
mod health;
mod id;
mod io;
#[cfg(feature = "server")]
pub mod kubelet;
#[cfg(feature = "server")]
pub mod listeners;
#[cfg(feature = "server")]
mod logs;
#[cfg(feature = "server")]
mod metrics;
#[cfg(feature = "server")]
mod pods;
mod serve;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
pub mod spdy;
#[cfg(feature = "server")]
mod stats;
#[cfg(feature = "server")]
pub mod stream;
#[cfg(feature = "server")]
mod streams;
mod term;
#[cfg(feature = "server")]
pub mod tls;
mod usage;

pub use backend::{Backend, Served, Wanted};
pub use fault::{Fault, FaultKind};
pub use id::{ContainerId, PodId};
pub use io::{Duplex, ExecIo, Kept, LogOptions, LogStream, Streams, TerminalSize};
pub use serve::{NodeListeners, Serve};
#[cfg(feature = "server")]
pub use server::{Node, Settings, router, routes};
pub use term::Term;
pub use usage::{ContainerStats, NodeStats, PodStats};

#[cfg(feature = "server")]
use server::{Server, json, text};

#[cfg(test)]
#[cfg(feature = "server")]
#[path = "fake_tests.rs"]
mod fake;
#[cfg(test)]
#[cfg(feature = "server")]
mod tests;
