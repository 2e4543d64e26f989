//! Controllers of pods.

use super::errors::{Errors, has, text};
use super::{pod, selector};
use crate::selector::LabelSelector;
use serde_json::{Value, json};

/// Spec of a ReplicaSet, Deployment, StatefulSet, DaemonSet.
pub(super) fn create(kind: &str, object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    errors.non_negative("spec.replicas", &spec["replicas"]);
    errors.non_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    if kind == "StatefulSet" {
        stateful_set(spec, errors);
    }
    own_selector(kind, spec, errors);
    pod::template(&spec["template"], "spec.template", errors);
    restart_policy(spec, "spec.template", &["Always"], errors);
    if kind != "ReplicaSet" && has(&spec["template"]["spec"], "activeDeadlineSeconds") {
        errors.forbidden(
            "spec.template.spec.activeDeadlineSeconds",
            &format!("activeDeadlineSeconds in {kind} is not Supported"),
        );
    }
    match kind {
        "Deployment" => {
            deployment_strategy(&spec["strategy"], errors);
            errors.non_negative("spec.revisionHistoryLimit", &spec["revisionHistoryLimit"]);
            errors.non_negative("spec.progressDeadlineSeconds", &spec["progressDeadlineSeconds"]);
            let deadline = spec["progressDeadlineSeconds"].as_i64().unwrap_or(i64::MAX);
            if deadline <= spec["minReadySeconds"].as_i64().unwrap_or(0) {
                errors.invalid(
                    "spec.progressDeadlineSeconds",
                    &spec["progressDeadlineSeconds"],
                    "must be greater than minReadySeconds",
                );
            }
        }
        "DaemonSet" => {
            let known = ["RollingUpdate", "OnDelete"];
            if !known.contains(&text(&spec["updateStrategy"], "type")) {
                errors.not_supported(
                    "spec.updateStrategy.type",
                    &spec["updateStrategy"]["type"],
                    &known,
                );
            }
            errors.non_negative("spec.revisionHistoryLimit", &spec["revisionHistoryLimit"]);
        }
        _ => {}
    }
}

fn stateful_set(spec: &Value, errors: &mut Errors) {
    let policy = text(spec, "podManagementPolicy");
    if policy.is_empty() {
        errors.required("spec.podManagementPolicy", "");
    } else if !["OrderedReady", "Parallel"].contains(&policy) {
        errors.invalid(
            "spec.podManagementPolicy",
            &spec["podManagementPolicy"],
            "must be 'OrderedReady' or 'Parallel'",
        );
    }
    let strategy = &spec["updateStrategy"];
    match text(strategy, "type") {
        "OnDelete" if has(strategy, "rollingUpdate") => errors.invalid(
            "spec.updateStrategy.rollingUpdate",
            &strategy["rollingUpdate"],
            "only allowed for updateStrategy 'RollingUpdate'",
        ),
        "OnDelete" => {}
        "RollingUpdate" => {
            errors.non_negative(
                "spec.updateStrategy.rollingUpdate.partition",
                &strategy["rollingUpdate"]["partition"],
            );
        }
        "" => errors.required("spec.updateStrategy", ""),
        _ => errors.invalid(
            "spec.updateStrategy",
            strategy,
            "must be 'RollingUpdate' or 'OnDelete'",
        ),
    }
}

fn own_selector(kind: &str, spec: &Value, errors: &mut Errors) {
    let own = &spec["selector"];
    if own.is_null() {
        errors.required("spec.selector", "");
    } else {
        selector::selector(own, "spec.selector", errors);
        let empty = ["matchLabels", "matchExpressions"].iter().all(|name| {
            own[*name].as_object().is_none_or(serde_json::Map::is_empty)
                && own[*name].as_array().is_none_or(Vec::is_empty)
        });
        if empty {
            let what = match kind {
                "Deployment" => "deployment",
                "StatefulSet" => "statefulset",
                "DaemonSet" => "daemonset",
                _ => "replicaset",
            };
            errors.invalid(
                "spec.selector",
                own,
                &format!("empty selector is invalid for {what}"),
            );
        }
    }
    let Ok(parsed) = LabelSelector::from_object(own) else {
        let detail = if matches!(kind, "Deployment" | "ReplicaSet") {
            "invalid label selector"
        } else {
            ""
        };
        errors.invalid("spec.selector", own, detail);
        return;
    };
    let labels = &spec["template"]["metadata"]["labels"];
    if !parsed.matches(labels) || own.is_null() {
        errors.invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        );
    }
}

