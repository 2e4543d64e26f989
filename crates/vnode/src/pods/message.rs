//! What an actor is told.

use crate::core::env::Location;
use crate::core::{node, pod};
use crate::fleet::wheel::Timer;
use crate::provider::{ContainerId, Fault, Observed, PodId, PodState};
use evenkeel_kubelet_api::Wanted;
use evenkeel_probe::core::RestartRule;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A message to a node's actor. Small: mailboxes hold many.
#[derive(Debug)]
pub(crate) enum Message {
    /// A pod came or changed; the number of the list that it belongs to.
    Pod(Box<Seen>, u32),
    /// A pod (by UID) is still there, but cannot be read; the list's number.
    Unreadable(Arc<str>, u32),
    /// A pod is gone.
    Gone(Arc<str>),
    /// The list of this number is complete.
    Listed(u32),
    /// A list of this node's pods alone.
    OwnList(Box<OwnList>),
    Tick(Timer),
    /// A provider's call has ended.
    Ended(Box<Ended>),
    /// Something happened to a pod.
    Told(Arc<str>, Box<pod::Input>),
    /// The provider reports of a container.
    Observed(Box<(PodId, Arc<str>, Observed)>),
    /// What the provider said when it was asked after a report that could not be.
    Rechecked(Box<Rechecked>),
    /// The provider says that the node may have changed.
    Stirred,
    /// Something happened to the node.
    Node(Box<node::Input>),
    /// What the provider has.
    Strays(Box<Result<Vec<PodId>, Fault>>),
    /// A pod that only the provider knows was looked at and dealt with; whether it is over with.
    Stray(Arc<str>, bool),
    /// A query by the kubelet API or by the provider's host.
    Query(Box<Query>),
    /// The actor is to show a defect.
    #[cfg(test)]
    Defect,
}

/// A pod as it came from the API server.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) pod: Pod,
    /// `restartPolicyRules` by container, which the typed pod does not have.
    pub(crate) rules: Vec<(Arc<str>, Vec<RestartRule>)>,
}

/// A complete list of a node's pods.
#[derive(Debug)]
pub(crate) struct OwnList {
    /// The latest list of everything when this one was asked for.
    pub(crate) epoch: u32,
    /// Those that can be read.
    pub(crate) pods: Vec<Seen>,
}

/// The end of a provider's call.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) uid: Arc<str>,
    /// Which machine asked; another may have taken its place.
    pub(crate) serial: u32,
    pub(crate) input: pod::Input,
}

/// The end of a look at a pod.
#[derive(Debug)]
pub(crate) struct Rechecked {
    pub(crate) uid: Arc<str>,
    /// Which machine's; another may have taken its place.
    pub(crate) serial: u32,
    /// How many looks in a row have failed before.
    pub(crate) failed: u32,
    /// What is known.
    pub(crate) state: Result<Option<PodState>, Fault>,
}

/// What can be asked of an actor, with where the answer goes.
#[derive(Debug)]
pub(crate) enum Query {
    /// All pods as they are now.
    Pods(oneshot::Sender<Vec<Arc<Pod>>>),
    /// A pod as it is now.
    Pod {
        namespace: String,
        name: String,
        uid: Option<String>,
        answer: oneshot::Sender<Result<(PodId, Arc<Pod>), Fault>>,
    },
    Container {
        wanted: Wanted,
        answer: oneshot::Sender<Result<(PodId, ContainerId), Fault>>,
    },
    /// A pod's object, and where it runs.
    Location {
        uid: Arc<str>,
        answer: oneshot::Sender<Option<(Arc<Pod>, Location)>>,
    },
}

#[cfg(test)]
mod tests {
    #[test]
    fn messages_are_small() {
        assert!(
            size_of::<super::Message>() <= 32,
            "{}",
            size_of::<super::Message>()
        );
    }
}
