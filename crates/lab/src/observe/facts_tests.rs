use super::*;
use serde_json::json;

#[test]
fn a_pod_of_a_deployment() {
    let pod = json!({
        "metadata": {"name": "web-5d8f-x", "namespace": "shop", "labels": {"app": "web"}, "deletionTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web-front-5d8f", "controller": true}]},
        "spec": {"nodeName": "shore-1"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let expected = PodFact {
        uid: "u".to_owned(),
        namespace: "shop".to_owned(),
        name: "web-5d8f-x".to_owned(),
        workload: "deployment/web-front".to_owned(),
        node: "shore-1".to_owned(),
        labels: vec![("app".to_owned(), "web".to_owned())],
        ready: true,
        deleting: true,
        finished: false,
    };
    assert_eq!(
        from_object(Kind::Pod, "u".to_owned(), &pod),
        Watched::Pod(expected)
    );
}

#[test]
fn an_empty_object_is_not_ready_and_belongs_to_nobody() {
    for kind in Kind::ALL {
        match from_object(kind, "u".to_owned(), &json!({})) {
            Watched::Pod(pod) => assert_eq!(
                pod,
                PodFact {
                    uid: "u".to_owned(),
                    ..PodFact::default()
                }
            ),
            Watched::Node(node) => assert_eq!(
                node,
                NodeFact {
                    uid: "u".to_owned(),
                    ..NodeFact::default()
                }
            ),
            Watched::Workload(workload) => assert_eq!(workload.desired, 1, "Kubernetes' default"),
            Watched::Incident(incident) => assert!(!incident.closed),
            Watched::Slice(slice) => assert!(slice.endpoints.is_empty()),
            Watched::Service(service) => assert!(service.selector.is_empty()),
            Watched::Gone(..) => panic!("nothing is gone"),
        }
    }
}

#[test]
fn an_endpoint_without_condition_takes_traffic() {
    let slice = json!({
        "metadata": {"namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "endpoints": [
            {"addresses": ["10.0.0.1"], "nodeName": "shore-1", "targetRef": {"name": "web-a", "uid": "1"}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
            {"addresses": ["10.0.0.3"], "conditions": {"ready": null}},
        ],
    });
    let Watched::Slice(slice) = from_object(Kind::EndpointSlice, "u".to_owned(), &slice) else {
        panic!()
    };
    assert_eq!(slice.service, "shop/web");
    let read: Vec<_> = slice
        .endpoints
        .iter()
        .map(|e| (e.target.as_str(), e.name.as_str(), e.ready))
        .collect();
    assert_eq!(
        read,
        [
            ("1", "web-a", true),
            ("10.0.0.2", "10.0.0.2", false),
            ("10.0.0.3", "10.0.0.3", true)
        ]
    );
}

#[test]
fn a_node_with_traces_of_an_incident() {
    let node = json!({
        "metadata": {"name": "shore-1", "annotations": {"evenkeel.io/added-taints": "node.kubernetes.io/unreachable:NoExecute"}},
        "spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]},
        "status": {"conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "Unknown"}]},
    });
    let Watched::Node(node) = from_object(Kind::Node, "u".to_owned(), &node) else {
        panic!()
    };
    assert_eq!((node.ready.as_str(), node.marked), ("Unknown", true));
    assert_eq!(node.taints, ["node.kubernetes.io/unreachable:NoExecute"]);
    let settled = json!({"metadata": {"annotations": {"evenkeel.io/added-taints": ""}}});
    let Watched::Node(node) = from_object(Kind::Node, "u".to_owned(), &settled) else {
        panic!()
    };
    assert!(!node.marked);
}

#[test]
fn a_closed_incident() {
    let incident = json!({
        "spec": {"nodeName": "shore-1"},
        "status": {"state": "Dead", "closedAt": "2026-01-01T00:00:00Z", "fence": {"missing": "no method"}},
    });
    let Watched::Incident(fact) = from_object(Kind::NodeIncident, "u".to_owned(), &incident) else {
        panic!()
    };
    assert!(fact.closed);
    assert_eq!(
        (fact.node.as_str(), fact.state.as_str(), fact.missing.as_str()),
        ("shore-1", "Dead", "no method")
    );
}
