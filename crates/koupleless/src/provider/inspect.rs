//! Inspects bases: what they hold, and how they are.

use super::base::{Bound, Running, State};
use super::install::about;
use super::remove::LOST;
use super::{ANOTHER, Inner, Life};
use crate::core::Modules;
use evenkeel_arklet::health::{Health, Jvm, Limit};
use evenkeel_arklet::{Module, ModuleId, ModuleList, ModuleState, cause};
use evenkeel_vnode::provider::{
    ContainerId, Doing, Exit, Fault, NodeHealth, Observed, PodRequest, PodState, Report,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeCondition;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Metaspace in a Node's status moves in steps of this part of its maximum, so that a status is written when
/// it matters.
const STEPS: u64 = 32;

impl Inner {
    /// How a base is. A base that does not answer is not ill for that: who finds bases says when one is
    /// silent for too long.
    pub(super) async fn ping(self: &Arc<Self>, node: &str) -> Result<NodeHealth, Fault> {
        let bound = self.bound(node)?;
        let mut another = None;
        match self.health(&bound).await {
            Ok(health) => {
                if let Some(observer) = self.observer.get() {
                    observer.health(node, &health);
                }
                let mut state = bound.memory.state();
                let kept = state.health.as_ref().and_then(|health| health.jvm.clone());
                let java = |jvm: &Option<Jvm>| jvm.as_ref().and_then(|jvm| jvm.version.clone());
                let before = java(&kept);
                let jvm = health.jvm.or(kept);
                let has_changed = java(&jvm) != before;
                state.health = Some(Arc::new(Health { jvm, ..health }));
                drop(state);
                if has_changed && let Some(host) = self.host.get() {
                    host.report(Report::Node { name: node.into() });
                }
                if bound.memory.is_stale(self.settings.resync) {
                    self.watch(bound.clone());
                }
            }
            Err(fault) => {
                tracing::debug!(node, reason = fault.reason, "{}", fault.message);
                another = (fault.reason == ANOTHER).then_some(fault.message);
            }
        }
        let health = bound.memory.state().health.clone();
        let mut answer = self.published(health.as_deref());
        match self.bases.life(node) {
            Life::Alive => {
                let unknown = |why: String| ready("Unknown", ANOTHER, &why);
                answer.conditions.extend(another.map(unknown));
            }
            Life::Silent(why) => answer.conditions.push(ready("Unknown", "BaseSilent", &why)),
            Life::Lost(why) => answer.conditions.push(ready("Unknown", "BaseLost", &why)),
        }
        Ok(answer)
    }

    /// Inspects a base and reports to the framework, in the background.
    fn watch(self: &Arc<Self>, bound: Bound) {
        let inner = self.clone();
        tokio::spawn(async move {
            if let Err(fault) = inner.inspect(&bound).await {
                tracing::debug!(node = %bound.node, reason = fault.reason, "{}", fault.message);
            }
        });
    }

    /// What a base holds now. Changes are reported to the framework on the way.
    pub(super) async fn inspect(&self, bound: &Bound) -> Result<Arc<ModuleList>, Fault> {
        let asked = Instant::now();
        let _held = bound.memory.inspection.lock().await;
        if let Some((at, list)) = &bound.memory.state().seen
            && *at > asked
        {
            // Asked after we came, answered while we waited.
            return Ok(list.clone());
        }
        let began = Instant::now();
        let tunnel = self.tunnels.to(&bound.base)?;
        let list = tunnel
            .modules(&self.target(&bound.base))
            .await
            .map_err(|error| self.fault(bound, &error))?;
        for one in &list.unreadable {
            tracing::warn!(base = %bound.base, entry = one.excerpt, "an entry of the list of modules cannot be read");
        }
        let list = Arc::new(list);
        let reports = {
            let mut state = bound.memory.state();
            state.seen = Some((began, list.clone()));
            compare(bound, &mut state, &list)
        };
        if let Some(host) = self.host.get() {
            for report in reports {
                host.report(report);
            }
        }
        Ok(list)
    }

    /// What has become of a pod that an earlier process ran.
    pub(super) async fn status(&self, request: &PodRequest) -> Result<Option<PodState>, Fault> {
        let bound = self.bound(&request.id.node)?;
        let modules = Modules::readable(&request.pod, &self.settings.profile);
        self.read_journal(&bound).await?;
        // Nobody can be asked any more, and a pod that is deleted need not wait for an answer.
        let is_deleted = request.pod.metadata.deletion_timestamp.is_some();
        if is_deleted && matches!(self.bases.life(&bound.node), Life::Lost(_)) {
            return Ok(None);
        }
        let ids = modules.ids();
        let list = self.inspect(&bound).await.map_err(|fault| about(&ids, fault))?;
        let ours = |module: &crate::core::module::Module| {
            let state = bound.memory.state();
            let owners = state.claims.owners(&module.key);
            owners.is_empty() || owners.iter().any(|owner| owner.uid == request.id.uid)
        };
        let now = Timestamp::now();
        let mut state = PodState {
            sandbox: Self::sandbox(&bound.base),
            containers: BTreeMap::new(),
        };
        let mut found = Vec::new();
        for wanted in modules.0.iter().filter(|module| ours(module)) {
            let Some(module) = list.get(&wanted.key) else {
                continue;
            };
            if matches!(module.state, ModuleState::Resolved | ModuleState::Unresolved) {
                // Somebody installs it; who starts it waits for that.
                continue;
            }
            let running = Running {
                pod: request.id.clone(),
                container: self.recorded_id(&bound, request, &wanted.key, module),
                created: module.created_ms(),
                doing: doing(module, now, recorded_since(request, &wanted.key).unwrap_or(now)),
                url: wanted.url.clone(),
            };
            let observed = Observed {
                id: running.container.clone(),
                doing: running.doing.clone(),
            };
            state.containers.insert(wanted.key.name.clone(), observed);
            found.push(((wanted.key.clone(), request.id.uid.clone()), running));
        }
        let claimed = !bound.memory.state().claims.of(&request.id.uid).is_empty();
        if found.is_empty() && !claimed {
            return Ok(None);
        }
        self.claim(&bound, &request.id, &modules.0).await?;
        bound.memory.state().running.extend(found);
        Ok(Some(state))
    }

    /// The ID of a container that runs already: the one that was recorded, unless the base says that this is
    /// another instance.
    fn recorded_id(
        &self,
        bound: &Bound,
        request: &PodRequest,
        id: &ModuleId,
        module: &Module,
    ) -> ContainerId {
        let status = request.pod.status.as_ref();
        let mut all = status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten());
        let known = all.find(|status| status.name == id.name);
        let attempt = known.map_or(0, |status| {
            u32::try_from(status.restart_count).unwrap_or_default()
        });
        let computed = self.container_id(bound, id, module, attempt);
        let told = module.created_ms().is_some() && self.settings.profile.container_id.contains("{since}");
        let recorded = known.and_then(|status| status.container_id.as_deref());
        let head = if told {
            self.container_id(bound, id, module, 0).0.to_string()
        } else {
            format!("arklet://{}:{id}", bound.base.endpoint.address)
        };
        match recorded {
            Some(recorded) if recorded.starts_with(&head) => ContainerId(recorded.into()),
            _ => computed,
        }
    }

    /// By which Java a base runs, where a machine has its kernel; empty before it has told.
    pub(super) fn java(&self, node: &str) -> String {
        let health = self
            .table
            .known(node)
            .and_then(|memory| memory.state().health.clone());
        let jvm = health.as_ref().and_then(|health| health.jvm.as_ref());
        let version = jvm.and_then(|jvm| jvm.version.as_deref());
        version.map_or_else(String::new, |version| format!("Java {version}"))
    }

    /// Capacity by what the base says of itself.
    fn published(&self, health: Option<&Health>) -> NodeHealth {
        let pods = self
            .settings
            .pods
            .unwrap_or(self.settings.profile.pods)
            .to_string();
        let mut capacity = BTreeMap::from([("pods".to_owned(), pods)]);
        if let Some(count) = health.and_then(|health| health.cpu.as_ref()?.count) {
            capacity.insert("cpu".to_owned(), count.to_string());
        }
        let mut allocatable = capacity.clone();
        if let Some(jvm) = health.and_then(|health| health.jvm.as_ref())
            && let Some(Limit::Bytes(max)) = jvm.metaspace_max
        {
            let committed = jvm.metaspace_committed.unwrap_or_default().min(max);
            let step = (max / STEPS).max(1);
            let committed = committed.div_ceil(step).saturating_mul(step).min(max);
            let kib = |bytes: u64| format!("{}Ki", bytes / 1024);
            capacity.insert("memory".to_owned(), kib(max));
            allocatable.insert("memory".to_owned(), kib(max - committed));
        }
        NodeHealth {
            conditions: Vec::new(),
            capacity: Some(capacity),
            allocatable: Some(allocatable),
        }
    }
}

