use super::*;
use crate::planner::action::{Measure, StillDead};
use crate::world::facts::Access;
use evenkeel_api::names::conditions::REASON_NODE_DEAD;
use evenkeel_api::names::events;
use evenkeel_api::names::taints::DEAD;
use rstest::rstest;

/// n3 of `stage` renewed last at second 10 and is convicted at second 14.
fn killed(mut stage: Stage) -> Stage {
    stage.go(10, &[]);
    stage.go(14, &["n3"]);
    stage.convict("n3");
    stage
}

#[test]
fn endpoints_are_out_at_the_verdict_and_nothing_is_deleted_yet() {
    let mut stage = killed(Stage::with_nodes(3));
    for name in ["a", "b"] {
        stage.pod("n3", name);
    }
    stage.pod("n1", "elsewhere");
    let plan = stage.look();
    assert_eq!(stage.state("n3"), NodeState::Dead(Dead::Announced));
    assert_eq!(plan.measures, [Measure::Detection(4000)]);
    assert_eq!(
        stage.pod_now("a").ready,
        Status::True,
        "the latch is written first"
    );
    stage.look();
    for name in ["a", "b"] {
        assert_eq!(
            (
                stage.pod_now(name).ready,
                stage.pod_now(name).ready_reason.as_str()
            ),
            (Status::False, REASON_NODE_DEAD)
        );
    }
    assert_eq!(stage.pod_now("elsewhere").ready, Status::True);
    stage.settle();
    assert!(!stage.has_no_execute("n3") && stage.evicted().is_empty());
    assert_eq!(
        stage.world.nodes["n3"].ready,
        Status::True,
        "the stock controllers would answer a mark on the node with NoExecute"
    );
    assert!(
        stage.world.nodes["n3"].taint(DEAD, "NoSchedule").is_some(),
        "no new pods"
    );
    assert_eq!(stage.timeline("n3"), [events::DEAD, events::ENDPOINTS_OUT]);
}

#[test]
fn pods_come_before_paper() {
    let mut stage = killed(Stage::with_nodes(3));
    stage.pod("n3", "a");
    stage.look();
    let plan = stage.look();
    assert!(
        matches!(plan.actions[0], Action::MarkPodNotReady { .. }),
        "{:?}",
        plan.actions[0]
    );
}

#[test]
fn the_taint_waits_for_a_round_that_confirms_the_death() {
    let mut stage = killed(Stage::with_nodes(3));
    stage.pod("n3", "a");
    stage.go(25, &["n3"]);
    assert!(!stage.has_no_execute("n3"));
    let plan = stage.go(26, &["n3"]);
    let proof = StillDead {
        known_since: Some(at(10)),
    };
    let taint = Action::Taint {
        node: node_ref("n3"),
        taint: TaintRef::new(UNREACHABLE, NO_EXECUTE),
        proof: Some(proof),
    };
    assert!(plan.actions.contains(&taint), "{:?}", plan.actions);
    assert!(stage.has_no_execute("n3"));
}

#[test]
fn default_tolerations_are_replaced_by_the_policy_and_explicit_ones_stand() {
    let mut stage = killed(Stage::with_nodes(3));
    stage.pod("n3", "default");
    stage.pod("n3", "ten").tolerations = vec![tolerate(Some(10))];
    stage.pod("n3", "hour").tolerations = vec![tolerate(Some(3600))];
    stage.pod("n3", "forever").tolerations = vec![tolerate(None)];
    stage.pod("n3", "none").tolerations = vec![];
    stage.go(26, &["n3"]);
    stage.settle();
    assert_eq!(stage.evicted(), ["none"]);
    stage.go(35, &["n3"]);
    assert_eq!(stage.evicted(), ["none"]);
    stage.go(36, &["n3"]);
    assert_eq!(stage.evicted(), ["none", "ten"]);
    stage.go(55, &["n3"]);
    assert_eq!(stage.evicted(), ["none", "ten"]);
    stage.go(56, &["n3"]);
    assert_eq!(stage.evicted(), ["none", "ten", "default"]);
    stage.go(26 + 3599, &["n3"]);
    assert_eq!(stage.evicted().len(), 3);
    stage.go(26 + 3600, &["n3"]);
    assert_eq!(stage.evicted(), ["none", "ten", "default", "hour"]);
    stage.go(1_000_000, &["n3"]);
    assert!(!stage.evicted().contains(&"forever"));
}

