//! Controllers of pods.

use super::{default, default_zero, items, pod, present, storage, text};
use crate::strategy::TEMPLATE_GENERATION;
use serde_json::{Value, json};

pub(super) fn replication_controller(object: &mut Value) {
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    if labels.is_object() {
        if object["metadata"].get("labels").is_none() {
            object["metadata"]["labels"] = labels.clone();
        }
        let selector = object["spec"]["selector"].as_object();
        if selector.is_none_or(serde_json::Map::is_empty) {
            object["spec"]["selector"] = labels;
        }
    }
    let spec = &mut object["spec"];
    default(spec, "replicas", json!(1));
    if let Some(template) = present(spec, "template") {
        pod::template(template);
    }
}

pub(super) fn replica_set(object: &mut Value) {
    let spec = &mut object["spec"];
    default(spec, "replicas", json!(1));
    pod::template(&mut spec["template"]);
}

pub(super) fn deployment(object: &mut Value) {
    let spec = &mut object["spec"];
    default(spec, "replicas", json!(1));
    default(spec, "revisionHistoryLimit", json!(10));
    default(spec, "progressDeadlineSeconds", json!(600));
    let strategy = &mut spec["strategy"];
    default_zero(strategy, "type", json!("RollingUpdate"));
    if text(strategy, "type") == "RollingUpdate" {
        default(strategy, "rollingUpdate", json!({}));
        let update = &mut strategy["rollingUpdate"];
        default(update, "maxUnavailable", json!("25%"));
        default(update, "maxSurge", json!("25%"));
    }
    pod::template(&mut spec["template"]);
}

pub(super) fn daemon_set(object: &mut Value) {
    // Upstream's structure has a field for the annotation, which is written from it: clients own it from the
    // start. The first one is counted when the object is created.
    let generation: i64 = object["metadata"]["annotations"][TEMPLATE_GENERATION]
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    object["metadata"]["annotations"][TEMPLATE_GENERATION] = json!(generation.to_string());
    let spec = &mut object["spec"];
    default(spec, "revisionHistoryLimit", json!(10));
    let strategy = &mut spec["updateStrategy"];
    default_zero(strategy, "type", json!("RollingUpdate"));
    if text(strategy, "type") == "RollingUpdate" {
        default(strategy, "rollingUpdate", json!({}));
        let update = &mut strategy["rollingUpdate"];
        default(update, "maxUnavailable", json!(1));
        default(update, "maxSurge", json!(0));
    }
    pod::template(&mut spec["template"]);
}

pub(super) fn stateful_set(object: &mut Value) {
    let spec = &mut object["spec"];
    default(spec, "replicas", json!(1));
    default(spec, "revisionHistoryLimit", json!(10));
    default_zero(spec, "podManagementPolicy", json!("OrderedReady"));
    let strategy = &mut spec["updateStrategy"];
    if text(strategy, "type").is_empty() {
        default_zero(strategy, "type", json!("RollingUpdate"));
        // Only here: a strategy that names its type keeps an absent rollingUpdate.
        default(strategy, "rollingUpdate", json!({}));
    }
    if text(strategy, "type") == "RollingUpdate"
        && let Some(update) = present(strategy, "rollingUpdate")
    {
        default(update, "partition", json!(0));
    }
    default(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
    let retention = &mut spec["persistentVolumeClaimRetentionPolicy"];
    default_zero(retention, "whenDeleted", json!("Retain"));
    default_zero(retention, "whenScaled", json!("Retain"));
    for claim in items(spec, "volumeClaimTemplates") {
        claim["kind"] = json!("PersistentVolumeClaim");
        claim["apiVersion"] = json!("v1");
        storage::claim(claim);
    }
    pod::template(&mut spec["template"]);
}

pub(super) fn job(object: &mut Value) {
    // A job without labels has those of its pods.
    let of_pods = object["spec"]["template"]["metadata"]["labels"].clone();
    let labelled = |labels: &Value| labels.as_object().is_some_and(|labels| !labels.is_empty());
    if labelled(&of_pods) && !labelled(&object["metadata"]["labels"]) {
        object["metadata"]["labels"] = of_pods;
    }
    let spec = &mut object["spec"];
    if spec.get("completions").is_none_or(Value::is_null)
        && spec.get("parallelism").is_none_or(Value::is_null)
    {
        spec["completions"] = json!(1);
    }
    default(spec, "parallelism", json!(1));
    let per_index = spec
        .get("backoffLimitPerIndex")
        .is_some_and(|limit| !limit.is_null());
    default(
        spec,
        "backoffLimit",
        json!(if per_index { i64::from(i32::MAX) } else { 6 }),
    );
    default(spec, "completionMode", json!("NonIndexed"));
    default(spec, "suspend", json!(false));
    default(spec, "manualSelector", json!(false));
    let failure_policy = spec
        .get("podFailurePolicy")
        .is_some_and(|policy| !policy.is_null());
    default(
        spec,
        "podReplacementPolicy",
        json!(if failure_policy {
            "Failed"
        } else {
            "TerminatingOrFailed"
        }),
    );
    failure_rules(spec);
    pod::template(&mut spec["template"]);
}

/// What a rule of a job asks of a condition of a pod, where it does not say it.
fn failure_rules(spec: &mut Value) {
    if let Some(policy) = present(spec, "podFailurePolicy") {
        for rule in items(policy, "rules") {
            for pattern in items(rule, "onPodConditions") {
                default_zero(pattern, "status", json!("True"));
            }
        }
    }
}

pub(super) fn cron_job(object: &mut Value) {
    let spec = &mut object["spec"];
    default_zero(spec, "concurrencyPolicy", json!("Allow"));
    default(spec, "suspend", json!(false));
    default(spec, "successfulJobsHistoryLimit", json!(3));
    default(spec, "failedJobsHistoryLimit", json!(1));
    failure_rules(&mut spec["jobTemplate"]["spec"]);
    pod::template(&mut spec["jobTemplate"]["spec"]["template"]);
}