fn restart_policy(spec: &Value, path: &str, allowed: &[&str], errors: &mut Errors) {
    let policy = &spec["template"]["spec"]["restartPolicy"];
    let text = policy.as_str().unwrap_or_default();
    if !allowed.contains(&text) && ["Always", "OnFailure", "Never"].contains(&text) {
        errors.not_supported(&format!("{path}.spec.restartPolicy"), policy, allowed);
    }
}

/// Whether an int-or-percent is zero.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.trim_end_matches('%').parse::<i64>() == Ok(0),
        other => other.as_i64() == Some(0),
    }
}

/// An int-or-percent that is not negative.
pub(super) fn int_or_percent(value: &Value, path: &str, errors: &mut Errors) {
    match value {
        Value::String(text) => {
            let good = text
                .strip_suffix('%')
                .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
            if !good {
                errors.invalid(
                    path,
                    value,
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
                );
            } else if text.trim_end_matches('%').parse::<i64>().is_ok_and(|n| n > 100) {
                errors.invalid(path, value, "must not be greater than 100%");
            }
        }
        other => errors.non_negative(path, other),
    }
}

fn deployment_strategy(strategy: &Value, errors: &mut Errors) {
    match text(strategy, "type") {
        "Recreate" => {
            if has(strategy, "rollingUpdate") {
                errors.forbidden(
                    "spec.strategy.rollingUpdate",
                    "may not be specified when strategy `type` is 'Recreate'",
                );
            }
        }
        "RollingUpdate" => {
            let update = &strategy["rollingUpdate"];
            if update.is_null() {
                errors.required(
                    "spec.strategy.rollingUpdate",
                    "this should be defaulted and never be nil",
                );
                return;
            }
            int_or_percent(
                &update["maxUnavailable"],
                "spec.strategy.rollingUpdate.maxUnavailable",
                errors,
            );
            if let Value::Number(_) = update["maxSurge"] {
                errors.non_negative("spec.strategy.rollingUpdate.maxSurge", &update["maxSurge"]);
            }
            if is_zero(&update["maxUnavailable"]) && is_zero(&update["maxSurge"]) {
                errors.invalid(
                    "spec.strategy.rollingUpdate.maxUnavailable",
                    &update["maxUnavailable"],
                    "may not be 0 when `maxSurge` is 0",
                );
            }
        }
        _ => {
            let value = strategy.get("type").cloned().unwrap_or(json!(""));
            errors.not_supported("spec.strategy.type", &value, &["Recreate", "RollingUpdate"]);
        }
    }
}

/// What may not change.
pub(super) fn update(kind: &str, old: &Value, new: &Value, errors: &mut Errors) {
    let (old, new) = (&old["spec"], &new["spec"]);
    if kind == "StatefulSet" {
        const MUTABLE: [&str; 8] = [
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
            "revisionHistoryLimit",
            "volumeClaimTemplates.spec.volumeAttributesClassName",
        ];
        let fixed = |spec: &Value| {
            let mut spec = spec.clone();
            if let Some(members) = spec.as_object_mut() {
                members.retain(|name, _| !MUTABLE.contains(&name.as_str()));
            }
            spec
        };
        if fixed(old) != fixed(new) {
            errors.forbidden(
                "spec",
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
            );
        }
        return;
    }
    errors.immutable("spec.selector", &old["selector"], &new["selector"]);
}

/// Counters of a ReplicaSet's or Deployment's status.
pub(super) fn status(kind: &str, new: &Value, errors: &mut Errors) {
    let status = &new["status"];
    let count = |name: &str| status[name].as_i64().unwrap_or(0);
    let counters: &[&str] = match kind {
        "Deployment" => &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "collisionCount",
        ],
        "ReplicaSet" => &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
        ],
        "StatefulSet" => &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
        ],
        _ => &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
        ],
    };
    for name in counters {
        errors.non_negative(&format!("status.{name}"), &status[*name]);
    }
    let bounded: &[&str] = match kind {
        "Deployment" => &["updatedReplicas", "readyReplicas", "availableReplicas"],
        "ReplicaSet" => &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        "StatefulSet" => &[
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
        ],
        _ => return,
    };
    for name in bounded {
        if count(name) > count("replicas") {
            errors.invalid(
                &format!("status.{name}"),
                &json!(count(name)),
                "cannot be greater than status.replicas",
            );
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        errors.invalid(
            "status.availableReplicas",
            &json!(count("availableReplicas")),
            if kind == "ReplicaSet" || kind == "Deployment" {
                "cannot be greater than readyReplicas"
            } else {
                "cannot be greater than status.readyReplicas"
            },
        );
    }
}
