//! The process on each node: it watches its neighbours, votes on them, and reports for the zone.
//!
//! The rules live in `evenkeel-zone`, a state machine without clock or socket. This crate is the shell around
//! it:
//!
//! | module | what it does |
//! |---|---|
//! | [`args`] | flags, and what is wrong with them |
//! | [`key`] | the key file, and `evenkeel agent keygen` |
//! | [`rotation`] | the change of the key while the agent runs |
//! | [`state`] | what outlives a restart: the last roster, who was seen alive, the sequence |
//! | [`agent`] | puts the parts together |
//! | `cloud` | what is watched, read and written at the API server, and whether it is reached |
//! | `zone` | the datagram loop around the engine |
//! | `check` | the check plugins: is a suspect's machine there, and is it that node's kubelet that answers? |
//! | `kubelet` | the node's own kubelet |
//! | `reporter` | the cell's Lease and the writing of ZoneReport |
//! | `metrics` | numbers |
//! | `reload` | what a running agent takes over from its configuration file |
//!
//! ```no_run
//! use clap::Parser;
//! use evenkeel_agent::AgentArgs;
//!
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(flatten)]
//!     agent: AgentArgs,
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let cli = Cli::parse();
//! let shutdown = evenkeel_net::shutdown::on_signals()?;
//! evenkeel_agent::run(cli.agent, shutdown).await?;
//! # Ok(())
//! # }
//! ```
#![allow(
    missing_docs,
    reason = "the agent is a program: other crates use its entry points, and names say what most fields are"
)]

pub mod agent;
pub mod args;
pub mod boot;
pub mod check;
mod cloud;
pub mod key;
mod kubelet;
mod metrics;
mod own_file;
mod readiness;
mod reload;
mod reporter;
pub mod rotation;
pub mod state;
mod zone;

pub use agent::{Agent, AgentError, run};
pub use args::{AgentArgs, Settings};
