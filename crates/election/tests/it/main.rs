//! Candidates with real requests and real time.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test owns its clocks and tasks, and fails by panicking"
)]
#![expect(
    clippy::print_stderr,
    reason = "what a test tells when it fails, and its seed"
)]

mod api;
mod bad_input;
mod coordinated;
mod fake;
mod interop;
mod locks;
mod many;
mod migration;
mod outage;
mod properties;
mod recovery;
mod restart;
mod rivals;