/// A machine that is back after two minutes starts it again; deleted, it would be lost.
#[test]
fn a_pod_that_nobody_replaces_is_given_the_time_that_stock_gives_it() {
    let mut stage = killed(Stage::with_nodes(3).profile(Profile::Edge));
    stage.pod("n3", "bare").owner = Owner::Nobody;
    stage.pod("n3", "web");
    stage.go(26 + 299, &["n3"]);
    assert_eq!(stage.evicted(), ["web"]);
    stage.go(26 + 301, &["n3"]);
    assert_eq!(stage.evicted(), ["web", "bare"]);
}

#[test]
fn a_cluster_with_another_default_is_understood() {
    let mut stage = Stage::with_nodes(3).profile(Profile::Edge);
    stage.config.default_toleration_seconds = 18;
    stage.planner = Planner::new(stage.config.clone());
    let mut stage = killed(stage);
    stage.pod("n3", "default").tolerations = vec![tolerate(Some(18))];
    stage.pod("n3", "explicit").tolerations = vec![tolerate(Some(300))];
    stage.go(26, &["n3"]);
    stage.settle();
    assert_eq!(stage.evicted(), ["default"]);
}

#[test]
fn evictions_go_by_priority() {
    let mut stage = killed(Stage::with_nodes(3).profile(Profile::Edge));
    for (name, priority) in [("low", -1), ("high", 1000), ("middle", 0)] {
        stage.pod("n3", name).priority = priority;
    }
    stage.go(26, &["n3"]);
    stage.settle();
    assert_eq!(stage.evicted(), ["high", "middle", "low"]);
}

#[test]
fn daemon_static_finished_and_leaving_pods_are_left_alone() {
    let mut stage = killed(Stage::with_nodes(3).profile(Profile::Edge));
    stage.pod("n3", "daemon").owner = Owner::DaemonSet;
    stage.pod("n3", "static").owner = Owner::Static;
    stage.pod("n3", "done").finished = true;
    stage.pod("n3", "leaving").terminating = true;
    stage.go(26, &["n3"]);
    stage.go(1000, &["n3"]);
    assert_eq!(stage.evicted(), Vec::<&str>::new());
    assert_eq!(
        stage.pod_now("daemon").ready,
        Status::False,
        "they leave endpoints like the others"
    );
    assert_eq!(
        stage.pod_now("done").ready,
        Status::True,
        "what is over is not touched"
    );
}

#[test]
fn stateful_pods_stay_and_it_is_said_what_is_missing() {
    let mut stage = killed(Stage::with_nodes(3).profile(Profile::Edge));
    stage.pod("n3", "db-0").owner = Owner::StatefulSet;
    stage.pod("n3", "disk").claims = vec!["data".to_owned()];
    stage.pod("n3", "share").claims = vec!["pool".to_owned()];
    let claims = [("data", Access::SingleWriter), ("pool", Access::Shared)];
    stage
        .world
        .claims
        .extend(claims.map(|(name, access)| (("ns".to_owned(), name.to_owned()), access)));
    stage.go(26, &["n3"]);
    stage.settle();
    stage.go(1000, &["n3"]);
    assert_eq!(stage.evicted(), ["share"]);
    let said = stage.pod_events();
    assert_eq!(said.len(), 2, "once per pod: {said:?}");
    for (reason, message) in &said {
        assert_eq!(reason, events::NOT_MOVED);
        assert!(message.starts_with("not moved: no fence proof"), "{message}");
        assert!(message.contains("kubectl taint nodes n3"), "{message}");
        // Nobody is told to set what does nothing.
        assert!(
            !message.contains("statefulFailover") && !message.contains("enforce"),
            "{message}"
        );
    }
    assert!(
        stage
            .incident("n3")
            .status
            .fence
            .missing
            .starts_with("not moved: no fence proof")
    );
    assert_eq!(stage.incident("n3").status.fence.proof, None);
}

