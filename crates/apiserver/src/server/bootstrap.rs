//! The objects of a fresh cluster.

use crate::access::rbac;
use crate::access::uid;
use crate::state::Shared;
use crate::store::{Table, key};
use evenkeel_kube_rules::defaults;
use evenkeel_kube_rules::gvk::Gvk;
use evenkeel_kube_rules::gvk::split_api_version;
use evenkeel_kube_rules::time::rfc3339;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// First address of the Service range, as upstream gives it to the `kubernetes` Service.
pub(super) const KUBERNETES_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// Namespaces of every cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Makes the objects; what came before them is no history that a client could ask for.
pub(super) fn fill(server: &Shared) {
    let names = NAMESPACES
        .iter()
        .copied()
        .chain(server.options.namespaces.iter().map(String::as_str));
    for name in names {
        add(server, namespace(name));
        // Pods need it from the first moment; in a cluster a controller makes it.
        add(
            server,
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}),
        );
        // So that their token volumes can be made: likewise.
        add(server, root_ca(name, server.ca.certificate_pem()));
    }
    for object in rbac::bootstrap_objects() {
        add(server, object);
    }
    add(server, authentication(server.ca.certificate_pem()));
    let service = kubernetes_service();
    server.services.hold(&service);
    add(server, service);
    server.store.compact();
}

fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    })
}

/// The authority of the server's own certificate, which pods are given together with their tokens.
fn root_ca(namespace: &str, ca: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kube-root-ca.crt", "namespace": namespace},
        "data": {"ca.crt": ca},
    })
}

/// Where kubelets and extension servers find the authority of client certificates.
fn authentication(ca: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {"client-ca-file": ca},
    })
}

fn kubernetes_service() -> Value {
    let address = KUBERNETES_ADDRESS.to_string();
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": address, "clusterIPs": [address], "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "type": "ClusterIP",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        },
        "status": {"loadBalancer": {}},
    })
}

fn add(server: &Shared, mut object: Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api_version = text(&object["apiVersion"]);
    let (group, version) = split_api_version(&api_version);
    let gvk = Gvk {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text(&object["kind"]),
    };
    let snapshot = server.registry.snapshot();
    let Some(resource) = snapshot.by_gvk(&gvk) else {
        tracing::error!(?gvk, "a bootstrap object is of no kind that is served");
        return;
    };
    defaults::apply(&gvk, &mut object);
    object["metadata"]["uid"] = json!(uid::random());
    object["metadata"]["creationTimestamp"] = json!(rfc3339(Timestamp::now()));
    let key = key(
        &text(&object["metadata"]["namespace"]),
        &text(&object["metadata"]["name"]),
    );
    let table = Table::new(&resource.stored_group, &resource.gvr.resource);
    if server.store.create(&table, &key, object).is_err() {
        tracing::debug!(%key, "a bootstrap object is there twice");
    }
}
