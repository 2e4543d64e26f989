use super::disconnected::cut;
use super::*;
use evenkeel_api::names::taints::NOT_READY;

/// Of so many nodes n3 is cut off and kept. The next ones are silent after second 35, and nobody knows more.
fn beside_one_that_is_kept(count: usize, silent: &[&str]) -> Stage {
    let mut stage = cut(Stage::with_nodes(count));
    stage.node("n3").ready = Status::Unknown;
    for name in silent {
        stage.says(name, Says::Nothing(NoVerdict::NotListed));
    }
    let all: Vec<&str> = silent.iter().copied().chain(["n3"]).collect();
    stage.go(90, &all);
    for name in silent {
        assert_eq!(stage.state(name), NodeState::Unknown);
        stage.node(name).ready = Status::Unknown;
    }
    stage
}

/// Which nodes got a taint in the stock controller's stead, in order.
fn served(stage: &Stage) -> Vec<String> {
    let tainted = stage.log.iter().filter_map(|action| match action {
        Action::TaintForStock { node, taint, .. } => Some(format!("{} {}", node.name, taint.key)),
        _ => None,
    });
    tainted.collect()
}

#[test]
fn who_waits_beside_one_that_is_kept_gets_its_taint_at_the_stock_controllers_rate() {
    let silent = ["n3", "n4", "n5"];
    let mut stage = beside_one_that_is_kept(9, &silent[1..]);
    stage.node("n6").ready = Status::False;
    // From second 91 on four wait: 5 s to a look, and 10 s for each.
    stage.go(135, &silent);
    assert!(
        served(&stage).is_empty(),
        "its turn in the stock controller's queue comes first"
    );
    stage.go(136, &silent);
    let unreachable = |name: &str| format!("{name} {UNREACHABLE}");
    assert_eq!(served(&stage), [unreachable("n4")]);
    stage.go(145, &silent);
    assert_eq!(served(&stage).len(), 1, "one in ten seconds");
    stage.go(400, &silent);
    let expected = [unreachable("n4"), unreachable("n5"), format!("n6 {NOT_READY}")];
    assert_eq!(served(&stage), expected, "and none twice");
    assert!(!stage.has_no_execute("n3"));
    assert!(stage.has_no_execute("n4") && stage.world.nodes["n4"].added.is_empty());
}

#[test]
fn a_turn_of_the_stock_controller_itself_counts() {
    let silent = ["n3", "n4", "n5"];
    let mut stage = beside_one_that_is_kept(9, &silent[1..]);
    stage.go(120, &silent);
    stage.node("n4").taints.push(Taint {
        key: UNREACHABLE.to_owned(),
        effect: NO_EXECUTE.to_owned(),
        ..Default::default()
    });
    stage.go(129, &silent);
    assert!(served(&stage).is_empty());
    stage.go(132, &silent);
    assert_eq!(served(&stage), [format!("n5 {UNREACHABLE}")]);
}

/// Its link was cut before its turn for `not-ready` came: the webhook lets its taint pass.
#[test]
fn one_whose_kubelet_had_said_not_ready_is_not_kept() {
    let mut stage = cut(Stage::with_nodes(9));
    stage.says("n4", cut_off());
    stage.node("n4").says_not_ready = Some(true);
    stage.go(90, &["n3", "n4"]);
    for name in ["n3", "n4"] {
        assert_eq!(stage.state(name), NodeState::Disconnected);
        stage.node(name).ready = Status::Unknown;
    }
    stage.go(130, &["n3", "n4"]);
    assert_eq!(served(&stage), [format!("n4 {UNREACHABLE}")]);
    assert!(stage.has_no_execute("n4"));
}

/// The stock controller needs no help, or has stopped itself.
#[test]
fn nothing_is_done_where_nobody_is_kept_or_too_many_are_not_ready() {
    let silent = ["n3", "n4", "n5"];
    let mut alone = Stage::with_nodes(9);
    alone.go(10, &[]);
    alone.says("n4", Says::Nothing(NoVerdict::NotListed));
    alone.go(90, &["n4"]);
    alone.node("n4").ready = Status::Unknown;
    alone.go(300, &["n4"]);
    assert!(served(&alone).is_empty());

    let mut disrupted = beside_one_that_is_kept(5, &silent[1..]);
    disrupted.go(300, &silent);
    assert!(
        served(&disrupted).is_empty(),
        "three of five: a partial disruption"
    );

    let mut observed =
        beside_one_that_is_kept(9, &silent[1..]).policy(|spec| spec.mode = Some(ModePolicy::Observe));
    observed.go(300, &silent);
    assert!(served(&observed).is_empty());
}

/// Zones are the stock controller's, by their labels.
#[test]
fn a_node_that_is_kept_in_another_zone_takes_no_turn() {
    let silent = ["n3", "n4"];
    let mut stage = beside_one_that_is_kept(9, &silent[1..]);
    let labels = BTreeMap::from([("topology.kubernetes.io/zone".to_owned(), "hill".to_owned())]);
    stage.node("n4").labels = labels.clone();
    stage.node("n5").labels = labels;
    stage.go(300, &silent);
    assert!(served(&stage).is_empty());
}