#[test]
fn a_stateful_pod_stays_even_where_policy_would_move_it_because_there_is_no_proof() {
    let stage = Stage::with_nodes(3).policy(|spec| {
        spec.stateful_failover = Some(true);
        spec.fencing = Some(evenkeel_api::crd::FencingPolicy::Enforce);
        spec.evict_after_seconds = Some(0);
    });
    let mut stage = killed(stage);
    stage.pod("n3", "db-0").owner = Owner::StatefulSet;
    stage.node("n3").maintenance = Some("cordoned".to_owned());
    stage.go(1000, &["n3"]);
    stage.settle();
    assert_eq!(stage.evicted(), Vec::<&str>::new());
    let missing = &stage.incident("n3").status.fence.missing;
    assert!(
        missing.contains("maintenance (cordoned)") && !missing.contains("statefulFailover"),
        "{missing}"
    );
}

/// The stock controller marks the pods of a node that it marks itself, and finds this one marked.
#[test]
fn what_was_given_back_after_a_confirmed_death_is_settled_when_the_evidence_runs_out() {
    let mut stage = killed(Stage::with_nodes(3));
    stage.pod("n3", "db-0").owner = Owner::StatefulSet;
    stage.go(40, &["n3"]);
    stage.settle();
    assert_eq!(stage.state("n3"), NodeState::Dead(Dead::Confirmed));
    assert!(!stage.incident("n3").status.fence.missing.is_empty());
    // It had only stalled, twice.
    stage.says("n3", cut_off());
    stage.go(60, &["n3"]);
    assert_eq!(stage.state("n3"), NodeState::Disconnected);
    assert_eq!(stage.pod_now("db-0").ready, Status::True);
    let missing = &stage.incident("n3").status.fence.missing;
    assert_eq!(missing, "", "nobody is told how to declare a living machine off");
    stage.says("n3", Says::Nothing(NoVerdict::NotListed));
    stage.go(70, &["n3"]);
    assert_eq!(stage.state("n3"), NodeState::Unknown);
    stage.go(80, &["n3"]);
    assert_eq!(stage.pod_now("db-0").ready, Status::False);
}

#[test]
fn an_expired_verdict_pauses_irreversible_steps_and_life_ends_them() {
    let mut stage = killed(Stage::with_nodes(3));
    stage.pod("n3", "a");
    stage.go(26, &["n3"]);
    stage.settle();
    stage.says("n3", Says::Nothing(NoVerdict::NotListed));
    stage.go(100, &["n3"]);
    assert_eq!(stage.state("n3"), NodeState::Dead(Dead::Paused));
    assert!(
        stage.evicted().is_empty() && stage.has_no_execute("n3"),
        "what was done stays"
    );
    stage.go(101, &[]);
    assert_eq!(
        stage.state("n3"),
        NodeState::Isolated,
        "its peers have to vouch for it"
    );
    assert!(!stage.has_no_execute("n3"));
    stage.says("n3", cut_off());
    stage.go(102, &[]);
    assert_eq!(stage.state("n3"), NodeState::Healthy);
    stage.settle();
    assert!(!stage.has_no_execute("n3"));
    stage.go(1000, &[]);
    assert!(stage.evicted().is_empty());
}

#[test]
fn a_node_that_returns_gets_back_only_what_we_took() {
    let mut stage = killed(Stage::with_nodes(3));
    stage.pod("n3", "a");
    let own = Taint {
        key: "mine".to_owned(),
        effect: NO_EXECUTE.to_owned(),
        ..Default::default()
    };
    stage.node("n3").taints.push(own.clone());
    stage.go(26, &["n3"]);
    stage.settle();
    stage.says("n3", cut_off());
    stage.go(40, &[]);
    stage.settle();
    let node = &stage.world.nodes["n3"];
    assert_eq!((node.taints.clone(), node.added.clone()), (vec![own], vec![]));
    assert_eq!(node.ready, Status::Unknown, "the kubelet says Ready itself");
    assert_eq!(stage.pod_now("a").ready, Status::False, "likewise");
    assert!(stage.incident("n3").status.closed_at.is_some());
    assert_eq!(
        stage.timeline("n3").last().map(String::as_str),
        Some(events::RECOVERED)
    );
    assert_eq!(node.mirrored, Some(true));
}

