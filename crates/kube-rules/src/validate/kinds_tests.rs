//! What is refused of single kinds. The texts are those of Kubernetes' own server, with which `cargo xtask
//! differential` compares them.

use super::tests::{refused, refused_update};
use rstest::rstest;
use serde_json::{Value, json};

/// A subdomain that is none.
fn no_subdomain(field: &str, value: &str) -> String {
    let wrong = crate::names::dns_subdomain(value).remove(0);
    format!("{field}: Invalid value: \"{value}\": {wrong}")
}

fn merged(whole: &Value, part: &Value) -> Value {
    crate::patch::merge_patch(whole, part.to_string().as_bytes()).unwrap()
}

fn autoscaler(spec: Value) -> Value {
    let mut whole = json!({
        "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
    });
    whole = merged(&whole, &spec);
    json!({"spec": whole})
}

fn metric(metric: Value) -> Value {
    autoscaler(json!({"metrics": [metric]}))
}

#[rstest]
#[case::good(json!({}), &[])]
#[case::none(json!({"maxReplicas": 0}), &[
    "spec.maxReplicas: Required value: must be set and greater than 0",
    "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
])]
#[case::less_than_least(json!({"minReplicas": 5}), &[
    "spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`",
])]
#[case::to_zero(json!({"minReplicas": 0}), &[
    "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
    "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas",
])]
#[case::no_target(json!({"scaleTargetRef": {"kind": "", "name": "", "apiVersion": "v1"}}), &[
    "spec.scaleTargetRef.kind: Required value",
    "spec.scaleTargetRef.name: Required value",
    "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group",
])]
#[case::behaviour(json!({"behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601, "selectPolicy": "Some",
    "policies": [{"type": "Nodes", "value": 0, "periodSeconds": 1801}]}}}), &[
    "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
    "spec.behavior.scaleUp.selectPolicy: Unsupported value: \"Some\": supported values: \"Disabled\", \"Max\", \"Min\"",
    "spec.behavior.scaleUp.policies[0].type: Unsupported value: \"Nodes\": supported values: \"Percent\", \"Pods\"",
    "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
    "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
])]
fn autoscalers(#[case] spec: Value, #[case] expected: &[&str]) {
    assert_eq!(
        refused("autoscaling", "HorizontalPodAutoscaler", autoscaler(spec)),
        expected
    );
}

#[rstest]
#[case::resource(json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization",
    "averageUtilization": 0}}}), &[
    "spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0",
])]
#[case::no_source(json!({"type": "Pods"}), &[
    "spec.metrics[0].pods: Required value: must populate information for the given metric source",
])]
#[case::two_sources(json!({"type": "Pods", "pods": {"metric": {"name": "a/b"}, "target": {"type": "AverageValue",
    "averageValue": "1"}}, "resource": {"name": "cpu", "target": {"type": "Value", "value": "1"}}}), &[
    "spec.metrics[0].pods.metric.name: Invalid value: \"a/b\": may not contain '/'",
    "spec.metrics[0].resource: Forbidden: must populate the given metric source only",
])]
#[case::external(json!({"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value",
    "value": "1", "averageValue": "0"}}}), &[
    "spec.metrics[0].external.target.averageValue: Invalid value: \"0\": must be positive",
    "spec.metrics[0].external.target.value: Forbidden: may not set both a target value for metric and a per-pod target",
])]
#[case::container(json!({"type": "ContainerResource", "containerResource": {"name": "pods", "container": "",
    "target": {"type": "x"}}}), &[
    "spec.metrics[0].containerResource.name: Invalid value: \"pods\": must be a standard resource for containers",
    "spec.metrics[0].containerResource.container: Required value: must specify a container",
    "spec.metrics[0].containerResource.target.type: Invalid value: \"x\": must be either Utilization, Value, or AverageValue",
    "spec.metrics[0].containerResource.target.averageUtilization: Required value: must set either a target raw value or a target utilization",
])]
fn metrics(#[case] one: Value, #[case] expected: &[&str]) {
    assert_eq!(
        refused("autoscaling", "HorizontalPodAutoscaler", metric(one)),
        expected
    );
}

