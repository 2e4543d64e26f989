//! Decides what becomes of a node that has gone silent, by the rules of the crate `judge`, and carries it
//! out.
//!
//! | module | what it holds |
//! |---|---|
//! | [`world`] | **pure**: one set of watches, one cache, one book of verdicts per process, and the judge over them |
//! | [`planner`] | **pure**, leader only: from decisions to actions |
//! | [`webhook`] | every replica: what is kept from the stock controllers at admission, a projection of the decisions |
//! | [`shell`] | the process: watches, election, writes, Events, metrics |
//! | [`status`] | `evenkeel status`: what the leader has published, in words |
//!
//! The decision table itself is in the crate `judge`.
#![allow(
    missing_docs,
    reason = "the controller is a program: other crates use its entry points and its pure parts, and names say what most fields are"
)]

mod clock;
pub mod planner;
pub mod shell;
pub mod status;
pub mod webhook;
pub mod world;

pub use shell::{ControllerArgs, ControllerError, run};
