//! The webhook that keeps pods, nodes and endpoints right while a node is only cut off from the cloud.
//!
//! When a node's lease stops, stock Kubernetes marks its pods not ready, takes their endpoints out and puts a
//! NoExecute taint on the node. For a node whose neighbours vouch for it that is wrong, and this webhook corrects
//! exactly those writes, at admission, so that no watcher ever sees them.
//!
//! | module | what it holds |
//! |---|---|
//! | [`core`] | **pure**: what is decided about a write ([`core::decide`]), and from which facts |
//! | [`evidence`] | how ZoneHealth, Leases, Nodes and policies become facts; shared with the controller |
//! | `watches` | keeps the view of the cluster that decisions rest on |
//! | `server` | AdmissionReview over HTTP |
//! | `certificate`, `configuration` | what makes the API server find and trust the webhook |
//! | [`webhook`] | all of it, as a part of a process |
//!
//! ```
//! use evenkeel_admission::core::{Decision, PassReason, Request, View, decide};
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

mod address;
mod certificate;
mod clock;
mod configuration;
pub mod core;
pub mod evidence;
mod metrics;
mod server;
mod watches;
pub mod webhook;

pub use address::{AddressError, WebhookAddress};
pub use certificate::CertificateError;
pub use configuration::CONFIGURATION;
pub use webhook::{WebhookError, WebhookOptions};
