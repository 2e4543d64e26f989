//! The pure core: facts and a time in, decisions and actions out. No clock, no socket, no task, no client.
//!
//! Times are [`evenkeel_zone::Millis`]: milliseconds since the epoch as the wall clock had it when the process
//! started, counted on by a monotonic clock. So they can be compared, and written into objects.
//!
//! | module | what it holds |
//! |---|---|
//! | [`evidence`] | what is known of a node at a time; when a Lease is stale, when a watch is live |
//! | [`state`] | the decision table |
//! | [`policy`] | the settings of a node |
//! | [`facts`] | the world as the planner sees it |
//! | [`plan`] | the planner |
//! | [`action`] | what it wants done |
//! | [`incident`] | the record of a failure |
//! | [`storm`] | how many nodes at once |
//! | [`roster`] | which nodes watch each other |
//! | [`tolerations`] | which pod stays for how long |

pub mod action;
pub mod evidence;
pub mod facts;
pub mod incident;
pub mod plan;
pub mod policy;
pub mod roster;
pub mod state;
pub mod storm;
pub mod tolerations;
