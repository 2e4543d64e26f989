//! Pure rules of the webhook: a request, a view and a time in, a decision out.
//!
//! | module | rule |
//! |---|---|
//! | `pods` | a pod of a protected node keeps its Ready condition |
//! | `nodes` | a protected node gets no NoExecute taint |
//! | `slices`, `endpoints` | addresses that were ready on a protected node stay ready |
//!
//! ```
//! use evenkeel_failover_rules::admission::{Decision, PassReason, Request, View, decide};
//! use evenkeel_zone::Millis;
//!
//! let request: Request = serde_json::from_value(serde_json::json!({
//!     "uid": "1", "operation": "UPDATE", "subResource": "status",
//!     "resource": {"group": "", "version": "v1", "resource": "pods"},
//!     "userInfo": {"username": "alice"},
//! })).unwrap();
//! // Nobody but the stock controllers is ever corrected.
//! assert_eq!(decide(&request, &View::default(), Millis(0)), Decision::Pass(PassReason::NotOurs));
//! ```

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
