//! The client of arklet, the agent in a Koupleless base that installs and removes modules.
//!
//! A base is a JVM that runs modules (Java applications that share it). arklet takes requests over HTTP,
//! where the controller connects to the base, or over MQTT, where both connect to a broker. The answers mean
//! the same and differ in shape; the trait [`Tunnel`] hides that. What is said here of arklet holds for the
//! Koupleless 1.4 line (sofa-ark 2.2.16).
//!
//! All answers come from a process that others control: each field may be absent, of another type or written
//! in another case, and an unreadable entry of a list makes that entry alone unreadable.
//!
//! ```no_run
//! use evenkeel_arklet::{Base, HttpTunnel, Install, ModuleId, Tunnel as _};
//!
//! # async fn example() -> Result<(), evenkeel_arklet::TunnelError> {
//! let base = Base {
//!     identity: "10.0.0.7".to_owned(),
//!     environment: "prod".to_owned(),
//!     address: Some(([10, 0, 0, 7], 1238).into()),
//! };
//! let tunnel = HttpTunnel::default();
//! let orders = Install::new(ModuleId::new("orders", "1.0.0"), "https://jars.example/orders-1.0.0.jar");
//! let outcome = tunnel.install(&base, &orders).await?;
//! println!("{outcome}");
//! for module in tunnel.modules(&base).await?.modules {
//!     println!("{} is {}", module.id, module.state);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`command`] | **pure**: commands and the bodies of their requests |
//! | [`envelope`] | **pure**: what encloses every answer |
//! | [`biz`] | **pure**: modules, their states and records |
//! | [`health`] | **pure**: the answer to `health` |
//! | [`help`] | **pure**: the commands that a base has |
//! | [`ops`] | **pure**: records of asynchronous operations |
//! | [`heartbeat`] | **pure**: the message by which a base makes itself known |
//! | [`cause`] | **pure**: the cause in a Java exception, shortened for people |
//! | [`outcome`] | **pure**: what became of an operation |
//! | [`tunnel`] | the trait that both clients implement, and its errors |
//! | [`http`] | the client over HTTP |
//! | `mqtt` | the client over MQTT (feature `mqtt`, on by default) |

pub mod biz;
pub mod cause;
pub mod command;
pub mod envelope;
pub mod health;
pub mod heartbeat;
pub mod help;
#[allow(clippy::disallowed_methods, reason = "a shell owns its clocks and tasks")]
pub mod http;
#[allow(clippy::disallowed_methods, reason = "a shell owns its clocks and tasks")]
#[cfg(feature = "mqtt")]
pub mod mqtt;
pub mod ops;
pub mod outcome;
mod read;
mod traced;
pub mod tunnel;

pub use biz::{Module, ModuleList, ModuleState};
pub use command::{Command, Install, ModuleId, Request};
pub use http::HttpTunnel;
#[cfg(feature = "mqtt")]
pub use mqtt::MqttTunnel;
pub use outcome::{BatchOutcome, Failure, Outcome};
pub use tunnel::{Answer, Base, ErrorKind, Tunnel, TunnelError};
