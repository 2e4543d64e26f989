//! What needs sockets, processes or an API server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod fleet;
mod stream;
