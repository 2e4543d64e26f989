//! The pure rules: objects, answers and times go in; actions come out. No clock, no socket, no tokio, no
//! client.

pub mod admit;
pub mod env;
pub mod lease;
pub mod merge;
pub mod node;
pub mod pod;
pub mod queue;
pub mod reported;
pub mod volume;

pub use evenkeel_probe::core::{Event, Now};
