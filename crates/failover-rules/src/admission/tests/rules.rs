//! Every rule about a write, as a table.

use crate::admission::{Decision, Guarded, Operation, PassReason, Request, View, decide};
use evenkeel_judge::Protection;
use evenkeel_zone::Millis;
use rstest::rstest;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const NODE_CONTROLLER: &str = "system:serviceaccount:kube-system:node-controller";
const KCM: &str = "system:kube-controller-manager";
pub(super) const SLICE_CONTROLLER: &str = "system:serviceaccount:kube-system:endpointslice-controller";
const OURS: &str = "system:serviceaccount:evenkeel-system:evenkeel-controller";
pub(super) const NOW: Millis = Millis(100_000);

/// `shore-2` is protected, nobody else is.
pub(super) fn view() -> View {
    let all = Protection {
        evictions: true,
        readiness: true,
    };
    let node = Guarded {
        uid: "uid-2".to_owned(),
        now: all,
        if_stale: all,
        says_not_ready: false,
        keeps_last: false,
        marked: ["a", "b", "bb", "ccc"].map(|pod| format!("uid-of-{pod}")).into(),
        replicas: BTreeSet::new(),
    };
    View {
        made_at: Some(NOW),
        nodes: [("shore-2".to_owned(), node)].into(),
        last: BTreeSet::new(),
    }
}

fn with_node(change: impl FnOnce(&mut Guarded)) -> View {
    let mut view = view();
    change(view.nodes.get_mut("shore-2").unwrap());
    view
}

pub(super) fn request(user: &str, operation: &str, resource: &str, object: Value, old: Value) -> Request {
    let (path, sub_resource) = resource.split_once('/').unwrap_or((resource, ""));
    let (group, plural) = path.rsplit_once(':').unwrap_or(("", path));
    serde_json::from_value(json!({
        "uid": "1", "operation": operation, "subResource": sub_resource, "namespace": "default", "name": "x",
        "resource": {"group": group, "version": "v1", "resource": plural},
        "userInfo": {"username": user, "groups": ["system:authenticated"]},
        "object": object, "oldObject": old,
    }))
    .unwrap()
}

/// The object after the decision; panics if the patch does not apply. Also checks that deciding twice changes
/// nothing.
fn corrected(request: &Request, view: &View) -> Value {
    let Decision::Patch(correction) = decide(request, view, NOW) else {
        panic!("not corrected: {:?}", decide(request, view, NOW));
    };
    let mut object = request.object.clone();
    json_patch::patch(&mut object, &correction.patch).unwrap();
    let again = Request {
        object: object.clone(),
        ..request.clone()
    };
    assert!(
        matches!(decide(&again, view, NOW), Decision::Pass(_)),
        "corrected again: {:?}",
        decide(&again, view, NOW)
    );
    // Whole lists with a test before, never an index into one.
    for operation in &correction.patch.0 {
        let path = operation.path().to_string();
        assert!(!path.chars().any(|c| c.is_ascii_digit()), "{path}");
    }
    assert_eq!(serde_json::to_value(&correction.patch).unwrap()[0]["op"], "test");
    object
}

fn passes(request: &Request, view: &View) -> PassReason {
    match decide(request, view, NOW) {
        Decision::Pass(reason) => reason,
        Decision::Patch(correction) => panic!("corrected: {}", correction.what),
    }
}

// ---- pods/status

fn pod(ready: &str) -> Value {
    json!({
        "metadata": {"name": "web-1", "namespace": "default", "uid": "pod-1"},
        "spec": {"nodeName": "shore-2"},
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Ready", "status": ready, "lastTransitionTime": if ready == "True" {
                    "2026-01-01T00:00:00Z"
                } else {
                    "2026-01-02T00:00:00Z"
                }},
                {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ],
        },
    })
}

fn mark() -> Request {
    request(
        NODE_CONTROLLER,
        "UPDATE",
        "pods/status",
        pod("False"),
        pod("True"),
    )
}

#[test]
fn a_pod_of_a_disconnected_node_keeps_its_ready_condition_with_its_old_time() {
    assert_eq!(corrected(&mark(), &view()), pod("True"));
}

