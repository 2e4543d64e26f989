use super::*;
use rstest::rstest;
use serde_json::{Value, json};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn deployment(labels: Value, replicas: i32, pods: Value) -> Deployment {
    let mut all = json!({
        "virtual-kubelet.koupleless.io/component": "module-deployment",
        "virtual-kubelet.koupleless.io/env": "dev",
        "virtual-kubelet.koupleless.io/strategy": "peer",
    });
    for (key, value) in labels.as_object().unwrap() {
        all[key] = value.clone();
    }
    serde_json::from_value(json!({
        "metadata": {"name": "d", "labels": all},
        "spec": {"replicas": replicas, "selector": {}, "template": {"spec": pods}},
    }))
    .unwrap()
}

fn of_cluster(replicas: i32) -> Deployment {
    deployment(
        json!({"base.koupleless.io/cluster-name": "c"}),
        replicas,
        json!({"containers": []}),
    )
}

fn node(name: &str, cluster: &str, env: &str, ready: &str, since: i64) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {
            "virtual-kubelet.koupleless.io/component": "vnode",
            "virtual-kubelet.koupleless.io/env": env,
            "base.koupleless.io/cluster-name": cluster,
        }},
        "status": {"conditions": [
            {"type": "MemoryPressure", "status": "True"},
            {"type": "Ready", "status": ready, "lastTransitionTime": at(since).to_string()},
        ]},
    }))
    .unwrap()
}

fn bases() -> Bases {
    Bases::new("dev", Duration::from_secs(60))
}

fn affinity(terms: Value) -> Value {
    json!({"containers": [], "affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
}

const KEY: &str = "base.koupleless.io/cluster-name";

#[rstest]
#[case::label(json!({KEY: "a"}), json!({"containers": [], "nodeSelector": {KEY: "b"}}), Some("a"))]
#[case::selector(json!({}), json!({"containers": [], "nodeSelector": {KEY: "b"}}), Some("b"))]
#[case::affinity(json!({}), affinity(json!([{"matchExpressions": [
    {"key": "other", "operator": "In", "values": ["x"]}, {"key": KEY, "operator": "In", "values": ["c"]}]}])), Some("c"))]
#[case::exists(json!({}), affinity(json!([{"matchExpressions": [{"key": KEY, "operator": "Exists"}]}])), None)]
#[case::not_in(json!({}), affinity(json!([{"matchExpressions": [{"key": KEY, "operator": "NotIn", "values": ["c"]}]}])), None)]
#[case::no_values(json!({}), affinity(json!([{"matchExpressions": [{"key": KEY, "operator": "In", "values": []}]}])), None)]
#[case::two_values(json!({}), affinity(json!([{"matchExpressions": [{"key": KEY, "operator": "In", "values": ["c", "d"]}]}])), None)]
#[case::a_later_one(json!({}), affinity(json!([
    {"matchExpressions": [{"key": KEY, "operator": "Exists"}]},
    {"matchExpressions": [{"key": KEY, "operator": "In", "values": ["d"]}]}])), Some("d"))]
#[case::no_terms(json!({}), affinity(json!([])), None)]
#[case::nothing(json!({}), json!({"containers": []}), None)]
fn the_cluster_of_a_deployment(#[case] labels: Value, #[case] pods: Value, #[case] cluster: Option<&str>) {
    assert_eq!(cluster_of(&deployment(labels, 1, pods)), cluster);
}

#[test]
fn a_deployment_without_spec_has_no_cluster() {
    assert_eq!(cluster_of(&Deployment::default()), None);
    assert_eq!(Change::of(&Deployment::default(), &bases(), at(0)), None);
}

#[rstest]
#[case(json!({}), true)]
#[case(json!({"virtual-kubelet.koupleless.io/env": "prod"}), false)]
#[case(json!({"virtual-kubelet.koupleless.io/strategy": "scale"}), false)]
#[case(json!({"virtual-kubelet.koupleless.io/component": "module"}), false)]
#[case(json!({"virtual-kubelet.koupleless.io/replicas-control": "true"}), false)]
#[case(json!({"virtual-kubelet.koupleless.io/replicas-control": "false"}), true)]
fn peers_are_known_by_labels(#[case] labels: Value, #[case] peer: bool) {
    assert_eq!(
        is_peer(&deployment(labels, 1, json!({"containers": []})), "dev"),
        peer
    );
}

