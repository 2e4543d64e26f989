use super::disconnected::cut;
use super::*;
use crate::planner::action::Action;
use crate::world::facts::Shown;
use evenkeel_api::names::{events, taints};
use evenkeel_api::policy::IsolatedPolicy;
use evenkeel_api::zone::{RosterAcknowledgement, RosterSpec};
use evenkeel_zone::roster::{Epoch, RosterRef};
use rstest::rstest;

/// n3 of `stage` is condemned by its peers and renews all the same.
pub(super) fn isolate(mut stage: Stage) -> Stage {
    stage.go(10, &[]);
    stage.convict("n3");
    for second in (11..40).step_by(4) {
        stage.go(second, &[]);
    }
    assert_eq!(stage.state("n3"), NodeState::Isolated);
    stage
}

#[test]
fn an_isolated_node_is_only_reported() {
    let mut stage = Stage::with_nodes(3).profile(Profile::Edge);
    stage.pod("n3", "web");
    let mut stage = isolate(stage);
    stage.go(1000, &[]);
    assert!(stage.evicted().is_empty() && stage.world.nodes["n3"].taints.is_empty());
    assert_eq!(stage.pod_now("web").ready, Status::True);
    assert_eq!(stage.timeline("n3"), [events::ISOLATED]);
}

/// A leader that is replaced before it told of an isolation leaves that to its successor.
#[test]
fn an_isolation_that_a_former_leader_had_no_time_to_report_is_reported() {
    let mut stage = Stage::with_nodes(3).profile(Profile::Edge);
    stage.go(10, &[]);
    stage.convict("n3");
    while stage.state("n3") != NodeState::Isolated {
        let second = stage.now + 1;
        stage.go(second, &[]);
    }
    stage.restart();
    let mut told = 0;
    for second in stage.now..stage.now + 40 {
        let plan = stage.go(second, &[]);
        let about =
            |action: &Action| matches!(action, Action::Event(notice) if notice.reason == events::ISOLATED);
        told += plan.actions.iter().filter(|action| about(action)).count();
    }
    assert_eq!(told, 1);
}

#[test]
fn an_isolated_node_is_withdrawn_where_policy_says_so_and_never_evicted() {
    let mut stage = Stage::with_nodes(3).policy(|spec| {
        spec.isolated = Some(IsolatedPolicy::Withdraw);
        spec.evict_after_seconds = Some(0);
    });
    stage.pod("n3", "web");
    let mut stage = isolate(stage);
    stage.settle();
    assert!(
        stage.world.nodes["n3"]
            .taint(taints::ISOLATED, "NoSchedule")
            .is_some()
    );
    assert_eq!(stage.pod_now("web").ready, Status::False);
    stage.pod("n3", "web");
    stage.go(1000, &[]);
    assert_eq!(
        stage.pod_now("web").ready,
        Status::True,
        "a kubelet that restores it is not fought"
    );
    assert!(stage.evicted().is_empty() && !stage.has_no_execute("n3"));
    stage.says.clear();
    stage.go(1001, &[]);
    assert_eq!(
        stage.state("n3"),
        NodeState::Isolated,
        "an omission acquits nobody"
    );
    stage.says("n3", cut_off());
    stage.go(1002, &[]);
    stage.settle();
    assert!(stage.world.nodes["n3"].taints.is_empty());
}

#[test]
fn isolated_at_first_dead_an_hour_later_and_never_evicted_sooner_than_by_stock() {
    let mut stage = Stage::with_nodes(3).profile(Profile::Edge);
    stage.pod("n3", "web");
    let mut stage = isolate(stage);
    stage.go(3600, &[]);
    stage.go(3649, &["n3"]);
    assert_eq!(stage.state("n3"), NodeState::Isolated);
    stage.go(4000, &["n3"]);
    assert_eq!(stage.state("n3"), NodeState::Dead(Dead::AtStockPace));
    assert_eq!(stage.pod_now("web").ready, Status::False);
    assert!(stage.evicted().is_empty() && !stage.has_no_execute("n3"));
    assert_eq!(stage.timeline("n3")[..2], [events::ISOLATED, events::DEAD]);
}