#[test]
fn without_per_controller_accounts_the_stock_controller_is_the_manager() {
    let request = request(KCM, "UPDATE", "pods/status", pod("False"), pod("True"));
    assert_eq!(corrected(&request, &view()), pod("True"));
}

#[test]
fn the_stock_controllers_own_mark_proves_that_the_lease_is_stale() {
    let view = with_node(|node| node.now = Protection::default());
    assert_eq!(corrected(&mark(), &view), pod("True"));
}

/// Hazard 18.
#[test]
fn a_pod_of_a_dark_node_keeps_its_ready_condition_only_where_it_is_the_last_of_a_service() {
    let mut view = with_node(|node| {
        (node.now, node.if_stale) = (Protection::default(), Protection::default());
        node.keeps_last = true;
    });
    assert_eq!(passes(&mark(), &view), PassReason::NotProtected);
    view.last.insert(("other".to_owned(), "pod-1".to_owned()));
    assert_eq!(passes(&mark(), &view), PassReason::NotProtected);
    view.last.insert(("default".to_owned(), "pod-1".to_owned()));
    assert_eq!(corrected(&mark(), &view), pod("True"));
    view.nodes.get_mut("shore-2").unwrap().keeps_last = false;
    assert_eq!(passes(&mark(), &view), PassReason::NotProtected);
}

#[test]
fn nothing_is_kept_for_a_node_whose_own_kubelet_says_not_ready() {
    let view = with_node(|node| node.says_not_ready = true);
    assert_eq!(passes(&mark(), &view), PassReason::NotProtected);
    let write = slice_write(
        &[endpoint("a", "shore-2", false)],
        &[endpoint("a", "shore-2", true)],
    );
    assert_eq!(passes(&write, &view), PassReason::NotProtected);
    let write = endpoints_write(
        endpoints(&[], &[address("a", "shore-2")]),
        endpoints(&[address("a", "shore-2")], &[]),
    );
    assert_eq!(passes(&write, &view), PassReason::NotProtected);
}

#[test]
fn a_policy_of_stock_lets_pods_be_marked() {
    let view = with_node(|node| (node.now.readiness, node.if_stale.readiness) = (false, false));
    assert_eq!(passes(&mark(), &view), PassReason::NotProtected);
}

#[rstest]
#[case::healthy_node("shore-1")]
#[case::no_node("")]
fn pods_elsewhere_are_marked(#[case] node: &str) {
    let mut request = mark();
    request.object["spec"]["nodeName"] = json!(node);
    assert_eq!(passes(&request, &view()), PassReason::NotProtected);
}

type Change = fn(&mut Value, &mut Value);

#[rstest]
#[case::containers_not_ready(|new: &mut Value, _: &mut Value| new["status"]["conditions"][2]["status"] = json!("False"))]
#[case::containers_were_not_ready_either(|new: &mut Value, old: &mut Value| {
    new["status"]["conditions"][2]["status"] = json!("False");
    old["status"]["conditions"][2]["status"] = json!("False");
})]
#[case::was_not_ready_before(|_: &mut Value, old: &mut Value| old["status"]["conditions"][1]["status"] = json!("False"))]
#[case::had_no_ready_condition(|_: &mut Value, old: &mut Value| { old["status"]["conditions"].as_array_mut().unwrap().remove(1); })]
#[case::becomes_unknown_not_false(|new: &mut Value, _: &mut Value| new["status"]["conditions"][1]["status"] = json!("Unknown"))]
#[case::fails_as_well(|new: &mut Value, _: &mut Value| new["status"]["phase"] = json!("Failed"))]
#[case::was_not_running(|new: &mut Value, old: &mut Value| {
    new["status"]["phase"] = json!("Pending");
    old["status"]["phase"] = json!("Pending");
})]
#[case::terminates(|new: &mut Value, old: &mut Value| {
    new["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
    old["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
})]
#[case::another_condition_comes_with_it(|new: &mut Value, _: &mut Value| {
    new["status"]["conditions"].as_array_mut().unwrap().push(json!({"type": "DisruptionTarget", "status": "True"}));
})]
#[case::another_condition_changes(|new: &mut Value, _: &mut Value| new["status"]["conditions"][0]["status"] = json!("False"))]
#[case::another_pod_of_the_name(|new: &mut Value, _: &mut Value| new["metadata"]["uid"] = json!("pod-2"))]
#[case::gate_is_false(|new: &mut Value, old: &mut Value| {
    new["spec"]["readinessGates"] = json!([{"conditionType": "example.com/lb"}]);
    for pod in [new, old] {
        pod["status"]["conditions"].as_array_mut().unwrap().push(json!({"type": "example.com/lb", "status": "False"}));
    }
})]
#[case::gate_is_missing(|new: &mut Value, _: &mut Value| new["spec"]["readinessGates"] = json!([{"conditionType": "example.com/lb"}]))]
#[case::no_conditions(|new: &mut Value, _: &mut Value| new["status"] = json!({"phase": "Running"}))]
fn a_pod_that_is_unready_on_its_own_account_is_marked(#[case] change: Change) {
    let mut request = mark();
    change(&mut request.object, &mut request.old_object);
    assert_eq!(passes(&request, &view()), PassReason::OwnAccount);
}

