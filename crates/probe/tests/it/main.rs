//! Probes with real requests, real processes, real time and real peers; and what the documentation says of tests.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod interop;
mod tries;