/// The whole zone falls silent after second 10, the stock controller marks n3 at 60 s.
pub(super) fn darken(mut stage: Stage) -> Stage {
    stage.pod("n3", "web");
    let silent = ["n1", "n2", "n3"];
    stage.go(10, &[]);
    stage.reported = Some(10);
    stage.go(60, &silent);
    assert_eq!(stage.state("n3"), NodeState::Dark);
    stage.node("n3").life.stock_mark = Some(at(60));
    let unreachable = Taint {
        key: UNREACHABLE.to_owned(),
        effect: NO_EXECUTE.to_owned(),
        ..Default::default()
    };
    stage.node("n3").taints.push(unreachable);
    stage.go(80, &silent);
    stage.settle();
    stage
}

#[test]
fn a_dark_zone_is_stock_without_autonomy() {
    let stage = darken(Stage::with_nodes(3));
    assert!(stage.has_no_execute("n3"), "the stock controller's taint stands");
    assert_eq!(stage.pod_now("web").ready, Status::False);
}

#[test]
fn a_dark_zone_is_held_for_its_autonomy_and_then_stock() {
    let mut stage = darken(Stage::with_nodes(3).policy(|spec| spec.autonomy_seconds = Some(100)));
    assert!(!stage.has_no_execute("n3"));
    assert_eq!(
        stage.pod_now("web").ready,
        Status::False,
        "evictions are held, endpoints follow stock: nobody vouches for them"
    );
    let silent = ["n1", "n2", "n3"];
    stage.go(159, &silent);
    let taint = Taint {
        key: UNREACHABLE.to_owned(),
        effect: NO_EXECUTE.to_owned(),
        ..Default::default()
    };
    stage.node("n3").taints.push(taint);
    stage.go(161, &silent);
    stage.settle();
    assert!(stage.has_no_execute("n3"), "autonomy is over");
    assert_eq!(stage.pod_now("web").ready, Status::False);
    assert!(
        stage.evicted().is_empty(),
        "evicting is the stock controller's business"
    );
}

#[test]
fn agents_that_are_all_down_do_not_make_a_zone_dark() {
    let mut stage = Stage::with_nodes(3).profile(Profile::Edge);
    stage.go(10, &[]);
    stage.reported = Some(10);
    stage.says("n3", Says::Nothing(NoVerdict::NotListed));
    stage.go(60, &["n3"]);
    assert_eq!(
        stage.state("n3"),
        NodeState::Unknown,
        "the other kubelets renew: n3 alone failed"
    );
}

/// Followers and people read what the leader records; without a record they would keep to what they thought
/// before.
#[test]
fn a_node_that_is_unknown_when_a_leader_starts_is_recorded() {
    let mut stage = Stage::with_nodes(3);
    stage.world.nodes.get_mut("n3").expect("it is there").life.renewed = None;
    stage.go(20, &["n3"]);
    assert!(stage.world.incidents.is_empty(), "not watched for long enough");
    stage.go(40, &["n3"]);
    assert_eq!(stage.state("n3"), NodeState::Unknown);
    assert_eq!(stage.incident("n3").status.decision.state, "Unknown");
    assert_eq!(stage.timeline("n3"), [events::UNKNOWN]);
}

#[test]
fn kubelet_down_and_unknown_are_stock() {
    for says in [Says::Nothing(NoVerdict::NotListed), Says::Alive(Health::Failing)] {
        let mut stage = Stage::with_nodes(3).profile(Profile::Edge);
        stage.pod("n3", "web");
        stage.go(10, &[]);
        stage.says("n3", says);
        for second in (11..400).step_by(10) {
            stage.go(second, &["n3"]);
        }
        let acted = stage.log.iter().any(|action| {
            !matches!(
                action,
                Action::SaveIncident(_)
                    | Action::Event(_)
                    | Action::MirrorVerdict { .. }
                    | Action::PublishCell { .. }
                    | Action::Challenge { .. }
            )
        });
        assert!(!acted, "{:?}", stage.log);
    }
}

/// No agent takes a roster after it: that must not stay unsaid.
#[test]
fn the_last_version_of_a_roster_is_complained_about() {
    let mut stage = Stage::with_nodes(3);
    let zone = stage.world.cells.get_mut("default").unwrap();
    zone.roster.version = RosterSpec::LAST_VERSION;
    zone.roster.members.pop();
    let plan = stage.go(1, &[]);
    assert!(
        plan.complaints
            .iter()
            .any(|why| why.contains("delete its ZoneHealth")),
        "{:?}",
        plan.complaints
    );
}

