mod pod_updates;
mod pods;

use super::*;
use crate::status::ApiError;
use crate::strict::{FieldValidation, check};
use crate::{defaults, strategy};
use rstest::rstest;
use serde_json::json;

fn gvk(group: &str, kind: &str) -> Gvk {
    Gvk {
        group: group.into(),
        version: if group == "autoscaling" { "v2" } else { "v1" }.into(),
        kind: kind.into(),
    }
}

/// An object as a create would have it before it is validated.
fn prepared(group: &str, kind: &str, mut object: Value) -> Value {
    let gvk = gvk(group, kind);
    if object["metadata"]["name"].is_null() {
        object["metadata"]["name"] = json!("x");
    }
    object["metadata"]["uid"] = json!("u");
    let mut object = check(&gvk, object, FieldValidation::Strict).unwrap().object;
    defaults::apply(&gvk, &mut object);
    strategy::prepare_create(&gvk, &mut object);
    object
}

/// What a create of it says, one line per error.
pub(super) fn refused(group: &str, kind: &str, object: Value) -> Vec<String> {
    let (gvk, object) = (gvk(group, kind), prepared(group, kind, object));
    let first = allocation(&gvk, None, &object);
    lines(if first.is_empty() {
        create(&gvk, &object)
    } else {
        first
    })
}

fn lines(errors: Vec<FieldError>) -> Vec<String> {
    errors
        .into_iter()
        .map(|error| format!("{}: {}", error.field, error.message))
        .collect()
}

/// What an update by a strategic merge patch says.
pub(super) fn refused_update(group: &str, kind: &str, old: Value, patch: Value) -> Vec<String> {
    let gvk = gvk(group, kind);
    let old = prepared(group, kind, old);
    let new = crate::patch::strategic_merge_patch(&gvk, &old, patch.to_string().as_bytes()).unwrap();
    let mut new = check(&gvk, new, FieldValidation::Strict).unwrap().object;
    defaults::apply(&gvk, &mut new);
    strategy::prepare_update(&gvk, &old, &mut new);
    lines(update(&gvk, &old, &new))
}

fn pod(spec: Value) -> Value {
    json!({"spec": spec})
}

fn with_container(extra: Value) -> Value {
    let mut container = json!({"name": "c", "image": "x:1"});
    for (name, value) in extra.as_object().unwrap() {
        container[name] = value.clone();
    }
    pod(json!({"containers": [container]}))
}

#[test]
fn good_objects_pass() {
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}});
    let workload = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    for (group, kind, object) in [
        ("", "Pod", with_container(json!({}))),
        (
            "",
            "Pod",
            json!({"metadata": {"name": "p", "finalizers": ["a.b/c"], "labels": {"a/b": ""}}, "spec": {"containers":
            [{"name": "c", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}], "livenessProbe": {"httpGet": {"port": "web"}},
              "ports": [{"containerPort": 1, "name": "web"}]}], "volumes": [{"name": "v"}]}}),
        ),
        ("apps", "Deployment", workload.clone()),
        ("apps", "StatefulSet", workload.clone()),
        ("apps", "DaemonSet", workload.clone()),
        ("apps", "ReplicaSet", workload),
        ("", "Service", json!({"spec": {"ports": [{"port": 80}]}})),
        ("", "Service", json!({"spec": {"clusterIP": "None"}})),
        ("", "ConfigMap", json!({"data": {"a.b": "c"}})),
        ("", "Secret", json!({"stringData": {"a": "b"}})),
        (
            "",
            "Node",
            json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}),
        ),
        (
            "coordination.k8s.io",
            "Lease",
            json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 15}}),
        ),
        (
            "policy",
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": "50%"}}),
        ),
        (
            "batch",
            "Job",
            json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}}),
        ),
        (
            "discovery.k8s.io",
            "EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]}),
        ),
        (
            "rbac.authorization.k8s.io",
            "ClusterRole",
            json!({"metadata": {"name": "system:x"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
        ),
        ("storage.k8s.io", "StorageClass", json!({"provisioner": "a.b/c"})),
    ] {
        assert_eq!(refused(group, kind, object), [""; 0], "{kind}");
    }
}

#[test]
fn names_and_metadata() {
    let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    for (kind, metadata, error) in [
        ("ConfigMap", json!({"name": "Bad"}), format!("metadata.name: Invalid value: \"Bad\": {subdomain}")),
        ("Namespace", json!({"name": "a.b"}), "metadata.name: Invalid value: \"a.b\": must not contain dots".into()),
        ("ConfigMap", json!({"name": "a", "finalizers": ["x"]}),
            "metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified".into()),
        ("ConfigMap", json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "", "name": "n", "uid": "u"}]}),
            "metadata.ownerReferences.kind: Invalid value: \"\": must not be empty".into()),
        ("ConfigMap", json!({"name": "a", "labels": {"a": "-"}}),
            "metadata.labels: Invalid value: \"-\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')".into()),
        ("ConfigMap", json!({"name": "x".repeat(254)}), format!("metadata.name: Invalid value: \"{}\": must be no more than 253 characters", "x".repeat(254))),
    ] {
        assert_eq!(refused("", kind, json!({"metadata": metadata})), [error], "{metadata}");
    }
    let nameless = create(&gvk("", "ConfigMap"), &json!({"metadata": {}}));
    assert_eq!(
        lines(nameless),
        ["metadata.name: Required value: name or generateName is required"]
    );
}

