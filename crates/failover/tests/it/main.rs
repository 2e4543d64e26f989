//! The controller against an embedded API server, as its own ServiceAccount, with verdicts signed by real keys.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests own their clocks and tasks, and fail where something is not as it should be"
)]

mod cluster;
mod controller;
mod process;