/// Whoever leads from now on: what this replica saw before counts.
#[test]
fn a_roster_that_went_back_before_this_term_is_replaced() {
    let mut stage = Stage::with_nodes(3);
    let shown = stage.world.cells.get_mut("default").unwrap();
    let last = RosterSpec {
        version: 7,
        ..shown.roster.clone()
    };
    (shown.roster, shown.shown) = (last.clone(), Shown::Other);
    let cell = ("default".to_owned(), 0);
    stage.world.last_rosters.insert(cell, last);
    stage.go(1, &[]);
    assert_eq!(stage.world.cells["default"].roster.version, 8);
}

/// The API server was restored from a backup and this controller has begun since: agents have a later roster
/// than the one that is published, and believe none that is not later still.
#[test]
fn a_roster_that_agents_have_and_no_object_shows_is_gone_beyond() {
    let mut stage = Stage::with_nodes(3);
    stage.go(1, &[]);
    let before = stage.world.cells["default"].roster.version;
    let of = |version, epoch| RosterRef {
        version,
        epoch: Epoch([epoch; 8]),
    };
    let names: Vec<String> = stage.world.nodes.keys().cloned().collect();
    let mut report_by = |reporters: &[&str], roster: RosterRef| {
        let by = reporters.iter().map(|name| ((*name).to_owned(), roster));
        stage.world.reported.insert("default".to_owned(), by.collect());
        let mut grown_after = |seconds| {
            let shown = u64::try_from(stage.world.cells["default"].roster.version).unwrap();
            stage.world.published.insert("default".to_owned(), of(shown, 1));
            stage.go(stage.now + seconds, &[]);
            stage.world.cells["default"].roster.version - before
        };
        [grown_after(29), grown_after(2)]
    };
    let shown = u64::try_from(before).unwrap();
    let [one, two, _] = &names[..] else {
        panic!("{names:?}")
    };
    let alone = report_by(&[one, "stranger"], of(shown + 9, 2));
    assert_eq!(alone, [0, 0], "one alone may say what it likes");
    let mut report = |roster| report_by(&[one, two], roster);
    assert_eq!(report(of(shown, 1)), [0, 0], "the one that is published");
    assert_eq!(report(of(shown - 1, 2)), [0, 0], "one of before");
    assert_eq!(report(of(shown, 2)), [0, 1], "another one of this version");
    assert_eq!(report(of(shown + 9, 2)), [1, 10]);
    assert_eq!(
        report(of(u64::MAX, 2)),
        [10, 1_011],
        "step by step, if it must be"
    );
}

/// The same where nobody reports anything: members acknowledge what they have.
#[test]
fn a_roster_that_members_acknowledge_and_no_object_shows_is_gone_beyond() {
    let mut stage = Stage::with_nodes(3);
    stage.go(1, &[]);
    let facts = stage.world.cells["default"].clone();
    let shown = facts.roster.version;
    let mut acknowledge = |said: &[(&str, &str, &str, i64)]| {
        for agent in stage.world.agents.values_mut() {
            agent.roster = None;
        }
        for (member, cell, uid, version) in said {
            let roster = RosterAcknowledgement {
                cell: (*cell).to_owned(),
                cell_uid: (*uid).to_owned(),
                version: *version,
                ..RosterAcknowledgement::default()
            };
            stage.world.agents.get_mut(*member).unwrap().roster = Some(roster);
        }
        let mut grown_after = |seconds| {
            stage.go(stage.now + seconds, &[]);
            stage.world.cells["default"].roster.version - shown
        };
        [grown_after(29), grown_after(2)]
    };
    let by = |member, version| (member, "default", facts.uid.as_str(), version);
    assert_eq!(acknowledge(&[by("n1", shown + 9)]), [0, 0], "one alone");
    assert_eq!(
        acknowledge(&[by("n1", shown), by("n2", shown)]),
        [0, 0],
        "the one that is published"
    );
    let of_others = [
        ("n1", "default", "u-0", shown + 9),
        ("n2", "shore", &*facts.uid, shown + 9),
    ];
    assert_eq!(acknowledge(&of_others), [0, 0], "of another cell");
    assert_eq!(acknowledge(&[by("n1", shown + 9), by("n3", shown + 4)]), [0, 5]);
}