#[test]
fn finalizers_are_checked_as_their_kind_wants_it() {
    let bad = json!({"metadata": {"name": "a", "namespace": "n", "finalizers": ["none", "A!", "orphan", "foregroundDeletion"]}});
    const DOMAIN: &str = "name is neither a standard finalizer name nor is it fully qualified";
    let list = lines(create(&gvk("", "ConfigMap"), &bad));
    assert!(
        list[0].starts_with("metadata.finalizers: Invalid value: \"A!\": name part must"),
        "{list:?}"
    );
    assert!(
        list[1].ends_with(": finalizer orphan and foregroundDeletion cannot be both set"),
        "{list:?}"
    );
    assert_eq!(
        list[2],
        format!("metadata.finalizers[0]: Invalid value: \"none\": {DOMAIN}")
    );
    assert_eq!(
        list[3],
        format!("metadata.finalizers[1]: Invalid value: \"A!\": {DOMAIN}")
    );
    assert_eq!(list.len(), 4);
    // A lease and a custom resource may have a finalizer without a domain.
    let lease = lines(create(&gvk("coordination.k8s.io", "Lease"), &bad));
    let custom = lines(metadata(&gvk("example.com", "X"), &bad));
    assert_eq!([lease.len(), custom.len()], [2, 2]);
    let none = json!({"metadata": {"name": "a", "finalizers": ["none"]}});
    assert_eq!(
        custom_warnings(None, &none),
        [
            "metadata.finalizers: \"none\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
        ]
    );
    assert!(custom_warnings(Some(&none), &none).is_empty());
    let dotted = json!({"metadata": {"finalizers": ["a.b"]}});
    assert!(custom_warnings(Some(&none), &dotted)[0].contains("name including a path (/) to avoid"));
}

