use super::*;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn shown(group: &str, kind: &str, mut object: Value) -> Vec<Value> {
    let gvk = Gvk {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
    };
    object["metadata"]["name"] = json!("x");
    object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    let cells = row(&gvk, &object, now()).cells;
    assert_eq!(cells.len(), columns(&gvk).len(), "{kind}");
    cells
}

#[test]
fn columns_have_headings_types_and_priorities() {
    let gvk = |group: &str, kind: &str| Gvk {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
    };
    let jobs = columns(&gvk("batch", "CronJob"));
    let shown: Vec<(&str, &str, i64)> = jobs
        .iter()
        .map(|column| (column.name.as_str(), column.kind.as_str(), column.priority))
        .collect();
    assert_eq!(
        shown,
        [
            ("Name", "string", 0),
            ("Schedule", "string", 0),
            ("Timezone", "string", 0),
            ("Suspend", "boolean", 0),
            ("Active", "integer", 0),
            ("Last Schedule", "string", 0),
            ("Age", "string", 0),
            ("Containers", "string", 1),
            ("Images", "string", 1),
            ("Selector", "string", 1),
        ]
    );
    assert_eq!((jobs[0].format.as_str(), jobs[1].format.as_str()), ("name", ""));
    assert_eq!(jobs[5].description, "Last Schedule of the object.");
    let other = columns(&gvk("", "LimitRange"));
    assert_eq!(
        (other[1].name.as_str(), other[1].kind.as_str()),
        ("Created At", "date")
    );
    assert_eq!(other[1].description, "When the object was created.");
}

fn pod_status(pod: Value) -> String {
    shown("", "Pod", pod)[2].as_str().unwrap().to_owned()
}

#[test]
fn what_keeps_a_pod_from_running() {
    let waiting = |reason: &str| json!({"name": "c", "ready": false, "restartCount": 0, "state": {"waiting": {"reason": reason}}});
    let terminated =
        |code: i64| json!({"name": "c", "restartCount": 0, "state": {"terminated": {"exitCode": code}}});
    let completed = json!({"name": "d", "restartCount": 0, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    let running = json!({"name": "c", "ready": true, "restartCount": 0, "state": {"running": {}}});
    for (pod, status) in [
        (json!({"status": {"phase": "Pending"}}), "Pending"),
        (
            json!({"status": {"phase": "Failed", "reason": "Evicted"}}),
            "Evicted",
        ),
        (
            json!({"status": {"phase": "Running", "containerStatuses": [waiting("CrashLoopBackOff")]}}),
            "CrashLoopBackOff",
        ),
        (
            json!({"status": {"phase": "Running", "containerStatuses": [terminated(3)]}}),
            "ExitCode:3",
        ),
        (
            json!({"status": {"phase": "Running", "containerStatuses": [completed, running], "conditions": [{"type": "Ready", "status": "True"}]}}),
            "Running",
        ),
        (
            json!({"status": {"phase": "Running", "containerStatuses": [completed, running]}}),
            "NotReady",
        ),
        (
            json!({"spec": {"initContainers": [{}, {}]}, "status": {"phase": "Pending", "initContainerStatuses": [waiting("PodInitializing")]}}),
            "Init:0/2",
        ),
        (
            json!({"spec": {"initContainers": [{}]}, "status": {"phase": "Pending", "initContainerStatuses": [waiting("ErrImagePull")]}}),
            "Init:ErrImagePull",
        ),
        (
            json!({"spec": {"initContainers": [{}]}, "status": {"phase": "Pending", "initContainerStatuses": [terminated(1)]}}),
            "Init:ExitCode:1",
        ),
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Running"}}),
            "Terminating",
        ),
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Running", "reason": "NodeLost"}}),
            "Unknown",
        ),
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Succeeded"}}),
            "Succeeded",
        ),
        (
            json!({"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}}),
            "SchedulingGated",
        ),
    ] {
        assert_eq!(pod_status(pod.clone()), status, "{pod}");
    }
}

#[test]
fn pods() {
    let cells = shown(
        "",
        "Pod",
        json!({"spec": {"nodeName": "n", "containers": [{}, {}], "readinessGates": [{"conditionType": "G"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "G", "status": "True"}],
            "containerStatuses": [{"ready": true, "restartCount": 2, "state": {"running": {}},
                "lastState": {"terminated": {"finishedAt": "2026-01-01T00:55:00Z"}}}]}}),
    );
    assert_eq!(
        cells,
        [
            json!("x"),
            json!("1/2"),
            json!("Running"),
            json!("2 (5m ago)"),
            json!("60m"),
            json!("10.0.0.1"),
            json!("n"),
            json!("<none>"),
            json!("1/1")
        ]
    );
    let gvk = Gvk {
        group: String::new(),
        version: "v1".into(),
        kind: "Pod".into(),
    };
    let done = row(
        &gvk,
        &json!({"metadata": {}, "status": {"phase": "Succeeded"}}),
        now(),
    );
    assert_eq!(done.conditions[0]["reason"], "Succeeded");
}

#[test]
fn nodes() {
    let cells = shown(
        "",
        "Node",
        json!({"metadata": {"labels": {"node-role.kubernetes.io/edge": "", "kubernetes.io/role": "a"}},
        "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}], "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}],
            "nodeInfo": {"kubeletVersion": "v1.36.2", "kernelVersion": "6.1", "architecture": "arm64"}}}),
    );
    assert_eq!(
        cells,
        [
            json!("x"),
            json!("NotReady,SchedulingDisabled"),
            json!("a,edge"),
            json!("60m"),
            json!("v1.36.2"),
            json!("10.0.0.9"),
            json!("<none>"),
            json!("<unknown>"),
            json!("6.1 (arm64)"),
            json!("<unknown>")
        ]
    );
    assert_eq!(shown("", "Node", json!({}))[1], "Unknown");
}

