//! The rules of the failover controller: what a replica knows, what its leader does about it, and what its
//! webhook keeps from the stock controllers.
//!
//! Everything here is **pure**: events and times go in, decisions come out. The controller's process (crate
//! `failover`) and the simulator run the same code.
//!
//! | module | what it holds |
//! |---|---|
//! | [`world`] | one cache and one book of verdicts per process, and the judge over them |
//! | [`planner`] | leader only: from decisions to actions |
//! | [`dispatch`] | leader only: which actions may begin |
//! | [`admission`] | every replica: what becomes of a write, a projection of the decisions |
//!
//! The decision table itself is in the crate `judge`. This crate is compiled apart from the process, because
//! the simulator needs it optimised, and because a changed rule is then compiled without the API client.
#![allow(
    missing_docs,
    reason = "used by the controller and the simulator, no library: names say what most fields are"
)]

pub mod admission;
pub mod dispatch;
pub mod planner;
pub mod world;