/// Something that does not count, and nothing else is known: agents may have a roster of any version.
#[test]
fn a_cell_of_which_no_roster_counts_is_made_anew() {
    let mut stage = Stage::with_nodes(3);
    stage.go(1, &[]);
    let members = stage.world.cells["default"].roster.members.clone();
    let shown = stage.world.cells.get_mut("default").unwrap();
    (shown.roster, shown.shown) = (RosterSpec::default(), Shown::Foreign);
    stage.look();
    assert!(
        !stage.world.cells.contains_key("default"),
        "the object is deleted"
    );
    stage.look();
    let again = &stage.world.cells["default"].roster;
    assert_eq!((again.version, &again.members), (1, &members));
}

/// The object was deleted and is made again: who had a vote has it, and versions go on.
#[test]
fn a_cell_whose_object_is_gone_goes_on_with_its_last_roster() {
    let mut stage = Stage::with_nodes(3);
    stage.go(1, &[]);
    let mut gone = stage.world.cells.remove("default").unwrap().roster;
    gone.members[2].learner = true;
    gone.version = 7;
    let cell = ("default".to_owned(), 0);
    stage.world.last_rosters.insert(cell, gone.clone());
    stage.look();
    let again = &stage.world.cells["default"].roster;
    assert_eq!((again.version, &again.members), (8, &gone.members));
}

/// Hazard 46.
#[test]
fn members_that_nobody_can_check_are_named_and_counted() {
    let mut stage = Stage::with_nodes(3);
    assert_eq!(stage.look().unchecked, 0);
    stage.world.agents.get_mut("n2").unwrap().kubelet = None;
    let plan = stage.look();
    assert_eq!(plan.unchecked, 1);
    let named = |why: &String| why.contains("the agent of n2 has shown no kubelet");
    assert!(plan.complaints.iter().any(named), "{:?}", plan.complaints);
}

#[test]
fn agents_that_cannot_check_are_named_and_counted() {
    let mut stage = Stage::with_nodes(3);
    assert_eq!(stage.look().unable_to_check, 0);
    for name in ["n2", "n3"] {
        let agent = stage.world.agents.get_mut(name).unwrap();
        agent.check_problem = Some("icmp: no right".to_owned());
    }
    let plan = stage.look();
    assert_eq!(plan.unable_to_check, 2);
    let named =
        |why: &String| why.contains("the agent of n2 (and 1 other") && why.ends_with("icmp: no right");
    assert!(plan.complaints.iter().any(named), "{:?}", plan.complaints);
}

#[test]
fn rosters_follow_nodes_and_agents() {
    let mut stage = Stage::with_nodes(3);
    stage.world.cells.clear();
    for name in ["n1", "n2"] {
        stage
            .world
            .agents
            .insert(name.to_owned(), agent(&format!("u-{name}")));
    }
    stage.world.agents.insert("n3".to_owned(), agent("another-uid"));
    let plan = stage.go(1, &[]);
    assert!(
        plan.complaints.len() == 1 && plan.complaints[0].contains("n3"),
        "{:?}",
        plan.complaints
    );
    let roster = &stage.world.cells["default"].roster;
    assert_eq!(roster.version, 1);
    assert_eq!(
        roster
            .members
            .iter()
            .map(|member| member.name.as_str())
            .collect::<Vec<_>>(),
        ["n1", "n2"]
    );
    stage.go(2, &[]);
    assert_eq!(
        stage.world.cells["default"].roster.version, 1,
        "no change, no version"
    );
    relabel(&mut stage, &["n2"]);
    stage.go(3, &[]);
    assert_eq!(stage.world.cells["default"].roster.version, 2);
    assert_eq!(stage.world.cells["pier"].roster.members.len(), 1);
}

