//! What needs sockets, processes or an API server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod cluster;
mod container_probe;
mod fleet;
mod handover;
mod lifecycle;
mod virtual_kubelet;
