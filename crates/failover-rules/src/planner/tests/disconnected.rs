use super::*;
use crate::planner::action::Measure;
use evenkeel_api::names::conditions::REASON_NODE_DEAD;
use evenkeel_api::names::events;

/// n3 of `stage` is cut off after second 10 and vouched for.
pub(super) fn cut(mut stage: Stage) -> Stage {
    stage.go(10, &[]);
    stage.says("n3", cut_off());
    stage.go(35, &["n3"]);
    assert_eq!(stage.state("n3"), NodeState::Disconnected);
    stage
}

/// What the stock controllers do to a node that is silent for too long.
pub(super) fn stock_marks(stage: &mut Stage) {
    let now = at(stage.now);
    let node = stage.node("n3");
    node.ready = Status::Unknown;
    node.life.stock_mark = Some(now);
    for effect in [NO_EXECUTE, "NoSchedule"] {
        node.taints.push(Taint {
            key: UNREACHABLE.to_owned(),
            effect: effect.to_owned(),
            ..Default::default()
        });
    }
    for pod in stage
        .world
        .pods
        .get_mut("n3")
        .into_iter()
        .flat_map(BTreeMap::values_mut)
    {
        pod.ready = Status::False;
        pod.ready_time = Some(stamp(now));
    }
}

/// As objects hold it: in whole seconds.
fn stamp(now: Millis) -> jiff::Timestamp {
    let seconds = i64::try_from(now.0 / 1000).expect("a time of this century");
    jiff::Timestamp::from_second(seconds).expect("a time of this century")
}

/// A node in mid-cut whose pod `web` the stock controller would have marked, and Evenkeel has kept ready.
fn suppressed(mut stage: Stage) -> Stage {
    stage.pod("n3", "web");
    let mut stage = cut(stage);
    stock_marks(&mut stage);
    stage.settle();
    stage
}

#[test]
fn nothing_moves_for_as_long_as_the_evidence_keeps_coming() {
    let mut stage = Stage::with_nodes(3).profile(Profile::Edge);
    stage.pod("n3", "web");
    let mut stage = cut(stage);
    for second in (40..4000).step_by(20) {
        stage.go(second, &["n3"]);
    }
    assert!(stage.evicted().is_empty() && !stage.has_no_execute("n3"));
    assert_eq!(stage.pod_now("web").ready, Status::True);
    assert_eq!(stage.timeline("n3"), [events::DISCONNECTED]);
}

#[test]
fn what_slipped_through_is_repaired() {
    let mut stage = Stage::with_nodes(3);
    stage.pod("n3", "web");
    stage.pod("n3", "broken").ready_by_itself = false;
    stage.pod("n3", "leaving").terminating = true;
    let mut stage = cut(stage);
    stock_marks(&mut stage);
    stage.pod("n3", "suspect-once").ready = Status::False;
    stage
        .world
        .pods
        .get_mut("n3")
        .expect("pods")
        .get_mut("u-suspect-once")
        .expect("a pod")
        .ready_reason = REASON_NODE_DEAD.to_owned();
    let plan = stage.look();
    assert!(
        plan.measures.contains(&Measure::MarksPassed(1)),
        "{:?}",
        plan.measures
    );
    stage.settle();
    // Another one, a second later, is counted with it.
    let seen = stamp(at(stage.now));
    let late = stage.pod("n3", "late");
    (late.ready, late.ready_time) = (Status::False, Some(seen));
    // One that was marked before anybody vouched for the node: the webhook was not to correct it.
    let early = stage.pod("n3", "early");
    (early.ready, early.ready_time) = (Status::False, Some(stamp(at(20))));
    stage.settle();
    assert_eq!(stage.pod_now("early").ready, Status::True);
    let rows = stage.incident("n3").status.timeline.clone();
    let rows: Vec<&str> = rows.iter().map(|row| row.message.as_str()).collect();
    assert!(
        rows.iter().any(|row| row.starts_with("2 pods had been marked")),
        "{rows:?}"
    );
    assert!(!rows.iter().any(|row| row.starts_with("1 pods")), "{rows:?}");
    assert!(!stage.has_no_execute("n3"));
    assert!(
        stage.world.nodes["n3"].taint(UNREACHABLE, "NoSchedule").is_some(),
        "no new pods"
    );
    assert_eq!(stage.pod_now("web").ready, Status::True);
    assert_eq!(
        stage.pod_now("broken").ready,
        Status::False,
        "not ready on its own account"
    );
    assert_eq!(stage.pod_now("leaving").ready, Status::False);
    assert_eq!(
        stage.pod_now("suspect-once").ready,
        Status::True,
        "vouched for since 25 s: its kubelet cannot restore what we marked"
    );
}

