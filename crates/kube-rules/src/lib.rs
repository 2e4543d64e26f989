//! The rules of Kubernetes 1.36 on objects, as the API server applies them: no store, no clock, no network.
//!
//! A caller needs no server: objects are `serde_json::Value`s, and what a rule needs to know of the time is a
//! parameter.
//!
//! ```
//! use evenkeel_kube_rules::dry_run;
//! use serde_json::json;
//!
//! let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
//!     "spec": {"containers": [{"name": "web", "image": "nginx", "ports": [{"containerPort": 0}]}]}});
//! let wrong = dry_run::pod(pod).unwrap_err();
//! assert_eq!(wrong, ["spec.containers[0].ports[0].containerPort: Required value"]);
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`gofmt`] | how Go prints values, which ends up in messages |
//! | [`gvk`] | the names of kinds and resources |
//! | [`status`] | every error that a client can see, as a Kubernetes `Status` |
//! | [`schema`] | the packed Kubernetes 1.36 schemas |
//! | [`strict`] | decoding a request body: types, unknown and duplicate fields, canonical form |
//! | [`protobuf`] | Kubernetes' protobuf encoding of built-in kinds |
//! | [`patch`] | JSON patch, merge patch, strategic merge patch |
//! | [`apply`] | who owns which fields, and server-side apply |
//! | [`selector`] | label and field selectors |
//! | [`defaults`] | what Kubernetes fills in |
//! | [`strategy`] | what a create, an update, a status update may change; generations |
//! | [`validate`] | what Kubernetes refuses, with its texts |
//! | [`time`] | points in time as objects carry them |
//! | [`csr`] | certificate signing requests |
//! | [`table`] | printer columns |
//! | [`cost`] | what expressions in CEL cost, and how much they may |
//! | [`crd`] | custom resources: structural schemas and all of the above for them |
//! | [`dry_run`] | the rules in their order: what the API server would answer to the creation of an object |
//!
//! Order of a create: decode, default, admission, `strategy::prepare_create`, `validate::create`, store.
//! Of an update: patch or decode, default, admission, `strategy::prepare_update`, `validate::update`, store.

pub mod apply;
pub mod cel;
pub mod cost;
pub mod crd;
pub mod csr;
pub mod defaults;
pub mod dry_run;
mod godump;
pub mod gofmt;
pub mod gvk;
pub mod names;
pub mod patch;
pub mod protobuf;
pub mod schema;
pub mod selector;
pub mod status;
pub mod strategy;
pub mod strict;
pub mod table;
pub mod time;
pub mod validate;
