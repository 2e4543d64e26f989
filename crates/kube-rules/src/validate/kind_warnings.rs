//! What Kubernetes accepts and warns of in jobs and in kinds that have no pods.

use super::checks::{integer, members, quantity};
use super::errors::{has, items, text};
use super::key_pair;
use super::warnings::{LATER_OLD_VOLUMES, OLD_VOLUMES, address, node_term, old_label, pod, whole_bytes};
use crate::gofmt::go_quote;
use crate::gvk::Gvk;
use serde_json::Value;
use std::net::Ipv6Addr;

const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const USE_STORAGE_CLASS: &str = r#"deprecated since v1.8; use "storageClassName" attribute instead"#;
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
const USE_MOUNT_OPTIONS: &str = r#"deprecated since v1.31; use "mountOptions" attribute instead"#;
const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

/// Warnings of a write, in upstream's order. `old` is what was there, if anything.
pub(super) fn write(gvk: &Gvk, old: Option<&Value>, object: &Value, all: &mut Vec<String>) {
    let (annotations, spec) = (&object["metadata"]["annotations"], &object["spec"]);
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Service") => service(object, all),
        ("", "Secret") if text(object, "type") == "kubernetes.io/tls" => {
            all.extend(key_pair::check(object).err());
        }
        ("", "Node") => node(spec, all),
        ("batch", kind @ ("Job" | "CronJob")) => jobs(kind, old, object, all),
        ("", "Endpoints") => endpoints(object, all),
        ("discovery.k8s.io", "EndpointSlice") => endpoint_slice(old, object, all),
        ("", "PersistentVolume") => volume(annotations, spec, all),
        ("", "PersistentVolumeClaim") => {
            annotation(annotations, STORAGE_CLASS, USE_STORAGE_CLASS, all);
            claim_spec(spec, "spec", all);
        }
        ("", "ServiceAccount") if old.is_none_or(|old| !has(&old["metadata"]["annotations"], MOUNTABLE)) => {
            let why = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
            annotation(annotations, MOUNTABLE, why, all);
        }
        ("", "ResourceQuota") if old.is_none() => quota(&spec["hard"], all),
        ("networking.k8s.io", "Ingress") if old.is_none() => {
            const CLASS: &str = "kubernetes.io/ingress.class";
            if has(annotations, CLASS) && !has(spec, "ingressClassName") {
                all.push(format!(
                    "annotation \"{CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"
                ));
            }
        }
        ("networking.k8s.io", "NetworkPolicy") => {
            for (list, peers) in [("ingress", "from"), ("egress", "to")] {
                blocks(spec, list, peers, all);
            }
        }
        ("node.k8s.io", "RuntimeClass") => {
            let old = members(&object["scheduling"]["nodeSelector"]).filter_map(|(key, _)| old_label(key));
            all.extend(old.map(|message| format!("scheduling.nodeSelector: {message}")));
        }
        ("storage.k8s.io", "StorageClass") => storage_class(object, all),
        ("storage.k8s.io", "CSIStorageCapacity") => {
            let topology = &object["nodeTopology"];
            node_term(topology, false, "nodeTopology", all);
            let old = |(key, _): (&String, _)| Some((key.clone(), old_label(key)?));
            let old = members(&topology["matchLabels"]).filter_map(old);
            all.extend(old.map(|(key, message)| format!("nodeTopology.matchLabels.{key}: {message}")));
        }
        ("storage.k8s.io", "CSIDriver") => {
            let asks = items(spec, "tokenRequests").next().is_some();
            let is_new = old.is_none_or(|old| old["spec"]["tokenRequests"] != spec["tokenRequests"]);
            if asks && is_new && !has(spec, "serviceAccountTokenInSecrets") {
                all.push("spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes".to_owned());
            }
        }
        _ => {}
    }
}

/// Warnings of an update of the status: where a balancer can be reached.
pub(super) fn status(gvk: &Gvk, new: &Value, all: &mut Vec<String>) {
    if matches!(
        (gvk.group.as_str(), gvk.kind.as_str()),
        ("", "Service") | ("networking.k8s.io", "Ingress")
    ) {
        for (index, one) in items(&new["status"]["loadBalancer"], "ingress") {
            let path = format!("status.loadBalancer.ingress[{index}]");
            address(&path, text(one, "ip"), all);
        }
    }
}

fn annotation(annotations: &Value, key: &str, message: &str, all: &mut Vec<String>) {
    if has(annotations, key) {
        all.push(format!("metadata.annotations[{key}]: {message}"));
    }
}