#[rstest]
#[case::good(json!({"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}}), &[])]
#[case::unknown(json!({"type": "Node"}), &[
    "spec.limits[0].type: Invalid value: \"Node\": must be a standard limit type or fully qualified",
])]
#[case::names(json!({"type": "Container", "min": {"a": "1"}}), &[
    "spec.limits[0].min[a]: Invalid value: \"a\": must be a standard resource type or fully qualified",
    "spec.limits[0].min[a]: Invalid value: \"a\": must be a standard resource for containers",
    "spec.limits[0].defaultRequest[a]: Invalid value: \"a\": must be a standard resource type or fully qualified",
    "spec.limits[0].defaultRequest[a]: Invalid value: \"a\": must be a standard resource for containers",
])]
#[case::of_pods(json!({"type": "Pod", "default": {"cpu": "1"}}), &[
    "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
])]
#[case::of_claims(json!({"type": "PersistentVolumeClaim"}), &[
    "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided",
])]
#[case::order(json!({"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}, "default": {"cpu": "1"},
    "defaultRequest": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "500m"}}), &[
    "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
    "spec.limits[0].defaultRequest[cpu]: Invalid value: \"1\": min value 2 is greater than default request value 1",
    "spec.limits[0].default[cpu]: Invalid value: \"2\": min value 2 is greater than default value 1",
    "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1",
])]
fn limits(#[case] limit: Value, #[case] expected: &[&str]) {
    let object = json!({"spec": {"limits": [limit]}});
    assert_eq!(refused("", "LimitRange", object), expected);
}

#[rstest]
#[case::good(json!({"hard": {"pods": "4", "requests.cpu": "1", "count/deployments.apps": "2"}}), &[])]
#[case::names(json!({"hard": {"a": "1", "pods": "1500m"}}), &[
    "spec.hard[a]: Invalid value: \"a\": must be a standard resource type or fully qualified",
    "spec.hard[a]: Invalid value: \"a\": must be a standard resource for quota",
    "spec.hard[pods]: Invalid value: \"1500m\": must be an integer",
])]
#[case::scopes(json!({"hard": {"secrets": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}), &[
    "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: unsupported scope applied to resource",
    "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: unsupported scope applied to resource",
    "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes",
])]
#[case::selector(json!({"scopeSelector": {"matchExpressions": [{"scopeName": "x", "operator": "In"},
    {"scopeName": "PriorityClass", "operator": "Exists", "values": ["a"]}]}}), &[
    "spec.scopeSelector.matchExpressions.scopeName: Invalid value: \"x\": unsupported scope",
    "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
    "spec.scopeSelector.matchExpressions.values: Invalid value: [\"a\"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
])]
fn quotas(#[case] spec: Value, #[case] expected: &[&str]) {
    assert_eq!(refused("", "ResourceQuota", json!({"spec": spec})), expected);
}

fn job(spec: Value) -> Value {
    let mut whole = json!({
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x:1"}]}},
    });
    whole = merged(&whole, &spec);
    json!({"metadata": {"name": "j"}, "spec": whole})
}

