use super::*;
use rstest::rstest;

fn gvk(group: &str, kind: &str) -> Gvk {
    Gvk {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
    }
}

#[test]
fn a_create_starts_with_a_fresh_status() {
    for (group, kind, object, status) in [
        (
            "apps",
            "Deployment",
            json!({"status": {"replicas": 5}}),
            json!({}),
        ),
        (
            "apps",
            "StatefulSet",
            json!({"status": {"replicas": 5}}),
            json!({"replicas": 0, "availableReplicas": 0}),
        ),
        (
            "",
            "Service",
            json!({"spec": {"type": "ClusterIP"}}),
            json!({"loadBalancer": {}}),
        ),
        (
            "",
            "Pod",
            json!({"spec": {"containers": []}, "status": {"phase": "Failed"}}),
            json!({"phase": "Pending", "qosClass": "BestEffort"}),
        ),
        (
            "",
            "Pod",
            json!({"spec": {"containers": [], "schedulingGates": [{"name": "example.com/g"}]}}),
            json!({"phase": "Pending", "qosClass": "BestEffort", "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": null, "lastTransitionTime": null,
            }]}),
        ),
        (
            "",
            "Node",
            json!({"spec": {}, "status": {"phase": "Running"}}),
            json!({"phase": "Running"}),
        ),
        ("", "Namespace", json!({"spec": {}}), json!({"phase": "Active"})),
    ] {
        let mut object = object;
        object["metadata"] = json!({"name": "x", "generation": 9});
        prepare_create(&gvk(group, kind), &mut object);
        assert_eq!(object["status"], status, "{kind}");
    }
}

#[test]
fn generation_starts_at_one_and_follows_the_spec() {
    let pod = gvk("", "Pod");
    let mut old = json!({"metadata": {}, "spec": {"containers": []}});
    prepare_create(&pod, &mut old);
    assert_eq!(old["metadata"]["generation"], 1);
    for (group, kind, change, bumped) in [
        ("apps", "ReplicaSet", json!({"spec": {"replicas": 2}}), true),
        (
            "apps",
            "ReplicaSet",
            json!({"metadata": {"annotations": {"a": "b"}}}),
            false,
        ),
        (
            "apps",
            "Deployment",
            json!({"metadata": {"annotations": {"a": "b"}}}),
            true,
        ),
        (
            "apps",
            "Deployment",
            json!({"metadata": {"labels": {"a": "b"}}}),
            false,
        ),
        ("apps", "Deployment", json!({"status": {"replicas": 3}}), false),
        (
            "discovery.k8s.io",
            "EndpointSlice",
            json!({"endpoints": [{"addresses": ["1.2.3.4"]}]}),
            true,
        ),
        (
            "discovery.k8s.io",
            "EndpointSlice",
            json!({"metadata": {"labels": {"a": "b"}}}),
            true,
        ),
        (
            "discovery.k8s.io",
            "EndpointSlice",
            json!({"metadata": {"annotations": {"a": "b"}}}),
            false,
        ),
    ] {
        let old = json!({"metadata": {"generation": 4}, "spec": {}});
        let mut new = crate::patch::merge_patch(&old, change.to_string().as_bytes()).unwrap();
        new["metadata"]["generation"] = json!(77);
        prepare_update(&gvk(group, kind), &old, &mut new);
        assert_eq!(
            new["metadata"]["generation"],
            4 + i64::from(bumped),
            "{kind} {change}"
        );
        assert!(kind == "EndpointSlice" || new.get("status").is_none(), "{kind}");
    }
    let mut config = json!({"metadata": {"generation": 3}});
    prepare_create(&gvk("", "ConfigMap"), &mut config);
    assert_eq!(config["metadata"]["generation"], 3);
}

