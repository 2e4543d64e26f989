//! StatefulSets: at most one pod per ordinal, in order.

mod claims;

use super::{
    owned::{
        Claims, as_json, claim, delete, identity, is_available, is_finished, is_ready, owner_reference,
        phase, pod_from, status_patch,
    },
    revisions::{self, Revisions},
};
use crate::cluster::{
    action::{Action, Kind},
    view::Snapshot,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetStatus},
    core::v1::Pod,
};
use serde_json::json;
use std::{collections::BTreeMap, ops::Range, sync::Arc};

const REVISION_LABEL: &str = "controller-revision-hash";
const DEFAULT_HISTORY: i32 = 10;

/// What to do for all StatefulSets.
pub fn reconcile(view: &Snapshot, now: Timestamp) -> Vec<Action> {
    view.stateful_sets
        .iter()
        .flat_map(|set| one(set, view, now))
        .collect()
}

/// A set as one look finds it.
struct Scene<'a> {
    set: &'a StatefulSet,
    spec: &'a StatefulSetSpec,
    view: &'a Snapshot,
    now: Timestamp,
    pods: BTreeMap<i32, &'a Arc<Pod>>,
    revisions: Revisions<'a>,
    /// Name of the revision that all pods had before the present roll-out.
    current: String,
}

fn one(set: &StatefulSet, view: &Snapshot, now: Timestamp) -> Vec<Action> {
    let (_, name, _) = identity(&set.metadata);
    let Some(spec) = &set.spec else { return Vec::new() };
    if set.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let owner = ("apps/v1", "StatefulSet", &set.metadata);
    let named = view.pods.iter().filter(|pod| ordinal(name, pod).is_some());
    let Claims { owned, writes } = claim(Kind::Pod, owner, &spec.selector, named);
    let revisions = revisions::of(
        &revisions::Owner {
            kind: "StatefulSet",
            metadata: &set.metadata,
            selector: &spec.selector,
            template: &spec.template,
            hash_label: "controller.kubernetes.io/hash",
            annotations: BTreeMap::new(),
        },
        view,
    );
    if !writes.is_empty() || !revisions.writes.is_empty() {
        return writes.into_iter().chain(revisions.writes).collect();
    }
    let known = |name: &&String| {
        let mut all = revisions.all.iter();
        all.any(|revision| revision.metadata.name.as_ref() == Some(*name))
    };
    let current = set
        .status
        .as_ref()
        .and_then(|status| status.current_revision.as_ref());
    let current = current.filter(known).unwrap_or(&revisions.update).clone();
    let scene = Scene {
        set,
        spec,
        view,
        now,
        pods: owned
            .into_iter()
            .filter_map(|pod| Some((ordinal(name, pod)?, pod)))
            .collect(),
        revisions,
        current,
    };
    let status = scene.status();
    let in_use = |name: &str| {
        status.current_revision.as_deref() == Some(name)
            || scene.pods.values().any(|pod| revision_of(pod) == Some(name))
    };
    let limit = spec.revision_history_limit.unwrap_or(DEFAULT_HISTORY);
    let mut actions = scene.move_on();
    actions.extend(scene.revisions.surplus(in_use, limit));
    actions.extend(status_patch(
        Kind::StatefulSet,
        &set.metadata,
        &as_json(&set.status),
        as_json(&status),
    ));
    actions
}