#[test]
fn endpoint_slices_and_services() {
    let slice = shown(
        "discovery.k8s.io",
        "EndpointSlice",
        json!({"addressType": "IPv4", "ports": [{"port": 80}],
        "endpoints": [{"addresses": ["1.1.1.1"]}, {"addresses": ["2.2.2.2"]}, {"addresses": ["3.3.3.3"]}, {"addresses": ["4.4.4.4"]}]}),
    );
    assert_eq!(
        slice[1..4],
        [
            json!("IPv4"),
            json!("80"),
            json!("1.1.1.1,2.2.2.2,3.3.3.3 + 1 more...")
        ]
    );
    let empty = shown(
        "discovery.k8s.io",
        "EndpointSlice",
        json!({"addressType": "IPv4"}),
    );
    assert_eq!(empty[2..4], [json!("<unset>"), json!("<unset>")]);
    let service = shown(
        "",
        "Service",
        json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "selector": {"a": "b"},
        "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}}),
    );
    assert_eq!(
        service[1..],
        [
            json!("NodePort"),
            json!("10.0.0.1"),
            json!("<none>"),
            json!("80:30080/TCP,53/UDP"),
            json!("60m"),
            json!("a=b")
        ]
    );
}

#[test]
fn workloads_and_the_rest() {
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {"containers": [
        {"name": "c", "image": "i:1"}, {"name": "d", "image": "j:1"}]}}});
    let deployment = shown(
        "apps",
        "Deployment",
        json!({"spec": spec, "status": {"readyReplicas": 1, "updatedReplicas": 2}}),
    );
    assert_eq!(
        deployment[1..],
        [
            json!("1/3"),
            json!(2),
            json!(0),
            json!("60m"),
            json!("c,d"),
            json!("i:1,j:1"),
            json!("a=b")
        ]
    );
    for (group, kind) in [
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("apps", "DaemonSet"),
        ("apps", "ControllerRevision"),
        ("batch", "Job"),
        ("batch", "CronJob"),
        ("", "ReplicationController"),
        ("", "Endpoints"),
        ("", "ConfigMap"),
        ("", "Secret"),
        ("", "Namespace"),
        ("", "ServiceAccount"),
        ("", "Event"),
        ("events.k8s.io", "Event"),
        ("", "PersistentVolume"),
        ("", "PersistentVolumeClaim"),
        ("storage.k8s.io", "StorageClass"),
        ("storage.k8s.io", "VolumeAttachment"),
        ("policy", "PodDisruptionBudget"),
        ("coordination.k8s.io", "Lease"),
        ("rbac.authorization.k8s.io", "RoleBinding"),
        ("rbac.authorization.k8s.io", "Role"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("scheduling.k8s.io", "PriorityClass"),
        ("networking.k8s.io", "Ingress"),
        ("networking.k8s.io", "NetworkPolicy"),
        ("networking.k8s.io", "IngressClass"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("storage.k8s.io", "CSINode"),
        ("node.k8s.io", "RuntimeClass"),
    ] {
        shown(group, kind, json!({}));
    }
    let lease = shown(
        "coordination.k8s.io",
        "Lease",
        json!({"spec": {"holderIdentity": "me"}}),
    );
    assert_eq!(lease, [json!("x"), json!("me"), json!("60m")]);
    let candidate = shown(
        "coordination.k8s.io",
        "LeaseCandidate",
        json!({"spec": {"leaseName": "l", "binaryVersion": "1.2.0", "emulationVersion": "1.1.0"}}),
    );
    assert_eq!(
        candidate,
        [
            json!("x"),
            json!("l"),
            json!("1.2.0"),
            json!("1.1.0"),
            json!("60m")
        ]
    );
    let budget = shown(
        "policy",
        "PodDisruptionBudget",
        json!({"spec": {"minAvailable": "50%"}}),
    );
    assert_eq!(budget[1..4], [json!("50%"), json!("N/A"), json!(0)]);
}

#[test]
fn autoscalers_show_their_targets() {
    let cells = |spec: Value, status: Value| {
        let mut cells = shown(
            "autoscaling",
            "HorizontalPodAutoscaler",
            json!({"spec": spec, "status": status}),
        );
        assert_eq!(cells.pop(), Some(json!("60m")));
        cells.split_off(1)
    };
    let target = json!({"kind": "Deployment", "name": "web"});
    let resource =
        |name: &str, target: Value| json!({"type": "Resource", "resource": {"name": name, "target": target}});
    let cpu = resource("cpu", json!({"type": "Utilization", "averageUtilization": 50}));
    let memory = resource("memory", json!({"type": "AverageValue", "averageValue": "1Gi"}));
    assert_eq!(
        cells(
            json!({"scaleTargetRef": target, "maxReplicas": 5, "metrics": [cpu, memory]}),
            json!({"currentReplicas": 2, "currentMetrics": [
                {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7}}},
            ]}),
        ),
        [
            json!("Deployment/web"),
            json!("cpu: 7%/50%, memory: <unknown>/1Gi"),
            json!("<unset>"),
            json!(5),
            json!(2)
        ]
    );
    let object = json!({"type": "Object", "object": {"target": {"type": "Value", "value": "3"}}});
    let external =
        json!({"type": "External", "external": {"target": {"type": "AverageValue", "averageValue": "4"}}});
    let pods = json!({"type": "Pods", "pods": {"target": {"type": "AverageValue", "averageValue": "5"}}});
    let targets = |spec: Value| cells(spec, json!({})).swap_remove(1);
    assert_eq!(
        targets(json!({"metrics": [object, external]})),
        json!("<unknown>/3, <unknown>/4 (avg)")
    );
    assert_eq!(
        targets(json!({"metrics": [pods, cpu, memory]})),
        json!("<unknown>/5, cpu: <unknown>/50% + 1 more...")
    );
    assert_eq!(
        targets(json!({"targetCPUUtilizationPercentage": 80})),
        json!("cpu: <unknown>/80%"),
        "as version 1 writes it"
    );
    assert_eq!(targets(json!({})), json!("<none>"));
}
