//! What goes into a machine and comes out of it.

use super::{Note, Reading};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// What a machine that begins finds on the node: whether the taint is there.
    Found {
        /// Whether the node has the taint.
        tainted: bool,
    },
    /// An answer to `health`. `None`: the base could not measure itself; the last reading stands.
    Health(Option<Reading>),
    /// What is known of the base otherwise.
    Base {
        /// Whether the base has been silent for too long.
        silent: bool,
        /// `metadata.uid` of the pod that it runs in.
        pod: Option<Arc<str>>,
    },
    /// The answer to the action under way.
    Answer(Answer),
    /// The base's node is no more.
    Gone,
    Tick,
}

/// What is to be done. Each is answered once, with [`Answer::Failed`] if nothing better is known, and may be
/// repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Take a permit of the budget, or keep the one that is held.
    Acquire,
    Taint,
    /// Inspect the node: which pods are still there, and whether the taint is.
    Inspect,
    /// Uninstall what is left of our modules.
    Uninstall,
    /// Evict the pod of this UID, in which the base runs, by the Eviction API of the cluster that it is in.
    Replace(Arc<str>),
    /// Take the taint off; one that is not there is fine.
    Untaint,
    /// Give the permit back; one that is not held is fine.
    Release,
}

/// What came of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    /// No permit is free: these nodes have them.
    Full(String),
    /// What the inspection showed. It began after it was requested.
    Seen {
        /// Pods that must leave for the taint and have not.
        pods: usize,
        /// Whether the node has the taint.
        tainted: bool,
    },
    /// This number of our modules is left.
    Left(usize),
    /// The pod is no more: there is nothing to evict.
    NoPod,
    /// A disruption budget does not allow it now.
    Refused(String),
    /// It failed, or nobody knows.
    Failed(String),
}

/// How a healing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The metaspace is back.
    Recovered,
    /// The base is a new one.
    Replaced,
    /// The pods did not leave in time.
    GaveUp,
}

/// Where a healing stands. Times are those of the inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing is wrong, or nothing is known.
    Well,
    /// The taint was found at the start: readings decide whether a healing goes on.
    Adopted,
    /// It waits for a permit of the budget.
    Asking,
    /// The taint is being set.
    Tainting {
        /// When the permit is requested anew.
        until: Duration,
    },
    /// Pods leave; the cluster evicts them.
    Draining {
        /// When it gives up.
        until: Duration,
        /// Pods at the last inspection.
        pods: Option<usize>,
    },
    /// What is left of our modules is being uninstalled.
    Uninstalling {
        /// When it goes on although some are left.
        until: Duration,
    },
    /// The base is empty, and may show that its metaspace is back.
    Settling {
        /// When the base is replaced.
        until: Duration,
    },
    /// Its pod is being evicted.
    Replacing {
        /// A last inspection has shown that no pod has come since.
        sure: bool,
    },
    /// A new base is expected.
    Waiting {
        /// When the eviction is requested again.
        until: Duration,
    },
    /// The base is empty, and no pod of it is known: somebody has to restart it.
    Spent,
    /// The taint is being taken off.
    Untainting(Outcome),
    /// The permit is being given back. `None`: no taint was set.
    Releasing(Option<Outcome>),
    /// The node is no more.
    Gone,
}

/// What a machine answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Output {
    /// What is to be done.
    pub action: Option<Action>,
    /// What is reported to people.
    pub notes: Vec<Note>,
    /// When the machine wants a [`Input::Tick`], if nothing else comes.
    pub wake: Option<Duration>,
    /// The node is no more and nothing is left to do: the machine can be dropped.
    pub finished: bool,
}
