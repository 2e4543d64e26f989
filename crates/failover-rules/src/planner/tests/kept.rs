use super::disconnected::{cut, stock_marks};
use super::services::service;
use super::*;
use evenkeel_api::policy::EndpointsPolicy;
use rstest::rstest;

fn never_started<'a>(stage: &'a mut Stage, name: &str) -> &'a mut PodFacts {
    let pod = stage.pod("n3", name);
    (pod.acknowledged, pod.ready) = (false, Status::Missing);
    pod
}

/// Pods of every kind on n3, of which only those whose names begin with `late` may go.
fn pods(stage: &mut Stage) {
    never_started(stage, "late");
    never_started(stage, "late-at-once").tolerations.clear();
    never_started(stage, "for-ever").tolerations = vec![tolerate(None)];
    never_started(stage, "disk").claims = vec!["never-seen".to_owned()];
    never_started(stage, "leaving").terminating = true;
    never_started(stage, "done").finished = true;
    for (name, owner) in [
        ("bare", Owner::Nobody),
        ("daemon", Owner::DaemonSet),
        ("static", Owner::Static),
        ("db", Owner::StatefulSet),
    ] {
        never_started(stage, name).owner = owner;
    }
    stage.pod("n3", "web");
}

/// The stock controller's mark is of second 35, and its queue may take 10 s.
#[test]
fn what_never_started_on_a_cut_off_node_goes_when_stock_kubernetes_would_evict_it() {
    let mut stage = Stage::with_nodes(3).policy(|spec| spec.evict_after_seconds = Some(5));
    pods(&mut stage);
    let mut stage = cut(stage);
    stage.go(60, &["n3"]);
    assert!(stage.evicted().is_empty(), "no mark");
    stock_marks(&mut stage);
    stage.go(69, &["n3"]);
    assert!(stage.evicted().is_empty());
    stage.go(369, &["n3"]);
    assert_eq!(stage.evicted(), ["late-at-once"]);
    stage.go(370, &["n3"]);
    assert_eq!(stage.evicted(), ["late-at-once", "late"]);
    // What is bound to the node long after the mark has its time, too.
    never_started(&mut stage, "late-again").seen = at(1000);
    stage.go(1309, &["n3"]);
    assert_eq!(stage.evicted().len(), 2);
    stage.go(2000, &["n3"]);
    assert_eq!(stage.evicted(), ["late-at-once", "late", "late-again"]);
    assert!(!stage.has_no_execute("n3"));
}

/// Where the stock controller stops, since too much of a zone is not ready, nothing goes sooner than after
/// that.
#[test]
fn nothing_goes_while_stock_kubernetes_evicts_nobody_in_the_zone() {
    let mut stage = Stage::with_nodes(3);
    pods(&mut stage);
    let mut stage = cut(stage);
    stock_marks(&mut stage);
    for node in ["n1", "n2"] {
        stage.node(node).ready = Status::Unknown;
    }
    stage.go(1000, &["n3"]);
    assert!(stage.evicted().is_empty());
    stage.node("n1").ready = Status::True;
    stage.go(1010, &["n3"]);
    assert_eq!(stage.evicted(), ["late-at-once"]);
    stage.go(1310, &["n3"]);
    assert_eq!(stage.evicted(), ["late-at-once", "late"]);
}

/// A death that was confirmed, and then taken back: the stock controller does not mark a node that we marked.
#[test]
fn our_own_mark_counts_where_there_is_no_other() {
    let mut stage = Stage::with_nodes(3);
    pods(&mut stage);
    let mut stage = cut(stage);
    stage.node("n3").ready = Status::Unknown;
    stage.node("n3").marked_by_us = true;
    stage.go(400, &["n3"]);
    assert_eq!(stage.evicted(), ["late-at-once", "late"]);
}

#[rstest]
#[case::within_autonomy(3600, &["late-at-once", "late"])]
#[case::where_stock_evicts(0, &[])]
fn so_it_does_in_a_dark_zone_that_is_kept(#[case] autonomy: i64, #[case] gone: &[&str]) {
    let mut stage = Stage::with_nodes(3).policy(|spec| spec.autonomy_seconds = Some(autonomy));
    pods(&mut stage);
    stage.go(10, &[]);
    stage.reported = Some(10);
    stage.go(80, &["n1", "n2", "n3"]);
    assert_eq!(stage.state("n3"), NodeState::Dark);
    stock_marks(&mut stage);
    stage.go(400, &["n1", "n2", "n3"]);
    assert_eq!(stage.evicted(), gone);
}

#[test]
fn nothing_goes_where_nobody_acts_or_the_link_is_back() {
    for back in [false, true] {
        let mut stage = Stage::with_nodes(3);
        pods(&mut stage);
        never_started(&mut stage, "late-at-once").tolerations = vec![tolerate(Some(60))];
        let mut stage = cut(stage);
        stock_marks(&mut stage);
        stage.go(94, &["n3"]);
        if back {
            stage.says.clear();
            stage.node("n3").life.stock_mark = None;
            stage.go(600, &[]);
        } else {
            stage = stage.policy(|spec| spec.mode = Some(ModePolicy::Observe));
            stage.go(600, &["n3"]);
        }
        assert_eq!(stage.evicted(), Vec::<&str>::new());
    }
}

/// What the API server asks in vain is out of the webhook's Service before the stock controller marks the
/// node's pods.
#[rstest]
#[case::cut(Some(cut_off()), EndpointsPolicy::Keep)]
#[case::cut_with_endpoints_of_stock(Some(cut_off()), EndpointsPolicy::Stock)]
#[case::last_in_a_dark_zone(None, EndpointsPolicy::Keep)]
fn a_silent_replica_is_neither_kept_nor_given_back(
    #[case] says: Option<Says>,
    #[case] endpoints: EndpointsPolicy,
) {
    let mut stage = Stage::with_nodes(3).policy(|spec| {
        (spec.endpoints, spec.autonomy_seconds) = (Some(endpoints), Some(3600));
    });
    let names = ["controller", "heard"];
    for name in names {
        stage.pod("n3", name).tolerations = vec![tolerate(Some(30))];
    }
    stage.slices = Some(service(&names.map(|name| ("n3", name, true))));
    stage.silent_replicas = [("ns".to_owned(), "controller".to_owned())].into();
    stage.go(10, &[]);
    let silent: &[&str] = if let Some(says) = says {
        stage.says("n3", says);
        &["n3"]
    } else {
        stage.reported = Some(10);
        &["n1", "n2", "n3"]
    };
    let ready = |stage: &Stage| names.map(|name| stage.pod_now(name).ready == Status::True);
    stage.go(60, silent);
    assert_eq!(ready(&stage), [false, true]);
    stock_marks(&mut stage);
    stage.go(99, silent);
    let kept = endpoints == EndpointsPolicy::Keep;
    assert_eq!(ready(&stage), [false, kept]);
    assert!(stage.evicted().is_empty());
    stage.go(100, silent);
    assert_eq!(stage.evicted(), ["controller"]);
    // It has a link of its own after all: what was taken from it is given back.
    stage.silent_replicas.clear();
    stage
        .world
        .pods
        .get_mut("n3")
        .and_then(|pods| pods.get_mut("u-controller"))
        .expect("a pod")
        .terminating = false;
    stage.go(101, silent);
    assert_eq!(ready(&stage), [kept && says.is_some(), kept]);
}
