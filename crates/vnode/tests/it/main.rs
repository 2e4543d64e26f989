//! What needs sockets, processes or an API server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test owns its clocks and tasks, and one that cannot go on has failed"
)]

mod cluster;
mod container_probe;
mod fleet;
mod handover;
mod lifecycle;
mod virtual_kubelet;
