//! The lab's parts on real sockets, files and processes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod control;
mod directory;
mod faults;
mod join;
mod kubelet;
mod native;
mod running;
mod supervise;
mod switch;