#[test]
fn a_dead_node_stays_in_its_roster() {
    let mut stage = Stage::with_nodes(3);
    stage.world.cells.clear();
    for name in ["n1", "n2", "n3"] {
        stage
            .world
            .agents
            .insert(name.to_owned(), agent(&format!("u-{name}")));
    }
    stage.go(10, &[]);
    stage.go(14, &["n3"]);
    stage.convict("n3");
    stage.go(100, &["n3"]);
    assert_eq!(stage.world.cells["default"].roster.members.len(), 3);
    assert_eq!(stage.world.cells["default"].roster.version, 1);
}

#[test]
fn policies_are_told_what_they_select() {
    let mut stage = Stage::with_nodes(3).policy(|spec| spec.evict_after_seconds = Some(5));
    stage.go(1, &[]);
    let status = &stage.world.policies["p"].status;
    assert_eq!(
        (
            status.matched_nodes,
            status.observed_generation,
            status.conflicts.len()
        ),
        (3, 1, 0)
    );
    let mut other = stage.world.policies["p"].clone();
    other.policy.name = "q".to_owned();
    other.policy.spec.evict_after_seconds = Some(50);
    stage.world.policies.insert("q".to_owned(), other);
    stage.go(12, &[]);
    let conflicts = &stage.world.policies["p"].status.conflicts;
    assert_eq!(conflicts.len(), 1, "{conflicts:?}");
    assert!(conflicts[0].contains("50 of q"), "{conflicts:?}");
}

#[test]
fn an_incident_that_was_not_saved_is_saved_again() {
    let mut stage = Stage::with_nodes(3);
    stage.go(10, &[]);
    stage.go(14, &["n3"]);
    stage.convict("n3");
    stage.look();
    let name = stage.world.incidents.keys().next().expect("an incident").clone();
    stage.world.incidents.clear();
    stage.look();
    assert_eq!(stage.world.incidents.keys().collect::<Vec<_>>(), [&name]);
}

#[test]
fn two_open_incidents_of_a_node_become_one() {
    let mut stage = Stage::with_nodes(3);
    stage.go(10, &[]);
    stage.go(14, &["n3"]);
    stage.convict("n3");
    stage.look();
    let newest = stage.incident("n3").clone();
    let mut older = newest.clone();
    older.status.state_since = Some(time(at(1)));
    stage.world.incidents.insert("n3-older".to_owned(), older);
    stage.restart();
    stage.settle();
    assert!(stage.world.incidents["n3-older"].status.closed_at.is_some());
    let open = stage
        .world
        .incidents
        .values()
        .filter(|facts| facts.status.closed_at.is_none())
        .count();
    assert_eq!(open, 1);
}

#[test]
fn old_incidents_do_not_pile_up() {
    let mut stage = Stage::with_nodes(3);
    for round in 0..20 {
        stage.go(round * 200 + 10, &[]);
        stage.says("n3", cut_off());
        stage.go(round * 200 + 60, &["n3"]);
        stage.says.clear();
    }
    stage.go(4_100, &[]);
    stage.settle();
    assert_eq!(stage.world.incidents.len(), 10);
    let newest = stage.world.incidents.keys().next_back().expect("ten");
    assert!(newest.as_str() > "n3-1700003800", "the newest are kept: {newest}");
    stage.renew_all_but(&[]);
    stage.settle();
}

#[test]
fn an_end_that_cannot_be_written_for_long_is_written_in_the_end() {
    let mut stage = Stage::with_nodes(3);
    stage.go(10, &[]);
    stage.says("n3", cut_off());
    stage.go(60, &["n3"]);
    let open = stage.world.incidents.clone();
    stage.says.clear();
    for second in 61..300 {
        stage.go(second, &[]);
        stage.world.incidents.clone_from(&open);
    }
    stage.go(300, &[]);
    assert!(stage.incident("n3").status.closed_at.is_some());
}

#[test]
fn an_open_incident_that_arrives_late_is_closed() {
    let mut stage = Stage::with_nodes(3);
    stage.go(10, &[]);
    stage.says("n3", cut_off());
    stage.go(60, &["n3"]);
    let late = stage.incident("n3").clone();
    for name in ["n3-late", "gone-late"] {
        let mut late = late.clone();
        if name == "gone-late" {
            late.spec.node_uid = "u-gone".to_owned();
        }
        stage.world.incidents.insert(name.to_owned(), late);
    }
    stage.settle();
    let open = stage
        .world
        .incidents
        .iter()
        .filter(|(_, facts)| facts.status.closed_at.is_none())
        .map(|(name, _)| name.as_str());
    assert_eq!(open.collect::<Vec<_>>(), ["n3-1700000035"]);
    stage.says.clear();
    stage.go(61, &[]);
    stage.settle();
    let mut late = late;
    late.status.closed_at = None;
    stage.world.incidents.insert("n3-later".to_owned(), late);
    stage.settle();
    assert!(
        stage
            .world
            .incidents
            .values()
            .all(|facts| facts.status.closed_at.is_some())
    );
}

