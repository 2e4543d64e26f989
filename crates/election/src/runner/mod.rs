//! `evenkeel elect`: runs a command only while leading, and ends it before anybody else can lead.
//!
//! Three processes, each with one duty:
//!
//! | process | duty | when it dies |
//! |---|---|---|
//! | runner ([`run`]) | campaigns, decides ([`core`]) | the keeper sees its socket close, and ends the command |
//! | keeper ([`keeper`]) | knows up to when the term is proven, and ends the command then, with nobody's help ([`leash`]) | the kernel kills the command; the runner kills what is left of its process group |
//! | command | the caller's | the keeper ends what it leaves behind, reports its status, and the lease is given back |
//!
//! Times between runner and keeper are readings of the machine's boot clock, which runs while it sleeps; they come
//! from the start of a successful renewal, so no delay on the way makes them later. See [`deadlines`] for the margins.

mod args;
mod command;
pub mod core;
pub mod deadlines;
mod descendants;
mod error;
pub mod keeper;
pub mod leash;
pub mod orders;
mod process;
mod program;
mod run;
mod serve;
mod signals;
pub mod status;

pub use args::{ElectArgs, LeaseName};
pub use error::ElectError;
pub use program::ProgramError;
pub use run::run;