#[rstest]
#[case::good(json!({}), &[])]
#[case::indices(json!({"completionMode": "Indexed", "parallelism": 1}), &["spec.completions: Required value: when completion mode is Indexed"])]
#[case::not_indexed(json!({"backoffLimitPerIndex": 1, "maxFailedIndexes": 1}), &[
    "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
    "spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode",
])]
#[case::manager(json!({"managedBy": "web"}), &[
    "spec.managedBy: Invalid value: \"web\": must be a domain-prefixed path (such as \"acme.io/foo\")",
])]
#[case::failures(json!({"podFailurePolicy": {"rules": [{"action": "Go"}, {"action": "FailIndex", "onExitCodes":
    {"operator": "In", "values": [2, 0, 0], "containerName": "x"}}]}}), &[
    "spec.podFailurePolicy.rules[0].action: Unsupported value: \"Go\": supported values: \"Count\", \"FailIndex\", \"FailJob\", \"Ignore\"",
    "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
    "spec.podFailurePolicy.rules[1].action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set",
    "spec.podFailurePolicy.rules[1].onExitCodes.containerName: Invalid value: \"x\": must be one of the container or initContainer names in the pod template",
    "spec.podFailurePolicy.rules[1].onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
    "spec.podFailurePolicy.rules[1].onExitCodes.values[2]: Invalid value: 0: must not be 0 for the In operator",
    "spec.podFailurePolicy.rules[1].onExitCodes.values[2]: Duplicate value: 0",
    "spec.podFailurePolicy.rules[1].onExitCodes.values: Invalid value: [2,0,0]: must be ordered",
])]
#[case::success(json!({"completionMode": "Indexed", "completions": 4, "successPolicy": {"rules": [{},
    {"succeededIndexes": "0-1,1", "succeededCount": 5}]}}), &[
    "spec.successPolicy.rules[0]: Required value: at least one of succeededCount or succeededIndexes must be specified",
    "spec.successPolicy.rules[1].succeededIndexes: Invalid value: \"0-1,1\": error parsing succeededIndexes: non-increasing order, previous: 1, current: 1",
    "spec.successPolicy.rules[1].succeededCount: Invalid value: 5: must be less than or equal to 4 (the number of specified completions)",
    "spec.successPolicy.rules[1].succeededCount: Invalid value: 5: must be less than or equal to 0 (the number of indexes in the specified succeededIndexes field)",
])]
#[case::labels_of_another(json!({"template": {"metadata": {"labels": {"job-name": "k"}}}}), &[
    "spec.template.metadata.labels[job-name]: Invalid value: {\"batch.kubernetes.io/controller-uid\":\"u\",\"batch.kubernetes.io/job-name\":\"j\",\"controller-uid\":\"u\",\"job-name\":\"k\"}: must be 'j'",
])]
#[case::runs_always(json!({"template": {"spec": {"restartPolicy": "Always"}}}), &[
    "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
])]
fn jobs(#[case] spec: Value, #[case] expected: &[&str]) {
    assert_eq!(refused("batch", "Job", job(spec)), expected);
}

#[rstest]
#[case::good(json!({"schedule": "@hourly", "timeZone": "Europe/Berlin"}), &[])]
#[case::schedule(json!({"schedule": "TZ=UTC 61 * * * *"}), &[
    "spec.schedule: Invalid value: \"TZ=UTC 61 * * * *\": end of range (61) above maximum (59): 61",
    "spec.schedule: Invalid value: \"TZ=UTC 61 * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
])]
#[case::zone(json!({"schedule": "@hourly", "timeZone": "Nowhere/Town"}), &[
    "spec.timeZone: Invalid value: \"Nowhere/Town\": unknown time zone Nowhere/Town",
])]
#[case::name(json!({"schedule": "@hourly", "name": "n".repeat(53)}), &[
    "metadata.name: Invalid value: \"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\": must be no more than 52 characters",
])]
fn cron_jobs(#[case] mut spec: Value, #[case] expected: &[&str]) {
    let name = spec.as_object_mut().unwrap().remove("name");
    spec["jobTemplate"] = json!({"spec": job(json!({}))["spec"]});
    let object = json!({"metadata": {"name": name}, "spec": spec});
    assert_eq!(refused("batch", "CronJob", object), expected);
}

