//! What becomes of a node that went silent: decided by the judge, carried out step by step.
//!
//! | module | what it holds |
//! |---|---|
//! | [`world`] | **pure**: one set of watches, one cache, one book of verdicts per process, and the judge over them |
//! | [`planner`] | **pure**, leader only: from decisions to actions |
//! | [`webhook`] | every replica: what is kept from the stock controllers at admission, a projection of the decisions |
//! | [`shell`] | the process: watches, election, writes, Events, metrics |
//! | [`status`] | `evenkeel status`: what the leader has published, in words |
//!
//! The decision itself is the crate `judge`'s.

mod clock;
pub mod planner;
pub mod shell;
pub mod status;
pub mod webhook;
pub mod world;

pub use shell::{ControllerArgs, ControllerError, run};
