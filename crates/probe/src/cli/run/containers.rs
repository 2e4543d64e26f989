//! The containers of the pod: taken to run, or those of a runtime.

use super::super::args::RunArgs;
use super::super::error::CliError;
use super::super::kubelet::{self, Action, Kubelet, Seen};
use super::runtime::Runtime;
use super::setup::Setup;
use crate::core::engine::{Kept, Report, Snapshot};
use crate::core::{Kind, Now, PodStatus, Reading};
use crate::handler::Cri;
use crate::handler::exec::{Execute, Local};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub(super) enum Containers {
    /// Taken to run.
    Simulated(Kubelet),
    /// Of a runtime.
    Real(Runtime),
}

impl Containers {
    /// The containers, and what runs commands in them. `former` is the state of a former run.
    pub(super) async fn find(
        args: &RunArgs,
        setup: &Setup,
        former: &Snapshot,
        now: Now,
    ) -> Result<(Self, Arc<dyn Execute>), CliError> {
        if let Some(socket) = &args.cri {
            let runtime = Runtime::connect(socket, setup).await?;
            let exec = Cri::new(runtime.client());
            return Ok((Self::Real(runtime), Arc::new(exec)));
        }
        let restarts = restarts(setup, former);
        let kubelet = Kubelet::new(setup.pod.clone(), setup.address, setup.grace, &restarts, now);
        Ok((Self::Simulated(kubelet), Arc::new(Local)))
    }

    /// Waits until a runtime's containers are others. Returns what is to be reported then.
    pub(super) async fn changed(&mut self) -> Vec<String> {
        match self {
            Self::Simulated(_) => std::future::pending().await,
            Self::Real(runtime) => runtime.changed().await,
        }
    }

    pub(super) fn address(&self) -> Option<IpAddr> {
        self.status().address
    }

    pub(super) fn status(&self) -> PodStatus {
        match self {
            Self::Simulated(kubelet) => kubelet.status(),
            Self::Real(runtime) => runtime.status(),
        }
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        match self {
            Self::Simulated(kubelet) => kubelet.seen().collect(),
            Self::Real(runtime) => runtime.seen().collect(),
        }
    }

    pub(super) fn ready(&self) -> bool {
        match self {
            Self::Simulated(kubelet) => kubelet.ready(),
            Self::Real(runtime) => runtime.ready(),
        }
    }

    pub(super) fn failed(&self) -> bool {
        match self {
            Self::Simulated(kubelet) => kubelet.failed(),
            Self::Real(runtime) => runtime.failed(),
        }
    }

    pub(super) fn take(&mut self, reports: &[Report]) {
        match self {
            Self::Simulated(kubelet) => kubelet.take(reports),
            Self::Real(runtime) => runtime.take(reports),
        }
    }

    pub(super) fn fail(&mut self, container: &str, id: &str, kind: Kind, now: Now) -> Vec<Action> {
        match self {
            Self::Simulated(kubelet) => kubelet.fail(container, id, kind, now),
            Self::Real(runtime) => runtime.fail(container, id, kind),
        }
    }

    pub(super) fn due(&self) -> Option<Duration> {
        match self {
            Self::Simulated(kubelet) => kubelet.due(),
            Self::Real(_) => None,
        }
    }

    pub(super) fn advance(&mut self, now: Now) -> Vec<Action> {
        match self {
            Self::Simulated(kubelet) => kubelet.advance(now),
            Self::Real(_) => Vec::new(),
        }
    }

    /// In how long a container starts again.
    pub(super) fn waits(&self, container: &str, now: Duration) -> Option<Duration> {
        match self {
            Self::Simulated(kubelet) => kubelet.waits(container, now),
            Self::Real(_) => None,
        }
    }
}

/// Restarts that a former run has counted: its workers know the last IDs. A container that was to be killed
/// when that run ended is a new one now.
fn restarts(setup: &Setup, former: &Snapshot) -> BTreeMap<Arc<str>, u32> {
    let mut restarts = BTreeMap::new();
    for Kept {
        pod,
        container,
        worker,
        ..
    } in &former.workers
    {
        let known = worker.container_id().and_then(|id| kubelet::restarts_of(id));
        let Some(mut count) = known.filter(|_| **pod == *setup.pod.uid) else {
            continue;
        };
        if worker.on_hold() && worker.published() == Some(Reading::Failure) {
            count = count.saturating_add(1);
        }
        let most = restarts.entry(container.clone()).or_insert(0);
        *most = count.max(*most);
    }
    restarts
}