#[test]
fn a_pod_whose_readiness_gates_are_true_is_kept() {
    let mut request = mark();
    for pod in [&mut request.object, &mut request.old_object] {
        pod["spec"]["readinessGates"] = json!([{"conditionType": "example.com/lb"}]);
        let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(json!({"type": "example.com/lb", "status": "True"}));
    }
    assert_eq!(corrected(&request, &view()), request.old_object);
}

#[test]
fn fields_that_an_older_stock_controller_loses_do_not_matter() {
    let mut request = mark();
    request.old_object["status"]["conditions"][0]["observedGeneration"] = json!(1);
    assert_eq!(
        corrected(&request, &view())["status"]["conditions"][1]["status"],
        "True"
    );
}

// ---- who and when

#[rstest]
#[case::our_controller(OURS, "UPDATE", "pods/status")]
#[case::kubelet("system:node:shore-2", "UPDATE", "pods/status")]
#[case::administrator("kubernetes-admin", "UPDATE", "nodes")]
#[case::endpoint_controller_on_pods(SLICE_CONTROLLER, "UPDATE", "pods/status")]
#[case::pods_without_status(NODE_CONTROLLER, "UPDATE", "pods")]
#[case::node_status(NODE_CONTROLLER, "UPDATE", "nodes/status")]
#[case::create_node(NODE_CONTROLLER, "CREATE", "nodes")]
#[case::delete_slice(SLICE_CONTROLLER, "DELETE", "discovery.k8s.io:endpointslices")]
#[case::node_controller_on_slices(NODE_CONTROLLER, "UPDATE", "discovery.k8s.io:endpointslices")]
#[case::unknown_operation(NODE_CONTROLLER, "TRANSMUTE", "nodes")]
#[case::other_group(KCM, "UPDATE", "example.com:endpointslices")]
fn everything_else_is_left_alone(#[case] user: &str, #[case] operation: &str, #[case] resource: &str) {
    let request = request(user, operation, resource, pod("False"), pod("True"));
    assert_eq!(passes(&request, &view()), PassReason::NotOurs);
}

#[test]
fn a_view_that_is_not_live_lets_everything_pass() {
    let never = View::default();
    assert_eq!(passes(&mark(), &never), PassReason::ViewNotLive);
    let old = View {
        made_at: Some(Millis(NOW.0 - 2_001)),
        ..view()
    };
    assert_eq!(passes(&mark(), &old), PassReason::ViewNotLive);
    let just_live = View {
        made_at: Some(Millis(NOW.0 - 2_000)),
        ..view()
    };
    assert_eq!(corrected(&mark(), &just_live), pod("True"));
}

// ---- nodes

fn node(taints: &[(&str, &str)]) -> Value {
    let taints: Vec<Value> = taints
        .iter()
        .map(|(key, effect)| json!({"key": key, "effect": effect}))
        .collect();
    let mut node =
        json!({"metadata": {"name": "shore-2", "uid": "uid-2"}, "spec": {"podCIDR": "10.0.2.0/24"}});
    if !taints.is_empty() {
        node["spec"]["taints"] = json!(taints);
    }
    node
}

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";