#[rstest]
#[case::driver("CSIDriver", json!({"spec": {"fsGroupPolicy": "x", "tokenRequests": [{"audience": "a"}, {"audience": "a"},
    {"audience": "b", "expirationSeconds": 1}], "nodeAllocatableUpdatePeriodSeconds": 9}}), &[
    "spec.fsGroupPolicy: Unsupported value: \"x\": supported values: \"File\", \"None\", \"ReadWriteOnceWithFSType\"",
    "spec.tokenRequests[1].audience: Duplicate value: \"a\"",
    "spec.tokenRequests[2].expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
    "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds",
])]
#[case::node("CSINode", json!({"spec": {"drivers": [{"name": "d", "nodeID": ""}, {"name": "d", "nodeID": "n",
    "allocatable": {"count": -1}, "topologyKeys": ["k", "k"]}]}}), &[
    "spec.drivers[0].nodeID: Required value",
    "spec.drivers[1].allocatable.count: Invalid value: -1: must be greater than or equal to 0",
    "spec.drivers[1].name: Duplicate value: \"d\"",
    "spec.drivers[1]: Duplicate value: \"k\"",
])]
#[case::capacity("CSIStorageCapacity", json!({"storageClassName": "s", "capacity": "-1",
    "nodeTopology": {"matchExpressions": [{"key": "k", "operator": "Equal"}]}}), &[
    "nodeTopology.matchExpressions[0].operator: Invalid value: \"Equal\": not a valid selector operator",
    "capacity: Invalid value: \"-1\": must be greater than or equal to 0",
])]
#[case::attributes("VolumeAttributesClass", json!({"driverName": ""}), &[
    "driverName: Required value",
    "parameters: Required value: must contain at least one key/value pair",
])]
#[case::topologies("StorageClass", json!({"provisioner": "p", "allowedTopologies": [{"matchLabelExpressions": [
    {"key": "k", "values": ["a", "a"]}, {"key": "k", "values": []}]}]}), &[
    "allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: \"a\"",
    "allowedTopologies[0].matchLabelExpressions[1].values: Required value",
    "allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value: \"k\"",
])]
#[case::attachment("VolumeAttachment", json!({"spec": {"attacher": "a", "nodeName": "n", "source": {"inlineVolumeSpec":
    {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}}}}), &[
    "spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of inline volumes",
    "spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes",
])]
fn drivers_and_classes(#[case] kind: &str, #[case] object: Value, #[case] expected: &[&str]) {
    assert_eq!(refused("storage.k8s.io", kind, object), expected);
}

fn volume(spec: Value) -> Value {
    let mut whole = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}});
    whole = merged(&whole, &spec);
    json!({"spec": whole})
}

#[rstest]
#[case::good(json!({"hostPath": {"path": "/x"}}), &[])]
#[case::host_path(json!({"hostPath": {"path": "/../x", "type": "Web"}}), &[
    "spec.hostPath.path: Invalid value: \"/../x\": must not contain '..'",
    "spec.hostPath.type: Unsupported value: \"Web\": supported values: \"\", \"BlockDevice\", \"CharDevice\", \"Directory\", \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \"Socket\"",
])]
#[case::two(json!({"hostPath": {"path": "/x"}, "nfs": {"server": "s", "path": "/x"}}), &[
    "spec.nfs: Forbidden: may not specify more than 1 volume type",
])]
#[case::local(json!({"local": {"path": "/x"}}), &["spec.nodeAffinity: Required value: Local volume requires node affinity"])]
#[case::affinity(json!({"local": {"path": "/x"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions":
    [{"key": "k", "operator": "Gt", "values": []}], "matchFields": [{"key": "x", "operator": "In", "values": []}]}]}}}), &[
    "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
    "spec.nodeAffinity.required.nodeSelectorTerms[0].matchFields[0].values: Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
    "spec.nodeAffinity.required.nodeSelectorTerms[0].matchFields[0].key: Invalid value: \"x\": not a valid field selector key",
])]
#[case::modes(json!({"hostPath": {"path": "/x"}, "accessModes": ["ReadWriteOncePod", "ReadWriteMany"], "volumeMode": "x"}), &[
    "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
    "spec.volumeMode: Unsupported value: \"x\": supported values: \"Block\", \"Filesystem\"",
])]
#[case::csi(json!({"csi": {"driver": "", "volumeHandle": "", "nodeStageSecretRef": {}, "nodePublishSecretRef": {"name": "s"}}}), &[
    "spec.csi.driver: Required value",
    "spec.csi.volumeHandle: Required value",
    "spec.csi.nodePublishSecretRef.namespace: Required value",
])]
fn volumes(#[case] spec: Value, #[case] expected: &[&str]) {
    assert_eq!(refused("", "PersistentVolume", volume(spec)), expected);
}

