//! Rules of single kinds.

use super::{items, qos_class, remove, restore, service};
use crate::gvk::Gvk;
use serde_json::{Map, Value, json};

/// How a DaemonSet carries the generation of its template.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// A field of a CSIDriver that is behind a gate.
const PREVENTS: &str = "preventPodSchedulingIfMissing";

/// Version 1 of the group has no topology of its own any more.
fn drop_topology(slice: &mut Value) {
    for endpoint in items(slice, "endpoints") {
        remove(endpoint, "deprecatedTopology");
    }
}

/// What was configured of a kubelet through its node, a feature that is gone.
pub(super) fn drop_node_configuration(node: &mut Value) {
    remove(&mut node["spec"], "configSource");
    if node["status"].is_object() {
        remove(&mut node["status"], "config");
    }
}

/// Initial status and the like.
pub(super) fn prepare(gvk: &Gvk, object: &mut Value) {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => {
            object["status"] = json!({"phase": "Pending", "qosClass": qos_class(&object["spec"])});
            let gates = object["spec"]["schedulingGates"].as_array();
            if gates.is_some_and(|gates| !gates.is_empty()) {
                object["status"]["conditions"] = json!([{
                    "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                    "lastProbeTime": null, "lastTransitionTime": object["metadata"]["creationTimestamp"],
                }]);
            }
        }
        ("", "Namespace") => {
            object["status"] = json!({"phase": "Active"});
            let name = object["metadata"]["name"].clone();
            if name.as_str().is_some_and(|name| !name.is_empty()) {
                object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            }
            let finalizers = &mut object["spec"]["finalizers"];
            if !finalizers
                .as_array()
                .is_some_and(|list| list.contains(&json!("kubernetes")))
            {
                let mut list = finalizers.as_array().cloned().unwrap_or_default();
                list.push(json!("kubernetes"));
                *finalizers = Value::Array(list);
            }
        }
        ("", "Node") => {
            let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
            let taints = &mut object["spec"]["taints"];
            let mut list = taints.as_array().cloned().unwrap_or_default();
            if !list
                .iter()
                .any(|other| other["key"] == taint["key"] && other["effect"] == taint["effect"])
            {
                list.push(taint);
            }
            *taints = Value::Array(list);
            drop_node_configuration(object);
        }
        ("", "PersistentVolumeClaim") => {
            object["status"] = json!({"phase": "Pending"});
            data_sources(&Value::Null, &mut object["spec"]);
            add_finalizer(object, "kubernetes.io/pvc-protection");
        }
        ("", "PersistentVolume") => {
            object["status"] = json!({"phase": "Pending"});
            let created = object["metadata"]["creationTimestamp"].clone();
            if !created.is_null() {
                object["status"]["lastPhaseTransitionTime"] = created;
            }
            add_finalizer(object, "kubernetes.io/pv-protection");
        }
        ("storage.k8s.io", "VolumeAttributesClass") => {
            add_finalizer(object, "kubernetes.io/vac-protection");
        }
        ("", "Service") => service::prepare(object),
        ("apps", "DaemonSet") if template_generation(object) < 1 => {
            annotate(object, TEMPLATE_GENERATION, "1");
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => store_versions(object),
        ("batch", "Job") => job_selector(object),
        ("", "ServiceAccount") => names_of_secrets(object),
        // Behind gates that are closed, or of a feature that is gone.
        ("storage.k8s.io", "CSIDriver") => {
            remove(&mut object["spec"], PREVENTS);
        }
        ("discovery.k8s.io", "EndpointSlice") => drop_topology(object),
        _ => {}
    }
}

/// What a claim is filled from stands in two fields. A client that knows the older one alone has other
/// values than claims and snapshots dropped from it, where the stored claim has no source either.
fn data_sources(old: &Value, spec: &mut Value) {
    const OLD: &str = "dataSource";
    const NEW: &str = "dataSourceRef";
    let old_knows = |source: &Value| {
        matches!(
            (
                source["apiGroup"].as_str().unwrap_or_default(),
                source["kind"].as_str()
            ),
            ("", Some("PersistentVolumeClaim")) | ("snapshot.storage.k8s.io", Some("VolumeSnapshot"))
        )
    };
    let get = |spec: &Value, name: &str| spec.get(name).filter(|source| !source.is_null()).cloned();
    // One of another namespace is behind a gate.
    let elsewhere = |source: &Value| source["namespace"].as_str().is_some_and(|it| !it.is_empty());
    if get(old, NEW).is_none() && get(spec, NEW).is_some_and(|source| elsewhere(&source)) {
        remove(spec, NEW);
    }
    let legacy = get(old, OLD).is_none() && get(old, NEW).is_none() && get(spec, NEW).is_none();
    if legacy && get(spec, OLD).is_some_and(|source| !old_knows(&source)) {
        remove(spec, OLD);
    }
    match (get(spec, OLD), get(spec, NEW)) {
        (Some(source), None) => spec[NEW] = source,
        (None, Some(mut source)) if !elsewhere(&source) => {
            remove(&mut source, "namespace");
            spec[OLD] = source;
        }
        _ => {}
    }
}

