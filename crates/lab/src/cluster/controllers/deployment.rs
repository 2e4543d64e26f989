//! Deployments: one ReplicaSet per pod template, rolled over within surge and unavailability.
//!
//! One look at a Deployment decides what upstream's controller decides in one synchronisation: it claims
//! ReplicaSets, then rolls out, or scales where the number of replicas changed or the Deployment is paused,
//! and then counts.

mod current;
mod rollout;
mod status;

use super::owned::{Claims, as_json, claim, identity, patch, replacement};
use crate::cluster::{
    action::{Action, Kind},
    view::Snapshot,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet, ReplicaSetStatus},
    apimachinery::pkg::util::intstr::IntOrString,
};
use serde_json::json;

const REVISION: &str = "deployment.kubernetes.io/revision";

/// What to do for all Deployments.
pub fn reconcile(view: &Snapshot, now: Timestamp) -> Vec<Action> {
    view.deployments
        .iter()
        .flat_map(|deployment| one(deployment, view, now))
        .collect()
}

fn one(deployment: &Deployment, view: &Snapshot, now: Timestamp) -> Vec<Action> {
    let Some(spec) = &deployment.spec else {
        return Vec::new();
    };
    let owner = ("apps/v1", "Deployment", &deployment.metadata);
    let Claims { owned, writes } = claim(Kind::ReplicaSet, owner, &spec.selector, &view.replica_sets);
    if !writes.is_empty() {
        return writes;
    }
    let mut sets: Vec<ReplicaSet> = owned.iter().map(|set| ReplicaSet::clone(set)).collect();
    sets.sort_by_key(|set| (created(set), set.metadata.name.clone()));
    let before = sets.clone();
    let mut rollout = Rollout {
        deployment,
        spec,
        wanted: spec.replicas.unwrap_or(1),
        now,
        current: sets.iter().position(|set| current::has_template(set, spec)),
        sets,
        made: None,
        status: deployment.status.clone().unwrap_or_default(),
        revision: None,
        deleted: Vec::new(),
    };
    rollout.run(view);
    rollout.actions(&before)
}

/// A Deployment and its ReplicaSets, as they are to become.
struct Rollout<'a> {
    deployment: &'a Deployment,
    spec: &'a DeploymentSpec,
    wanted: i32,
    now: Timestamp,
    /// The ReplicaSets, the oldest first. One that is yet to be made comes last.
    sets: Vec<ReplicaSet>,
    /// Which of them has the present template.
    current: Option<usize>,
    /// The creation of the current set.
    made: Option<Action>,
    status: DeploymentStatus,
    /// The revision to note on the Deployment.
    revision: Option<String>,
    deleted: Vec<Action>,
}