impl Scene<'_> {
    fn start(&self) -> i32 {
        let ordinals = self.spec.ordinals.as_ref();
        ordinals.and_then(|ordinals| ordinals.start).unwrap_or(0)
    }

    fn wanted(&self) -> Range<i32> {
        let start = self.start();
        start..start.saturating_add(self.spec.replicas.unwrap_or(1).max(0))
    }

    fn is_available(&self, pod: &Pod) -> bool {
        let min_ready = self.spec.min_ready_seconds.unwrap_or(0);
        is_running(pod) && is_available(pod, min_ready, self.now)
    }

    /// The next steps towards the wanted ordinals. With `OrderedReady` one step at a time, and nothing past a
    /// pod that is missing, terminating or not ready: two live pods of one identity must never be.
    fn move_on(&self) -> Vec<Action> {
        let ordered = self.spec.pod_management_policy.as_deref() != Some("Parallel");
        let mut actions = Vec::new();
        for ordinal in self.wanted() {
            match self.pods.get(&ordinal) {
                None => {
                    actions.extend(claims::missing(self, ordinal));
                    actions.push(self.create(ordinal));
                }
                Some(pod) if is_finished(pod) && pod.metadata.deletion_timestamp.is_none() => {
                    actions.push(delete(Kind::Pod, &pod.metadata, None));
                }
                Some(pod) => {
                    actions.extend(claims::owned(self, ordinal, None));
                    let leaving = pod.metadata.deletion_timestamp.is_some();
                    if !leaving && self.is_available(pod) {
                        continue;
                    }
                }
            }
            if ordered {
                return actions;
            }
        }
        let condemned = self
            .pods
            .iter()
            .rev()
            .filter(|(ordinal, _)| !self.wanted().contains(ordinal));
        for (ordinal, pod) in condemned.clone() {
            actions.extend(claims::owned(self, *ordinal, Some(pod)));
        }
        for (_, pod) in condemned {
            if pod.metadata.deletion_timestamp.is_none() {
                actions.push(delete(Kind::Pod, &pod.metadata, None));
            }
            if ordered {
                return actions;
            }
        }
        if actions.is_empty() {
            actions.extend(self.roll());
        }
        actions
    }

    /// A rolling update: from the highest ordinal down, one at a time, and not past an unavailable one.
    fn roll(&self) -> Option<Action> {
        let strategy = self.spec.update_strategy.as_ref();
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
            return None;
        }
        let least = self.start().saturating_add(self.partition().unwrap_or(0));
        for ordinal in self.wanted().rev().take_while(|ordinal| *ordinal >= least) {
            let pod = self.pods.get(&ordinal)?;
            let leaving = pod.metadata.deletion_timestamp.is_some();
            if !leaving && revision_of(pod) != Some(&self.revisions.update) {
                return Some(delete(Kind::Pod, &pod.metadata, None));
            }
            if leaving || !self.is_available(pod) {
                return None;
            }
        }
        None
    }

    fn partition(&self) -> Option<i32> {
        let strategy = self.spec.update_strategy.as_ref()?;
        strategy.rolling_update.as_ref()?.partition
    }

    /// Whether a pod that is made now belongs to the roll-out before the present one.
    fn stays(&self, ordinal: i32) -> bool {
        let strategy = self.spec.update_strategy.as_ref();
        let rolls = strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete");
        rolls && ordinal < self.start().saturating_add(self.partition().unwrap_or(0))
    }

    fn create(&self, ordinal: i32) -> Action {
        let (namespace, name, _) = identity(&self.set.metadata);
        let pod_name = format!("{name}-{ordinal}");
        let old = self
            .stays(ordinal)
            .then(|| self.revisions.template(&self.current))
            .flatten();
        let (template, revision) = match &old {
            Some(template) => (template, &self.current),
            None => (&self.spec.template, &self.revisions.update),
        };
        let index = ordinal.to_string();
        let labels = [
            (REVISION_LABEL, revision.as_str()),
            ("statefulset.kubernetes.io/pod-name", pod_name.as_str()),
            ("apps.kubernetes.io/pod-index", index.as_str()),
        ];
        let mut pod = pod_from(
            template,
            &labels,
            owner_reference("apps/v1", "StatefulSet", &self.set.metadata),
        );
        pod["metadata"]["name"] = json!(pod_name);
        pod["metadata"]["generateName"] = json!(format!("{name}-"));
        pod["spec"]["hostname"] = json!(pod_name);
        let service = self.spec.service_name.as_deref();
        if let Some(service) = service.filter(|service| !service.is_empty()) {
            pod["spec"]["subdomain"] = json!(service);
        }
        claims::mount(self.spec, &pod_name, &mut pod);
        Action::Create {
            kind: Kind::Pod,
            namespace: namespace.to_owned(),
            object: pod,
        }
    }

    fn status(&self) -> StatefulSetStatus {
        let count = |test: &dyn Fn(&Pod) -> bool| {
            i32::try_from(self.pods.values().filter(|pod| test(pod)).count()).unwrap_or(i32::MAX)
        };
        let some = |number: i32| (number != 0).then_some(number);
        let stays = |pod: &Pod, revision: &str| {
            is_created(pod) && pod.metadata.deletion_timestamp.is_none() && revision_of(pod) == Some(revision)
        };
        let update = &self.revisions.update;
        let replicas = count(&is_created);
        let ready = count(&|pod| is_running(pod) && is_ready(pod));
        let updated = count(&|pod| stays(pod, update));
        let wanted = self.spec.replicas.unwrap_or(1);
        let strategy = self.spec.update_strategy.as_ref();
        let rolls = strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete");
        // A roll-out is complete when every replica is of the new revision and ready.
        let complete = rolls && updated == wanted && replicas == wanted && ready == wanted;
        let current = if complete { update } else { &self.current };
        StatefulSetStatus {
            observed_generation: self.set.metadata.generation,
            replicas,
            ready_replicas: some(ready),
            available_replicas: Some(count(&|pod| self.is_available(pod))),
            current_replicas: some(count(&|pod| stays(pod, current))),
            updated_replicas: some(updated),
            current_revision: Some(current.clone()),
            update_revision: Some(update.clone()),
            collision_count: Some(0),
            conditions: self
                .set
                .status
                .as_ref()
                .and_then(|status| status.conditions.clone()),
        }
    }
}

fn is_created(pod: &Pod) -> bool {
    !phase(pod).is_empty()
}

fn is_running(pod: &Pod) -> bool {
    phase(pod) == "Running"
}

fn ordinal(set: &str, pod: &Pod) -> Option<i32> {
    pod.metadata
        .name
        .as_deref()?
        .strip_prefix(set)?
        .strip_prefix('-')?
        .parse()
        .ok()
}

fn revision_of(pod: &Pod) -> Option<&str> {
    pod.metadata
        .labels
        .as_ref()?
        .get(REVISION_LABEL)
        .map(String::as_str)
}
