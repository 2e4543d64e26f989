//! The client of arklet, the agent in a Koupleless base that installs and removes modules.
//!
//! arklet is asked over HTTP (the controller connects to the base) or over MQTT (both connect to a broker). The answers mean the
//! same and differ in shape; a [`Tunnel`] hides that. Facts are those of the Koupleless 1.4 line (sofa-ark 2.2.16).
//!
//! Everything that is read comes from a process that others control: each field may be absent, of another type or written in another
//! case, and an unreadable entry of a list spoils that entry alone.
//!
//! | module | what it holds |
//! |---|---|
//! | [`command`] | **pure**: commands and the bodies of their requests |
//! | [`envelope`] | **pure**: what encloses every answer |
//! | [`biz`] | **pure**: modules, their states and records |
//! | [`health`] | **pure**: the answer to `health` |
//! | [`help`] | **pure**: the commands that a base has |
//! | [`ops`] | **pure**: records of asynchronous operations |
//! | [`heartbeat`] | **pure**: how a base makes itself known |
//! | [`cause`] | **pure**: what is said to people of a Java exception |
//! | [`outcome`] | **pure**: what became of an operation |
//! | [`tunnel`] | the trait that both clients implement, and its errors |
//! | [`http`] | the client over HTTP |
//! | [`mqtt`] | the client over MQTT |

pub mod biz;
pub mod cause;
pub mod command;
pub mod envelope;
pub mod health;
pub mod heartbeat;
pub mod help;
pub mod http;
pub mod mqtt;
pub mod ops;
pub mod outcome;
mod read;
mod traced;
pub mod tunnel;

pub use biz::{Module, ModuleList, ModuleState};
pub use command::{Command, Install, ModuleId, Request};
pub use http::HttpTunnel;
pub use mqtt::MqttTunnel;
pub use outcome::{BatchOutcome, Failure, Outcome};
pub use tunnel::{Base, Tunnel, TunnelError};
