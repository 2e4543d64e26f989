//! Pods and pod templates.

use super::{default, default_zero, items, present, text};
use serde_json::{Value, json};

/// A pod: a template's defaults, and some that only pods get.
pub(super) fn pod(object: &mut Value) {
    let spec = &mut object["spec"];
    pod_spec(spec);
    default(spec, "enableServiceLinks", json!(true));
    let host_network = spec["hostNetwork"] == json!(true);
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            requests_from_limits(container);
            if host_network {
                for port in items(container, "ports") {
                    let number = port["containerPort"].clone();
                    default_zero(port, "hostPort", number);
                }
            }
        }
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

/// `Always` for the tag `latest` or none, as `latest` moves.
fn pull_policy(image: &str) -> &'static str {
    if image.contains('@') {
        return "IfNotPresent";
    }
    match image.rsplit('/').next().and_then(|name| name.split_once(':')) {
        Some((_, tag)) if tag != "latest" => "IfNotPresent",
        _ => "Always",
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

fn volume(volume: &mut Value) {
    if volume
        .as_object()
        .is_some_and(|members| members.keys().all(|key| key == "name"))
    {
        volume["emptyDir"] = json!({});
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = present(volume, source) {
            default(source, "defaultMode", json!(420));
        }
    }
    if let Some(host) = present(volume, "hostPath") {
        default(host, "type", json!(""));
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
