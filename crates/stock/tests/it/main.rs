//! The stand-in for the stock controllers as a process, against the embedded API server.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests own their clocks and tasks, and fail where something is not as it should be"
)]

mod stock;