#[test]
fn pods_that_are_refused() {
    for (object, expected) in [
        (
            pod(json!({"containers": []})),
            vec!["spec.containers: Required value"],
        ),
        (
            pod(
                json!({"containers": [{"name": "c", "image": ""}, {"name": "c", "image": "x"}], "restartPolicy": "Sometimes"}),
            ),
            vec![
                "spec.containers[0].image: Required value",
                "spec.containers[1].name: Duplicate value: \"c\"",
                "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
            ],
        ),
        (
            with_container(
                json!({"volumeMounts": [{"name": "nope", "mountPath": "/x"}], "ports": [{"containerPort": 70000}], "env": [{"name": "a=b"}]}),
            ),
            vec![
                "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                "spec.containers[0].env[0].name: Invalid value: \"a=b\": a valid environment variable name must consist only of printable ASCII characters other than '='",
                "spec.containers[0].volumeMounts[0].name: Not found: \"nope\"",
            ],
        ),
        (
            with_container(json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}})),
            vec![
                "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
            ],
        ),
        (
            with_container(
                json!({"livenessProbe": {"httpGet": {"port": 80}, "tcpSocket": {"port": 80}, "periodSeconds": -1}}),
            ),
            vec![
                "spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
                "spec.containers[0].livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
        (
            with_container(json!({"livenessProbe": {"grpc": {}, "successThreshold": 2}})),
            vec![
                "spec.containers[0].livenessProbe.grpc.port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
            ],
        ),
        (
            with_container(
                json!({"startupProbe": {"exec": {}, "successThreshold": -1, "terminationGracePeriodSeconds": 0}}),
            ),
            vec![
                "spec.containers[0].startupProbe.exec.command: Required value",
                "spec.containers[0].startupProbe.successThreshold: Invalid value: -1: must be greater than or equal to 0",
                "spec.containers[0].startupProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
                "spec.containers[0].startupProbe.successThreshold: Invalid value: -1: must be 1",
            ],
        ),
        (
            with_container(
                json!({"readinessProbe": {"tcpSocket": {"port": "Bad_Name"}, "terminationGracePeriodSeconds": 5}}),
            ),
            vec![
                "spec.containers[0].readinessProbe.tcpSocket.port: Invalid value: \"Bad_Name\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
                "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes",
            ],
        ),
        (
            with_container(
                json!({"readinessProbe": {"httpGet": {"port": 0, "scheme": "ftp", "httpHeaders": [{"name": "a b", "value": "x"}, {"name": "X-Ok", "value": "x"}]}}}),
            ),
            vec![
                "spec.containers[0].readinessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.containers[0].readinessProbe.httpGet.scheme: Unsupported value: \"ftp\": supported values: \"HTTP\", \"HTTPS\"",
                "spec.containers[0].readinessProbe.httpGet.httpHeaders: Invalid value: \"a b\": a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')",
            ],
        ),
        (
            with_container(json!({"livenessProbe": {"tcpSocket": {"port": "much-too-long-name"}}})),
            vec![
                "spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: \"much-too-long-name\": must be no more than 15 characters",
            ],
        ),
        (
            pod(json!({"containers": [{"name": "c", "image": "x"}],
                "initContainers": [{"name": "i", "image": "x", "startupProbe": {"tcpSocket": {"port": 1}}}],
                "ephemeralContainers": [{"name": "e", "image": "x", "readinessProbe": {"tcpSocket": {"port": 1}}}]})),
            vec![
                "spec.initContainers[0].startupProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
                "spec.ephemeralContainers[0].readinessProbe: Forbidden: cannot be set for an Ephemeral Container",
                "spec.ephemeralContainers: Forbidden: cannot be set on create",
            ],
        ),
        (
            with_container(json!({"readinessProbe": {}})),
            vec!["spec.containers[0].readinessProbe: Required value: must specify a handler type"],
        ),
        (
            pod(
                json!({"containers": [{"name": "c", "image": "x"}], "volumes": [{"name": "v"}, {"name": "v", "secret": {}}]}),
            ),
            vec![
                "spec.volumes[1].secret.secretName: Required value",
                "spec.volumes[1].name: Duplicate value: \"v\"",
            ],
        ),
        (
            pod(
                json!({"containers": [{"name": "c", "image": "x"}], "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 1}]}),
            ),
            vec![
                "spec.tolerations[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set",
            ],
        ),
    ] {
        assert_eq!(refused("", "Pod", object), expected);
    }
}

#[test]
fn what_may_change_in_a_pod() {
    let old = || {
        pod(
            json!({"containers": [{"name": "c", "image": "x:1"}], "activeDeadlineSeconds": 5, "tolerations": [{"key": "a", "operator": "Exists"}]}),
        )
    };
    for patch in [
        json!({"spec": {"containers": [{"name": "c", "image": "y:2"}]}}),
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"spec": {"tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]}}),
        json!({"spec": {"activeDeadlineSeconds": 3}}),
    ] {
        assert_eq!(
            refused_update("", "Pod", old(), patch.clone()),
            [""; 0],
            "{patch}"
        );
    }
    for (patch, start) in [
        (
            json!({"spec": {"nodeName": "n"}}),
            "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,",
        ),
        (
            json!({"spec": {"tolerations": []}}),
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ),
        (
            json!({"spec": {"containers": [{"name": "d", "image": "x"}]}}),
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ),
        (
            json!({"spec": {"activeDeadlineSeconds": null}}),
            "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value",
        ),
    ] {
        let found = refused_update("", "Pod", old(), patch.clone());
        assert!(
            found.len() == 1 && found[0].starts_with(start),
            "{patch} {found:?}"
        );
    }
}

#[test]
fn workloads_that_are_refused() {
    let spec = json!({"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}});
    let with = |pointer: &str, value: Value| {
        let mut spec = json!({"spec": spec});
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        spec.pointer_mut(parent).unwrap()[name] = value;
        spec
    };
    for (object, expected) in [
        (
            json!({"spec": {}}),
            vec![
                "spec.selector: Required value",
                "spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`",
                "spec.template.spec.containers: Required value",
            ],
        ),
        (
            with("/spec/selector/matchLabels", json!({"z": "z"})),
            vec![
                "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
            ],
        ),
        (
            with("/spec/replicas", json!(-1)),
            vec!["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            with("/spec/strategy", json!({"type": "Recreate", "rollingUpdate": {}})),
            vec![
                "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
            ],
        ),
        (
            with(
                "/spec/strategy",
                json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}),
            ),
            vec![
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
            ],
        ),
        (
            with("/spec/template/spec/restartPolicy", json!("Never")),
            vec![
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            ],
        ),
    ] {
        assert_eq!(refused("apps", "Deployment", object), expected);
    }
    let moved = refused_update(
        "apps",
        "Deployment",
        json!({"spec": spec}),
        json!({"spec": {"selector": {"matchLabels": {"z": "z"}}, "template": {"metadata": {"labels": {"z": "z"}}}}}),
    );
    assert_eq!(
        moved,
        ["spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\",\"z\":\"z\"}}: field is immutable"]
    );
    let counted = status_update(
        &gvk("apps", "Deployment"),
        &json!({"metadata": {}}),
        &json!({"metadata": {}, "status": {"replicas": 1, "readyReplicas": 2}}),
    );
    assert_eq!(
        lines(counted),
        ["status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"]
    );
}

#[test]
fn services_that_are_refused() {
    for (spec, expected) in [
        (json!({}), vec!["spec.ports: Required value"]),
        (
            json!({"ports": [{"port": 80}, {"port": 81}]}),
            vec![
                "spec.ports[0].name: Required value",
                "spec.ports[1].name: Required value",
            ],
        ),
        (
            json!({"ports": [{"port": 0}], "type": "Nope"}),
            vec![
                "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.type: Unsupported value: \"Nope\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
            ],
        ),
        (
            json!({"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "a"}]}),
            vec![
                "spec.ports[1].name: Duplicate value: \"a\"",
                "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80,\"TargetPort\":0,\"NodePort\":0}",
            ],
        ),
    ] {
        assert_eq!(refused("", "Service", json!({"spec": spec})), expected);
    }
    let moved = refused_update(
        "",
        "Service",
        json!({"spec": {"ports": [{"port": 80}], "clusterIP": "10.0.0.1"}}),
        json!({"spec": {"clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2"]}}),
    );
    assert_eq!(
        moved,
        ["spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\"]: may not change once set"]
    );
}

#[test]
fn what_may_not_change_elsewhere() {
    let fixed = "field is immutable when `immutable` is set";
    let map = json!({"immutable": true, "data": {"a": "b"}});
    assert_eq!(
        refused_update("", "ConfigMap", map.clone(), json!({"data": {"a": "c"}})),
        [format!("data: Forbidden: {fixed}")]
    );
    assert_eq!(
        refused_update("", "ConfigMap", map, json!({"immutable": false})),
        [format!("immutable: Forbidden: {fixed}")]
    );
    let secret = refused_update("", "Secret", json!({"type": "a"}), json!({"type": "b"}));
    assert_eq!(secret, ["type: Invalid value: \"b\": field is immutable"]);
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "a"}});
    let changed = refused_update(
        "",
        "PersistentVolumeClaim",
        claim,
        json!({"spec": {"storageClassName": "b"}}),
    );
    assert!(
        changed.len() == 1 && changed[0].starts_with("spec: Forbidden: spec is immutable after creation"),
        "{changed:?}"
    );
    let node = refused_update("", "Node", json!({}), json!({"spec": {"taints": [{"key": "a"}]}}));
    assert_eq!(node, ["metadata.taints[0].effect: Required value"; 2]);
    let renamed = lines(update(
        &gvk("", "ConfigMap"),
        &json!({"metadata": {"name": "a", "uid": "1"}}),
        &json!({"metadata": {"name": "a", "uid": "2"}}),
    ));
    assert_eq!(
        renamed,
        ["metadata.uid: Invalid value: \"2\": field is immutable"; 2]
    );
}

#[test]
fn the_status_lists_each_text_once_and_each_cause() {
    let error = |field: &str| FieldError {
        reason: "FieldValueRequired",
        field: field.into(),
        message: "Required value".into(),
    };
    let one = ApiError::invalid("", "Pod", "p", vec![error("a"), error("a")]);
    assert_eq!(
        (one.code, one.message.as_str()),
        (422, "Pod \"p\" is invalid: a: Required value")
    );
    assert_eq!(one.details["causes"].as_array().unwrap().len(), 2);
    let two = ApiError::invalid("apps", "Deployment", "d", vec![error("a"), error("b")]);
    assert_eq!(
        two.message,
        "Deployment.apps \"d\" is invalid: [a: Required value, b: Required value]"
    );
    assert_eq!(
        (&two.details["group"], &two.details["kind"]),
        (&json!("apps"), &json!("Deployment"))
    );
}

fn admission_policy(validation: Value) -> Value {
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    json!({"spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}})
}

#[rstest]
#[case::good(json!({"expression": "object.spec.nodeName == variables.x"}), &[])]
#[case::no_expression(json!({"message": "x"}), &["spec.validations[0].expression: Required value: expression is not specified"])]
#[case::another_variable(json!({"expression": "self == 1 && mine == 2"}), &["spec.validations[0].expression: Invalid value: \"self == 1 && mine == 2\": compilation failed: ERROR: <input>:1:14: undeclared reference to 'mine' (in container '')\n | self == 1 && mine == 2\n | .............^"])]
#[case::unreadable(json!({"expression": "1 +"}), &["spec.validations[0].expression: Invalid value: \"1 +\": compilation failed: "])]
#[case::blank_message(json!({"expression": "true", "message": " "}), &["spec.validations[0].message: Invalid value: \" \": must be non-empty if specified"])]
#[case::two_lines(json!({"expression": "true", "message": "a\nb"}), &["spec.validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks"])]
#[case::unreadable_message(json!({"expression": "true", "messageExpression": "'"}), &["spec.validations[0].messageExpression: Invalid value: \"'\": compilation failed: "])]
#[case::another_reason(json!({"expression": "true", "reason": "No"}), &["spec.validations[0].reason: Unsupported value: \"No\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\""])]
fn validations_of_policies(#[case] validation: Value, #[case] expected: &[&str]) {
    let found = refused(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicy",
        admission_policy(validation),
    );
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}");
    }
}

#[rstest]
#[case::nothing(json!({}), &[
    "spec.matchConstraints: Required value",
    "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
    "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
])]
#[case::no_rules(json!({"matchConstraints": {}, "validations": [{"expression": "true"}]}), &["spec.matchConstraints.resourceRules: Required value"])]
#[case::another_failure_policy(json!({"failurePolicy": "No", "matchConstraints": {"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["READ"], "resources": ["*"]}]}, "validations": [{"expression": "true"}]}), &[
    "spec.failurePolicy: Unsupported value: \"No\": supported values: \"Fail\", \"Ignore\"",
    "spec.matchConstraints.resourceRules[0].operations[0]: Unsupported value: \"READ\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\"",
])]
fn policies(#[case] spec: Value, #[case] expected: &[&str]) {
    let object = json!({"spec": spec});
    assert_eq!(
        refused(
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicy",
            object
        ),
        expected
    );
}

