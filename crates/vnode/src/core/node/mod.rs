//! A node's life: registration, health, status, Lease. Pure.
//!
//! The status is posted when it changes and every five minutes; the Lease is renewed every ten seconds. A
//! provider that errs or is silent makes the node NotReady, and its Lease goes on: a broken machine behind a
//! node is not a broken link, and who watches Leases must be able to tell them apart.
//!
//! A node in its steady state makes six requests for its Lease and 0.2 for its status per minute, and reads
//! nothing. It is read when that may be of use: at its registration, when keys are to be removed, after a
//! conflict, after Leases could not be renewed for so long that others may have written it off, and when a
//! watch shows that somebody wrote something else.
//!
//! ```
//! use evenkeel_vnode::core::Now;
//! use evenkeel_vnode::core::node::{Action, Input, Machine, Settings};
//! use evenkeel_vnode::provider::{NodeHealth, NodeTemplate};
//!
//! let settings = Settings::default();
//! let mut node = Machine::new("vnode-1", NodeTemplate::default());
//! let now = Now::default();
//! let actions = node.step(&settings, Input::Begin(None), now);
//! assert!(actions.contains(&Action::Ping), "its health is asked for before anything is said about it");
//! let actions = node.step(&settings, Input::Pinged(Ok(NodeHealth::default())), now);
//! assert!(actions.iter().any(|action| matches!(action, Action::Register(_))));
//! ```

mod machine;
mod object;
mod packed;
mod pinging;

#[cfg(test)]
mod tests;

pub use machine::Machine;

use crate::core::lease;
use crate::core::reported::{Fault, NodeHealth, NodeTemplate};
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

/// What all nodes of a fleet share.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Time between pings. 10 s.
    pub ping: Duration,
    /// Silence after which a ping counts as failed. 10 s.
    pub ping_timeout: Duration,
    /// Time between reports of a status that does not change. 5 min.
    pub report: Duration,
    /// Of the Lease.
    pub lease: lease::Settings,
    /// `nodeInfo.kubeletVersion`.
    pub version: String,
    /// `nodeInfo.containerRuntimeVersion`.
    pub runtime: String,
    /// Value of the label `type` (virtual-kubelet's); empty: none.
    pub type_label: String,
    /// Labels that every node of the fleet has, by which its watch finds it.
    pub labels: std::collections::BTreeMap<String, String>,
}

impl Default for Settings {
    /// The kubelet's times, no labels, and this crate's version.
    fn default() -> Self {
        Self {
            ping: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(10),
            report: Duration::from_secs(300),
            lease: lease::Settings::default(),
            version: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
            runtime: String::new(),
            type_label: evenkeel_api::names::vnode::VIRTUAL_NODE_LABEL.1.to_owned(),
            labels: std::collections::BTreeMap::new(),
        }
    }
}

/// What happened to a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The node is ours from now on; where its kubelet API listens, if it does.
    Begin(Option<SocketAddr>),
    /// Answer to [`Action::Ping`].
    Pinged(Result<NodeHealth, Fault>),
    /// Answer to [`Action::Register`] or [`Action::Post`]: the Node as it is now.
    Written(Result<Box<Node>, Refused>),
    /// Answer to [`Action::Lease`].
    Lease(lease::Answer),
    /// Somebody deleted the Node: it is registered anew.
    Gone,
    /// The Node as a watch shows it: what others have changed of what is ours is put right, at once the first
    /// time, and ever later where somebody goes on changing it.
    Seen(Box<Node>),
    /// What the provider publishes has changed, or the address of the kubelet API.
    Template(Box<NodeTemplate>, Option<SocketAddr>),
    /// The provider says that the health may have changed.
    Stirred,
    /// The time asked for has come.
    Tick,
}

/// Why a write was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such Node.
    NotFound,
    /// Somebody wrote between.
    Conflict,
    /// For another reason, or no answer.
    Failed(String),
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Ask the provider.
    Ping,
    /// Read the Node; create it, or else patch metadata and status by the three-way merge.
    Register(Box<Node>),
    /// Patch the status (strategic merge), with the last applied state in annotations.
    Post(Box<Value>),
    /// A request about the Lease.
    Lease(lease::Request),
    /// Record an event about the node: reason and message.
    Record(String, String),
    /// Come back after this long at the latest.
    Wake(Duration),
}