/// Hazard 37.
#[test]
fn a_mark_of_ours_is_given_back_after_10_s_of_being_vouched_for() {
    let mut stage = cut(Stage::with_nodes(3));
    stage.pod("n3", "web");
    stage.convict("n3");
    stage.go(40, &["n3"]);
    assert_eq!(stage.pod_now("web").ready, Status::False);
    // It had only stalled.
    stage.says("n3", cut_off());
    stage.go(50, &["n3"]);
    assert_eq!(stage.pod_now("web").ready, Status::False);
    stage.go(51, &["n3"]);
    assert_eq!(stage.pod_now("web").ready, Status::True);
    assert!(stage.evicted().is_empty() && !stage.has_no_execute("n3"));
}

#[test]
fn endpoints_follow_stock_where_policy_says_so() {
    let mut stage =
        Stage::with_nodes(3).policy(|spec| spec.endpoints = Some(evenkeel_api::crd::EndpointsPolicy::Stock));
    stage.pod("n3", "web");
    let mut stage = cut(stage);
    stock_marks(&mut stage);
    stage.settle();
    assert_eq!(stage.pod_now("web").ready, Status::False);
    assert!(!stage.has_no_execute("n3"), "evictions are held all the same");
}

#[test]
fn suppression_is_settled_when_the_evidence_runs_out() {
    let mut stage = suppressed(Stage::with_nodes(3));
    stage.says("n3", Says::Nothing(NoVerdict::NotListed));
    stage.go(46, &["n3"]);
    assert_eq!(stage.state("n3"), NodeState::Unknown);
    stage.settle();
    assert_eq!(
        stage.pod_now("web").ready,
        Status::False,
        "stock would have marked it"
    );
    assert_eq!(
        stage.timeline("n3"),
        [events::DISCONNECTED, events::MARKS_UNDONE, events::UNKNOWN]
    );
}

#[test]
fn suppression_is_settled_also_after_a_restart() {
    let mut stage = suppressed(Stage::with_nodes(3));
    stage.restart();
    stage.says("n3", Says::Nothing(NoVerdict::NoMajority));
    stage.go(54, &["n3"]);
    assert_eq!(
        stage.pod_now("web").ready,
        Status::True,
        "evidence from before the restart counts until newer must have come"
    );
    stage.go(64, &["n3"]);
    assert_eq!(
        (stage.state("n3"), stage.pod_now("web").ready),
        (NodeState::Unknown, Status::True),
        "a gap may end"
    );
    stage.go(66, &["n3"]);
    assert_eq!(stage.pod_now("web").ready, Status::False);
}

/// The mark of the stock controller is minutes old by then: what counts is how long nobody vouches.
#[test]
fn a_gap_of_the_evidence_for_a_few_seconds_takes_no_endpoint() {
    let mut stage = suppressed(Stage::with_nodes(3));
    stage.go(300, &["n3"]);
    assert_eq!(stage.state("n3"), NodeState::Disconnected);
    stage.says("n3", Says::Nothing(NoVerdict::NotListed));
    let mut second = 300;
    while stage.state("n3") == NodeState::Disconnected {
        second += 1;
        stage.go(second, &["n3"]);
    }
    stage.go(second + 9, &["n3"]);
    assert_eq!(
        (stage.state("n3"), stage.pod_now("web").ready),
        (NodeState::Unknown, Status::True)
    );
    stage.says("n3", cut_off());
    stage.go(second + 60, &["n3"]);
    assert_eq!(
        (stage.state("n3"), stage.pod_now("web").ready),
        (NodeState::Disconnected, Status::True)
    );
}

