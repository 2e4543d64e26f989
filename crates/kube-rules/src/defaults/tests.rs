use super::*;
use crate::strict::{FieldValidation, check};

/// Decodes, defaults, and checks that defaulting again changes nothing.
fn defaulted(group: &str, kind: &str, object: Value) -> Value {
    let gvk = Gvk {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
    };
    let mut object = check(&gvk, object, FieldValidation::Strict).unwrap().object;
    apply(&gvk, &mut object);
    let mut again = check(&gvk, object.clone(), FieldValidation::Strict)
        .unwrap()
        .object;
    apply(&gvk, &mut again);
    assert_eq!(object, again);
    object
}

fn container(extra: Value) -> Value {
    let mut all = json!({"name": "c", "image": "x:1", "resources": {}, "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"});
    for (name, value) in extra.as_object().unwrap() {
        all[name] = value.clone();
    }
    all
}

#[test]
fn a_minimal_pod() {
    let pod = defaulted(
        "",
        "Pod",
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}),
    );
    assert_eq!(
        pod["spec"],
        json!({"containers": [container(json!({}))], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30, "securityContext": {}, "schedulerName": "default-scheduler",
            "enableServiceLinks": true})
    );
}

#[test]
fn old_and_whole_ways_of_saying_it() {
    let pod = defaulted(
        "",
        "Pod",
        json!({"spec": {"terminationGracePeriodSeconds": -1, "resources": {"limits": {"cpu": "1", "hugepages-2Mi": "4Mi"}},
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}}}],
            "initContainers": [{"name": "i", "image": "x", "restartPolicy": "Always", "resources": {"requests": {"cpu": "10m"}}}]},
            "status": {"podIP": "192.0.2.1"}}),
    );
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 1);
    assert_eq!(
        pod["spec"]["resources"]["requests"],
        json!({"cpu": "110m", "hugepages-2Mi": "4Mi", "memory": "1Gi"})
    );
    assert_eq!(pod["status"]["podIPs"], json!([{"ip": "192.0.2.1"}]));
}

#[test]
fn pull_policy_follows_the_tag() {
    for (image, policy) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1", "IfNotPresent"),
        ("r:5000/nginx", "Always"),
        ("r:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:aa", "IfNotPresent"),
    ] {
        let pod = defaulted(
            "",
            "Pod",
            json!({"spec": {"containers": [{"name": "c", "image": image}]}}),
        );
        assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], policy, "{image}");
    }
}

#[test]
fn probes_hooks_env_and_resources() {
    let pod = defaulted(
        "",
        "Pod",
        json!({"spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "x:1",
        "ports": [{"containerPort": 80}], "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"grpc": {"port": 1}, "periodSeconds": 3},
        "lifecycle": {"preStop": {"httpGet": {"port": 1}}}, "resources": {"limits": {"cpu": "0.5"}}}]}}),
    );
    assert_eq!(
        pod["spec"]["containers"][0],
        container(json!({
        "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
        "livenessProbe": {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
            "successThreshold": 1, "failureThreshold": 3},
        "readinessProbe": {"grpc": {"port": 1, "service": ""}, "timeoutSeconds": 1, "periodSeconds": 3, "successThreshold": 1,
            "failureThreshold": 3},
        "lifecycle": {"preStop": {"httpGet": {"path": "/", "port": 1, "scheme": "HTTP"}}},
        "resources": {"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}}}))
    );
}

#[test]
fn volumes() {
    let pod = defaulted(
        "",
        "Pod",
        json!({"spec": {"containers": [], "volumes": [{"name": "e"}, {"name": "s", "secret": {"secretName": "x"}},
        {"name": "h", "hostPath": {"path": "/"}}, {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}}),
    );
    assert_eq!(
        pod["spec"]["volumes"],
        json!([{"name": "e", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}},
            {"name": "h", "hostPath": {"path": "/", "type": ""}},
            {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}], "defaultMode": 420}}])
    );
}

#[test]
fn workloads() {
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let deployment = defaulted("apps", "Deployment", json!({"spec": spec}));
    assert_eq!(
        deployment["spec"]["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}})
    );
    assert_eq!(
        (&deployment["spec"]["replicas"], &deployment["status"]),
        (&json!(1), &json!({}))
    );
    assert!(
        deployment["spec"]["template"]["spec"]
            .get("enableServiceLinks")
            .is_none()
    );
    let set = defaulted("apps", "DaemonSet", json!({"spec": spec}));
    assert_eq!(
        set["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}})
    );
    let mut named = spec.clone();
    named["updateStrategy"] = json!({"type": "RollingUpdate"});
    let set = defaulted("apps", "StatefulSet", json!({"spec": named}));
    assert_eq!(set["spec"]["updateStrategy"], json!({"type": "RollingUpdate"}));
    let set = defaulted("apps", "StatefulSet", json!({"spec": spec}));
    assert_eq!(
        set["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    );
    assert_eq!(set["spec"]["serviceName"], "");
    let job = defaulted("batch", "Job", json!({"spec": {"template": spec["template"]}}));
    assert_eq!(
        (&job["spec"]["completions"], &job["spec"]["backoffLimit"]),
        (&json!(1), &json!(6))
    );
}

#[test]
fn services() {
    let service = defaulted(
        "",
        "Service",
        json!({"spec": {"ports": [{"port": 80}], "sessionAffinity": "ClientIP", "type": "LoadBalancer"}}),
    );
    assert_eq!(
        service["spec"],
        json!({"ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}], "type": "LoadBalancer", "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}, "externalTrafficPolicy": "Cluster",
            "internalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": true})
    );
}

#[test]
fn others() {
    let namespace = defaulted("", "Namespace", json!({"metadata": {"name": "n"}}));
    assert_eq!(
        namespace["metadata"]["labels"],
        json!({"kubernetes.io/metadata.name": "n"})
    );
    assert_eq!(namespace["status"], json!({"phase": "Active"}));
    let secret = defaulted(
        "",
        "Secret",
        json!({"stringData": {"k": "v"}, "data": {"x": "eA=="}}),
    );
    assert_eq!(
        (&secret["data"], &secret["type"]),
        (&json!({"k": "dg==", "x": "eA=="}), &json!("Opaque"))
    );
    assert!(secret.get("stringData").is_none());
    let binding = defaulted(
        "rbac.authorization.k8s.io",
        "RoleBinding",
        json!({"roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]}),
    );
    assert_eq!(binding["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
    assert!(binding["subjects"][1].get("apiGroup").is_none());
    let hooks = defaulted(
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        json!({"webhooks": [{"name": "a.b.c",
        "clientConfig": {"service": {"name": "s", "namespace": "n"}}, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]}]}),
    );
    let hook = &hooks["webhooks"][0];
    assert_eq!(
        (&hook["reinvocationPolicy"], &hook["timeoutSeconds"]),
        (&json!("Never"), &json!(10))
    );
    assert_eq!(
        (
            &hook["rules"][0]["scope"],
            &hook["clientConfig"]["service"]["port"]
        ),
        (&json!("*"), &json!(443))
    );
    let node = defaulted("", "Node", json!({"status": {"capacity": {"cpu": "4"}}}));
    assert_eq!(node["status"]["allocatable"], json!({"cpu": "4"}));
}