/// A machine is switched on again: its agent is heard, its kubelet does not renew yet.
fn switched_on(kubelet: Health) -> Stage {
    let mut stage = killed(Stage::with_nodes(3));
    stage.pod("n3", "a");
    stage.go(60, &["n3"]);
    // One that the stock controller marked, before it was bound to a node known to be dead.
    stage.pod("n3", "late").ready = Status::False;
    stage.says("n3", Says::Alive(kubelet));
    stage
}

#[test]
fn a_machine_that_is_switched_on_again_is_not_taken_for_one_that_is_cut_off() {
    let mut stage = switched_on(Health::Failing);
    let plan = stage.go(68, &["n3"]);
    assert_eq!(
        stage.state("n3"),
        NodeState::Disconnected,
        "nothing more may be done to it"
    );
    assert!(!stage.has_no_execute("n3"));
    let events = plan
        .actions
        .iter()
        .filter(|action| matches!(action, Action::Event(_)));
    assert_eq!(events.count(), 0, "{:?}", plan.actions);
    let (a, late) = (stage.pod_now("a").ready, stage.pod_now("late").ready);
    assert_eq!((a, late), (Status::False, Status::False), "they do not run yet");
    stage.go(70, &[]);
    assert_eq!(stage.state("n3"), NodeState::Healthy);
    assert!(!stage.timeline("n3").contains(&events::DISCONNECTED.to_owned()));
    assert_eq!(
        stage.timeline("n3").last().map(String::as_str),
        Some(events::RECOVERED)
    );
}

#[test]
fn one_that_is_cut_off_when_it_returns_is_told_and_gets_its_pods_back() {
    let mut stage = switched_on(Health::Ok);
    stage.go(69, &["n3"]);
    assert!(!stage.timeline("n3").contains(&events::DISCONNECTED.to_owned()));
    stage.go(72, &["n3"]);
    assert_eq!(
        stage.timeline("n3").last().map(String::as_str),
        Some(events::DISCONNECTED)
    );
    assert_eq!(stage.pod_now("late").ready, Status::True);
}

#[test]
fn one_whose_kubelet_does_not_start_is_told_and_gets_no_pod_back() {
    let mut stage = switched_on(Health::Failing);
    stage.go(77, &["n3"]);
    assert_eq!(
        stage.timeline("n3").last().map(String::as_str),
        Some(events::DISCONNECTED)
    );
    stage.go(100, &["n3"]);
    assert_eq!(stage.pod_now("late").ready, Status::False);
}

#[test]
fn a_new_leader_waits_for_a_machine_that_was_switched_on_again_as_the_one_before() {
    let mut stage = switched_on(Health::Failing);
    stage.go(64, &["n3"]);
    stage.restart();
    stage.go(70, &["n3"]);
    assert_eq!(stage.pod_now("late").ready, Status::False);
    assert!(!stage.timeline("n3").contains(&events::DISCONNECTED.to_owned()));
    // It has to watch the Lease for as long as tells a stale one.
    stage.go(100, &["n3"]);
    assert!(stage.timeline("n3").contains(&events::DISCONNECTED.to_owned()));
    assert_eq!(stage.pod_now("late").ready, Status::False);
}

#[test]
fn one_whose_agent_writes_before_its_peers_vouch_for_it_is_returning_as_well() {
    let mut stage = killed(Stage::with_nodes(3));
    stage.pod("n3", "a");
    stage.go(60, &["n3"]);
    stage.pod("n3", "late").ready = Status::False;
    // A sign of life of its own; its peers do not vouch for it yet.
    stage.says("n3", Says::Nothing(NoVerdict::NotListed));
    stage.renew("n3");
    stage.go(67, &["n3"]);
    assert_eq!(stage.state("n3"), NodeState::Isolated);
    stage.node("n3").life.stock_mark = Some(at(67));
    stage.says("n3", Says::Alive(Health::Failing));
    stage.go(73, &["n3"]);
    assert_eq!(stage.state("n3"), NodeState::Disconnected);
    assert_eq!(stage.pod_now("late").ready, Status::False);
    assert!(!stage.timeline("n3").contains(&events::DISCONNECTED.to_owned()));
}

