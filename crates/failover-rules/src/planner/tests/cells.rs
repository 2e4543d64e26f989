//! Zones of more than one cell: who is published where, in which order, and who is told so.

use super::rest::isolate;
use super::*;
use crate::world::facts::CellFacts;
use evenkeel_api::names::ZONE_LABELS;

fn sizes(stage: &Stage) -> Vec<(&str, usize)> {
    let cells = stage.world.cells.iter();
    cells
        .map(|(name, facts)| (name.as_str(), facts.roster.members.len()))
        .collect()
}

/// The UIDs of each cell's members.
fn members(stage: &Stage) -> BTreeMap<String, Vec<String>> {
    let cells = stage.world.cells.iter();
    let members = |facts: &CellFacts| {
        facts
            .roster
            .members
            .iter()
            .map(|member| member.uid.clone())
            .collect()
    };
    cells
        .map(|(name, facts)| (name.clone(), members(facts)))
        .collect()
}

/// Nodes `n66` and so on come, with agents that have registered.
fn grow(stage: &mut Stage, until: usize) {
    for number in stage.world.nodes.len() + 1..=until {
        let name = format!("n{number}");
        let node = NodeFacts {
            uid: format!("u-{name}"),
            name: name.clone(),
            ready: Status::True,
            ..NodeFacts::default()
        };
        stage.world.agents.insert(name.clone(), agent(&node.uid));
        stage.world.told_cells.insert(name.clone(), String::new());
        stage.world.nodes.insert(name.clone(), node);
        stage.renew(&name);
    }
}

fn told(stage: &Stage, cell: &str) -> usize {
    stage
        .world
        .told_cells
        .values()
        .filter(|told| *told == cell)
        .count()
}

#[test]
fn a_zone_that_outgrows_a_cell_is_divided_and_the_agents_that_move_are_told() {
    let mut stage = Stage::with_nodes(64);
    grow(&mut stage, 64);
    stage.go(1, &[]);
    assert_eq!(sizes(&stage), [("default", 64)]);
    grow(&mut stage, 65);
    stage.look();
    assert_eq!(sizes(&stage), [("default", 64), ("default.1", 32)]);
    assert_eq!(
        told(&stage, "default.1"),
        0,
        "nobody is told of a cell that is not seen yet"
    );
    stage.look();
    assert_eq!(
        sizes(&stage),
        [("default", 33), ("default.1", 32)],
        "who moves leaves the old cell once it is seen in the new one"
    );
    assert_eq!(told(&stage, "default.1"), 32);
    stage.look();
    let settled = stage.look();
    assert_eq!(settled.actions, [], "nothing is left to do");
}

/// The watch of a large zone shows cells in the order of their writes, and the planner looks in between.
#[test]
fn cells_that_are_seen_one_after_the_other_keep_the_members_that_were_planned() {
    let mut stage = Stage::with_nodes(1);
    grow(&mut stage, 1);
    stage.go(1, &[]);
    let first = stage.world.cells["default"].clone();
    grow(&mut stage, 200);
    stage.now = 20;
    stage.look();
    let expected = [
        ("default", 36),
        ("default.1", 64),
        ("default.2", 64),
        ("default.3", 36),
    ];
    assert_eq!(sizes(&stage), expected);
    let planned = members(&stage);
    // A new cell is not seen yet, and the first one as it was before the others came.
    stage.world.cells.remove("default.2");
    stage.world.cells.insert("default".to_owned(), first);
    stage.look();
    let mut seen = members(&stage);
    seen.insert("default".to_owned(), planned["default"].clone());
    assert_eq!(seen, planned);
    // What is not seen for long was not written.
    stage.world.cells.remove("default.2");
    stage.go(60, &[]);
    assert_eq!(sizes(&stage).iter().map(|(_, size)| size).sum::<usize>(), 200);
}

#[test]
fn a_move_that_was_planned_and_not_written_waits_when_a_member_comes_to_be_listed() {
    let mut stage = Stage::with_nodes(64);
    grow(&mut stage, 64);
    stage.go(1, &[]);
    grow(&mut stage, 65);
    stage.look();
    let moved = stage.world.cells.remove("default.1").unwrap();
    let listed = &moved.roster.members[0];
    stage.convict(&listed.name);
    stage.look();
    assert!(stage.planner.listed_since.contains_key(&listed.uid));
    assert_eq!(sizes(&stage), [("default", 64)]);
}

/// A merge of which one half was written when a member comes to be listed.
#[test]
fn a_cell_that_was_planned_to_end_keeps_its_members_when_one_comes_to_be_listed() {
    let mut stage = Stage::with_nodes(64);
    grow(&mut stage, 65);
    stage.go(3, &[]);
    let before = stage.world.cells["default.1"].clone();
    let members = |facts: &CellFacts| {
        let names = facts.roster.members.iter().map(|member| member.name.clone());
        names.collect::<Vec<_>>()
    };
    for name in &members(&before)[10..] {
        stage.world.nodes.remove(name);
    }
    let mut ending = before;
    while sizes(&stage) != [("default", 43), ("default.1", 0)] {
        assert!(stage.now < 30, "{:?}", sizes(&stage));
        ending = stage.world.cells["default.1"].clone();
        stage.now += 1;
        stage.see();
        stage.renew_all_but(&[]);
        stage.look();
    }
    // The write of the empty roster has failed.
    let listed = members(&ending)[0].clone();
    stage.world.cells.insert("default.1".to_owned(), ending);
    stage.convict(&listed);
    stage.look();
    assert!(stage.planner.listed_since.contains_key(&format!("u-{listed}")));
    assert_eq!(sizes(&stage)[1], ("default.1", 10));
}