#[rstest]
#[case::good(json!({"policyName": "p", "validationActions": ["Warn", "Audit"]}), &[])]
#[case::nothing(json!({}), &[
    "spec.policyName: Required value",
    "spec.validationActions: Required value: at least one validation action is required",
])]
#[case::another_action(json!({"policyName": "p", "validationActions": ["No"]}), &["spec.validationActions[0]: Unsupported value: \"No\": supported values: \"Audit\", \"Deny\", \"Warn\""])]
#[case::deny_and_warn(json!({"policyName": "p", "validationActions": ["Deny", "Warn"]}), &["spec.validationActions: Invalid value: [\"Deny\",\"Warn\"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"])]
fn bindings_of_policies(#[case] spec: Value, #[case] expected: &[&str]) {
    let object = json!({"spec": spec});
    assert_eq!(
        refused(
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicyBinding",
            object
        ),
        expected
    );
}

#[rstest]
#[case::no_controller("networking.k8s.io", "IngressClass", json!({"spec": {}}), &["spec.controller: Required value"])]
#[case::parameters_of_nothing("networking.k8s.io", "IngressClass",
    json!({"spec": {"controller": "example.com/c", "parameters": {"kind": "", "name": "b"}}}),
    &["spec.parameters.kind: Required value"])]
#[case::no_rules("networking.k8s.io", "Ingress", json!({"spec": {}}),
    &["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"])]