#[test]
fn a_renewal_between_taint_and_deadline_saves_the_pods() {
    let mut stage = killed(Stage::with_nodes(3));
    stage.pod("n3", "a");
    stage.go(26, &["n3"]);
    stage.settle();
    stage.go(50, &[]);
    assert_eq!(
        stage.state("n3"),
        NodeState::Isolated,
        "its peers have not acquitted it yet"
    );
    stage.settle();
    assert!(!stage.has_no_execute("n3"));
    stage.go(200, &[]);
    assert!(stage.evicted().is_empty());
}

#[test]
fn a_restart_in_mid_dead_keeps_deadlines_and_sees_for_itself_first() {
    let mut stage = killed(Stage::with_nodes(3));
    stage.pod("n3", "a");
    stage.go(26, &["n3"]);
    stage.settle();
    stage.go(50, &["n3"]);
    stage.restart();
    stage.says("n3", Says::Nothing(NoVerdict::Void));
    stage.look();
    assert_eq!(
        stage.state("n3"),
        NodeState::Dead(Dead::Paused),
        "ZoneHealth is void until it advances"
    );
    stage.convict("n3");
    stage.go(60, &["n3"]);
    assert!(
        stage.evicted().is_empty(),
        "due at 55 s, but 15 s of silence were not seen yet"
    );
    stage.go(65, &["n3"]);
    stage.settle();
    assert_eq!(stage.evicted(), ["a"]);
    assert_eq!(stage.world.incidents.len(), 1, "the incident goes on");
    assert_eq!(
        stage
            .timeline("n3")
            .iter()
            .filter(|event| *event == events::DEAD)
            .count(),
        1
    );
}

#[test]
fn nothing_is_deleted_while_the_watch_is_blind() {
    let mut stage = killed(Stage::with_nodes(3).profile(Profile::Edge));
    stage.go(20, &["n3"]);
    stage.pod("n3", "a");
    stage.now = 60;
    stage.sight.look(at(60));
    let plan = stage.look();
    assert!(plan.actions.is_empty(), "{:?}", plan.actions);
    stage.go(61, &["n3"]);
    assert!(stage.evicted().is_empty(), "the count starts over after the gap");
    stage.go(77, &["n3"]);
    stage.settle();
    assert_eq!(stage.evicted(), ["a"]);
}

#[test]
fn the_storm_guard_takes_one_node_at_a_time_and_endpoints_of_all() {
    let mut stage = Stage::with_nodes(5).profile(Profile::Edge);
    stage.go(10, &[]);
    let silent = ["n3", "n4"];
    stage.go(14, &silent);
    for node in silent {
        stage.convict(node);
        stage.pod(node, &format!("web-{node}"));
        stage.pod(node, &format!("slow-{node}")).tolerations = vec![tolerate(Some(20))];
    }
    stage.go(26, &silent);
    stage.settle();
    assert_eq!(stage.evicted(), ["web-n3"]);
    assert!(!stage.has_no_execute("n4"));
    assert_eq!(stage.node("n3").ready, Status::Unknown);
    let waits = "the stock controllers answer that mark with NoExecute";
    assert_eq!(stage.node("n4").ready, Status::True, "{waits}");
    assert_eq!(stage.pod_now("web-n4").ready, Status::False);
    assert!(stage.timeline("n4").contains(&events::EVICTION_HELD.to_owned()));
    stage.go(47, &silent);
    stage.settle();
    assert_eq!(
        stage.evicted(),
        ["web-n3", "slow-n3", "web-n4"],
        "the slot frees when n3 is done"
    );
}

#[test]
fn a_third_node_within_ten_minutes_waits_also_across_a_restart() {
    let mut stage = Stage::with_nodes(6).profile(Profile::Edge);
    stage.go(10, &[]);
    let silent = ["n3", "n4", "n5"];
    stage.go(14, &silent);
    for node in silent {
        stage.convict(node);
        stage.pod(node, &format!("web-{node}"));
    }
    stage.go(30, &silent);
    stage.settle();
    assert_eq!(stage.evicted(), ["web-n3", "web-n4"]);
    stage.restart();
    stage.go(300, &silent);
    stage.settle();
    assert_eq!(stage.evicted(), ["web-n3", "web-n4"]);
    stage.go(640, &silent);
    stage.settle();
    assert_eq!(stage.evicted(), ["web-n3", "web-n4", "web-n5"]);
}

