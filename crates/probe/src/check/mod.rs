//! Checks of a whole machine: is it there, and is it the one we mean?
//!
//! A check answers one of three things, and only two of them are votes. *Alive with identity*: the other side proved
//! to hold the key of the node's kubelet, so whatever else is wrong, that node lives. *Failed*: nothing usable came
//! back. *Alive without identity* is an abstention: something accepted a connection, which after an address change,
//! behind NAT or behind a load balancer need not be the node.
//!
//! They connect and speak HTTP by the same code as the [handlers](crate::handler).
//!
//! ```
//! use evenkeel_probe::check::{Failure, Outcome, ping};
//! use std::time::Duration;
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
//! let address = listener.local_addr().unwrap();
//! assert_eq!(ping::connect(address, Duration::from_secs(5)).await, Outcome::Alive { identity: false });
//! drop(listener);
//! assert_eq!(ping::connect(address, Duration::from_secs(5)).await, Outcome::Failed(Failure::Refused));
//! # });
//! ```

mod dial;
pub mod kubelet;
mod outcome;
pub(crate) mod pin;
pub mod ping;

pub use dial::Dial;
pub use outcome::{Failure, Outcome};