/// A pause, or mode observe: what was kept is settled first, then nothing is changed.
#[test]
fn who_only_observes_settles_decides_and_records() {
    let mut stage = Stage::with_nodes(3).profile(Profile::Edge);
    stage.pod("n3", "web");
    stage.go(10, &[]);
    stage.says("n3", cut_off());
    stage.go(60, &["n3"]);
    stage.node("n3").life.stock_mark = Some(at(60));
    let ours = TaintRef::new(taints::DEAD, "NoSchedule");
    stage.node("n3").added.push(ours.clone());
    stage.node("n3").taints.push(Taint {
        key: ours.key,
        effect: ours.effect,
        ..Default::default()
    });
    let mut stage = stage.policy(|spec| spec.mode = Some(ModePolicy::Observe));
    stage.go(80, &["n3"]);
    assert_eq!(
        stage.pod_now("web").ready,
        Status::False,
        "stock would have marked it"
    );
    assert!(stage.world.nodes["n3"].taints.is_empty());
    let decision = stage.incident("n3").status.decision.clone();
    assert!(
        decision.state == "Disconnected" && decision.observed_only,
        "{decision:?}"
    );
    stage.log.clear();
    stage.convict("n3");
    stage.pod("n3", "late");
    stage.go(200, &["n3"]);
    let changed = stage.log.iter().filter(|action| {
        !matches!(
            action,
            Action::SaveIncident(_)
                | Action::Event(_)
                | Action::SavePolicyStatus { .. }
                | Action::PublishCell { .. }
                | Action::Challenge { .. }
        )
    });
    let changed: Vec<&Action> = changed.collect();
    assert!(
        matches!(changed[..], [Action::MarkPodNotReady { .. }]),
        "only what stock would have marked: {changed:?}"
    );
    assert_eq!(stage.incident("n3").status.state, "Dead");
}

/// A first installation observes: not a single write beside its own records.
#[test]
fn who_never_acted_settles_nothing() {
    let mut stage = Stage::with_nodes(3).policy(|spec| spec.mode = Some(ModePolicy::Observe));
    stage.pod("n3", "web");
    stage.go(10, &[]);
    stage.go(60, &["n3"]);
    let node = stage.node("n3");
    (node.life.stock_mark, node.ready) = (Some(at(60)), Status::Unknown);
    stage.go(70, &["n3"]);
    stage.restart();
    stage.convict("n3");
    stage.go(200, &["n3"]);
    let touches = |action: &&Action| {
        matches!(
            action,
            Action::MarkPodNotReady { .. } | Action::RestorePodReady { .. } | Action::Untaint { .. }
        )
    };
    let touched: Vec<&Action> = stage.log.iter().filter(touches).collect();
    assert!(touched.is_empty(), "{touched:?}");
    assert!(!stage.incident("n3").status.acted);
}

/// Hazard 56.
#[test]
fn what_a_kubelet_wrote_after_the_mark_is_its_word() {
    let mut stage = Stage::with_nodes(3);
    stage.pod("n3", "kept").became_ready = None;
    stage.go(10, &[]);
    stage.go(60, &["n3"]);
    stage.node("n3").life.stock_mark = Some(at(60));
    stage.pod("n3", "restored").became_ready = Some(at(65));
    let given_back = stage.pod("n3", "ours");
    given_back.became_ready = Some(at(65));
    given_back.ready_reason = "EvenkeelGivenBack".to_owned();
    stage.go(100, &["n3"]);
    assert_eq!(stage.state("n3"), NodeState::Unknown);
    assert_eq!(stage.pod_now("kept").ready, Status::False, "owed");
    assert_eq!(
        stage.pod_now("ours").ready,
        Status::False,
        "owed: no kubelet wrote it"
    );
    assert_eq!(
        stage.pod_now("restored").ready,
        Status::True,
        "the kubelet is back"
    );
}

