//! The rules of two stock controllers of kube-controller-manager 1.36, node lifecycle and taint eviction, as
//! pure functions. The stand-in for them (crate `stock`), the planner and the simulator use them.
//!
//! Every instant is a parameter. It is wall-clock time, because the rules compare it with creation times in
//! objects and write it into objects; the shell's clock makes sure that it never goes back.
#![allow(
    missing_docs,
    reason = "used by the controllers and the simulator, no library: names say what most fields are"
)]

pub mod eviction;
pub mod health;
pub mod lifecycle;
pub mod limiter;
pub mod queue;
pub mod taints;
pub mod tolerations;
pub mod zones;
