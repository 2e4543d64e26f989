//! Probes, as a kubelet makes them.
//!
//! [`core`] decides, [`handler`] asks, [`manager`] runs workers.
//!
//! # Using this crate alone
//! Without features it probes by HTTP, by TCP and by commands, and needs neither gRPC nor a Kubernetes
//! client.
//! `interop/outside/prober` is a whole program. What more there is:
//!
//! | feature | what it adds |
//! |---|---|
//! | `grpc` | probes by gRPC; without it such a probe comes out as *unknown*, with that reason |
//! | `cri` | commands in containers of a container runtime |
//! | `api-events` | events as objects of an API server |
//! | `cli` | the command `evenkeel probe` |
//!
//! ```
//! use evenkeel_probe::core::{Container, Outcome, Port, Target};
//! use evenkeel_probe::handler::tcp;
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
//! drop(listener);
//! let outcome = tcp::probe(None, &port, &pod, Duration::from_secs(5)).await;
//! assert_eq!(outcome.output, format!("dial tcp {address}: connect: connection refused"));
//! # });
//! ```
#![allow(
    clippy::disallowed_methods,
    reason = "shells own clocks, tasks and randomness; the core below is checked"
)]

#[cfg(feature = "cli")]
pub mod cli;
#[warn(clippy::disallowed_methods)]
pub mod core;
pub mod events;
pub mod handler;
#[warn(clippy::disallowed_methods)]
pub mod lint;
pub mod manager;
#[warn(clippy::disallowed_methods)]
pub mod manifest;
pub mod metrics;
mod pulse;
pub mod state;
