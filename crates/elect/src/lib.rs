//! `evenkeel elect`: runs a command only while leading, and ends it before anybody else can lead.
//!
//! There are three processes, each with one duty:
//!
//! * The *runner* ([`run`]) campaigns, and decides what happens to the command (`core::runner`). When it
//!   dies, the keeper sees its socket close, and ends the command.
//! * The *keeper* ([`keeper`]) knows until when the term is proven, and then ends the command without being
//!   told to (`core::command_deadline`). When it dies, the kernel kills the command, and the runner kills
//!   what is left of its process group.
//! * The *command* is the caller's. When it ends, the keeper ends what it leaves behind and reports its
//!   status, and the lease is released.
//!
//! Times between runner and keeper are readings of the machine's boot clock, which runs while it sleeps; they
//! come from the start of a successful renewal, so no delay on the way makes them later. See
//! `core::deadlines` for the margins.
#![allow(
    missing_docs,
    reason = "a program: other crates use its entry points, and names say what most fields are"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "shells own clocks, tasks and randomness; the core below is checked"
)]

mod args;
#[warn(clippy::disallowed_methods)]
mod core;
mod descendants;
mod error;
pub mod keeper;
mod keeper_handle;
mod process;
mod program;
mod run;
mod serve;
mod signals;

pub use crate::core::event::OnLost;
pub use args::{ElectArgs, LeaseName};
pub use error::ElectError;
pub use program::ProgramError;
pub use run::run;
