//! Pods and pod templates.

use super::image::pull_policy;
use super::{default, default_zero, items, present, text};
use crate::validate::resources::{aggregate, is_pod_level, is_shared};
use serde_json::{Map, Value, json};

/// A pod: a template's defaults, and some that only pods get.
pub(super) fn pod(object: &mut Value) {
    if let Some(status) = present(object, "status") {
        addresses(status);
    }
    let spec = &mut object["spec"];
    pod_spec(spec);
    // Upstream reads what old clients wrote for "at once".
    if spec["terminationGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds < 0)
    {
        spec["terminationGracePeriodSeconds"] = json!(1);
    }
    default(spec, "enableServiceLinks", json!(true));
    let host_network = spec["hostNetwork"] == json!(true);
    for list in ["containers", "initContainers"] {
        items(spec, list).for_each(requests_from_limits);
    }
    whole_pod(spec);
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            if host_network {
                for port in items(container, "ports") {
                    let number = port["containerPort"].clone();
                    default_zero(port, "hostPort", number);
                }
            }
        }
    }
}

/// The one address of old clients is the first of the list, and the first of the list is the one.
fn addresses(status: &mut Value) {
    let one = text(status, "podIP").to_owned();
    let first = text(&status["podIPs"][0], "ip").to_owned();
    if !one.is_empty() && one != first {
        status["podIPs"] = json!([{"ip": one}]);
    } else if one.is_empty() && !first.is_empty() {
        status["podIP"] = json!(first);
    }
}

/// A pod template.
pub(super) fn template(template: &mut Value) {
    if template.is_object() {
        pod_spec(&mut template["spec"]);
    }
}

fn pod_spec(spec: &mut Value) {
    default_zero(spec, "restartPolicy", json!("Always"));
    default_zero(spec, "dnsPolicy", json!("ClusterFirst"));
    default(spec, "terminationGracePeriodSeconds", json!(30));
    default(spec, "securityContext", json!({}));
    default_zero(spec, "schedulerName", json!("default-scheduler"));
    // Both names of one field: the old one follows the new one.
    let account = [text(spec, "serviceAccountName"), text(spec, "serviceAccount")]
        .into_iter()
        .find(|name| !name.is_empty())
        .map(str::to_owned);
    if let Some(account) = account {
        spec["serviceAccountName"] = json!(account);
        spec["serviceAccount"] = json!(account);
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        items(spec, list).for_each(container);
    }
    items(spec, "volumes").for_each(volume);
}

fn container(container: &mut Value) {
    let policy = pull_policy(text(container, "image"));
    default_zero(container, "imagePullPolicy", json!(policy));
    default_zero(container, "terminationMessagePath", json!("/dev/termination-log"));
    default_zero(container, "terminationMessagePolicy", json!("File"));
    for port in items(container, "ports") {
        default_zero(port, "protocol", json!("TCP"));
    }
    for variable in items(container, "env") {
        if let Some(source) = present(variable, "valueFrom") {
            if let Some(field) = present(source, "fieldRef") {
                default_zero(field, "apiVersion", json!("v1"));
            }
            if let Some(file) = present(source, "fileKeyRef") {
                default(file, "optional", json!(false));
            }
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = present(container, name) {
            for (field, value) in [
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ] {
                default_zero(probe, field, json!(value));
            }
            http_get(probe);
            if let Some(grpc) = present(probe, "grpc") {
                default(grpc, "service", json!(""));
            }
        }
    }
    if let Some(lifecycle) = present(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = present(lifecycle, hook) {
                http_get(hook);
            }
        }
    }
}

fn http_get(handler: &mut Value) {
    if let Some(get) = present(handler, "httpGet") {
        default_zero(get, "path", json!("/"));
        default_zero(get, "scheme", json!("HTTP"));
    }
}

