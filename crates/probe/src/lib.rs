//! Probe handlers: is a machine there, and is it the one we mean?
//!
//! A check answers one of three things, and only two of them are votes. *Alive with identity*: the other side proved
//! to hold the key of the node's kubelet, so whatever else is wrong, that node lives. *Failed*: nothing usable came
//! back. *Alive without identity* is an abstention: something accepted a connection, which after an address change,
//! behind NAT or behind a load balancer need not be the node.
//!
//! ```
//! use evenkeel_probe::{Failure, Outcome, tcp};
//! use std::time::Duration;
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
//! let address = listener.local_addr().unwrap();
//! assert_eq!(tcp::connect(address, Duration::from_secs(5)).await, Outcome::Alive { identity: false });
//! drop(listener);
//! assert_eq!(tcp::connect(address, Duration::from_secs(5)).await, Outcome::Failed(Failure::Refused));
//! # });
//! ```

mod dial;
pub mod kubelet;
mod outcome;
mod pin;
pub mod tcp;

pub use dial::Dial;
pub use outcome::{Failure, Outcome};
