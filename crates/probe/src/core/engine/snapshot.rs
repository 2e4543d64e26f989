//! What outlives a prober.

use super::{Engine, Tally};
use crate::core::{Kind, Worker};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Everything that survives a restart of the prober.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Workers that know a container.
    pub workers: Vec<Kept>,
}

/// One worker's state, as kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// UID of the pod.
    pub pod: Arc<str>,
    /// Name of the container.
    pub container: Arc<str>,
    /// The state of its worker.
    pub worker: Worker,
    /// What it had done.
    #[serde(default)]
    pub tally: Tally,
}

impl Engine {
    /// State to be kept for the next prober: all workers that know a container, and what was restored and has
    /// not been taken up yet.
    pub fn snapshot(&self) -> Snapshot {
        let present = self.workers.iter().map(|slot| Kept {
            pod: slot.key.pod.clone(),
            container: slot.key.container.clone(),
            worker: slot.worker.clone(),
            tally: slot.tally.clone(),
        });
        let aside = self.aside.values().flatten().cloned();
        Snapshot {
            workers: present
                .chain(aside)
                .filter(|kept| kept.worker.container_id().is_some())
                .collect(),
        }
    }

    /// State that a former prober kept; taken up by workers of the same pods and containers when they are
    /// added. It counts only for a container that still has the same ID; what was published about it is told
    /// once more, because whoever acts on it may not have heard. What is not taken up goes with
    /// [`Engine::retain_pods`].
    pub fn restore(&mut self, snapshot: Snapshot) {
        for kept in snapshot.workers {
            self.aside.entry(kept.pod.clone()).or_default().push(kept);
        }
    }
}

/// Takes the state of a worker out of what was kept of its pod.
pub(super) fn take(kept: &mut Vec<Kept>, container: &str, kind: Kind) -> Option<(Worker, Tally)> {
    let place = kept
        .iter()
        .position(|kept| &*kept.container == container && kept.worker.kind() == kind)?;
    let kept = kept.swap_remove(place);
    Some((kept.worker, kept.tally))
}
