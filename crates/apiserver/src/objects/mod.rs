//! Pure rules on objects: no store, no clock, no network.
//!
//! | module | what it holds |
//! |---|---|
//! | [`schema`] | the packed Kubernetes 1.36 schemas |
//! | [`strict`] | decoding a request body: types, unknown and duplicate fields, canonical form |
//! | [`patch`] | JSON patch, merge patch, strategic merge patch |
//! | [`selector`] | label and field selectors |
//! | [`defaults`] | what Kubernetes fills in |
//! | [`strategy`] | what a create, an update, a status update may change; generations |
//! | [`validate`] | what Kubernetes refuses, with its texts |
//! | [`table`] | printer columns |
//! | [`crd`] | custom resources: structural schemas and all of the above for them |
//!
//! Order of a create: decode, default, admission, `strategy::prepare_create`, `validate::create`, store.
//! Of an update: patch or decode, default, admission, `strategy::prepare_update`, `validate::update`, store.

pub mod crd;
pub mod defaults;
pub mod patch;
mod quantity;
pub mod schema;
pub mod selector;
pub mod strategy;
pub mod strict;
pub mod table;
mod time;
pub mod validate;
