//! Decides what becomes of a node that has gone silent, by the rules of the crate `judge`, and carries it
//! out.
//!
//! | module | what it holds |
//! |---|---|
//! | [`webhook`] | every replica: what is kept from the stock controllers at admission, a projection of the decisions |
//! | [`shell`] | the process: watches, election, writes, Events, metrics |
//! | [`status`] | `evenkeel status`: what the leader has published, in words |
//!
//! What it knows, plans and lets through is decided by the crate `failover-rules`, with the decision table of
//! the crate `judge`.
#![allow(
    missing_docs,
    reason = "the controller is a program: other crates use its entry points, and names say what most fields are"
)]

mod clock;
pub mod shell;
pub mod status;
pub mod webhook;

pub use shell::{ControllerArgs, ControllerError, run};