/// Somebody deletes the object of one of several cells: its members are no newcomers.
#[test]
fn members_of_a_cell_whose_object_is_gone_stay_together() {
    let mut stage = Stage::with_nodes(1);
    grow(&mut stage, 200);
    stage.go(20, &[]);
    let before = members(&stage);
    assert_eq!(before.len(), 4);
    let listed = before["default.1"][0].clone();
    stage.convict(listed.trim_start_matches("u-"));
    stage.go(21, &[]);
    let since = stage.planner.listed_since[&listed];
    let gone = stage.world.cells.remove("default.1").unwrap();
    let version = gone.roster.version;
    stage.world.last_rosters.insert((gone.zone, 1), gone.roster);
    stage.go(25, &[]);
    assert_eq!(members(&stage), before);
    assert!(stage.world.cells["default.1"].roster.version > version);
    assert_eq!(stage.planner.listed_since[&listed], since);
    // One that has ended leaves nothing behind: who was seen in another cell since is at home there.
    let there = stage.world.cells["default"].roster.clone();
    stage.world.last_rosters.insert(("default".to_owned(), 7), there);
    stage.go(30, &[]);
    assert_eq!(members(&stage), before);
}

/// What the former leader wrote last is seen a moment after the new one leads.
#[test]
fn a_new_leader_moves_nobody_until_what_was_written_before_is_seen() {
    let mut stage = Stage::with_nodes(1);
    stage.go(1, &[]);
    let first = stage.world.cells["default"].clone();
    grow(&mut stage, 200);
    stage.go(20, &[]);
    let written = stage.world.cells.clone();
    stage.restart();
    stage.world.cells.remove("default.2");
    stage.world.cells.insert("default".to_owned(), first);
    let before = members(&stage);
    stage.go(22, &[]);
    assert_eq!(members(&stage), before);
    stage.world.cells = written;
    let all = members(&stage);
    stage.go(40, &[]);
    assert_eq!(members(&stage), all);
}

/// One member after the other comes to be listed, and at every moment one was lately.
#[test]
fn a_newcomer_waits_for_ten_minutes_and_no_longer() {
    let mut stage = Stage::with_nodes(64);
    stage.go(10, &[]);
    stage.convict("n3");
    stage.go(14, &[]);
    let since = stage.planner.listed_since["u-n3"];
    stage.go(300, &[]);
    stage.convict("n4");
    grow(&mut stage, 65);
    stage.go(590, &[]);
    assert_eq!(sizes(&stage), [("default", 64)]);
    stage.go(620, &[]);
    assert!(stage.planner.listed_since["u-n4"].since(since) > 280_000);
    assert_eq!(sizes(&stage), [("default", 33), ("default.1", 32)]);
}

/// A node may change the label that names its zone as often as it likes.
#[test]
fn cells_of_zones_that_nobody_is_in_any_more_end() {
    let mut stage = Stage::with_nodes(3);
    stage.go(1, &[]);
    for number in 0..50 {
        let labels = [(ZONE_LABELS[0].to_owned(), format!("zone-{number}"))];
        stage.node("n1").labels = labels.into();
        stage.go(stage.now + 60, &[]);
        assert!(stage.world.cells.len() <= 13, "{:?}", sizes(&stage));
    }
    assert!(stage.world.cells.contains_key("default") && stage.world.cells.contains_key("zone-49"));
}

#[test]
fn a_cell_that_ends_is_deleted_when_its_members_are_in_another() {
    let mut stage = Stage::with_nodes(64);
    grow(&mut stage, 65);
    for second in 1..4 {
        stage.go(second, &[]);
    }
    let small: Vec<String> = stage.world.cells["default.1"]
        .roster
        .members
        .iter()
        .map(|member| member.name.clone())
        .collect();
    for name in &small[10..] {
        stage.world.nodes.remove(name);
    }
    stage.look();
    assert_eq!(
        sizes(&stage),
        [("default", 33), ("default.1", 10)],
        "what can wait is gathered"
    );
    stage.go(15, &[]);
    assert_eq!(sizes(&stage), [("default", 43)]);
    let learners = stage.world.cells["default"].roster.members.iter();
    assert_eq!(
        learners.filter(|member| member.learner).count(),
        11,
        "who comes from another cell has to meet this one first, and so has the newcomer"
    );
    assert_eq!(
        small[..10]
            .iter()
            .filter(|name| stage.world.told_cells[*name].is_empty())
            .count(),
        10,
        "who moved back is told"
    );
}

/// The listed member keeps its neighbours, and newcomers wait for stock Kubernetes alone.
#[test]
fn while_a_node_is_listed_its_cell_stays_as_it_is_for_ten_minutes() {
    let mut stage = isolate(Stage::with_nodes(64));
    let since = stage.planner.listed_since["u-n3"].0 / 1_000 - at(0).0 / 1_000;
    grow(&mut stage, 65);
    let plan = stage.look();
    assert_eq!(sizes(&stage), [("default", 64)]);
    assert_eq!(plan.without_cell, 1);
    assert!(
        plan.complaints.iter().any(|why| why.contains("no cell has room")),
        "{:?}",
        plan.complaints
    );
    stage.go(since + 599, &["n3"]);
    assert_eq!(sizes(&stage), [("default", 64)]);
    stage.go(since + 601, &["n3"]);
    assert_eq!(sizes(&stage), [("default", 33), ("default.1", 32)]);
    let home = &stage.world.cells["default"].roster.members;
    assert!(
        home.iter().any(|member| member.name == "n3"),
        "the listed member stays"
    );
}
