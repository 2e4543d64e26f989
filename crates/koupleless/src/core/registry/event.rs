//! What follows from what sources see.

use crate::core::{Base, Identity};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// What has become of a base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Name of its node; it never changes.
    pub node: Arc<str>,
    /// What is known of it now.
    pub base: Arc<Base>,
    /// What has become of it.
    pub change: Change,
}

/// How a base changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is known from now on: its node is wanted. First of all changes.
    Online,
    /// Its address, port, pod or names are others than they were.
    Changed {
        /// What was known before.
        from: Arc<Base>,
    },
    /// Nothing was heard of it for a while: its node is Ready=Unknown, nothing else.
    Silent,
    /// It is no more, or not to be used: its pods are to be evicted.
    Lost(Evidence),
    /// It has given a sign of life after it was silent or lost.
    Back,
    /// Its node is to be removed with its Node and Lease. Last of all changes.
    Gone(Why),
    /// Others serve it, and have removed its Node: it is forgotten here, nothing is to be deleted. Last of
    /// all changes.
    Left,
}

/// Why a base counts as lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Evidence {
    /// Its pod was deleted.
    #[error("its pod {0} was deleted")]
    PodDeleted(String),
    /// Its pod has ended.
    #[error("its pod {0} has ended")]
    PodEnded(String),
    /// Nobody listens at its port.
    #[error("it is silent, and {0} refuses connections")]
    PortRefused(SocketAddr),
    /// Another base is where it was.
    #[error("it is silent, and base {1} answers at {0}")]
    Replaced(SocketAddr, Identity),
    /// It said so.
    #[error("it was deactivated")]
    Deactivated,
    /// Nothing was heard of it.
    #[error("nothing was heard of it for {} s", .0.as_secs())]
    Silence(Duration),
}

/// Why a node is removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Its base was lost and did not come back.
    #[error("{0}")]
    Lost(Evidence),
    /// Its base, of which only the pod was known, has another identity.
    #[error("it is base {0}, which has a node of its own")]
    Renamed(Identity),
}

/// Whether a base lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// It does, as far as is known. So does whatever is served elsewhere.
    Alive,
    /// Nothing is heard of it.
    Silent,
    /// It is no more.
    Lost(Evidence),
}
