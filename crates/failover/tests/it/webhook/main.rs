//! The webhook against the embedded API server: real TLS, real admission, real evidence.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests own their clocks and tasks, and fail where something is not as it should be"
)]

mod cluster;
mod guarding;
mod replicas;
mod zone;