#[rstest]
#[case::group(json!({"version": "v1", "group": "Bad_", "groupPriorityMinimum": 0, "versionPriority": 1001}), "v1.Bad_", &[
    "spec.group", "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
    "spec.versionPriority: Invalid value: 1001: must be positive and less than 1000",
])]
#[case::name(json!({"version": "v1", "group": "g.io", "groupPriorityMinimum": 1, "versionPriority": 1}), "v2.g.io", &[
    "metadata.name: Invalid value: \"v2.g.io\": must be `spec.version+\".\"+spec.group`: \"v1.g.io\"",
])]
#[case::service(json!({"version": "v1", "group": "g.io", "groupPriorityMinimum": 1, "versionPriority": 1,
    "service": {"name": "s", "port": 0}, "caBundle": "YQ==", "insecureSkipTLSVerify": true}), "v1.g.io", &[
    "spec.service.namespace: Required value",
    "spec.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
    "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
])]
#[case::local(json!({"version": "v1", "group": "g.io", "groupPriorityMinimum": 1, "versionPriority": 1, "caBundle": "YQ=="}), "v1.g.io", &[
    "spec.caBundle: Invalid value: \"1 bytes\": local APIServices may not have a caBundle",
])]
fn api_services(#[case] spec: Value, #[case] name: &str, #[case] expected: &[&str]) {
    let object = json!({"metadata": {"name": name}, "spec": spec});
    let found = refused("apiregistration.k8s.io", "APIService", object);
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}");
    }
}

#[rstest]
#[case::no_peer(json!({"from": [{}]}), &["spec.ingress[0].from[0]: Required value: must specify a peer"])]
#[case::two_peers(json!({"from": [{"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}]}), &[
    "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`",
    "spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer",
])]
#[case::ports(json!({"ports": [{"port": 80, "endPort": 79}, {"port": "http", "endPort": 1}, {"endPort": 1}]}), &[
    "spec.ingress[0].ports[0].endPort: Invalid value: 80: must be greater than or equal to `port`",
    "spec.ingress[0].ports[1].endPort: Invalid value: 1: may not be specified when `port` is non-numeric",
    "spec.ingress[0].ports[2].endPort: Invalid value: 1: may not be specified when `port` is not specified",
])]
fn network_policies(#[case] rule: Value, #[case] expected: &[&str]) {
    let object = json!({"spec": {"podSelector": {}, "ingress": [rule]}});
    assert_eq!(refused("networking.k8s.io", "NetworkPolicy", object), expected);
}

#[rstest]
#[case::hosts(json!({"rules": [{"host": "10.1.2.3"}, {"host": "*"}]}), vec![
    "spec.rules[0].host: Invalid value: \"10.1.2.3\": must be a DNS name, not an IP address".to_owned(),
    format!("spec.rules[1].host: Invalid value: \"*\": {}", crate::names::wildcard_subdomain("*")[0]),
])]
#[case::paths(json!({"rules": [{"http": {"paths": [{"path": "/a//b/..", "pathType": "Exact",
    "backend": {"resource": {"kind": "K", "name": ""}}}]}}]}), vec![
    "spec.rules[0].http.paths[0].path: Invalid value: \"/a//b/..\": must not contain '//'".to_owned(),
    "spec.rules[0].http.paths[0].path: Invalid value: \"/a//b/..\": cannot end with '/..'".to_owned(),
    "spec.rules[0].http.paths[0].backend.resource.name: Required value".to_owned(),
])]
#[case::tls(json!({"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}, "tls": [{"secretName": "A_b"}],
    "ingressClassName": "C_d"}), vec![
    no_subdomain("spec.tls[0].secretName", "A_b"), no_subdomain("spec.ingressClassName", "C_d"),
])]
fn ingresses(#[case] spec: Value, #[case] expected: Vec<String>) {
    let object = json!({"spec": spec});
    assert_eq!(refused("networking.k8s.io", "Ingress", object), expected);
}

