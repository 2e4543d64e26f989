//! Leader election over a Kubernetes Lease, by client-go's rules.
//!
//! The elector is a pure state machine (`core`); the shell feeds it with Lease reads, write results and time.
//!
//! ```no_run
//! use evenkeel_election::{Config, State, run};
//! # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let shutdown = evenkeel_net::shutdown::on_signals()?;
//! let config = Config::new("kube-system", "my-controller", &evenkeel_election::unique_identity());
//! let mut candidate = run(client, config, shutdown.clone())?;
//! loop {
//!     match candidate.state.borrow_and_update().clone() {
//!         State::Leading { token } => println!("leading, stamp writes with {}", token.transitions),
//!         State::Following { leader } => println!("following {leader:?}"),
//!         State::Stopped => break,
//!     }
//!     candidate.state.changed().await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Between two state changes a leader's proof can run out faster than any task is scheduled (a paused machine, a
//! starved runtime). Whoever writes as leader therefore asks [`Leadership::token`] right before, which looks at the
//! clock itself.

pub mod core;
mod leadership;
mod lease;
mod requests;
mod shell;

pub use crate::core::{Config, ConfigError, FencingToken, State};
pub use leadership::Leadership;
pub use shell::{Candidate, run, unique_identity};
