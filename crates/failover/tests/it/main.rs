//! The controller against an embedded API server: as its own ServiceAccount with the rights of
//! `deploy/rbac.yaml`, with verdicts signed by real keys, and with the webhook over real TLS.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests own their clocks and tasks, and fail where something is not as it should be"
)]

mod bad_input;
mod cluster;
mod controller;
mod fleet;
mod irreversible;
mod pause;
mod process;
mod replicas;
mod stock;
mod stopping;
mod webhook;
mod zone;