#[rstest]
#[case::only_that(&[(UNREACHABLE, "NoExecute")], &[])]
#[case::no_schedule_stays(
    &[(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")],
    &[(UNREACHABLE, "NoSchedule")]
)]
#[case::between_others(
    &[("a", "NoSchedule"), (UNREACHABLE, "NoExecute"), ("b", "NoExecute")],
    &[("a", "NoSchedule"), ("b", "NoExecute")]
)]
fn a_disconnected_node_gets_no_taint_that_evicts(
    #[case] before: &[(&str, &str)],
    #[case] after: &[(&str, &str)],
) {
    let request = request(NODE_CONTROLLER, "UPDATE", "nodes", node(before), node(&[]));
    assert_eq!(corrected(&request, &view()), node(after));
}

#[test]
fn the_stock_controllers_own_taint_proves_that_the_lease_is_stale() {
    let view = with_node(|node| node.now = Protection::default());
    let tainted = node(&[(UNREACHABLE, "NoExecute")]);
    let request = request(NODE_CONTROLLER, "UPDATE", "nodes", tainted, node(&[]));
    assert_eq!(corrected(&request, &view), node(&[]));
}

#[test]
fn a_taint_that_slipped_through_before_goes_with_the_next_write() {
    let tainted = node(&[(UNREACHABLE, "NoExecute")]);
    let request = request(NODE_CONTROLLER, "UPDATE", "nodes", tainted.clone(), tainted);
    assert_eq!(corrected(&request, &view()), node(&[]));
}

#[rstest]
#[case::no_taints(&[])]
#[case::no_schedule_only(&[(UNREACHABLE, "NoSchedule")])]
#[case::the_kubelet_says_not_ready(&[(NOT_READY, "NoExecute")])]
#[case::out_of_service(&[("node.kubernetes.io/out-of-service", "NoExecute")])]
fn other_taints_are_left_alone(#[case] taints: &[(&str, &str)]) {
    let request = request(NODE_CONTROLLER, "UPDATE", "nodes", node(taints), node(&[]));
    assert_eq!(passes(&request, &view()), PassReason::Nothing);
}

/// The kubelet said Ready=False before it fell silent: `not-ready` gives way to `unreachable`.
#[test]
fn the_taint_of_a_node_that_was_not_ready_before_stays() {
    let view = with_node(|node| node.says_not_ready = true);
    let tainted = node(&[(NOT_READY, "NoExecute"), (UNREACHABLE, "NoExecute")]);
    let request = request(
        NODE_CONTROLLER,
        "UPDATE",
        "nodes",
        tainted,
        node(&[(NOT_READY, "NoExecute")]),
    );
    assert_eq!(passes(&request, &view), PassReason::NotProtected);
}

#[rstest]
#[case::healthy("shore-1", "uid-1")]
#[case::registered_again("shore-2", "uid-9")]
fn other_nodes_are_tainted(#[case] name: &str, #[case] uid: &str) {
    let mut tainted = node(&[(UNREACHABLE, "NoExecute")]);
    tainted["metadata"] = json!({"name": name, "uid": uid});
    let request = request(NODE_CONTROLLER, "UPDATE", "nodes", tainted, node(&[]));
    assert_eq!(passes(&request, &view()), PassReason::NotProtected);
}

// ---- endpointslices

pub(super) fn endpoint(pod: &str, node: &str, ready: bool) -> Value {
    json!({
        "addresses": [format!("10.0.0.{}", pod.len())],
        "nodeName": node,
        "targetRef": {"kind": "Pod", "name": pod, "uid": format!("uid-of-{pod}")},
        "conditions": {"ready": ready, "serving": ready, "terminating": false},
    })
}

fn slice(endpoints: &[Value]) -> Value {
    json!({"metadata": {"name": "web-abc"}, "addressType": "IPv4", "endpoints": endpoints, "ports": []})
}

fn slice_write(new: &[Value], old: &[Value]) -> Request {
    request(
        SLICE_CONTROLLER,
        "UPDATE",
        "discovery.k8s.io:endpointslices",
        slice(new),
        slice(old),
    )
}

