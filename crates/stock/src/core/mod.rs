//! The stock controllers' rules, pure. Every instant is a parameter: wall-clock time as the shell's steady clock has
//! it, because the rules compare it with what objects say (creation) and write it into objects.

pub mod eviction;
pub mod health;
pub mod lifecycle;
pub mod limiter;
pub mod queue;
pub mod taints;
pub mod tolerations;
pub mod zones;
