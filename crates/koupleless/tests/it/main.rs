//! What needs sockets, processes, recordings or an API server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod decoder;
mod golden;
mod http;
mod http_hostile;
mod mqtt;
mod server;

