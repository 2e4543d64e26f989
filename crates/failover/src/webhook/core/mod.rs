//! Pure rules of the webhook: a request, a view and a time in, a decision out.
//!
//! | module | rule |
//! |---|---|
//! | `pods` | a pod of a protected node keeps its Ready condition |
//! | `nodes` | a protected node gets no NoExecute taint |
//! | `slices`, `endpoints` | addresses that were ready on a protected node stay ready |

mod decision;
mod endpoints;
mod nodes;
mod pods;
mod request;
mod slices;
#[cfg(test)]
mod tests;
mod view;

pub use decision::{Correction, Decision, PassReason, decide};
pub use request::{Operation, Request, Resource, User};
pub use view::{Guarded, VIEW_TTL_MS, View};