/// When a container began, as it was recorded.
fn recorded_since(request: &PodRequest, id: &ModuleId) -> Option<Timestamp> {
    let status = request.pod.status.as_ref()?;
    let mut all = status.container_statuses.iter().flatten();
    let known = all.find(|status| status.name == id.name)?;
    let running = known.state.as_ref()?.running.as_ref()?;
    running.started_at.as_ref().map(|time| time.0)
}

/// What has changed since it was last told.
fn compare(bound: &Bound, state: &mut State, list: &ModuleList) -> Vec<Report> {
    let State { running, busy, .. } = state;
    let now = Timestamp::now();
    let mut reports = Vec::new();
    running.retain(|(id, _), known| {
        // A module that is being changed is reported by the operation that changes it.
        if busy.contains(&id.name) {
            return true;
        }
        let module = list.get(id);
        // Where either time is not told, nothing speaks for another instance.
        let differs = |module: &Module| {
            let times = known.created.zip(module.created_ms());
            times.is_some_and(|(before, now)| before != now)
        };
        let same = module.is_some_and(|module| !differs(module));
        let doing = match module {
            Some(module) if same => doing(module, now, known.doing.since().unwrap_or(now)),
            _ => Doing::Ended(lost(bound, id, module.is_some(), now)),
        };
        let ended = matches!(doing, Doing::Ended(_));
        if doing != known.doing {
            known.doing = doing.clone();
            reports.push(Report::Container {
                pod: known.pod.clone(),
                name: id.name.as_str().into(),
                observed: Observed {
                    id: known.container.clone(),
                    doing,
                },
            });
        }
        !ended
    });
    reports
}