/// The kubelet renews its Lease once more and falls silent before it writes its status: the mark stands, and
/// stock Kubernetes does not mark the pods a second time.
#[test]
fn suppression_is_settled_where_a_renewal_came_after_the_mark_and_no_other() {
    let mut stage = Stage::with_nodes(3);
    stage.pod("n3", "web");
    stage.go(10, &[]);
    stage.go(60, &["n3"]);
    stage.node("n3").life.stock_mark = Some(at(60));
    stage.node("n3").life.renewed = Some(at(61));
    stage.go(85, &["n3"]);
    assert_eq!(stage.state("n3"), NodeState::Healthy);
    assert_eq!(stage.pod_now("web").ready, Status::True, "the kubelet is back");
    stage.go(110, &["n3"]);
    assert_eq!(stage.state("n3"), NodeState::Unknown);
    assert_eq!(stage.pod_now("web").ready, Status::False, "it is not");
}

#[test]
fn a_healed_link_leaves_no_trace_but_the_record() {
    let mut stage = Stage::with_nodes(3);
    stage.pod("n3", "web");
    let mut stage = cut(stage);
    stage.says.clear();
    stage.go(60, &[]);
    stage.settle();
    assert_eq!(stage.state("n3"), NodeState::Healthy);
    assert!(stage.incident("n3").status.closed_at.is_some());
    assert_eq!(stage.timeline("n3"), [events::DISCONNECTED, events::RECOVERED]);
    let touched = stage.log.iter().any(|action| {
        matches!(
            action,
            Action::Taint { .. }
                | Action::Untaint { .. }
                | Action::MarkPodNotReady { .. }
                | Action::Evict { .. }
        )
    });
    assert!(!touched, "{:?}", stage.log);
}

#[test]
fn a_second_failure_is_a_second_incident() {
    let mut stage = cut(Stage::with_nodes(3));
    stage.says.clear();
    stage.go(60, &[]);
    stage.settle();
    stage.says("n3", cut_off());
    stage.go(90, &["n3"]);
    stage.settle();
    assert_eq!(stage.world.incidents.len(), 2);
}

#[test]
fn a_disconnected_node_that_dies_leaves_endpoints_and_is_evicted_by_stock_alone() {
    let mut stage = Stage::with_nodes(3).profile(Profile::Edge);
    stage.pod("n3", "web");
    stage.pod("n3", "db").owner = Owner::StatefulSet;
    let mut stage = cut(stage);
    stage.convict("n3");
    stage.go(600, &["n3"]);
    assert_eq!(stage.state("n3"), NodeState::Dead(Dead::AtStockPace));
    assert_eq!(stage.pod_now("web").ready, Status::False);
    assert!(stage.evicted().is_empty() && !stage.has_no_execute("n3"));
    assert_eq!(stage.world.incidents.len(), 1, "one failure, one incident");
    let stays =
        |action: &&Action| matches!(action, Action::Event(notice) if notice.reason == events::NOT_MOVED);
    assert_eq!(
        stage.log.iter().filter(stays).count(),
        1,
        "its stateful pod is told of"
    );
    let missing = &stage.incident("n3").status.fence.missing;
    assert!(missing.contains("kubectl taint"), "{missing}");
}