#[case::two_ports("networking.k8s.io", "Ingress",
    json!({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"name": "p", "number": 1}}}}}),
    &["spec.defaultBackend: Invalid value: \"\": cannot set both port name & port number"])]
#[case::two_backends("networking.k8s.io", "Ingress",
    json!({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 1}}, "resource": {"kind": "K", "name": "n"}}}}),
    &["spec.defaultBackend: Invalid value: \"\": cannot set both resource and service backends"])]
#[case::operator("networking.k8s.io", "NetworkPolicy",
    json!({"spec": {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}}),
    &["spec.podSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"])]
#[case::selector_of_a_set("apps", "StatefulSet",
    json!({"spec": {
        "selector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }}),
    &["spec.selector.matchExpressions[0].operator: Invalid value: \"Gt\": not a valid selector operator",
        "spec.selector: Invalid value: {\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Gt\"}]}"])]
#[case::handler("node.k8s.io", "RuntimeClass", json!({"handler": ""}), &["handler: Required value"])]
#[case::scope("", "ResourceQuota", json!({"spec": {"scopes": ["a"]}}),
    &["spec.scopes: Invalid value: [\"a\"]: unsupported scope"])]
#[case::finalizer("", "Namespace", json!({"spec": {"finalizers": ["x.y"]}}),
    &["spec.finalizers: Invalid value: \"x.y\": name is neither a standard finalizer name nor is it fully qualified"])]
