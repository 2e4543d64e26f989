//! `evenkeel probe` from outside: its exit codes, its words, and real servers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod bad_input;
mod cri;
mod events;
mod grpc;
mod once;
mod run;
mod strict;
mod terminal;
mod world;
