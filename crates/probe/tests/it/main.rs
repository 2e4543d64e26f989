//! Probes with real requests, real processes, real time and real peers; and what the documentation says of
//! tests.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test owns its clocks and tasks, and fails by panicking"
)]

mod interop;
mod tries;
