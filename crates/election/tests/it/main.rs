//! Candidates with real requests and real time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod api;
mod fake;
mod outage;
mod rivals;