fn when(is: bool, message: &str, all: &mut Vec<String>) {
    if is {
        all.push(message.to_owned());
    }
}

fn service(object: &Value, all: &mut Vec<String>) {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    const USE_MODE: &str = "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead";
    let spec = &object["spec"];
    let (named, external) = (
        text(spec, "type") == "ExternalName",
        items(spec, "externalIPs").next().is_some(),
    );
    let without = text(spec, "clusterIP") == "None";
    let headless = without && text(spec, "type") == "ClusterIP";
    let balancer = text(spec, "loadBalancerIP");
    when(has(&object["metadata"]["annotations"], HINTS), USE_MODE, all);
    if !without {
        addresses(spec, "spec", "clusterIPs", all);
    }
    if headless {
        let bound = text(spec, "sessionAffinity") != "None";
        when(
            !balancer.is_empty(),
            "spec.loadBalancerIP is ignored for headless services",
            all,
        );
        when(external, "spec.externalIPs is ignored for headless services", all);
        when(
            bound,
            "spec.SessionAffinity is ignored for headless services",
            all,
        );
    }
    addresses(spec, "spec", "externalIPs", all);
    when(
        external && !headless && !named,
        "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
        all,
    );
    address("spec.loadBalancerIP", balancer, all);
    ranges(spec, "spec", "loadBalancerSourceRanges", all);
    when(
        named && external,
        "spec.externalIPs is ignored when spec.type is \"ExternalName\"",
        all,
    );
    when(
        !named && !text(spec, "externalName").is_empty(),
        "spec.externalName is ignored when spec.type is not \"ExternalName\"",
        all,
    );
    when(
        text(spec, "trafficDistribution") == "PreferClose",
        "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
        all,
    );
}

/// Jobs, and those that a CronJob makes. What did not change is not looked at again.
fn jobs(kind: &str, old: Option<&Value>, object: &Value, all: &mut Vec<String>) {
    let generation = |object: &Value| object["metadata"]["generation"].clone();
    let spec = &object["spec"];
    if old.is_none_or(|old| generation(old) != generation(object)) {
        let (job, path) = if kind == "Job" {
            (spec, "spec")
        } else {
            (&spec["jobTemplate"]["spec"], "spec.jobTemplate.spec")
        };
        let many = integer(&job["completions"]) > 100_000 && integer(&job["parallelism"]) > 10_000;
        if many && text(job, "completionMode") == "Indexed" {
            all.push(format!("{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"));
        }
        pod(&job["template"], &format!("{path}.template"), all);
    }
    if old.is_some() && text(spec, "schedule").contains("TZ") {
        // Upstream names the place so.
        all.push("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details".to_owned());
    }
}

fn node(spec: &Value, all: &mut Vec<String>) {
    if has(spec, "configSource") {
        all.push("spec.configSource: the feature is removed".to_owned());
    }
    if !text(spec, "externalID").is_empty() {
        all.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    ranges(spec, "spec", "podCIDRs", all);
}

/// Those that a controller wrote are good.
fn is_written_by(object: &Value, label: &str, controllers: &[&str]) -> bool {
    controllers.contains(&text(&object["metadata"]["labels"], label))
}

fn endpoints(object: &Value, all: &mut Vec<String>) {
    if is_written_by(
        object,
        "endpoints.kubernetes.io/managed-by",
        &["endpoint-controller"],
    ) {
        return;
    }
    for (index, subset) in items(object, "subsets") {
        for list in ["addresses", "notReadyAddresses"] {
            for (number, one) in items(subset, list) {
                let path = format!("subsets[{index}].{list}[{number}].ip");
                address(&path, text(one, "ip"), all);
            }
        }
    }
}

fn endpoint_slice(old: Option<&Value>, object: &Value, all: &mut Vec<String>) {
    if old.is_none() && text(object, "addressType") == "FQDN" {
        all.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
    let controllers = [
        "endpointslice-controller.k8s.io",
        "endpointslicemirroring-controller.k8s.io",
    ];
    if !is_written_by(object, "endpointslice.kubernetes.io/managed-by", &controllers) {
        for (index, endpoint) in items(object, "endpoints") {
            addresses(endpoint, &format!("endpoints[{index}]"), "addresses", all);
        }
    }
}

fn volume(annotations: &Value, spec: &Value, all: &mut Vec<String>) {
    annotation(annotations, STORAGE_CLASS, USE_STORAGE_CLASS, all);
    annotation(annotations, MOUNT_OPTIONS, USE_MOUNT_OPTIONS, all);
    if text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        all.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_owned());
    }
    for (index, term) in items(&spec["nodeAffinity"]["required"], "nodeSelectorTerms") {
        let path = format!("spec.nodeAffinity.required.nodeSelectorTerms[{index}]");
        node_term(term, false, &path, all);
    }
    for source in [
        "cephfs",
        "photonPersistentDisk",
        "scaleIO",
        "storageos",
        "glusterfs",
        "rbd",
    ] {
        let known = OLD_VOLUMES.iter().find(|(member, _, _)| *member == source);
        let later = LATER_OLD_VOLUMES.iter().find(|(member, _)| *member == source);
        let named = known
            .map(|(_, name, message)| (*name, *message))
            .or(later.copied());
        if let Some((name, message)) = named.filter(|_| has(spec, source)) {
            all.push(format!("spec.{name}: {message}"));
        }
    }
}