#[test]
fn a_status_update_changes_only_the_status() {
    let old = json!({"metadata": {"name": "d", "generation": 2}, "spec": {"replicas": 1}, "status": {}});
    let mut new = json!({"metadata": {"name": "d", "labels": {"a": "b"}}, "spec": {"replicas": 9}, "status": {"replicas": 1}});
    prepare_status_update(&gvk("apps", "Deployment"), &old, &mut new);
    assert_eq!(
        new,
        json!({"metadata": {"name": "d", "generation": 2}, "spec": {"replicas": 1}, "status": {"replicas": 1}})
    );
    let mut node = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"unschedulable": true}, "status": {}});
    prepare_status_update(
        &gvk("", "Node"),
        &json!({"metadata": {}, "spec": {}, "status": {}}),
        &mut node,
    );
    assert_eq!(
        node,
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {}, "status": {}})
    );
}

#[test]
fn daemon_sets_count_their_templates() {
    let set = gvk("apps", "DaemonSet");
    let mut old = json!({"metadata": {"name": "x"}, "spec": {"template": {}}});
    prepare_create(&set, &mut old);
    let mut new = old.clone();
    new["spec"]["template"] = json!({"spec": {}});
    prepare_update(&set, &old, &mut new);
    assert_eq!(
        new["metadata"]["annotations"]["deprecated.daemonset.template.generation"],
        "2"
    );
    assert_eq!(new["metadata"]["generation"], 2);
    let mut status = json!({"metadata": {"name": "x"}, "spec": {}, "status": {"numberReady": 1}});
    prepare_status_update(&set, &new, &mut status);
    assert_eq!(
        status["metadata"]["annotations"],
        json!({"deprecated.daemonset.template.generation": "2"})
    );
}

/// Fields behind closed gates go; what a new pod gets comes.
#[rstest]
#[case(json!({"schedulingGroup": {"podGroupName": "g"}}), json!({}))]
#[case(json!({"volumes": [{"projected": {"sources": [{"clusterTrustBundle": {"path": "a"}}, {"podCertificate": {}}]}}]}),
    json!({"volumes": [{"projected": {"sources": [{}, {}]}}]}))]
#[case(json!({"containers": [{"name": "c", "lifecycle": {"stopSignal": "SIGTERM"}}]}), json!({"containers": [{"name": "c"}]}))]
#[case(json!({"containers": [{"name": "c", "lifecycle": {"stopSignal": "SIGTERM", "preStop": {}}}]}),
    json!({"containers": [{"name": "c", "lifecycle": {"preStop": {}}}]}))]
