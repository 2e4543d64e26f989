//! The check plugins: is a machine there, and is it the one we mean?
//!
//! An attempt finds one of three things. *Identity*: the other side proved to hold the key of the node's
//! kubelet, so whatever else is wrong, that node lives. *An answer*: a connection, a refusal, any status,
//! another certificate. After an address change, behind NAT or behind a load balancer it need not be the
//! node's.
//! *Silence*.
//!
//! Identity is a vote for "alive", whatever else was found. Without it the answers are weighed: each is worth
//! 100 times the weight of its plugin, and where they reach the score line the agent abstains (hazard 10).
//! Below it, it votes "dead". What this agent cannot check itself does not count; where the rest could not
//! reach the line, the agent has checked nothing, and abstains.
//!
//! Checks connect and speak HTTP by the same code as the probe handlers.

mod command;
mod dial;
mod http;
mod icmp;
pub(crate) mod kubelet;
mod outcome;
mod parameters;
mod pin;
mod ping;
mod plugin;
mod registry;
mod weigh;

pub use outcome::{Failure, Outcome};
pub use parameters::{CheckSettingsError, Parameters};
pub use plugin::{Attempt, Plugin, Suspect};
pub use registry::{Make, Registry};
pub use weigh::Checks;

#[cfg(test)]
#[path = "check/plugin_tests.rs"]
mod plugin_tests;
