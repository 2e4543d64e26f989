//! Agents with real sockets against an API server inside the process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests"
)]

mod bad_input;
mod binary;
mod calm;
mod cells;
mod config;
mod identity;
mod keys;
mod link;
mod machine;
mod verdicts;
mod zone;