#[case::group_of_an_account("rbac.authorization.k8s.io", "RoleBinding",
    json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "ServiceAccount", "apiGroup": "a", "name": "s"}]}),
    &["subjects[0].apiGroup: Unsupported value: \"a\": supported values: \"\""])]
fn what_the_comparison_with_kubernetes_found(
    #[case] group: &str,
    #[case] kind: &str,
    #[case] object: Value,
    #[case] expected: &[&str],
) {
    assert_eq!(refused(group, kind, object), expected);
}

#[rstest::rstest]
#[case::features("", "Node", json!({"declaredFeatures": ["A", "B/c"]}), &[])]
#[case::a_feature_in_lower_case("", "Node", json!({"declaredFeatures": ["a"]}), &["status.declaredFeatures[0]: Invalid value: \"a\": invalid feature name \"a\": must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"])]
#[case::features_out_of_order("", "Node", json!({"declaredFeatures": ["B", "A", "A"]}), &[
    "status.declaredFeatures[1]: Invalid value: \"A\": list must be sorted alphabetically",
    "status.declaredFeatures[2]: Duplicate value: \"A\"",
])]
#[case::a_claim("", "PersistentVolumeClaim", json!({"capacity": {"storage": "1Gi"}, "allocatedResources": {"storage": "2Gi"}, "allocatedResourceStatuses": {"storage": "NodeResizePending"}}), &[])]
#[case::what_no_claim_has("", "PersistentVolumeClaim", json!({"capacity": {"storage": "-1"}, "allocatedResources": {"cpu": "1"}, "allocatedResourceStatuses": {"storage": "x"}}), &[
    "status.capacity[storage]: Invalid value: -1: must be a valid resource quantity",
    "status.allocatedResourceStatuses: Unsupported value: \"storage\": supported values: \"ControllerResizeInProgress\", \"ControllerResizeInfeasible\", \"NodeResizeInProgress\", \"NodeResizeInfeasible\", \"NodeResizePending\"",
    "status.allocatedResources: Unsupported value: \"cpu\": supported values: \"storage\"",
])]
fn statuses_that_are_refused(
    #[case] group: &str,
    #[case] kind: &str,
    #[case] status: Value,
    #[case] expected: &[&str],
) {
    let object = |status: &Value| json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"accessModes": ["ReadWriteOnce"]}, "status": status});
    let found = status_update(&gvk(group, kind), &object(&json!({})), &object(&status));
    assert_eq!(lines(found), expected);
}

#[test]
fn the_metadata_of_a_budget_are_looked_at_last() {
    let budget = gvk("policy", "PodDisruptionBudget");
    let nameless = |spec: Value| {
        lines(create(
            &budget,
            &json!({"metadata": {"namespace": "n"}, "spec": spec}),
        ))
    };
    assert_eq!(
        nameless(json!({"minAvailable": 1})),
        ["metadata.name: Required value: name or generateName is required"]
    );
    let both = nameless(json!({"minAvailable": 1, "maxUnavailable": 1}));
    assert!(
        both.len() == 1 && both[0].starts_with("spec: Invalid value"),
        "{both:?}"
    );
}
