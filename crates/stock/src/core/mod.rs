//! The rules of the stock controllers, as pure functions. Every instant is a parameter. It is wall-clock
//! time, because the rules compare it with creation times in objects and write it into objects; the shell's
//! clock makes sure that it never goes back.

pub mod eviction;
pub mod health;
pub mod lifecycle;
pub mod limiter;
pub mod queue;
pub mod taints;
pub mod tolerations;
pub mod zones;
