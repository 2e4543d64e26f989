//! Pure rules of the webhook: a request, a view and a time in, a decision out.
//!
//! | module | rule |
//! |---|---|
//! | `pods` | a pod of a Disconnected node keeps its Ready condition |
//! | `nodes` | a Disconnected node gets no NoExecute taint |
//! | `slices`, `endpoints` | addresses that were ready on a Disconnected node stay ready |
//! | [`facts`] | which nodes are Disconnected: verdicts, leases, policies |
//! | [`lease`] | when a node's Lease counts as stale |

mod decision;
mod endpoints;
pub mod facts;
pub mod lease;
mod nodes;
mod pods;
mod request;
mod slices;
#[cfg(test)]
mod tests;
mod view;

pub use decision::{Correction, Decision, PassReason, decide};
pub use request::{Operation, Request, Resource, User};
pub use view::{Disconnected, VIEW_TTL_MS, View};