fn requests_from_limits(container: &mut Value) {
    let Some(resources) = present(container, "resources") else {
        return;
    };
    let Some(limits) = resources["limits"]
        .as_object()
        .filter(|limits| !limits.is_empty())
        .cloned()
    else {
        return;
    };
    default(resources, "requests", json!({}));
    for (name, quantity) in limits {
        default(&mut resources["requests"], &name, quantity);
    }
}

/// Resources of the whole pod: limits of huge pages and requests as its containers have them; then what it
/// may have at most.
fn whole_pod(spec: &mut Value) {
    let list = |spec: &Value, name: &str| spec["resources"][name].as_object().cloned().unwrap_or_default();
    let (mut limits, mut requests) = (list(spec, "limits"), list(spec, "requests"));
    if limits.is_empty() && requests.is_empty() {
        return;
    }
    let add = |to: &mut Map<String, Value>, from: Map<String, Value>, keeps: &dyn Fn(&str) -> bool| {
        for (name, amount) in from
            .into_iter()
            .filter(|(name, _)| is_pod_level(name) && keeps(name))
        {
            to.entry(name).or_insert(amount);
        }
    };
    let asked = requests.clone();
    add(&mut limits, aggregate(spec, "limits"), &|name| {
        !is_shared(name) && !asked.contains_key(name)
    });
    if !limits.is_empty() {
        add(&mut requests, aggregate(spec, "requests"), &is_shared);
        add(&mut requests, limits.clone(), &|_| true);
        spec["resources"]["limits"] = Value::Object(limits);
    }
    if !requests.is_empty() {
        spec["resources"]["requests"] = Value::Object(requests);
    }
}

fn volume(volume: &mut Value) {
    if volume
        .as_object()
        .is_some_and(|members| members.keys().all(|key| key == "name"))
    {
        volume["emptyDir"] = json!({});
    }
    if let Some(image) = present(volume, "image") {
        let policy = pull_policy(text(image, "reference"));
        default_zero(image, "pullPolicy", json!(policy));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = present(volume, source) {
            default(source, "defaultMode", json!(420));
        }
    }
    if let Some(downward) = present(volume, "downwardAPI") {
        downward_items(downward);
    }
    if let Some(projected) = present(volume, "projected") {
        for source in items(projected, "sources") {
            if let Some(token) = present(source, "serviceAccountToken") {
                default(token, "expirationSeconds", json!(3600));
            }
            if let Some(downward) = present(source, "downwardAPI") {
                downward_items(downward);
            }
        }
    }
    if let Some(claim) =
        present(volume, "ephemeral").and_then(|source| present(source, "volumeClaimTemplate"))
    {
        default(&mut claim["spec"], "volumeMode", json!("Filesystem"));
    }
    shared_sources(volume);
}

/// Sources that pods and persistent volumes have.
pub(super) fn shared_sources(volume: &mut Value) {
    if let Some(host) = present(volume, "hostPath") {
        default(host, "type", json!(""));
    }
    if let Some(scale_io) = present(volume, "scaleIO") {
        default_zero(scale_io, "storageMode", json!("ThinProvisioned"));
        default_zero(scale_io, "fsType", json!("xfs"));
    }
    if let Some(iscsi) = present(volume, "iscsi") {
        default_zero(iscsi, "iscsiInterface", json!("default"));
    }
    if let Some(rbd) = present(volume, "rbd") {
        default_zero(rbd, "pool", json!("rbd"));
        default_zero(rbd, "user", json!("admin"));
        default_zero(rbd, "keyring", json!("/etc/ceph/keyring"));
    }
    if let Some(disk) = present(volume, "azureDisk") {
        default(disk, "cachingMode", json!("ReadWrite"));
        default(disk, "kind", json!("Shared"));
        default(disk, "fsType", json!("ext4"));
        default(disk, "readOnly", json!(false));
    }
}

fn downward_items(downward: &mut Value) {
    for item in items(downward, "items") {
        if let Some(field) = present(item, "fieldRef") {
            default_zero(field, "apiVersion", json!("v1"));
        }
    }
}
