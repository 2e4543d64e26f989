//! What needs sockets, a broker or recordings.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test owns its clocks and tasks, and one that cannot go on has failed"
)]

mod decoder;
mod golden;
mod http;
mod http_hostile;
mod mqtt;
mod server;
