//! What a kubelet's probe does, once: asks by HTTP, opens a TCP connection, runs a command.
//!
//! Each handler makes one attempt and ends within its time. The texts of outcomes are the kubelet's, which
//! people know from events and search for. When to probe, how often, and what follows from the outcomes is
//! for the caller: the prober of `evenkeel-probe` adds that, and gRPC, and commands in containers. There is
//! no Kubernetes client here and no gRPC.
//!
//! | module | what it does |
//! |---|---|
//! | [`http`] | HTTP and HTTPS, redirects included |
//! | [`tcp`] | a connection that is opened and closed |
//! | [`exec`] | commands: on this machine, or by any other [`Execute`](exec::Execute) |
//! | [`port`] | ports by number and by name |
//! | [`dial`], [`tls`], [`wording`] | how the handlers connect, whom they trust, and how they word what went wrong |
//!
//! ```
//! use evenkeel_probe_handlers::{Container, Outcome, Port, Target, tcp};
//! use std::time::Duration;
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
//! let address = listener.local_addr().unwrap();
//! let pod = Target {
//!     address: Some(address.ip()),
//!     source: None,
//!     container: Container::default().into(),
//!     container_id: "containerd://1".into(),
//! };
//! let port = Port::Number(address.port().into());
//! let outcome = tcp::probe(None, &port, &pod, Duration::from_secs(5)).await;
//! assert_eq!(outcome, Outcome::success(""));
//! # });
//! ```

pub mod dial;
pub mod exec;
pub mod http;
mod outcome;
pub mod port;
mod spec;
mod target;
pub mod tcp;
pub mod tls;
pub mod wording;

pub use evenkeel_kube_values::Go;
pub use outcome::{Outcome, Verdict};
pub use spec::{Compat, Extras, Handler, HttpGet, Kind, Port, Probe, Scheme, Tls, Window};
pub use target::{Container, RestartAction, RestartPolicy, RestartRule, Role, Target};
