//! Pods and pod templates before they are validated: fields behind closed gates, and what new pods get.

use super::{items, remove};
use crate::gvk::Gvk;
use serde_json::{Value, json};

/// Before the name of a container whose profile it says.
pub(crate) const APPARMOR_OF: &str = "container.apparmor.security.beta.kubernetes.io/";
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const TERMS: [&str; 2] = [
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
];

/// Drops fields whose gates are closed in 1.36. None of them is ever stored, so that an update need not look
/// at the old object.
pub(super) fn drop_disabled(gvk: &Gvk, object: &mut Value) {
    let place = match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => "/spec",
        ("", "PodTemplate") => "/template/spec",
        ("", "ReplicationController")
        | ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("batch", "Job") => "/spec/template/spec",
        ("batch", "CronJob") => "/spec/jobTemplate/spec/template/spec",
        _ => return,
    };
    if let Some(update) = object
        .pointer_mut("/spec/updateStrategy/rollingUpdate")
        .filter(|_| gvk.kind == "StatefulSet")
    {
        remove(update, "maxUnavailable");
    }
    let Some(spec) = object.pointer_mut(place) else {
        return;
    };
    remove(spec, "schedulingGroup");
    for volume in items(spec, "volumes") {
        let sources = volume
            .get_mut("projected")
            .into_iter()
            .flat_map(|volume| items(volume, "sources"));
        for source in sources {
            remove(source, "clusterTrustBundle");
            remove(source, "podCertificate");
        }
    }
    for list in LISTS {
        for container in items(spec, list) {
            let dropped = container
                .get_mut("lifecycle")
                .is_some_and(|hooks| remove(hooks, "stopSignal"));
            if dropped && container["lifecycle"] == json!({}) {
                remove(container, "lifecycle");
            }
        }
    }
}

/// Drops what of a pod's status is behind closed gates.
pub(super) fn drop_disabled_status(status: &mut Value) {
    remove(status, "nodeAllocatableResourceClaimStatuses");
    for list in [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ] {
        for container in items(status, list) {
            for mount in items(container, "volumeMounts") {
                remove(mount, "volumeStatus");
            }
        }
    }
}

/// What a new pod gets.
pub(super) fn prepare(object: &mut Value) {
    let gated = object["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty());
    if gated {
        let created = object["metadata"]["creationTimestamp"].clone();
        object["status"]["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": null,
            "lastTransitionTime": created,
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    let labels = object["metadata"]["labels"].clone();
    let spec = &mut object["spec"];
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec
            .get_mut("affinity")
            .and_then(|affinity| affinity.get_mut(kind))
        else {
            continue;
        };
        for term in items(affinity, TERMS[0]) {
            select_own_labels(term, &labels);
        }
        for term in items(affinity, TERMS[1]) {
            if let Some(term) = term.get_mut("podAffinityTerm") {
                select_own_labels(term, &labels);
            }
        }
    }
    items(spec, "topologySpreadConstraints").for_each(|one| select_own_labels(one, &labels));
    profiles_to_fields(object);
}

/// Adds to a selector the pod's own values of the keys named beside it.
fn select_own_labels(term: &mut Value, labels: &Value) {
    for (list, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys = term[list].as_array().cloned().unwrap_or_default();
        let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut) else {
            return;
        };
        for key in keys {
            let Some(value) = key.as_str().and_then(|key| labels.get(key)) else {
                continue;
            };
            let added = json!({"key": key, "operator": operator, "values": [value]});
            match selector.entry("matchExpressions").or_insert_with(|| json!([])) {
                Value::Array(list) => list.push(added),
                other => *other = json!([added]),
            }
        }
    }
}

/// The profile that an annotation of old clients says, if it says a valid one.
pub(crate) fn apparmor_profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => annotation
            .strip_prefix("localhost/")
            .filter(|name| !name.is_empty() && name.trim() == *name && name.len() <= 4095)
            .map(|name| json!({"type": "Localhost", "localhostProfile": name})),
    }
}

fn profiles_to_fields(object: &mut Value) {
    if object["spec"]["os"]["name"] == json!("windows") {
        return;
    }
    let annotations = object["metadata"]["annotations"].clone();
    let of_pod = object["spec"]["securityContext"]["appArmorProfile"].clone();
    for list in LISTS {
        for container in items(&mut object["spec"], list) {
            let key = format!("{APPARMOR_OF}{}", container["name"].as_str().unwrap_or_default());
            let profile = annotations[key].as_str().and_then(apparmor_profile);
            if let Some(profile) = profile.filter(|profile| *profile != of_pod)
                && container["securityContext"]["appArmorProfile"].is_null()
            {
                container["securityContext"]["appArmorProfile"] = profile;
            }
        }
    }
}

/// What a status update keeps that the client did not say.
pub(super) fn prepare_status(old: &Value, new: &mut Value) {
    let (before, after) = (&old["status"], &mut new["status"]);
    for name in ["qosClass", "observedGeneration"] {
        let said = after
            .get(name)
            .is_some_and(|value| !matches!(value, Value::Null) && *value != json!("") && *value != json!(0));
        if let Some(kept) = before.get(name).filter(|_| !said) {
            after[name] = kept.clone();
        }
    }
    let mut known: Vec<&Value> = before["conditions"].as_array().into_iter().flatten().collect();
    for condition in items(after, "conditions") {
        let Some(place) = known.iter().position(|old| old["type"] == condition["type"]) else {
            continue;
        };
        let generation = &known.remove(place)["observedGeneration"];
        if condition["observedGeneration"].as_i64().unwrap_or(0) == 0 && !generation.is_null() {
            condition["observedGeneration"] = generation.clone();
        }
    }
    drop_disabled_status(after);
}
