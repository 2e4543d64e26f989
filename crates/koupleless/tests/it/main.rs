//! What needs sockets, processes, recordings or an API server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod alert;
mod decoder;
mod discovery;
mod golden;
mod heal;
mod http;
mod http_hostile;
mod modules;
mod mqtt;
mod peer;
mod server;
mod upstream_cases;

use std::time::Duration;

/// Nothing that a test waits for takes longer.
const DEADLINE: Duration = Duration::from_secs(60);