#[test]
fn in_a_storm_evictions_keep_the_stock_pace_and_endpoints_go() {
    let mut stage = killed(Stage::with_nodes(3).profile(Profile::Edge));
    stage.storm = true;
    stage.pod("n3", "a");
    stage.go(26, &["n3"]);
    stage.settle();
    assert_eq!(stage.pod_now("a").ready, Status::False);
    stage.pod("n3", "impatient").tolerations.clear();
    // Last renewed at 10 s: the stock controller waits for 50 s.
    stage.go(59, &["n3"]);
    assert!(stage.evicted().is_empty() && !stage.has_no_execute("n3"));
    stage.go(61, &["n3"]);
    assert_eq!(stage.evicted(), ["impatient"]);
    stage.go(60 + 299, &["n3"]);
    assert_eq!(stage.evicted(), ["impatient"]);
    stage.go(60 + 300, &["n3"]);
    assert_eq!(stage.evicted(), ["impatient", "a"]);
}

/// Deaths count for a storm for 60 s; what was slowed down stays so, also after a change of leader.
#[rstest]
fn the_pace_of_a_storm_outlasts_its_minute(#[values(false, true)] restarts: bool) {
    let mut stage = killed(Stage::with_nodes(3).profile(Profile::Edge));
    stage.storm = true;
    stage.pod("n3", "a");
    stage.go(26, &["n3"]);
    stage.settle();
    stage.go(70, &["n3"]);
    stage.storm = false;
    if restarts {
        stage.settle();
        stage.restart();
    }
    stage.go(60 + 299, &["n3"]);
    assert!(stage.evicted().is_empty());
    stage.go(60 + 300, &["n3"]);
    assert_eq!(stage.evicted(), ["a"]);
}

/// A leader that ends between the taint and its record leaves a node that takes a slot all the same.
#[test]
fn a_taint_that_was_not_recorded_any_more_counts_for_the_next_leader() {
    let mut stage = killed(Stage::with_nodes(3));
    stage.pod("n3", "a");
    while !stage.has_no_execute("n3") {
        stage.go(stage.now + 1, &["n3"]);
    }
    let incidents = stage.world.incidents.values_mut();
    incidents.for_each(|incident| incident.status.tainted_at = None);
    stage.restart();
    stage.look();
    let held = stage.planner.ledger.admits("u-n2", "default", 3, at(stage.now));
    assert!(held.is_err(), "one at once");
}

#[test]
fn an_eviction_that_failed_is_asked_for_again() {
    let mut stage = killed(Stage::with_nodes(3).profile(Profile::Edge));
    stage.pod("n3", "a");
    stage.go(26, &["n3"]);
    stage.settle();
    stage.pod("n3", "a").ready = Status::False;
    stage.go(27, &["n3"]);
    assert_eq!(stage.evicted(), ["a", "a"]);
}

#[test]
fn a_node_that_is_deleted_ends_its_incident() {
    let mut stage = killed(Stage::with_nodes(3));
    stage.look();
    stage.settle();
    stage.world.nodes.remove("n3");
    stage.go(20, &[]);
    assert!(stage.incident("n3").status.closed_at.is_some());
    assert!(
        stage
            .incident("n3")
            .status
            .timeline
            .last()
            .expect("a row")
            .message
            .contains("is gone")
    );
}

/// What the stock controller leaves on a node: its taint, `seconds` old.
fn stock_taint(stage: &mut Stage, node: &str, seconds: u64) {
    let time_added = Some(time(Millis(at(stage.now).0 - seconds * 1000)));
    stage.node(node).taints.push(Taint {
        key: UNREACHABLE.to_owned(),
        effect: NO_EXECUTE.to_owned(),
        value: None,
        time_added,
    });
}