pub(super) fn claim_spec(spec: &Value, path: &str, all: &mut Vec<String>) {
    for list in ["requests", "limits"] {
        whole_bytes(
            &spec["resources"],
            &format!("{path}.resources"),
            list,
            "storage",
            all,
        );
    }
}

fn quota(hard: &Value, all: &mut Vec<String>) {
    let amount = |name: &str| quantity(&hard[name]);
    for name in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let mut asked = format!("requests.{name}");
        if amount(&asked).is_none() && matches!(name, "cpu" | "memory") {
            name.clone_into(&mut asked);
        }
        let limited = format!("limits.{name}");
        if let (Some(request), Some(limit)) = (amount(&asked), amount(&limited))
            && request > limit
        {
            all.push(format!(
                "ResourceQuota {asked} ({request}) should be less than {limited} ({limit})"
            ));
        }
    }
}

fn blocks(spec: &Value, list: &str, peers: &str, all: &mut Vec<String>) {
    for (index, rule) in items(spec, list) {
        for (number, peer) in items(rule, peers) {
            let (block, path) = (
                &peer["ipBlock"],
                format!("spec.{list}[{index}].{peers}[{number}].ipBlock"),
            );
            range(&format!("{path}.cidr"), text(block, "cidr"), all);
            ranges(block, &path, "except", all);
        }
    }
}

fn storage_class(object: &Value, all: &mut Vec<String>) {
    for (index, topology) in items(object, "allowedTopologies") {
        for (number, one) in items(topology, "matchLabelExpressions") {
            let path = format!("allowedTopologies[{index}].matchLabelExpressions[{number}].key");
            all.extend(old_label(text(one, "key")).map(|message| format!("{path}: {message}")));
        }
    }
}

fn addresses(object: &Value, path: &str, list: &str, all: &mut Vec<String>) {
    for (index, one) in items(object, list) {
        address(
            &format!("{path}.{list}[{index}]"),
            one.as_str().unwrap_or_default(),
            all,
        );
    }
}

fn ranges(object: &Value, path: &str, list: &str, all: &mut Vec<String>) {
    for (index, one) in items(object, list) {
        range(
            &format!("{path}.{list}[{index}]"),
            one.as_str().unwrap_or_default(),
            all,
        );
    }
}

