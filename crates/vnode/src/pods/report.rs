//! Reports of the provider; and what is done about those that cannot be.
//!
//! A report is made once. One that is not believed may be the only word of a container's end, so that the
//! provider is asked what is true.

use super::actor::Actor;
use super::check;
use super::entry::Call;
use super::message::{Message, Rechecked};
use crate::core::pod::Input;
use crate::fleet::common::timestamp;
use crate::provider::{FaultKind, Observed, PodId};
use std::sync::Arc;
use std::time::Duration;

/// Before the provider is asked; doubled after each answer that is of no use, up to [`MOST`].
const FIRST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(60);

impl Actor {
    /// The provider reports of a container.
    pub(super) fn observed(&mut self, id: &PodId, container: Arc<str>, mut observed: Observed) {
        let Some(entry) = self.pods.get(&id.uid) else {
            return;
        };
        let Some(pod) = entry.object() else {
            return;
        };
        let known = check::names(&pod).contains(&*container);
        let checked = if known {
            check::observed(&mut observed, timestamp(self.common.clock.now()))
        } else {
            Err(format!("the pod has no container {container:?}"))
        };
        if let Err(why) = checked {
            check::fault("report", &entry.id, why);
            self.recheck(&id.uid, 0);
            return;
        }
        self.step(&id.uid, Input::Observed { container, observed });
    }

    /// Asks the provider about a pod, after a while. One question at a time.
    fn recheck(&mut self, uid: &Arc<str>, failed: u32) {
        let Some(entry) = self.pods.get_mut(uid).filter(|entry| !entry.rechecking) else {
            return;
        };
        entry.rechecking = true;
        let (uid, serial, handle) = (uid.clone(), entry.serial, self.handle.clone());
        let Some(entry) = self.pods.get(&uid) else {
            return;
        };
        let errand = self.errand(entry, &Call::Adopt);
        let pause = FIRST.saturating_mul(1 << failed.min(16)).min(MOST);
        self.calls.spawn("a check of a pod", async move {
            tokio::time::sleep(pause).await;
            if let Input::Adopted(state) = errand.run(&Call::Adopt).await {
                handle.send(Message::Rechecked(Box::new(Rechecked {
                    uid,
                    serial,
                    failed,
                    state,
                })));
            }
        });
    }

    /// What the provider says of a pod: as if it had reported it.
    pub(super) fn rechecked(&mut self, rechecked: Rechecked) {
        let Some(entry) = self.pods.get_mut(&rechecked.uid) else {
            return;
        };
        if entry.serial != rechecked.serial {
            return;
        }
        entry.rechecking = false;
        match rechecked.state {
            Ok(Some(state)) => {
                for (container, observed) in state.containers {
                    let container = container.into();
                    self.step(&rechecked.uid, Input::Observed { container, observed });
                }
            }
            Ok(None) => tracing::warn!(
                pod = %entry.id,
                uid = %entry.id.uid,
                node = %self.handle.name,
                "the provider reports of a pod that it says it does not have; delete the pod if it does not run"
            ),
            Err(fault) if fault.kind == FaultKind::Later => {
                self.recheck(&rechecked.uid, rechecked.failed.saturating_add(1));
            }
            Err(fault) => tracing::warn!(
                pod = %entry.id,
                uid = %entry.id.uid,
                node = %self.handle.name,
                reason = fault.reason,
                %fault,
                "the provider's last report of a pod makes no sense, and it does not say what is true; delete the pod if it does not run"
            ),
        }
    }
}