#[test]
fn endpoints_of_a_disconnected_node_stay_ready_and_others_go() {
    let request = slice_write(
        &[
            endpoint("a", "shore-2", false),
            endpoint("bb", "shore-1", false),
            endpoint("ccc", "shore-1", true),
        ],
        &[
            endpoint("a", "shore-2", true),
            endpoint("bb", "shore-1", true),
            endpoint("ccc", "shore-1", true),
        ],
    );
    let expected = slice(&[
        endpoint("a", "shore-2", true),
        endpoint("bb", "shore-1", false),
        endpoint("ccc", "shore-1", true),
    ]);
    assert_eq!(corrected(&request, &view()), expected);
}

#[test]
fn ready_unset_means_ready() {
    let mut old = endpoint("a", "shore-2", true);
    old["conditions"] = json!({});
    let request = slice_write(&[endpoint("a", "shore-2", false)], &[old]);
    assert_eq!(
        corrected(&request, &view()),
        slice(&[endpoint("a", "shore-2", true)])
    );
}

#[rstest]
#[case::was_not_ready(endpoint("a", "shore-2", false), endpoint("a", "shore-2", false))]
#[case::another_pod(endpoint("a", "shore-2", false), endpoint("b", "shore-2", true))]
#[case::terminating(
    json!({"addresses": ["10.0.0.1"], "nodeName": "shore-2", "targetRef": {"uid": "uid-of-a"},
           "conditions": {"ready": false, "serving": true, "terminating": true}}),
    endpoint("a", "shore-2", true)
)]
#[case::no_pod_behind_it(
    json!({"addresses": ["10.0.0.1"], "nodeName": "shore-2", "conditions": {"ready": false}}),
    json!({"addresses": ["10.0.0.1"], "nodeName": "shore-2", "conditions": {"ready": true}})
)]
fn endpoints_that_were_not_ready_or_end_are_not_kept(#[case] new: Value, #[case] old: Value) {
    assert_eq!(passes(&slice_write(&[new], &[old]), &view()), PassReason::Nothing);
}

#[test]
fn an_endpoint_controllers_write_does_not_prove_that_the_lease_is_stale() {
    let request = slice_write(
        &[endpoint("a", "shore-2", false)],
        &[endpoint("a", "shore-2", true)],
    );
    let view = with_node(|node| node.now = Protection::default());
    assert_eq!(passes(&request, &view), PassReason::NotProtected);
}

/// The API server would ask it in vain.
#[test]
fn another_replica_of_the_controller_is_not_kept() {
    let replicas = ["pod-1", "uid-of-a"].map(str::to_owned);
    let view = with_node(|node| node.replicas = replicas.into());
    assert_eq!(passes(&mark(), &view), PassReason::NotProtected);
    let both = |ready| [endpoint("a", "shore-2", ready), endpoint("b", "shore-2", ready)];
    let corrected = corrected(&slice_write(&both(false), &both(true)), &view);
    let kept = &corrected["endpoints"];
    assert_eq!(
        (&kept[0]["conditions"]["ready"], &kept[1]["conditions"]["ready"]),
        (&json!(false), &json!(true))
    );
}

/// When a link is back, a kubelet may write that a pod is not ready before it renews its Lease: nobody marked
/// that pod.
#[rstest]
#[case::slice(slice_write(&[endpoint("a", "shore-2", false)], &[endpoint("a", "shore-2", true)]))]
#[case::endpoints(endpoints_write(
    endpoints(&[], &[address("a", "shore-2")]),
    endpoints(&[address("a", "shore-2")], &[]),
))]
fn an_endpoint_whose_pod_is_not_ready_by_itself_goes(#[case] request: Request) {
    let view = with_node(|node| node.marked = ["uid-of-b".to_owned()].into());
    assert_eq!(passes(&request, &view), PassReason::OwnAccount);
}

#[test]
fn a_policy_of_stock_lets_endpoints_go() {
    let request = slice_write(
        &[endpoint("a", "shore-2", false)],
        &[endpoint("a", "shore-2", true)],
    );
    let view = with_node(|node| (node.now.readiness, node.if_stale.readiness) = (false, false));
    assert_eq!(passes(&request, &view), PassReason::NotProtected);
}