/// A range of IPv6 in another form than RFC 5952's.
fn range(path: &str, written: &str, all: &mut Vec<String>) {
    let Some((address, length)) = written.split_once('/') else {
        return;
    };
    let (Ok(address), Ok(length)) = (address.parse::<Ipv6Addr>(), length.parse::<u8>()) else {
        return;
    };
    let good = format!("{address}/{length}");
    if good != written {
        all.push(format!(
            "{path}: IPv6 CIDR value {} should be in RFC 5952 canonical format ({})",
            go_quote(written),
            go_quote(&good)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn of(kind: &str, old: Option<&Value>, object: &Value) -> Vec<String> {
        let (group, kind) = kind.rsplit_once('/').unwrap_or(("", kind));
        let gvk = Gvk {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
        };
        let mut all = Vec::new();
        write(&gvk, old, object, &mut all);
        all
    }

    #[rstest]
    #[case::plain("Service", json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}}), &[])]
    #[case::headless("Service", json!({"spec": {"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"], "loadBalancerIP": "1.2.3.4", "sessionAffinity": "ClientIP"}}), &["spec.loadBalancerIP is ignored", "spec.SessionAffinity is ignored"])]
    #[case::external("Service", json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "externalIPs": ["1.2.3.4", "fd00::0:1"]}}), &["spec.externalIPs[1]: IPv6 address \"fd00::0:1\"", "spec.externalIPs is deprecated"])]
    #[case::named("Service", json!({"spec": {"type": "ExternalName", "externalName": "a.b", "externalIPs": ["1.2.3.4"]}}), &["spec.externalIPs is ignored when"])]
    #[case::ranges("Service", json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1", "loadBalancerSourceRanges": ["10.0.0.0/8", "fd00:0::/64"]}}), &["spec.loadBalancerSourceRanges[1]: IPv6 CIDR value \"fd00:0::/64\" should be in RFC 5952 canonical format (\"fd00::/64\")"])]
    #[case::pair("Secret", json!({"type": "kubernetes.io/tls", "data": {"tls.crt": "", "tls.key": ""}}), &["tls: failed to find any PEM data in certificate input"])]
    #[case::opaque("Secret", json!({"type": "Opaque", "data": {"tls.crt": "", "tls.key": ""}}), &[])]
    #[case::node("Node", json!({"spec": {"externalID": "x", "configSource": {}}}), &["spec.configSource", "spec.externalID"])]
    #[case::slice("discovery.k8s.io/EndpointSlice", json!({"addressType": "IPv6", "endpoints": [{"addresses": ["fd00::0:1"]}]}), &["endpoints[0].addresses[0]"])]
    #[case::slice_of_a_controller("discovery.k8s.io/EndpointSlice", json!({"metadata": {"labels": {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}}, "addressType": "FQDN", "endpoints": [{"addresses": ["fd00::0:1"]}]}), &["spec.addressType"])]
    #[case::volume("PersistentVolume", json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/mount-options": "x"}}, "spec": {"persistentVolumeReclaimPolicy": "Recycle", "storageos": {}}}), &["metadata.annotations[volume.beta.kubernetes.io/mount-options]", "spec.persistentVolumeReclaimPolicy", "spec.storageOS: deprecated in v1.22"])]
    #[case::claim("PersistentVolumeClaim", json!({"spec": {"resources": {"requests": {"storage": "100m"}}}}), &["spec.resources.requests[storage]: fractional byte value \"100m\""])]
    #[case::quota("ResourceQuota", json!({"spec": {"hard": {"cpu": "2", "limits.cpu": "1", "requests.memory": "1", "limits.memory": "1"}}}), &["ResourceQuota cpu (2) should be less than limits.cpu (1)"])]
    #[case::ingress("networking.k8s.io/Ingress", json!({"metadata": {"annotations": {"kubernetes.io/ingress.class": "x"}}, "spec": {}}), &["annotation \"kubernetes.io/ingress.class\" is deprecated"])]
    #[case::policy("networking.k8s.io/NetworkPolicy", json!({"spec": {"egress": [{"to": [{"ipBlock": {"cidr": "fd00:0::/64", "except": ["fd00::/65"]}}]}]}}), &["spec.egress[0].to[0].ipBlock.cidr"])]
    #[case::class("storage.k8s.io/StorageClass", json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "failure-domain.beta.kubernetes.io/zone"}]}]}), &["allowedTopologies[0].matchLabelExpressions[0].key: deprecated since v1.17"])]
    #[case::driver("storage.k8s.io/CSIDriver", json!({"spec": {"tokenRequests": [{"audience": "x"}]}}), &["spec.serviceAccountTokenInSecrets is unset"])]
    fn what_is_warned_of(#[case] kind: &str, #[case] object: Value, #[case] expected: &[&str]) {
        let all = of(kind, None, &object);
        assert_eq!(all.len(), expected.len(), "{all:#?}");
        for (got, start) in all.iter().zip(expected) {
            assert!(got.starts_with(start), "{got}");
        }
    }

    #[test]
    fn what_was_there_before_is_not_warned_of_again() {
        let driver = json!({"spec": {"tokenRequests": [{"audience": "x"}]}});
        assert_eq!(of("storage.k8s.io/CSIDriver", Some(&driver), &driver), [""; 0]);
        let account = json!({"metadata": {"annotations": {MOUNTABLE: "true"}}});
        assert_eq!(of("ServiceAccount", Some(&account), &account), [""; 0]);
        assert_eq!(of("ServiceAccount", Some(&json!({})), &account).len(), 1);
    }
}
