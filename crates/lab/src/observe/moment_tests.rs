use super::*;
use rstest::rstest;

fn healthy() -> Moment {
    let mut moment = Moment::default();
    let label = vec![("app".to_owned(), "web".to_owned())];
    let node = NodeFact {
        uid: "n".into(),
        name: "a".into(),
        ready: "True".into(),
        ..NodeFact::default()
    };
    let pod = PodFact {
        uid: "p".into(),
        namespace: "default".into(),
        name: "web-1".into(),
        workload: "deployment/web".into(),
        node: "a".into(),
        labels: label.clone(),
        ready: true,
        ..PodFact::default()
    };
    let workload = WorkloadFact {
        uid: "w".into(),
        namespace: "default".into(),
        workload: "deployment/web".into(),
        desired: 1,
    };
    let service = ServiceFact {
        uid: "s".into(),
        name: "default/web".into(),
        selector: label,
    };
    let endpoint = EndpointFact {
        target: "p".into(),
        name: "web-1".into(),
        node: "a".into(),
        ready: true,
    };
    let slice = SliceFact {
        uid: "e".into(),
        service: "default/web".into(),
        endpoints: vec![endpoint],
    };
    for what in [
        Watched::Node(node),
        Watched::Pod(pod),
        Watched::Workload(workload),
        Watched::Service(service),
        Watched::Slice(slice),
    ] {
        assert!(moment.apply(&what));
        assert!(!moment.apply(&what), "the same again is no change");
    }
    moment
}

#[test]
fn a_healthy_lab_is_ready_and_clean() {
    assert_eq!(healthy().unready(1), [""; 0]);
    assert_eq!(healthy().unclean(1), [""; 0]);
}

/// Each row: what is wrong, whether it is still ready, and the one thing that is said.
#[rstest]
#[case::node_unknown(|m: &mut Moment| m.nodes.get_mut("n").unwrap().ready = "Unknown".into(), false, "node a says Ready=Unknown")]
#[case::node_silent(|m: &mut Moment| m.nodes.get_mut("n").unwrap().ready = String::new(), false, "node a says Ready=nothing")]
#[case::node_missing(|m: &mut Moment| m.nodes.clear(), false, "0 of 1 nodes registered")]
#[case::too_few(|m: &mut Moment| m.workloads.get_mut("w").unwrap().desired = 2, false, "deployment/web: 1 of 2 pods ready")]
#[case::no_slice(|m: &mut Moment| m.slices.clear(), false, "web-1 is no endpoint of default/web")]
#[case::tainted(|m: &mut Moment| m.nodes.get_mut("n").unwrap().taints.push("node.kubernetes.io/unreachable:NoSchedule".into()), true,
    "node a has taint node.kubernetes.io/unreachable:NoSchedule")]
#[case::unsettled(|m: &mut Moment| m.nodes.get_mut("n").unwrap().marked = true, true, "node a is not settled")]
#[case::leaving(|m: &mut Moment| { m.pods.insert("q".into(), PodFact { name: "old".into(), node: "b".into(), deleting: true, ..PodFact::default() }); },
    true, "pod old on b is on its way out")]
#[case::incident(|m: &mut Moment| { m.incidents.insert("i".into(), IncidentFact { node: "a".into(), state: "Dead".into(), ..IncidentFact::default() }); },
    true, "incident of a is open (Dead)")]
fn what_is_left(#[case] harm: fn(&mut Moment), #[case] ready: bool, #[case] said: &str) {
    let mut moment = healthy();
    harm(&mut moment);
    assert_eq!(moment.unready(1).is_empty(), ready, "{:?}", moment.unready(1));
    assert!(
        moment.unclean(1).contains(&said.to_owned()),
        "{:?}",
        moment.unclean(1)
    );
}

#[test]
fn an_operators_own_taint_is_clean() {
    let mut moment = healthy();
    moment
        .nodes
        .get_mut("n")
        .unwrap()
        .taints
        .push("dedicated:NoSchedule".into());
    assert_eq!(moment.unclean(1), [""; 0]);
}

#[test]
fn a_node_is_found_by_what_runs_there() {
    let mut moment = healthy();
    let wanted = ["deployment/web".to_owned()];
    assert_eq!(moment.nodes_running(&wanted), ["a"]);
    moment.pods.get_mut("p").unwrap().ready = false;
    assert_eq!(moment.nodes_running(&wanted), [""; 0]);
}