/// Of the secrets that an account refers to, the names alone are kept.
fn names_of_secrets(account: &mut Value) {
    let secrets = account.get_mut("secrets").and_then(Value::as_array_mut);
    for secret in secrets.into_iter().flatten() {
        let name = secret["name"].as_str().unwrap_or_default();
        *secret = if name.is_empty() {
            json!({})
        } else {
            json!({"name": name})
        };
    }
}

/// What an update of the main resource keeps or derives.
pub(super) fn prepare_update(gvk: &Gvk, old: &Value, new: &mut Value) {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Namespace") | ("certificates.k8s.io", "CertificateSigningRequest") => {
            restore(old, new, "spec");
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => store_versions(new),
        ("", "ServiceAccount") => names_of_secrets(new),
        ("", "Service") => {
            service::prepare_update(old, new);
        }
        ("", "Node") => drop_node_configuration(new),
        ("discovery.k8s.io", "EndpointSlice") => drop_topology(new),
        ("", "PersistentVolumeClaim") => data_sources(&old["spec"], &mut new["spec"]),
        ("storage.k8s.io", "CSIDriver") if old["spec"].get(PREVENTS).is_none() => {
            remove(&mut new["spec"], PREVENTS);
        }
        ("apps", "DaemonSet") => {
            let generation = template_generation(old);
            let changed = old["spec"]["template"] != new["spec"]["template"];
            annotate(
                new,
                TEMPLATE_GENERATION,
                &(generation + i64::from(changed)).to_string(),
            );
        }
        _ => {}
    }
}

/// A job without a selector of its own selects the pods that carry its UID.
fn job_selector(object: &mut Value) {
    if object["spec"]["manualSelector"] == json!(true) {
        return;
    }
    let uid = object["metadata"]["uid"].clone();
    let name = object["metadata"]["name"].clone();
    if !uid.is_string() {
        return;
    }
    let labels = &mut object["spec"]["template"]["metadata"]["labels"];
    // What is there stays, and is refused where it is another's.
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        if labels.get(key).is_none() {
            labels[key] = value.clone();
        }
    }
    // Upstream gives a job without labels those of its template whenever it reads it.
    let labels = labels.clone();
    let own = &mut object["metadata"]["labels"];
    if own.as_object().is_none_or(Map::is_empty) {
        *own = labels;
    }
    let selected = &mut object["spec"]["selector"]["matchLabels"];
    if selected.get("batch.kubernetes.io/controller-uid").is_none() {
        selected["batch.kubernetes.io/controller-uid"] = uid;
    }
}

/// The storage version of a definition is among those that objects may be stored in.
fn store_versions(object: &mut Value) {
    let versions = object["spec"]["versions"].as_array().cloned().unwrap_or_default();
    let stored = &mut object["status"]["storedVersions"];
    for version in versions
        .iter()
        .filter(|version| version["storage"] == json!(true))
    {
        let mut list = stored.as_array().cloned().unwrap_or_default();
        if !list.contains(&version["name"]) {
            list.push(version["name"].clone());
        }
        *stored = Value::Array(list);
    }
}

/// A status update leaves the count of templates as it is, whatever the client says.
pub(super) fn keep_template_generation(old: &Value, new: &mut Value) {
    annotate(new, TEMPLATE_GENERATION, &template_generation(old).to_string());
}

fn template_generation(object: &Value) -> i64 {
    let text = object["metadata"]["annotations"][TEMPLATE_GENERATION].as_str();
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn annotate(object: &mut Value, key: &str, value: &str) {
    object["metadata"]["annotations"][key] = json!(value);
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let finalizers = &mut object["metadata"]["finalizers"];
    let mut list = finalizers.as_array().cloned().unwrap_or_default();
    if !list.iter().any(|other| other == finalizer) {
        list.push(json!(finalizer));
    }
    *finalizers = Value::Array(list);
}
