//! The pure elector: events and clock readings go in; requests, waits, and commands to the gate come out.

mod config;
pub mod coordinated;
mod machine;
mod record;
mod state;
mod token;

pub use config::{Compat, Config, ConfigError, OnLoss};
#[cfg(feature = "model-check")]
pub use machine::Abstraction;
pub use machine::{Action, Announcement, Event, Machine, Now, ReadResult, WriteResult};
pub(crate) use record::whole_seconds;
pub use record::{Observation, Record};
pub use state::{FencingToken, Loss, State, StopReason, Term};
pub use token::MalformedToken;