#[test]
fn marks_without_a_reason_are_the_stock_controllers_and_marks_of_others_stand() {
    let mut stage = cut(Stage::with_nodes(3));
    for reason in [
        "",
        REASON_GIVEN_BACK,
        "OutOfRotation",
        REASON_NODE_DEAD,
        events::ISOLATED,
    ] {
        let pod = stage.pod("n3", &format!("pod-{reason}"));
        pod.ready = Status::False;
        reason.clone_into(&mut pod.ready_reason);
    }
    stage.settle();
    let restored = stage.log.iter().filter_map(|action| match action {
        Action::RestorePodReady { pod, .. } => Some(pod.name.as_str()),
        _ => None,
    });
    assert_eq!(
        restored.collect::<Vec<_>>(),
        [
            "pod-",
            "pod-EvenkeelGivenBack",
            "pod-EvenkeelNodeDead",
            "pod-NodeIsolated"
        ],
        "the stock controller keeps the reason that stands there; and ours, since it has been vouched for long enough"
    );
}

#[test]
fn a_policy_that_turns_to_stock_in_mid_cut_settles_what_was_kept() {
    let stage = suppressed(Stage::with_nodes(3));
    let mut stage = stage.policy(|spec| spec.endpoints = Some(evenkeel_api::crd::EndpointsPolicy::Stock));
    stage.go(50, &["n3"]);
    stage.settle();
    assert_eq!(stage.pod_now("web").ready, Status::False);
    assert!(!stage.has_no_execute("n3"));
}

#[test]
fn settling_does_not_fight_a_kubelet_that_says_ready() {
    let mut stage = suppressed(Stage::with_nodes(3));
    stage.says("n3", Says::Nothing(NoVerdict::NotListed));
    stage.go(46, &["n3"]);
    stage.settle();
    assert_eq!(stage.pod_now("web").ready, Status::False);
    stage.pod("n3", "web");
    stage.go(60, &["n3"]);
    assert_eq!(
        stage.pod_now("web").ready,
        Status::True,
        "stock would mark it once"
    );
}

#[test]
fn pods_of_a_node_that_was_not_ready_before_the_cut_are_not_restored() {
    let mut stage = Stage::with_nodes(3);
    stage.pod("n3", "web").ready = Status::False;
    let node = stage.node("n3");
    (node.ready, node.says_not_ready) = (Status::False, Some(true));
    let mut stage = cut(stage);
    stock_marks(&mut stage);
    stage.settle();
    assert_eq!(stage.pod_now("web").ready, Status::False);
}

/// The stock controller puts `unreachable` in the place of `not-ready`, and the clock of the pods goes on.
#[test]
fn a_node_that_was_not_ready_before_the_cut_is_emptied_as_by_stock() {
    let mut stage = Stage::with_nodes(3);
    stage.pod("n3", "web").ready = Status::False;
    stage.node("n3").says_not_ready = Some(true);
    let mut stage = cut(stage);
    stock_marks(&mut stage);
    stage.go(100, &["n3"]);
    assert!(stage.has_no_execute("n3"));
    assert!(stage.incident("n3").status.said_not_ready);
    // A leader that did not see it keeps what is recorded.
    stage.restart();
    stage.go(130, &["n3"]);
    assert!(stage.incident("n3").status.said_not_ready);
}

/// Each entry is a row, however often.
#[test]
fn a_node_that_goes_to_and_fro_has_a_row_and_an_event_for_each_time() {
    let mut stage = cut(Stage::with_nodes(3));
    for second in [60, 110] {
        stage.says("n3", Says::Nothing(NoVerdict::NotListed));
        stage.go(second, &["n3"]);
        assert_eq!(stage.state("n3"), NodeState::Unknown);
        stage.says("n3", cut_off());
        stage.go(second + 25, &["n3"]);
        assert_eq!(stage.state("n3"), NodeState::Disconnected);
    }
    let (there, back) = (events::DISCONNECTED, events::UNKNOWN);
    assert_eq!(stage.timeline("n3"), [there, back, there, back, there]);
    let told = stage.log.iter().filter_map(|action| match action {
        Action::Event(notice) if notice.reason == there => Some(notice.incident.clone()),
        _ => None,
    });
    assert_eq!(told.collect::<BTreeSet<_>>().len(), 3, "no two have one name");
}