#[test]
fn a_new_slice_has_nothing_to_keep() {
    let mut request = slice_write(&[endpoint("a", "shore-2", false)], &[]);
    request.operation = Operation::Create;
    request.old_object = Value::Null;
    assert_eq!(passes(&request, &view()), PassReason::Nothing);
}

// ---- endpoints

fn address(pod: &str, node: &str) -> Value {
    json!({
        "ip": format!("10.0.0.{}", pod.len()), "nodeName": node,
        "targetRef": {"kind": "Pod", "name": pod, "uid": format!("uid-of-{pod}")},
    })
}

fn endpoints(ready: &[Value], not_ready: &[Value]) -> Value {
    let mut subset = json!({"ports": [{"port": 80}]});
    if !ready.is_empty() {
        subset["addresses"] = json!(ready);
    }
    if !not_ready.is_empty() {
        subset["notReadyAddresses"] = json!(not_ready);
    }
    json!({"metadata": {"name": "web"}, "subsets": [subset]})
}

fn endpoints_write(new: Value, old: Value) -> Request {
    request(KCM, "UPDATE", "endpoints", new, old)
}

#[test]
fn addresses_of_a_disconnected_node_stay_where_they_were() {
    let (a, b, c) = (
        address("a", "shore-1"),
        address("bb", "shore-2"),
        address("ccc", "shore-1"),
    );
    let old = endpoints(&[a.clone(), b.clone(), c.clone()], &[]);
    let request = endpoints_write(endpoints(&[a, c], &[b]), old.clone());
    assert_eq!(corrected(&request, &view()), old);
}

#[test]
fn addresses_that_are_not_kept_stay_not_ready() {
    let (a, b, c) = (
        address("a", "shore-2"),
        address("bb", "shore-2"),
        address("ccc", "shore-1"),
    );
    let old = endpoints(&[a.clone(), c.clone()], std::slice::from_ref(&b));
    let request = endpoints_write(endpoints(&[], &[a.clone(), b.clone(), c.clone()]), old);
    assert_eq!(corrected(&request, &view()), endpoints(&[a], &[b, c]));
}

#[rstest]
#[case::healthy_node(address("a", "shore-1"), address("a", "shore-1"), PassReason::NotProtected)]
#[case::new_pod_of_the_address(address("b", "shore-2"), address("a", "shore-2"), PassReason::Nothing)]
fn other_addresses_go(#[case] new: Value, #[case] old: Value, #[case] expected: PassReason) {
    let request = endpoints_write(endpoints(&[], &[new]), endpoints(&[old], &[]));
    assert_eq!(passes(&request, &view()), expected);
}

#[test]
fn endpoints_without_subsets_are_left_alone() {
    let empty = json!({"metadata": {"name": "web"}});
    assert_eq!(
        passes(&endpoints_write(empty.clone(), empty), &view()),
        PassReason::Nothing
    );
}

// ---- anything that can arrive

#[rstest]
#[case::pods("pods/status")]
#[case::nodes("nodes")]
#[case::endpoints("endpoints")]
#[case::slices("discovery.k8s.io:endpointslices")]
fn objects_of_the_wrong_shape_pass(#[case] resource: &str) {
    let shapes = [
        json!(null),
        json!([]),
        json!("text"),
        json!({"metadata": 1, "spec": "x", "status": [], "subsets": {}, "endpoints": 3}),
        json!({"metadata": {"name": "shore-2", "uid": "uid-2"}, "spec": {"nodeName": "shore-2", "taints": {}}}),
        json!({"spec": {"nodeName": "shore-2"}, "status": {"conditions": [1, null, {"type": "Ready"}]},
               "endpoints": [null, 1, {"conditions": 7}], "subsets": [null, {"notReadyAddresses": [1]}]}),
    ];
    for new in &shapes {
        for old in &shapes {
            passes(
                &request(KCM, "UPDATE", resource, new.clone(), old.clone()),
                &view(),
            );
        }
    }
}
