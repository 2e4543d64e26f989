//! Cells whose rosters the carrier does not know yet.

use super::*;

/// Two cells are looked up at a time. Whoever comes meanwhile waits, and does not take the agent for one that
/// has no place.
#[test]
fn who_comes_while_others_are_looked_up_waits() {
    let mut zone = Zone::new(4, first);
    for (node, cell) in [(4, 1), (7, 2)] {
        let offer = zone.offer(node, cell);
        zone.say((node, Fixture::id(node)), 1, 1, &offer);
    }
    let offer = zone.offer(10, 3);
    let outputs = zone.say((10, Fixture::id(10)), 1, 1, &offer);
    let told: Vec<Body> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::Send { bytes, .. } => zone.fixture.open(bytes).map(|message| message.body),
            _ => None,
        })
        .collect();
    let wait = Carried {
        incarnation: 99,
        ..Carried::default()
    };
    assert_eq!(told, [Body::Carried(wait)]);
}

/// Offers about cells that are not there: eight fill all places, for five seconds.
#[test]
fn offers_about_cells_that_are_not_there_are_forgotten() {
    let mut zone = Zone::new(2, first);
    for cell in 20..40 {
        let offer = zone.offer(4, cell);
        zone.say((4, Fixture::id(4)), 1, u64::from(cell), &offer);
    }
    zone.unlink(1);
    assert!(zone.run_until(25_000, |zone| zone.is_vouched_for(1)));
}

/// The only agent with a link has a slow one: rosters come after 2.5 s, two at a time.
#[test]
fn cells_are_looked_up_for_as_long_as_somebody_asks_for_them() {
    let mut zone = with_one_link(4, 1..4);
    zone.watch_ms = 2_500;
    zone.run(30_000);
    for cell in 1..4 {
        assert!(zone.is_vouched_for(cell), "cell {cell}");
    }
}

/// Seven cells are carried when an eighth is asked for, and then others.
#[test]
fn who_is_being_looked_up_makes_no_room() {
    let mut zone = with_one_link(11, 1..8);
    zone.run(60_000);
    zone.watch_ms = 300;
    let said: Vec<bool> = [8, 9, 10]
        .into_iter()
        .map(|cell| {
            let node = nodes_of(cell)[0];
            let offer = zone.offer(node, cell);
            let outputs = zone.say((node, Fixture::id(node)), 1, 1, &offer);
            let follows = |output: &Output| matches!(output, Output::Follow(_));
            outputs.iter().any(follows)
        })
        .collect();
    assert_eq!(said, [true, false, false], "whose look-up began");
}
