//! Leader election over a Kubernetes Lease, by client-go's rules, with a write gate.
//!
//! The elector is a pure state machine ([`core`]). A shell around it reads, writes and watches a [`Lock`],
//! keeps the time, and opens and closes a [`Gate`] as the machine says.
//!
//! ```no_run
//! use evenkeel_election::lock::LeaseLock;
//! use evenkeel_election::{Config, Elector, State, Work, unique_identity};
//! use kube::Client;
//! use tokio_util::sync::CancellationToken;
//!
//! async fn lead(client: Client, shutdown: CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
//!     let lock = LeaseLock::new(client.clone(), "my-system", "my-controller")?;
//!     let mut election = Elector::new(lock, Config::new(&unique_identity()))?.run(shutdown);
//!     // Writes through this client fail at once while we do not lead, whichever task they come from.
//!     let writer = election.gate().client(&client);
//!     while let Some(state) = election.next().await {
//!         match state {
//!             State::Following { leader } => println!("led by {leader:?}"),
//!             State::Leading { token, .. } => {
//!                 println!("leading; stamp for writes: {token}");
//!                 if let Some(work) = election.work() {
//!                     tokio::spawn(reconcile(writer.clone(), work));
//!                 }
//!             }
//!             State::Lost { loss, .. } => println!("{loss}; writes are refused, the work may stay"),
//!             State::Recovered { .. } => println!("the same term goes on"),
//!             State::Stopped { reason } => println!("ended: {reason}"),
//!         }
//!     }
//!     Ok(())
//! }
//!
//! async fn reconcile(_writer: Client, work: Work) {
//!     work.stopped().await; // The lock is released once every share in the work is dropped.
//! }
//! ```
//!
//! # Using this crate alone
//! Without features it needs the Kubernetes client and no server, no command line and no TLS: the caller
//! brings the client and so chooses the TLS. `interop/outside/election` is a whole program.
//!
//! | feature | what it adds |
//! |---|---|
//! | `flags` | the `--leader-elect-…` flags of stock components, for clap |
//! | `model-check` | what a model checker needs to tell states of the machine apart |
//!
//! # The gate
//! The proof of leadership can end before any task is scheduled to notice it, for example on a paused machine
//! or a busy runtime. Therefore the gate itself reads the clock at every write. That clock also runs while
//! the machine sleeps.
#![allow(
    clippy::disallowed_methods,
    reason = "shells own clocks, tasks and randomness; the core below is checked"
)]

mod callbacks;
mod client;
pub mod clock;
pub mod coordinated;
#[warn(clippy::disallowed_methods)]
pub mod core;
mod election;
mod elector;
mod failures;
pub mod fence;
#[cfg(feature = "flags")]
pub mod flags;
pub mod gate;
mod health;
pub mod lock;
mod metrics;
pub mod migration;
mod shell;
pub mod terms;
mod work;

pub use crate::core::{Compat, Config, ConfigError, FencingToken, Loss, OnLoss, State, StopReason, Term};
pub use callbacks::Callbacks;
pub use election::Election;
pub use elector::{Elector, unique_identity, unique_identity_of};
pub use gate::Gate;
pub use health::{Health, HealthAdaptor, HealthError};
pub use lock::Lock;
pub use metrics::Metrics;
pub use work::Work;
