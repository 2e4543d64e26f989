//! The claims of a StatefulSet's pods: made before the pod, mounted in it, and owned by whom they go with.

use super::Scene;
use crate::cluster::{
    action::{Action, Kind},
    controllers::owned::{as_json, identity, owner_reference, patch},
};
use k8s_openapi::{
    api::{
        apps::v1::{StatefulSet, StatefulSetSpec},
        core::v1::{PersistentVolumeClaim, Pod},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Creates the claims of a pod that do not exist yet.
pub(super) fn missing(scene: &Scene<'_>, ordinal: i32) -> Vec<Action> {
    let (namespace, _, _) = identity(&scene.set.metadata);
    let templates = scene.spec.volume_claim_templates.iter().flatten();
    let made = templates.filter(|template| find(scene, template, ordinal).is_none());
    made.map(|template| {
        let mut labels = template.metadata.labels.clone().unwrap_or_default();
        labels.extend(scene.spec.selector.match_labels.clone().unwrap_or_default());
        Action::Create {
            kind: Kind::PersistentVolumeClaim,
            namespace: namespace.to_owned(),
            object: json!({
                "metadata": {
                    "name": name_of(scene.set, template, ordinal),
                    "labels": labels,
                    "annotations": template.metadata.annotations,
                    "ownerReferences": owners(scene.set, scene.spec, None),
                },
                "spec": template.spec,
            }),
        }
    })
    .collect()
}

/// Has the claims of a pod owned as the retention policy asks; `condemned` is the pod if scaling takes it.
pub(super) fn owned(scene: &Scene<'_>, ordinal: i32, condemned: Option<&Arc<Pod>>) -> Vec<Action> {
    let templates = scene.spec.volume_claim_templates.iter().flatten();
    let claims = templates.filter_map(|template| find(scene, template, ordinal));
    claims
        .filter_map(|claim| {
            let now: Vec<Value> = claim
                .metadata
                .owner_references
                .iter()
                .flatten()
                .map(as_json)
                .collect();
            let ours = |owner: &Value| {
                let pod = owner["kind"] == "Pod" && owner["name"] == json!(pod_name(scene.set, ordinal));
                pod || owner["uid"] == json!(scene.set.metadata.uid)
            };
            let mut wanted: Vec<Value> = now.iter().filter(|owner| !ours(owner)).cloned().collect();
            wanted.extend(owners(scene.set, scene.spec, condemned.map(|pod| &pod.metadata)));
            let change = json!({"metadata": {"ownerReferences": wanted}});
            (now != wanted).then(|| patch(Kind::PersistentVolumeClaim, &claim.metadata, change))
        })
        .collect()
}

/// Mounts the claims in a pod, in place of volumes of the same names.
pub(super) fn mount(spec: &StatefulSetSpec, pod_name: &str, pod: &mut Value) {
    let templates = spec.volume_claim_templates.as_deref().unwrap_or_default();
    if templates.is_empty() {
        return;
    }
    let mut volumes: Vec<Value> = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    for template in templates {
        let volume = template.metadata.name.clone().unwrap_or_default();
        volumes.retain(|existing| existing["name"] != json!(volume));
        let claim = format!("{volume}-{pod_name}");
        volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}}));
    }
    pod["spec"]["volumes"] = json!(volumes);
}

/// With the pod goes the claim of one that goes with scaling, where that is asked for; else with the set.
fn owners(set: &StatefulSet, spec: &StatefulSetSpec, condemned: Option<&ObjectMeta>) -> Vec<Value> {
    let policy = spec.persistent_volume_claim_retention_policy.as_ref();
    let deletes = |when: Option<&String>| when.is_some_and(|when| when == "Delete");
    let when_deleted = deletes(policy.and_then(|policy| policy.when_deleted.as_ref()));
    let when_scaled = deletes(policy.and_then(|policy| policy.when_scaled.as_ref()));
    let reference = match condemned {
        Some(pod) if when_scaled => owner_reference("v1", "Pod", pod),
        _ if when_deleted => owner_reference("apps/v1", "StatefulSet", &set.metadata),
        _ => return Vec::new(),
    };
    match reference {
        Value::Array(all) => all,
        _ => Vec::new(),
    }
}

fn find<'a>(
    scene: &Scene<'a>,
    template: &PersistentVolumeClaim,
    ordinal: i32,
) -> Option<&'a Arc<PersistentVolumeClaim>> {
    let name = name_of(scene.set, template, ordinal);
    scene.view.claims.iter().find(|claim| {
        claim.metadata.name.as_ref() == Some(&name)
            && claim.metadata.namespace == scene.set.metadata.namespace
    })
}

fn name_of(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i32) -> String {
    let volume = template.metadata.name.as_deref().unwrap_or_default();
    format!("{volume}-{}", pod_name(set, ordinal))
}

fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.metadata.name.as_deref().unwrap_or_default())
}