impl Rollout<'_> {
    fn run(&mut self, view: &Snapshot) {
        if self.deployment.metadata.deletion_timestamp.is_some() {
            self.note_revision();
            self.status = self.counted();
            return;
        }
        self.pause_or_resume();
        self.note_revision();
        let paused = self.spec.paused == Some(true);
        if paused || self.is_scaled() {
            self.scale();
            if paused {
                self.clean_up();
            }
            self.status = self.counted();
            return;
        }
        if self.rolls() {
            self.roll(view);
        } else {
            self.recreate(view);
        }
        self.progress();
    }

    /// The writes that make the sets and the status what they are now in memory.
    fn actions(self, before: &[ReplicaSet]) -> Vec<Action> {
        let mut actions: Vec<Action> = self.made.into_iter().collect();
        for (was, set) in before.iter().zip(&self.sets) {
            let mut change = json!({});
            let (old, new) = (was.spec.as_ref(), set.spec.as_ref());
            if old.map(|spec| spec.replicas) != new.map(|spec| spec.replicas) {
                change["spec"]["replicas"] = json!(replicas(set));
            }
            if old.map(|spec| spec.min_ready_seconds) != new.map(|spec| spec.min_ready_seconds) {
                change["spec"]["minReadySeconds"] = json!(new.map(|spec| spec.min_ready_seconds));
            }
            if was.metadata.annotations != set.metadata.annotations {
                change["metadata"]["annotations"] = json!(set.metadata.annotations);
            }
            if change != json!({}) {
                actions.push(patch(Kind::ReplicaSet, &set.metadata, change));
            }
        }
        actions.extend(self.deleted);
        // The revision is written with the status, so that it makes no new generation.
        let shown = self.deployment.metadata.annotations.as_ref();
        let shown = shown.and_then(|all| all.get(REVISION));
        let mut change = json!({});
        if let Some(revision) = self.revision.filter(|revision| shown != Some(revision)) {
            change["metadata"] = json!({"annotations": {REVISION: revision}});
        }
        if let Some(status) = replacement(&as_json(&self.deployment.status), as_json(&self.status)) {
            change["status"] = status;
        }
        if change != json!({}) {
            let (namespace, name, _) = identity(&self.deployment.metadata);
            actions.push(Action::Patch {
                kind: Kind::Deployment,
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                status: true,
                patch: change,
            });
        }
        actions
    }

    /// The sets of other templates.
    fn old(&self) -> impl Iterator<Item = usize> + use<> {
        let current = self.current;
        (0..self.sets.len()).filter(move |index| Some(*index) != current)
    }

    fn rolls(&self) -> bool {
        let strategy = self.spec.strategy.as_ref();
        strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("Recreate")
    }

    /// How many pods there may be beyond the wanted ones, and how many may be unavailable. Only a rolling
    /// update has either. Where both come to nothing the roll-out would stand still, so one pod may go.
    fn bounds(&self) -> (i32, i32) {
        if !self.rolls() {
            return (0, 0);
        }
        let rolling = self
            .spec
            .strategy
            .as_ref()
            .and_then(|strategy| strategy.rolling_update.as_ref());
        let surge = share(
            rolling.and_then(|rolling| rolling.max_surge.as_ref()),
            self.wanted,
            true,
        );
        let unavailable = share(
            rolling.and_then(|rolling| rolling.max_unavailable.as_ref()),
            self.wanted,
            false,
        );
        let unavailable = if surge == 0 && unavailable == 0 {
            1
        } else {
            unavailable
        };
        (surge, unavailable.min(self.wanted))
    }

    fn has_deadline(&self) -> bool {
        self.spec
            .progress_deadline_seconds
            .is_some_and(|seconds| seconds != i32::MAX)
    }
}

fn created(set: &ReplicaSet) -> Option<Timestamp> {
    set.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

fn set_name(set: &ReplicaSet) -> &str {
    set.metadata.name.as_deref().unwrap_or_default()
}

fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

fn counter(set: &ReplicaSet, of: impl Fn(&ReplicaSetStatus) -> Option<i32>) -> i32 {
    set.status.as_ref().and_then(of).unwrap_or(0)
}

fn available(set: &ReplicaSet) -> i32 {
    counter(set, |status| status.available_replicas)
}

fn annotation<'a>(set: &'a ReplicaSet, key: &str) -> Option<&'a str> {
    set.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn revision(set: &ReplicaSet) -> i64 {
    annotation(set, REVISION)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// A number, or a percentage of the replicas, rounded up (surge) or down (unavailable). Default 25 %.
fn share(value: Option<&IntOrString>, replicas: i32, round_up: bool) -> i32 {
    let percent = match value {
        Some(IntOrString::Int(number)) => return *number,
        Some(IntOrString::String(text)) => text.trim_end_matches('%').parse().unwrap_or(25),
        None => 25,
    };
    let part = i64::from(replicas).saturating_mul(percent);
    let rounded = if round_up {
        part.saturating_add(99) / 100
    } else {
        part / 100
    };
    i32::try_from(rounded).unwrap_or(i32::MAX)
}

/// RFC 3339 without fractions, as `metav1.Time` has it.
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
#[path = "deployment_tests.rs"]
mod tests;
