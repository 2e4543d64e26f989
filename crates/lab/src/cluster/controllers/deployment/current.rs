//! The ReplicaSet of the present template: which one it is, how it is made, what is written on it.

use super::{REVISION, Rollout, annotation, replicas, revision, set_name};
use crate::cluster::{
    action::{Action, Kind},
    controllers::owned::{as_json, identity, owner_reference, template_hash},
    view::Snapshot,
};
use k8s_openapi::api::apps::v1::{DeploymentSpec, ReplicaSet};
use serde_json::json;
use std::collections::BTreeMap;

const HASH_LABEL: &str = "pod-template-hash";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations of a Deployment that its ReplicaSets do not take over.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAXIMUM,
    "deprecated.deployment.rollback.to",
];
/// Characters of former revisions that a set remembers; upstream's number.
const HISTORY_LIMIT: usize = 2000;
/// Longest name of an object.
const NAME_LIMIT: usize = 253;

/// Whether the set's template is the Deployment's, but for the label with its hash.
pub(super) fn has_template(set: &ReplicaSet, spec: &DeploymentSpec) -> bool {
    let template = set.spec.as_ref().and_then(|spec| spec.template.clone());
    template.is_some_and(|mut template| {
        if let Some(labels) = template.metadata.as_mut().and_then(|all| all.labels.as_mut()) {
            labels.remove(HASH_LABEL);
        }
        template == spec.template
    })
}

impl Rollout<'_> {
    /// The revision that the current set gets if its own is lower.
    fn next_revision(&self) -> i64 {
        let old = self.old().map(|index| revision(&self.sets[index])).max();
        old.unwrap_or(0).saturating_add(1)
    }

    /// Brings annotations of the current set, and the revision of the Deployment, up to date.
    pub(super) fn note_revision(&mut self) {
        let Some(index) = self.current else { return };
        let next = self.next_revision();
        let min_ready = self.spec.min_ready_seconds;
        let copied = self.copied();
        let set = &mut self.sets[index];
        let (had, was) = (annotation(set, REVISION).is_some(), revision(set));
        let annotations = set.metadata.annotations.get_or_insert_default();
        annotations.extend(copied);
        if was < next {
            annotations.insert(REVISION.to_owned(), next.to_string());
            if had {
                let before = annotations.get(HISTORY).map_or("", String::as_str);
                if let Some(history) = history(before, was) {
                    annotations.insert(HISTORY.to_owned(), history);
                }
            }
        }
        if let Some(spec) = &mut set.spec
            && spec.min_ready_seconds.unwrap_or(0) != min_ready.unwrap_or(0)
        {
            spec.min_ready_seconds = Some(min_ready.unwrap_or(0));
        }
        self.revision = annotation(set, REVISION).map(str::to_owned);
        let message = format!("Found new replica set \"{}\"", set_name(set));
        if self.has_deadline() && self.condition("Progressing").is_none() {
            self.set_condition("Progressing", "True", "FoundNewReplicaSet", &message);
        }
    }

    /// Makes the current set where there is none. It gets as many replicas as there is room for.
    pub(super) fn make_current(&mut self, view: &Snapshot) {
        if self.current.is_some() {
            return;
        }
        let (namespace, name, _) = identity(&self.deployment.metadata);
        let hash = template_hash(&self.spec.template, self.status.collision_count);
        let room = NAME_LIMIT - hash.len() - 1;
        let set_name = format!("{}-{hash}", name.get(..room).unwrap_or(name));
        let taken = view.replica_sets.iter().any(|set| {
            set.metadata.name.as_ref() == Some(&set_name)
                && set.metadata.namespace.as_deref() == Some(namespace)
        });
        if taken {
            // The set of that name is another one: the next look tries another hash.
            self.status.collision_count = Some(self.status.collision_count.unwrap_or(0).saturating_add(1));
            return;
        }
        let mut template = as_json(&self.spec.template);
        template["metadata"]["labels"][HASH_LABEL] = json!(hash);
        let mut selector = as_json(&self.spec.selector);
        selector["matchLabels"][HASH_LABEL] = json!(hash);
        let revision = self.next_revision().to_string();
        let mut annotations = self.copied();
        annotations.insert(REVISION.to_owned(), revision.clone());
        annotations.extend(self.counts());
        let object = json!({
            "metadata": {
                "name": set_name,
                "labels": template["metadata"]["labels"],
                "annotations": annotations,
                "ownerReferences": owner_reference("apps/v1", "Deployment", &self.deployment.metadata),
            },
            "spec": {
                "replicas": self.room_for(0),
                "minReadySeconds": self.spec.min_ready_seconds,
                "selector": selector,
                "template": template,
            },
        });
        // What is not a ReplicaSet would be refused as well.
        let Ok(set) = serde_json::from_value(object.clone()) else {
            return;
        };
        self.current = Some(self.sets.len());
        self.sets.push(set);
        self.revision = Some(revision);
        self.made = Some(Action::Create {
            kind: Kind::ReplicaSet,
            namespace: namespace.to_owned(),
            object,
        });
        if self.has_deadline() {
            let message = format!("Created new replica set \"{set_name}\"");
            self.set_condition("Progressing", "True", "NewReplicaSetCreated", &message);
        }
    }

    /// The annotations that say for how many replicas a set was scaled.
    pub(super) fn counts(&self) -> [(String, String); 2] {
        let most = self.wanted.saturating_add(self.bounds().0);
        [
            (DESIRED.to_owned(), self.wanted.to_string()),
            (MAXIMUM.to_owned(), most.to_string()),
        ]
    }

    fn copied(&self) -> BTreeMap<String, String> {
        let all = self.deployment.metadata.annotations.iter().flatten();
        all.filter(|(key, _)| !NOT_COPIED.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    /// Replicas that a current set of `size` may have, so that all sets together stay within the surge.
    pub(super) fn room_for(&self, size: i32) -> i32 {
        if !self.rolls() {
            return self.wanted;
        }
        let total: i32 = self.sets.iter().map(replicas).sum();
        let room = self.wanted.saturating_add(self.bounds().0).saturating_sub(total);
        if room <= 0 {
            size
        } else {
            size + room.min(self.wanted - size)
        }
    }
}

/// The former revisions with one more; the oldest are forgotten where they become too many.
fn history(before: &str, was: i64) -> Option<String> {
    let was = was.to_string();
    let mut kept: Vec<&str> = before.split(',').filter(|text| !text.is_empty()).collect();
    kept.push(&was);
    while kept.len() > 1 && kept.iter().map(|text| text.len() + 1).sum::<usize>() - 1 > HISTORY_LIMIT {
        kept.remove(0);
    }
    let text = kept.join(",");
    (text.len() <= HISTORY_LIMIT).then_some(text)
}
