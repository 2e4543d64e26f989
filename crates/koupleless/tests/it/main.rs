//! What needs sockets, processes or an API server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test owns its clocks and tasks, and one that cannot go on has failed"
)]

mod alert;
mod discovery;
mod heal;
mod modules;
mod peer;
mod rights;

use std::time::Duration;

/// Nothing that a test waits for takes longer.
const DEADLINE: Duration = Duration::from_secs(60);