/// A module that somebody else has removed.
fn lost(bound: &Bound, id: &evenkeel_arklet::ModuleId, again: bool, now: Timestamp) -> Exit {
    let how = if again { "was installed anew" } else { "is gone" };
    Exit {
        code: LOST,
        reason: "ModuleLost".to_owned(),
        message: format!(
            "module {id} {how} on {}: the base was restarted, or somebody has removed the module",
            bound.base
        ),
        started_at: None,
        at: now,
    }
}

/// A module's state as a container's. `since`: when it began, where the base does not say so.
pub(super) fn doing(module: &Module, now: Timestamp, since: Timestamp) -> Doing {
    let latest = module.latest();
    let time = |ms: Option<i64>| {
        ms.and_then(|ms| Timestamp::from_millisecond(ms).ok())
            .map_or(now, |at| at.min(now))
    };
    let since = module.created_ms().map_or(since, |ms| time(Some(ms)));
    let text = latest.map(|record| record.message.clone()).unwrap_or_default();
    match &module.state {
        ModuleState::Activated => Doing::Running { since },
        ModuleState::Broken => Doing::Ended(Exit {
            code: 1,
            reason: latest.map_or_else(|| "Broken".to_owned(), |record| record.reason.as_str().to_owned()),
            message: cause::of_trace(&text).unwrap_or(text),
            started_at: Some(since),
            at: time(latest.and_then(|record| record.changed_ms)),
        }),
        ModuleState::Stopped => Doing::Ended(Exit {
            code: 0,
            reason: "Completed".to_owned(),
            message: text,
            started_at: Some(since),
            at: time(latest.and_then(|record| record.changed_ms)),
        }),
        ModuleState::Deactivated => Doing::Stalled {
            since,
            reason: "Deactivated".to_owned(),
            message: "another version of the module serves".to_owned(),
        },
        state @ (ModuleState::Unresolved | ModuleState::Resolved | ModuleState::Other(_)) => Doing::Stalled {
            since,
            reason: "NotActivated".to_owned(),
            message: format!("the module is {state}"),
        },
    }
}

fn ready(status: &str, reason: &str, message: &str) -> NodeCondition {
    NodeCondition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..NodeCondition::default()
    }
}

#[cfg(test)]
mod tests;