#[test]
fn replicas_are_the_ready_nodes_of_the_cluster_and_environment() {
    let mut bases = bases();
    bases.put(&node("a", "c", "dev", "True", 0), at(0));
    bases.put(&node("b", "c", "dev", "True", 0), at(0));
    bases.put(&node("another-cluster", "d", "dev", "True", 0), at(0));
    bases.put(&node("another-env", "c", "prod", "True", 0), at(0));
    bases.put(&node("not-ready", "c", "dev", "False", 0), at(0));
    bases.put(&Node::default(), at(0));
    assert_eq!(
        Change::of(&of_cluster(5), &bases, at(0)),
        Some(Change { from: 5, to: 2 })
    );
    assert_eq!(Change::of(&of_cluster(2), &bases, at(0)), None);
    bases.gone("a");
    bases.retain(&BTreeSet::new());
    assert_eq!(bases.count("c", at(0)), 0);
}

#[test]
fn a_node_that_changes_its_environment_is_forgotten() {
    let mut bases = bases();
    bases.put(&node("a", "c", "dev", "True", 0), at(0));
    bases.put(&node("a", "c", "prod", "True", 0), at(1));
    assert_eq!(bases.count("c", at(1)), 0);
}

#[test]
fn a_short_silence_shrinks_nothing() {
    let mut bases = bases();
    bases.put(&node("a", "c", "dev", "True", 0), at(0));
    // The condition's own time is of a clock that is two minutes slow.
    bases.put(&node("a", "c", "dev", "Unknown", -20), at(100));
    bases.put(&node("a", "c", "dev", "Unknown", -20), at(130));
    assert_eq!(
        (bases.count("c", at(159)), bases.next(at(159))),
        (1, Some(at(160)))
    );
    assert_eq!((bases.count("c", at(160)), bases.next(at(160))), (0, None));
    assert!(bases.is_lost("a"), "its pod would go first");
    bases.put(&node("a", "c", "dev", "True", 170), at(170));
    assert_eq!((bases.count("c", at(170)), bases.is_lost("a")), (1, false));
}

#[test]
fn a_silence_does_not_make_a_base_ready() {
    let mut bases = bases();
    bases.put(&node("a", "c", "dev", "False", 0), at(0));
    bases.put(&node("a", "c", "dev", "Unknown", 10), at(10));
    assert_eq!(bases.count("c", at(10)), 0);
}

#[test]
fn a_base_that_its_provider_does_not_hear_of_is_unknown() {
    let mut bases = bases();
    bases.put(&node("a", "c", "dev", "True", 0), at(0));
    let mut silent = node("a", "c", "dev", "False", 5);
    let conditions = silent.status.as_mut().unwrap().conditions.as_mut().unwrap();
    conditions[1].reason = Some("ProviderUnwell".to_owned());
    bases.put(&silent, at(5));
    assert_eq!((bases.count("c", at(64)), bases.count("c", at(65))), (1, 0));
}

#[test]
fn a_node_that_was_unknown_before_we_began_has_its_grace_from_then_on() {
    let mut bases = bases();
    bases.put(&node("a", "c", "dev", "Unknown", 0), at(3_600));
    bases.put(&node("a", "c", "dev", "Unknown", 0), at(3_650));
    assert_eq!(bases.count("c", at(3_659)), 1);
    assert_eq!(bases.count("c", at(3_660)), 0);
}

fn pod(node: Option<&str>, annotations: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"nodeName": node, "containers": []},
    }))
    .unwrap()
}

#[rstest]
#[case::lost(Some("lost"), json!({}), &[(DELETION_COST, Some(LOST_COST)), (FORMER_COST, Some(""))])]
#[case::with_a_cost(Some("lost"), json!({DELETION_COST: "7"}), &[(DELETION_COST, Some(LOST_COST)), (FORMER_COST, Some("7"))])]
#[case::marked(Some("lost"), json!({DELETION_COST: LOST_COST, FORMER_COST: "7"}), &[])]
#[case::back(Some("well"), json!({DELETION_COST: LOST_COST, FORMER_COST: "7"}), &[(DELETION_COST, Some("7")), (FORMER_COST, None)])]
#[case::back_without(Some("well"), json!({DELETION_COST: LOST_COST, FORMER_COST: ""}), &[(DELETION_COST, None), (FORMER_COST, None)])]
#[case::untouched(Some("well"), json!({DELETION_COST: "7"}), &[])]
#[case::pending(None, json!({}), &[])]
#[case::of_no_node(Some("unheard-of"), json!({}), &[(DELETION_COST, Some(LOST_COST)), (FORMER_COST, Some(""))])]
fn pods_of_lost_bases_go_first(
    #[case] node_name: Option<&str>,
    #[case] annotations: Value,
    #[case] wanted: &[(&str, Option<&str>)],
) {
    let mut bases = bases();
    bases.put(&node("well", "c", "dev", "True", 0), at(0));
    bases.put(&node("lost", "c", "dev", "False", 0), at(0));
    let costs = costs(&pod(node_name, annotations), &bases);
    let costs: Vec<_> = costs
        .iter()
        .map(|(key, value)| (*key, value.as_deref()))
        .collect();
    assert_eq!(costs, wanted);
}
