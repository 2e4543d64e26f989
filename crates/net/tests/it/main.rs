//! The foundation over real sockets and processes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

mod admin;
mod client;
mod dead_peer;
mod relay;
mod serve;
mod shutdown;
mod tls;