/// Hazard 40.
#[test]
fn rounds_are_wanted_about_members_with_an_open_incident_or_a_latch() {
    let stage = isolate(Stage::with_nodes(3));
    assert_eq!(stage.world.challenges["default"].wanted, ["u-n3"]);
    let mut stage = stage;
    stage.says("n3", cut_off());
    stage.go(60, &[]);
    stage.settle();
    assert_eq!(stage.world.challenges["default"].wanted, Vec::<String>::new());
}

fn relabel(stage: &mut Stage, names: &[&str]) {
    for name in names {
        let labels = &mut stage.node(name).labels;
        labels.insert("topology.kubernetes.io/zone".to_owned(), "pier".to_owned());
    }
}

/// Its neighbours are asked about it still, and so can vouch for it.
#[rstest]
#[case::another_zone(|stage: &mut Stage| relabel(stage, &["n3"]))]
#[case::no_member_by_its_labels(|stage: &mut Stage| {
    stage.node("n3").labels.insert("node-role.kubernetes.io/control-plane".to_owned(), String::new());
})]
#[case::no_agent_status(|stage: &mut Stage| {
    stage.world.agents.remove("n3");
})]
fn a_node_that_is_cut_off_stays_in_its_roster_whatever_is_edited(#[case] edit: fn(&mut Stage)) {
    let mut stage = cut(Stage::with_nodes(3));
    edit(&mut stage);
    stage.go(200, &["n3"]);
    assert_eq!(members(&stage, "default"), ["n1", "n2", "n3"]);
    assert_eq!(stage.world.challenges["default"].wanted, ["u-n3"]);
    assert!(!stage.world.cells.contains_key("pier"));
    // What was edited counts once it is back.
    stage.says.clear();
    stage.go(1_000, &[]);
    assert_eq!(members(&stage, "default"), ["n1", "n2"]);
}

fn members(stage: &Stage, cell: &str) -> Vec<String> {
    let facts = stage.world.cells.get(cell);
    let members = facts.into_iter().flat_map(|facts| &facts.roster.members);
    members.map(|member| member.name.clone()).collect()
}

#[test]
fn a_node_that_is_cut_off_goes_where_its_whole_cell_goes() {
    let mut stage = cut(Stage::with_nodes(3));
    relabel(&mut stage, &["n1", "n2", "n3"]);
    stage.go(200, &["n3"]);
    assert_eq!(members(&stage, "pier"), ["n1", "n2", "n3"]);
}

/// All of the site is cut off; its nodes come back one by one.
#[test]
fn a_site_that_is_cut_off_and_relabelled_stays_together() {
    let mut stage = Stage::with_nodes(5);
    stage.go(10, &[]);
    let all = ["n1", "n2", "n3", "n4", "n5"];
    for name in all {
        stage.says(name, cut_off());
    }
    stage.go(60, &all);
    relabel(&mut stage, &all);
    stage.go(200, &all);
    assert_eq!(members(&stage, "default"), all);
    stage.go(300, &all[1..]);
    assert_eq!(members(&stage, "default"), all[1..]);
    // Most are back.
    stage.go(400, &all[3..]);
    assert_eq!(members(&stage, "pier"), all);
}

/// It reaches the API server, and others may reach it where it is now.
#[test]
fn an_isolated_node_goes_where_its_labels_say() {
    let mut stage = isolate(Stage::with_nodes(3));
    relabel(&mut stage, &["n3"]);
    stage.go(100, &[]);
    assert_eq!(members(&stage, "default"), ["n1", "n2"]);
    assert_eq!(members(&stage, "pier"), ["n3"]);
}

#[test]
fn who_is_cut_off_is_in_the_roster_that_replaces_a_deleted_one() {
    let mut stage = cut(Stage::with_nodes(3));
    let gone = stage.world.cells.remove("default").expect("it was published");
    let cell = ("default".to_owned(), 0);
    stage.world.last_rosters.insert(cell, gone.roster);
    stage.world.agents.remove("n3");
    stage.go(100, &["n3"]);
    assert_eq!(members(&stage, "default"), ["n1", "n2", "n3"]);
}
