//! Orders to a running lab: JSON lines over a Unix socket in its directory.

mod client;
mod server;
pub mod status;

pub use client::{ControlError, inflict, status, watch};
pub use server::{Orders, bind, serve};

use crate::{
    scenario::{Span, crash::Replica},
    switch::links::Way,
};
use serde::{Deserialize, Serialize};
use status::Status;
use std::fmt;

/// What is to go wrong, or to be repaired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Fault {
    /// A link breaks, or is impaired if `delay_ms` or `drop_percent` is given.
    #[serde(rename_all = "camelCase")]
    Cut {
        node: String,
        /// `cloud`, `peers`, or another node.
        link: String,
        /// Which way, seen from the node.
        #[serde(default)]
        way: Way,
        /// Delay, in milliseconds.
        #[serde(default)]
        delay_ms: Option<u64>,
        /// Datagrams lost, in percent.
        #[serde(default)]
        drop_percent: Option<u8>,
    },
    /// A node loses its power.
    Kill { node: String },
    /// An agent is killed; it is started again after a second.
    CrashAgent { node: String },
    /// Controllers are killed; they are started again after a second.
    CrashController { which: Replica },
    /// The API server goes down and comes back.
    #[serde(rename_all = "camelCase")]
    CrashApiServer {
        /// For how long, in milliseconds.
        for_ms: u64,
        /// Whether the stand-in for the stock controllers dies with it, and is started again after it.
        #[serde(default)]
        stock: bool,
    },
    /// A whole machine freezes, and goes on after a time.
    #[serde(rename_all = "camelCase")]
    Stall {
        node: String,
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// An agent is stopped, and started again after a time.
    #[serde(rename_all = "camelCase")]
    RestartAgent {
        node: String,
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// A kubelet is stopped, and started again after a time.
    #[serde(rename_all = "camelCase")]
    RestartKubelet {
        node: String,
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// Links are repaired and power is back.
    Heal {
        /// The node; without it all of them.
        node: Option<String>,
    },
}

/// One line from a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Request {
    Inflict(Fault),
    /// Say how things are.
    Status,
    /// Say how things are, again and again, whenever they changed.
    Watch,
}

/// One line from the lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    /// It was done; for people.
    Done(String),
    /// It was not; one line that says why and what to do.
    Refused(String),
    Status(Status),
}

/// A node by its name; the error names those that exist.
pub fn find_node(names: &[String], name: &str) -> Result<usize, String> {
    names
        .iter()
        .position(|known| known == name)
        .ok_or_else(|| format!("unknown node `{name}`; known are {}", names.join(", ")))
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut { node, link, .. } if link == "cloud" => write!(f, "{node}'s cloud link"),
            Self::Cut { node, link, .. } if link == "peers" => write!(f, "{node}'s links to its peers"),
            Self::Cut { node, link, .. } => write!(f, "the link between {node} and {link}"),
            Self::Kill { node } => write!(f, "{node} has no power"),
            Self::CrashAgent { node } => write!(f, "the agent of {node} was killed"),
            Self::CrashController { which } => write!(f, "{which} was killed"),
            Self::CrashApiServer { for_ms, stock } => {
                let also = if *stock { " with the stock controllers" } else { "" };
                write!(f, "the API server is down{also} for {}", Span::of_millis(*for_ms))
            }
            Self::Stall { node, for_ms } => write!(f, "{node} is frozen for {}", Span::of_millis(*for_ms)),
            Self::RestartAgent { node, for_ms } => {
                write!(f, "the agent of {node} is down for {}", Span::of_millis(*for_ms))
            }
            Self::RestartKubelet { node, for_ms } => {
                write!(
                    f,
                    "the kubelet of {node} is down for {}",
                    Span::of_millis(*for_ms)
                )
            }
            Self::Heal { node: Some(node) } => write!(f, "{node} healed"),
            Self::Heal { node: None } => f.write_str("everything healed"),
        }
    }
}