#[rstest]
#[case::families(json!({"ipFamilies": ["IPv4", "IPv4"], "trafficDistribution": "x"}), &[
    "spec.ipFamilies[1]: Duplicate value: \"IPv4\"",
])]
#[case::both(json!({"ipFamilies": ["IPv4", "IPv6"]}), &[
    "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified",
])]
#[case::two_stacks(json!({"ipFamilyPolicy": "RequireDualStack"}), &[
    "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
])]
#[case::another_stack(json!({"ipFamilies": ["IPv6"]}), &[
    "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
])]
#[case::an_address_of_another_stack(json!({"clusterIP": "2001:db8::1"}), &[
    "spec.clusterIPs[0]: Invalid value: [\"2001:db8::1\"]: IPv6 is not configured on this cluster",
])]
#[case::the_newer_field_alone(json!({"clusterIPs": ["10.96.0.9"]}), &[
    "spec.clusterIPs: Invalid value: [\"10.96.0.9\"]: must be empty when `clusterIP` is not specified",
])]
#[case::headless_without_selector(json!({"clusterIP": "None", "ipFamilyPolicy": "PreferDualStack"}), &[])]
#[case::distribution(json!({"trafficDistribution": "x"}), &[
    "spec.trafficDistribution: Unsupported value: \"x\": supported values: \"PreferClose\", \"PreferSameZone\", \"PreferSameNode\"",
])]
#[case::affinity(json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}}}), &[
    "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400",
])]
#[case::balancer(json!({"loadBalancerClass": "a/b", "loadBalancerSourceRanges": ["10.0.0.1/8"], "allocateLoadBalancerNodePorts": true}), &[
    "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
    "spec.LoadBalancerSourceRanges[0]: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the prefix length",
    "spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'",
    "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
])]
#[case::outside(json!({"externalIPs": ["127.0.0.1", "0.0.0.0"]}), &[
    "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
    "spec.externalIPs[1]: Invalid value: \"0.0.0.0\": may not be unspecified (0.0.0.0)",
])]
fn services(#[case] spec: Value, #[case] expected: &[&str]) {
    let mut whole = json!({"ports": [{"port": 80}]});
    whole = merged(&whole, &spec);
    assert_eq!(refused("", "Service", json!({"spec": whole})), expected);
}

#[rstest]
#[case::driver("storage.k8s.io", "CSIDriver", json!({"spec": {"attachRequired": true}}), json!({"spec": {"attachRequired": false}}),
    &["spec.attachedRequired: Invalid value: false: field is immutable"])]
#[case::attributes("storage.k8s.io", "VolumeAttributesClass", json!({"driverName": "d", "parameters": {"a": "b"}}),
    json!({"driverName": "e"}), &["driverName: Forbidden: updates to driverName are forbidden."])]
#[case::role("rbac.authorization.k8s.io", "RoleBinding", json!({"roleRef": {"kind": "Role", "name": "r"}}),
    json!({"roleRef": {"name": "s"}}),
    &["roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"s\"}: cannot change roleRef"])]
#[case::quota("", "ResourceQuota", json!({"spec": {"scopes": ["BestEffort"]}}), json!({"spec": {"scopes": null}}),
    &["spec.scopes: Invalid value: null: field is immutable"])]
#[case::balancer("", "Service", json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerClass": "a/b"}}),
    json!({"spec": {"loadBalancerClass": "a/c"}}),
    &["spec.loadBalancerClass: Invalid value: \"a/c\": may not change once set"])]
#[case::claim("", "PersistentVolumeClaim",
    json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
    json!({"spec": {"volumeName": "v"}}), &[])]
fn updates(
    #[case] group: &str,
    #[case] kind: &str,
    #[case] old: Value,
    #[case] patch: Value,
    #[case] expected: &[&str],
) {
    assert_eq!(refused_update(group, kind, old, patch), expected);
}
