//! Modules go.

use super::base::Bound;
use super::evict::stays;
use super::install::about;
use super::{Inner, Life};
use crate::core::claims::Owner;
use evenkeel_arklet::{ModuleId, Outcome};
use evenkeel_vnode::provider::{ContainerId, Exit, Fault, FaultKind, PodId};
use jiff::Timestamp;
use std::collections::HashSet;
use std::time::Duration;

impl Inner {
    /// All pods of which the journal knows something.
    pub(super) async fn list(&self, node: &str) -> Result<Vec<PodId>, Fault> {
        let bound = self.bound(node)?;
        self.read_journal(&bound).await?;
        let state = bound.memory.state();
        let mut pods: Vec<PodId> = Vec::new();
        for owner in state.claims.all().flat_map(|(_, owners)| owners) {
            let Some((namespace, name)) = owner.pod.split_once('/') else {
                continue;
            };
            if pods.iter().all(|pod| pod.uid != owner.uid) {
                pods.push(PodId {
                    uid: owner.uid.clone(),
                    namespace: namespace.into(),
                    name: name.into(),
                    node: bound.node.clone(),
                });
            }
        }
        Ok(pods)
    }

    pub(super) async fn stop(&self, pod: &PodId, container: &ContainerId) -> Result<Exit, Fault> {
        let exit = |message: String| Exit {
            code: 0,
            reason: "Completed".to_owned(),
            message,
            started_at: None,
            at: Timestamp::now(),
        };
        if let Life::Lost(why) = self.bases.life(&pod.node) {
            // Should the base come back, its modules are anybody's.
            if let Ok(bound) = self.bound(&pod.node) {
                let mut state = bound.memory.state();
                if let Some(module) = state.module(pod, container) {
                    state.forget(&pod.uid, &module);
                }
            }
            return Ok(Exit {
                code: LOST,
                reason: "BaseLost".to_owned(),
                ..exit(why)
            });
        }
        let bound = self.bound(&pod.node)?;
        let module = {
            let mut state = bound.memory.state();
            state.leaving.insert(pod.uid.clone());
            state.module(pod, container)
        };
        // One that is not known has ended; what there is of the pod goes with it.
        let Some(module) = module else {
            let message = format!(
                "container {container} of pod {pod} is not known on {}",
                bound.base
            );
            return Err(Fault::new(FaultKind::NotFound, "ContainerNotFound", message));
        };
        self.give_back(&bound, pod, &module).await?;
        self.write_journal(&bound).await?;
        Ok(exit(String::new()))
    }

    /// A pod has a module no more: it is removed, unless other pods have it.
    async fn give_back(&self, bound: &Bound, pod: &PodId, module: &ModuleId) -> Result<(), Fault> {
        let turn = bound.memory.turn(&module.name).await;
        if !bound.memory.state().claims.is_anothers(&pod.uid, module) {
            self.remove(bound, module).await?;
        }
        // Before its turn is over: nobody is to find that it is gone.
        bound.memory.state().forget(&pod.uid, module);
        drop(turn);
        Ok(())
    }

    /// Removes all that is left of a pod.
    pub(super) async fn delete(&self, pod: &PodId) -> Result<(), Fault> {
        let lost = matches!(self.bases.life(&pod.node), Life::Lost(_));
        let Ok(bound) = self.bound(&pod.node) else {
            // Nobody knows the base: there is nothing to be removed from.
            return Ok(());
        };
        self.read_journal(&bound).await?;
        let modules = {
            let mut state = bound.memory.state();
            state.leaving.insert(pod.uid.clone());
            state.claims.of(&pod.uid)
        };
        for module in &modules {
            if lost {
                bound.memory.state().forget(&pod.uid, module);
                continue;
            }
            self.give_back(&bound, pod, module).await?;
        }
        self.write_journal(&bound).await?;
        let mut state = bound.memory.state();
        state.leaving.remove(&pod.uid);
        state.unmet.remove(&pod.uid);
        Ok(())
    }

    /// Removes what was installed for pods that are not there any more, or on their way out.
    pub(super) async fn purge(&self, node: &str) -> Result<usize, Fault> {
        let bound = self.bound(node)?;
        self.read_journal(&bound).await?;
        // First who has what, then who is there: who comes between is not taken for one who has left.
        let claims: Vec<(ModuleId, Vec<Owner>)> = {
            let state = bound.memory.state();
            let all = state.claims.all();
            all.map(|(id, owners)| (id.clone(), owners.to_vec())).collect()
        };
        let pods = self.pods_on(node, &self.client(node)?).await?;
        let there: HashSet<&str> = pods
            .iter()
            .filter(|pod| stays(pod))
            .filter_map(|pod| pod.metadata.uid.as_deref())
            .collect();
        let mut left = 0;
        let all_left = |owners: &[Owner]| owners.iter().all(|owner| !there.contains(&*owner.uid));
        for (module, owners) in claims.iter().filter(|(_, owners)| all_left(owners)) {
            let turn = bound.memory.turn(&module.name).await;
            if bound.memory.state().claims.owners(module) != owners {
                continue;
            }
            let removed = self.remove(&bound, module).await;
            drop(turn);
            if let Err(fault) = removed {
                tracing::warn!(node, %module, reason = fault.reason, error = fault.message, "cannot uninstall a module that no pod wants");
                left += 1;
            }
        }
        // Containers whose modules are gone are reported.
        self.inspect(&bound).await?;
        Ok(left)
    }

    /// Has a module removed. One that is not there is removed.
    pub(super) async fn remove(&self, bound: &Bound, module: &ModuleId) -> Result<(), Fault> {
        let removed = self.uninstall(bound, module).await;
        removed.map_err(|fault| about(std::slice::from_ref(module), fault))
    }

    async fn uninstall(&self, bound: &Bound, module: &ModuleId) -> Result<(), Fault> {
        let tunnel = self.way(bound, Duration::ZERO).await?;
        let outcome = tunnel.uninstall(&self.target(&bound.base), module).await;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) if error.may_have_run() => {
                let why = self.fault(bound, &error);
                if self.inspect(bound).await?.get(module).is_none() {
                    return Ok(());
                }
                return Err(why);
            }
            Err(error) => return Err(self.fault(bound, &error)),
        };
        if outcome.is_gone() {
            tracing::info!(base = %bound.base.identity, %module, "module removed");
            return Ok(());
        }
        let reason = match outcome {
            Outcome::Conflict { .. } | Outcome::IllegalState { .. } => "ModuleBusy",
            _ => "UninstallFailed",
        };
        let message = format!(
            "module {module} could not be removed from {}: {outcome}",
            bound.base
        );
        Err(Fault::new(FaultKind::Later, reason, message))
    }
}

/// Exit code of a module whose base is gone.
pub(super) const LOST: i32 = 137;