#[test]
fn old_taints_of_the_stock_controller_do_not_slip_past_the_storm_guard() {
    let mut stage = Stage::with_nodes(6).profile(Profile::Edge);
    stage.go(1490, &[]);
    let silent = ["n3", "n4", "n5"];
    stage.go(1494, &silent);
    for node in silent {
        stage.convict(node);
        stock_taint(&mut stage, node, 1400);
        stage.pod(node, &format!("slow-{node}")).tolerations = vec![tolerate(Some(3600))];
        stage.pod(node, &format!("web-{node}"));
    }
    stage.go(1507, &silent);
    stage.settle();
    assert_eq!(stage.evicted(), ["web-n3"], "one node of six at once");
}

#[test]
fn deadlines_do_not_count_from_the_time_of_another_clock() {
    let mut stage = killed(Stage::with_nodes(3));
    stage.pod("n3", "ten-minutes").tolerations = vec![tolerate(Some(600))];
    stock_taint(&mut stage, "n3", 3600);
    stage.go(26, &["n3"]);
    stage.settle();
    stage.go(26 + 599, &["n3"]);
    assert_eq!(stage.evicted(), Vec::<&str>::new());
    stage.go(26 + 600, &["n3"]);
    assert_eq!(stage.evicted(), ["ten-minutes"]);
}

#[test]
fn a_storm_never_makes_a_patient_policy_impatient() {
    let stage = Stage::with_nodes(3).policy(|spec| spec.evict_after_seconds = Some(900));
    let mut stage = killed(stage);
    stage.storm = true;
    stage.pod("n3", "a");
    stage.go(26, &["n3"]);
    stage.settle();
    stage.go(60 + 899, &["n3"]);
    assert!(stage.evicted().is_empty());
    stage.go(60 + 900, &["n3"]);
    assert_eq!(stage.evicted(), ["a"]);
}

#[test]
fn a_mark_that_failed_is_tried_again_and_a_kubelet_that_undoes_it_is_not_fought() {
    let mut stage = killed(Stage::with_nodes(3));
    stage.pod("n3", "a");
    stage.look();
    stage.look();
    stage.pod("n3", "a");
    stage.look();
    assert_eq!(
        stage.pod_now("a").ready,
        Status::False,
        "the first write was lost"
    );
    stage.look();
    stage.pod("n3", "a");
    stage.look();
    assert_eq!(stage.pod_now("a").ready, Status::True, "somebody there is alive");
}

#[test]
fn a_restart_at_any_second_changes_nothing_but_delay() {
    for restart in 14..70 {
        let mut stage = killed(Stage::with_nodes(3));
        stage.pod("n3", "a");
        stage.pod("n3", "db-0").owner = Owner::StatefulSet;
        let mut evicted_at = None;
        for second in 14..200 {
            stage.go(second, &["n3"]);
            if second == restart {
                stage.restart();
                stage.look();
            }
            if evicted_at.is_none() && !stage.evicted().is_empty() {
                evicted_at = Some(second);
            }
            if stage.has_no_execute("n3") {
                assert!(second >= 25, "restarted at {restart}: tainted at {second}");
            }
        }
        assert_eq!(stage.evicted(), ["a"], "restarted at {restart}");
        let evicted_at = evicted_at.expect("just seen");
        assert!(
            (55..=85).contains(&evicted_at),
            "restarted at {restart}: evicted at {evicted_at}"
        );
        assert_eq!(stage.world.incidents.len(), 1, "restarted at {restart}");
        assert_eq!(stage.pod_now("a").ready, Status::False);
        let dead = stage
            .timeline("n3")
            .iter()
            .filter(|event| *event == events::DEAD)
            .count();
        assert_eq!(dead, 1, "restarted at {restart}");
    }
}

/// The deadlines of evictions count from a time that the leader before recorded, whose clock is ahead by an
/// hour.
#[test]
fn a_time_of_taint_that_lies_ahead_counts_from_now_and_moves_no_more() {
    let stage = Stage::with_nodes(3).policy(|spec| spec.evict_after_seconds = Some(30));
    let mut stage = killed(stage);
    stage.pod("n3", "a");
    stage.go(40, &["n3"]);
    stage.settle();
    assert!(stage.has_no_execute("n3") && stage.evicted().is_empty());
    for facts in stage.world.incidents.values_mut() {
        facts.status.tainted_at = Some(time(at(3_600)));
    }
    stage.restart();
    stage.go(120, &["n3"]);
    assert_eq!(stage.evicted(), ["a"]);
}