#[case(json!({"containers": [{"name": "armed"}]}),
    json!({"containers": [{"name": "armed", "securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "p"}}}]}))]
#[case(json!({"topologySpreadConstraints": [{"matchLabelKeys": ["a", "z"], "labelSelector": {}}, {"matchLabelKeys": ["a"]}]}),
    json!({"topologySpreadConstraints": [{"matchLabelKeys": ["a", "z"],
        "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}}, {"matchLabelKeys": ["a"]}]}))]
fn new_pods_are_prepared(#[case] spec: Value, #[case] expected: Value) {
    let metadata = json!({"labels": {"a": "b"},
        "annotations": {"container.apparmor.security.beta.kubernetes.io/armed": "localhost/p"}});
    let mut object = json!({"metadata": metadata, "spec": spec});
    prepare_create(&gvk("", "Pod"), &mut object);
    assert_eq!(object["spec"], expected);
}

#[test]
fn a_gated_pod_says_so() {
    let mut object = json!({"metadata": {"creationTimestamp": "2001-02-03T04:05:06Z"},
        "spec": {"schedulingGates": [{"name": "a.b/c"}]}});
    prepare_create(&gvk("", "Pod"), &mut object);
    let condition = &object["status"]["conditions"][0];
    assert_eq!(
        (
            &condition["type"],
            &condition["reason"],
            &condition["lastTransitionTime"]
        ),
        (
            &json!("PodScheduled"),
            &json!("SchedulingGated"),
            &json!("2001-02-03T04:05:06Z")
        )
    );
}

#[test]
fn services_keep_what_was_allocated() {
    let service = gvk("", "Service");
    let old = json!({"metadata": {}, "spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30001}]}});
    let mut new =
        json!({"metadata": {}, "spec": {"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}});
    prepare_update(&service, &old, &mut new);
    assert_eq!(new["spec"], old["spec"]);
    // A port is known by its name, and another address brings its own family.
    let mut moved = json!({"metadata": {}, "spec": {"type": "NodePort", "clusterIP": "2001:db8::1",
        "ports": [{"port": 8080, "protocol": "TCP"}, {"name": "b", "port": 80, "protocol": "TCP"}]}});
    prepare_update(&service, &old, &mut moved);
    let spec = &moved["spec"];
    assert_eq!(
        (&spec["ports"][0]["nodePort"], &spec["ports"][1]["nodePort"]),
        (&json!(30001), &Value::Null)
    );
    assert_eq!(
        (&spec["clusterIPs"], &spec["ipFamilies"]),
        (&json!(["2001:db8::1"]), &json!(["IPv6"]))
    );
    // Of another type it has no use for them.
    let mut inner = old.clone();
    inner["spec"]["type"] = json!("ClusterIP");
    prepare_update(&service, &old, &mut inner);
    assert!(inner["spec"]["ports"][0]["nodePort"].is_null(), "{inner}");
    let reached = json!({"metadata": {}, "spec": {"type": "ClusterIP", "externalIPs": ["192.0.2.1"], "externalTrafficPolicy": "Cluster"}});
    for (policy, left) in [("Cluster", Value::Null), ("Local", json!("Local"))] {
        let mut unreached =
            json!({"metadata": {}, "spec": {"type": "ClusterIP", "externalTrafficPolicy": policy}});
        prepare_update(&service, &reached, &mut unreached);
        assert_eq!(unreached["spec"]["externalTrafficPolicy"], left);
    }
    // A balancer that needs no node ports keeps none.
    let mut balanced = json!({"metadata": {}, "spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
        "ports": [{"port": 80, "protocol": "TCP"}]}});
    prepare_update(&service, &old, &mut balanced);
    assert!(balanced["spec"]["ports"][0]["nodePort"].is_null(), "{balanced}");
    let mut headless =
        json!({"metadata": {}, "spec": {"type": "ClusterIP", "clusterIP": "None", "selector": {"a": "b"}}});
    prepare_create(&service, &mut headless);
    assert_eq!(
        (&headless["spec"]["clusterIPs"], &headless["spec"]["ipFamilies"]),
        (&json!(["None"]), &json!(["IPv4"]))
    );
}

#[test]
fn quality_of_service() {
    let spec = |resources: &[Value]| json!({"containers": resources.iter().map(|r| json!({"resources": r})).collect::<Vec<_>>()});
    let full =
        json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1Gi"}});
    for (resources, class) in [
        (vec![json!({})], "BestEffort"),
        (vec![full.clone()], "Guaranteed"),
        (vec![full.clone(), json!({})], "Burstable"),
        (vec![json!({"requests": {"cpu": "1"}})], "Burstable"),
        (vec![json!({"limits": {"cpu": "1"}})], "Burstable"),
        (vec![json!({"limits": {"example.com/gpu": "1"}})], "BestEffort"),
    ] {
        assert_eq!(qos_class(&spec(&resources)), class, "{resources:?}");
    }
}

#[test]
fn jobs_select_their_pods_by_uid() {
    let mut job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"metadata": {}}}});
    prepare_create(&gvk("batch", "Job"), &mut job);
    assert_eq!(
        job["spec"]["selector"],
        json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}})
    );
    assert_eq!(job["spec"]["template"]["metadata"]["labels"]["job-name"], "j");
    assert_eq!(
        job["metadata"]["labels"],
        job["spec"]["template"]["metadata"]["labels"]
    );
}
