//! A pod as its node's actor keeps it.

use super::Seen;
use super::packed::Packed;
use crate::core::pod::Machine;
use crate::fleet::metrics::Phase;
use crate::provider::PodId;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

/// A pod. Those that are settled keep their object packed alone.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: PodId,
    /// Unique in the actor.
    pub(super) serial: u32,
    /// The last list that held it.
    pub(super) epoch: u32,
    /// `metadata.resourceVersion` as a number, 0 where it is none: later ones are larger (KEP-5504).
    pub(super) version: u64,
    pub(super) machine: Machine,
    pub(super) packed: Packed<Pod>,
    /// The object unpacked, while there is something to do; with its place among those that are.
    pub(super) open: Option<(Arc<Pod>, OwnedSemaphorePermit)>,
    /// The object is gone from the API server.
    pub(super) gone: bool,
    /// The provider is being asked about it, after a report that could not be.
    pub(super) rechecking: bool,
    pub(super) calls: Line,
    pub(super) phase: Phase,
}

/// A call that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Call {
    Adopt,
    Create,
    Update,
    Start {
        container: Arc<str>,
        attempt: u32,
    },
    Stop {
        container: Arc<str>,
        id: Arc<str>,
        grace: Duration,
    },
    Delete,
}

impl Call {
    /// What it is called in traces.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Adopt => "status",
            Self::Create => "create",
            Self::Update => "update",
            Self::Start { .. } => "start",
            Self::Stop { .. } => "stop",
            Self::Delete => "delete",
        }
    }

    /// A pod that ends has no use for it, and it must not hold up the end. A sandbox that is being created is
    /// waited for: what there is of it is deleted after that.
    fn is_vain_at_the_end(&self) -> bool {
        matches!(self, Self::Update | Self::Start { .. })
    }

    fn is_stop(&self) -> bool {
        matches!(self, Self::Stop { .. })
    }
}

/// A pod's calls, one at a time. Only stops run alongside each other: grace periods of several containers do
/// not add up, and a stop in a hurry overtakes one that waits.
#[derive(Debug, Default)]
pub(super) struct Line {
    waiting: VecDeque<Call>,
    running: u16,
    /// What runs are stops.
    stops: bool,
    /// Ends what runs, where that is of no use to a pod that ends.
    interrupt: Option<CancellationToken>,
}

impl Line {
    pub(super) fn add(&mut self, call: Call) {
        self.waiting.push_back(call);
    }

    /// The next call, if it may run now; it counts as running.
    pub(super) fn next(&mut self) -> Option<Call> {
        let stop = self.waiting.front()?.is_stop();
        if self.running > 0 && !(self.stops && stop) {
            return None;
        }
        self.running += 1;
        self.stops = stop;
        let next = self.waiting.pop_front();
        self.interrupt = next
            .as_ref()
            .filter(|call| call.is_vain_at_the_end())
            .map(|_| CancellationToken::new());
        next
    }

    /// What ends the call that came last, where it may be ended early.
    pub(super) fn interrupt(&self) -> Option<&CancellationToken> {
        self.interrupt.as_ref()
    }

    pub(super) fn ended(&mut self) {
        self.running = self.running.saturating_sub(1);
        if self.running == 0 {
            self.interrupt = None;
        }
        if self.running == 0 && self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.is_empty()
    }
}

impl Entry {
    pub(super) fn new(id: PodId, serial: u32, epoch: u32, machine: Machine, seen: &Seen) -> Self {
        Self {
            id,
            serial,
            epoch,
            version: version(&seen.pod),
            machine,
            packed: Packed::new(&seen.pod),
            open: None,
            gone: false,
            rechecking: false,
            calls: Line::default(),
            phase: Phase::of(
                seen.pod
                    .status
                    .as_ref()
                    .and_then(|status| status.phase.as_deref()),
            ),
        }
    }

    /// The object; `None` where it cannot be unpacked, which is told in the log.
    pub(super) fn object(&self) -> Option<Arc<Pod>> {
        if let Some((open, _)) = &self.open {
            return Some(open.clone());
        }
        match self.packed.open() {
            Ok(pod) => Some(Arc::new(pod)),
            Err(error) => {
                tracing::error!(pod = %self.id, uid = %self.id.uid, %error, "a pod that was packed away cannot be read: nothing is done for it until it changes");
                None
            }
        }
    }
}

/// `metadata.resourceVersion` as a number; 0 where it is none.
pub(super) fn version(pod: &Pod) -> u64 {
    let version = pod.metadata.resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// A pod as it is now: what its machine says, over what others wrote.
pub(super) fn with_status(pod: &Pod, now: PodStatus) -> Pod {
    let mut pod = pod.clone();
    let former = pod.status.take().unwrap_or_default();
    let mut conditions = now.conditions.clone().unwrap_or_default();
    let others = former.conditions.into_iter().flatten();
    for other in others {
        if conditions.iter().all(|condition| condition.type_ != other.type_) {
            conditions.push(other);
        }
    }
    pod.status = Some(PodStatus {
        conditions: Some(conditions),
        nominated_node_name: former.nominated_node_name,
        resource_claim_statuses: former.resource_claim_statuses,
        ..now
    });
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop(container: &str) -> Call {
        Call::Stop {
            container: container.into(),
            id: "a://1".into(),
            grace: Duration::ZERO,
        }
    }

    #[test]
    fn calls_that_a_pod_which_ends_has_no_use_for_can_be_ended() {
        let start = Call::Start {
            container: "app".into(),
            attempt: 0,
        };
        for (call, vain) in [
            (start, true),
            (Call::Update, true),
            (Call::Adopt, false),
            (Call::Create, false),
            (stop("a"), false),
            (Call::Delete, false),
        ] {
            let mut line = Line::default();
            line.add(call.clone());
            assert_eq!(line.next(), Some(call.clone()));
            assert_eq!(line.interrupt().is_some(), vain, "{call:?}");
            line.ended();
            assert!(line.interrupt().is_none());
        }
    }

    #[test]
    fn calls_run_one_at_a_time_but_stops_alongside_each_other() {
        let mut line = Line::default();
        for call in [Call::Create, stop("a"), stop("b"), Call::Delete] {
            line.add(call);
        }
        assert_eq!(line.next(), Some(Call::Create));
        assert_eq!(line.next(), None);
        line.ended();
        assert_eq!((line.next(), line.next()), (Some(stop("a")), Some(stop("b"))));
        assert_eq!(line.next(), None);
        line.ended();
        assert_eq!(line.next(), None);
        line.ended();
        assert_eq!(line.next(), Some(Call::Delete));
        assert!(!line.is_idle());
        line.ended();
        assert!(line.is_idle());
    }
}
