//! Rules that stop an execution which would break a naive zone. Each test fails when its rule is taken out.

use super::net::Net;
use crate::engine::Note;
use crate::fixture::Fixture;
use crate::roster::MemberId;
use crate::wire::{EdgeState, Nonce};
use rstest::rstest;
use std::collections::BTreeMap;

/// The time between two probes of one burst, and two ticks.
const ONE_PROBE_MS: u64 = 350;

/// Hazard 7: in a small zone one edge is less than any threshold. Whoever hears that a member was lost looks
/// at once, and not when its own next heartbeat is due.
#[rstest]
fn the_first_lost_edge_makes_all_observers_probe_at_once(
    #[values(4, 7, 16)] count: u8,
    #[values(1, 2, 3)] seed: u64,
) {
    // Long enough that most observers are not due for several seconds when the first of them loses the
    // victim.
    let mut net = Net::with_period(count, seed, 10_000);
    net.run(100_000);
    let victim = 2;
    let name = format!("node-{victim}");
    net.kill(victim);
    let killed_at = net.now;
    let is_loss =
        |note: &Note| matches!(note, Note::Edge { subject, state: EdgeState::Down } if *subject == name);
    net.until("an edge is lost", 15_000, |net| {
        net.notes.iter().any(|(_, _, note)| is_loss(note))
    });
    net.run(ONE_PROBE_MS);
    let observers = net.observers_of(victim);
    // Who has sent nothing since the victim died was waiting for its next heartbeat to be due.
    let waiting: Vec<usize> = (1..=net.count())
        .filter(|i| observers.contains(i))
        .filter(|i| net.heartbeats.get(&(*i, victim)).is_none_or(|at| *at < killed_at))
        .collect();
    assert_eq!(waiting, Vec::<usize>::new(), "observers that did not look");
}

/// Hazard 7: who is lost by some observers, and by too few of them to be suspect at once, is voted on all the
/// same: after two periods in which that did not change.
#[rstest]
fn who_stays_lost_to_some_observers_is_voted_on_after_two_periods(#[values(1, 2, 3)] seed: u64) {
    let mut net = Net::settled(7, seed);
    let period = 2_000;
    // Node 7 hears nobody any more, and only nodes 5 and 6 hear it. Four of its six observers lose it: fewer
    // than the five that make a suspect at once, and a majority of the zone, whom a vote lets decide.
    for i in 1..=6 {
        net.cut.insert((i, 7));
    }
    for i in 1..=4 {
        net.cut.insert((7, i));
    }
    let cut_at = net.now;
    let losses = |net: &Net| -> Vec<u64> {
        let is_loss = |note: &Note| matches!(note, Note::Edge { subject, state: EdgeState::Down } if subject == "node-7");
        let lost = net.notes.iter().filter(|(_, _, note)| is_loss(note));
        lost.map(|(at, _, _)| *at).collect()
    };
    net.until("a third of its observers lost it", 6_000, |net| {
        losses(net).len() >= 2
    });
    let unstable_at = net.now;
    let asked = |net: &Net| {
        let about = |((_, _, suspect), at): (&(usize, Nonce, MemberId), &u64)| {
            (*suspect == Fixture::id(7) && *at >= cut_at).then_some(*at)
        };
        net.rounds.iter().filter_map(about).min()
    };
    net.until("there is a vote", 3 * period, |net| asked(net).is_some());
    assert_eq!(losses(&net).len(), 4, "and no more");
    let waited = net.now - unstable_at;
    // What a datagram, a tick and the gathering of suspects take comes on top.
    assert!((2 * period..2 * period + 1_000).contains(&waited), "{waited} ms");
    net.until("the vote is counted", 2_000, |net| net.is_dead(7));
}

/// Hazard 8: the smaller side of a split sees a majority dead, and ranks its own members as the reporters.
/// Who watches a sample of the cell asks about one member, to find out whether a majority answers.
#[rstest]
#[case::of_five(5, &[1, 2], 0)]
#[case::half_of_four(4, &[1, 2], 0)]
#[case::above_all_pairs_size(16, &[1, 2, 3, 4], 8)]
fn the_smaller_side_neither_stands_nor_reports_nor_holds_rounds(
    #[case] count: u8,
    #[case] smaller: &[usize],
    #[case] most: usize,
    #[values(false, true)] listed: bool,
) {
    let mut net = Net::settled(count, 40);
    if listed {
        // Rounds about it are held, and answered, until the split.
        net.want(&[usize::from(count)]);
    }
    net.run(20_000);
    let larger: Vec<usize> = (1..=usize::from(count))
        .filter(|i| !smaller.contains(i))
        .collect();
    net.split(smaller, &larger);
    // Three periods until nobody counts as within reach that is not.
    net.run(8_000);
    let split_at = net.now;
    net.run_checking(30_000, |net| {
        for i in smaller {
            assert!(!net.standing.contains(i), "node-{i} stands for the Lease");
        }
    });
    let by_smaller = |i: &usize| smaller.contains(i);
    let reports: Vec<&(u64, usize)> = net
        .reports
        .iter()
        .filter(|(at, i)| *at >= split_at && by_smaller(i))
        .collect();
    assert_eq!(reports, Vec::<&(u64, usize)>::new());
    let mut suspects: BTreeMap<(usize, Nonce), usize> = BTreeMap::new();
    for ((i, round, _), _) in net.rounds.iter().filter(|(_, at)| **at >= split_at) {
        *suspects.entry((*i, *round)).or_default() += 1;
    }
    suspects.retain(|(i, _), _| by_smaller(i));
    assert!(suspects.values().all(|suspects| *suspects == 1), "{suspects:?}");
    for i in smaller {
        let rounds = suspects.keys().filter(|(asker, _)| asker == i).count();
        assert!(rounds <= most, "node-{i} held {rounds}");
    }
}

/// A majority answered its rounds until the split, and it still reaches a third of those that it watches.
#[test]
fn answers_from_before_a_split_keep_no_reporter_in_office() {
    let mut net = Net::settled(16, 40);
    let reporter = net.leader();
    let mut smaller = net.subjects_of(reporter);
    smaller.truncate(3);
    smaller.push(reporter);
    let larger: Vec<usize> = (1..=16).filter(|i| !smaller.contains(i)).collect();
    net.want(&larger[..1]);
    net.run(20_000);
    assert!(net.standing.contains(&reporter));
    net.split(&smaller, &larger);
    net.run(8_000);
    net.run_checking(30_000, |net| {
        assert!(!net.standing.contains(&reporter), "at {}", net.now);
    });
}

/// Hazard 8: a reporter that was paused reaches everybody by what it remembers, and remembers the wrong time.
#[rstest]
fn a_reporter_that_doubts_its_view_neither_stands_nor_reports_nor_holds_rounds(
    #[values(3, 5, 16)] count: u8,
) {
    let mut net = Net::settled(count, 41);
    net.run(40_000);
    let reporter = net.leader();
    // Something to report on: without it nobody would hold rounds anyway.
    net.want(&[reporter % usize::from(count) + 1]);
    net.run(10_000);
    net.run_without(reporter, 4_000);
    let resumed = net.now;
    // One tick, so that it notices.
    net.run(250);
    net.run_checking(4_000, |net| {
        assert!(
            !net.standing.contains(&reporter),
            "node-{reporter} stands for the Lease"
        );
    });
    assert!(net.reports.iter().all(|(at, i)| *i != reporter || *at < resumed));
    let rounds = net
        .rounds
        .iter()
        .filter(|((i, ..), at)| *i == reporter && **at >= resumed);
    assert_eq!(rounds.count(), 0);
    net.until("it reports again", 20_000, |net| net.standing.contains(&reporter));
}

/// Hazard 38: a death is announced by one round. Who is cut from its peers hears of that too late, so its
/// link is proven after it was asked about, by a write that it owes to nobody yet.
#[rstest]
fn who_loses_half_of_its_zone_writes_after_it_was_asked_about(#[values(1, 2, 3, 4, 5, 6, 7, 8)] seed: u64) {
    let mut net = Net::settled(5, seed);
    net.run(5_000);
    let few = [4, 5];
    assert!(
        net.proofs.iter().all(|(at, _)| net.now - at > 5_000),
        "{:?}",
        net.proofs
    );
    net.split(&[1, 2, 3], &few);
    net.run(10_000);
    for suspect in few {
        let asked = (1..=3).flat_map(|i| net.rounds_of(i, suspect)).min();
        let asked = asked.expect("the others vote");
        let wrote = net.proofs.iter().find(|(at, i)| *i == suspect && *at >= asked);
        let (wrote, _) = wrote.expect("it writes");
        assert!(
            wrote - asked <= 1_700,
            "node-{suspect} was silent for {} ms",
            wrote - asked
        );
    }
}

/// Whoever of these the others vote dead has written since they asked: they are all alive.
fn each_writes_after_it_was_asked_about(net: &Net, suspects: &[usize], since: u64) -> usize {
    let mut asked_about = 0;
    for suspect in suspects {
        let rounds = (1..=net.count()).filter(|i| !suspects.contains(i));
        let rounds = rounds.flat_map(|i| net.rounds_of(i, *suspect));
        let Some(asked) = rounds.filter(|at| *at >= since).min() else {
            continue;
        };
        asked_about += 1;
        let mut writes = net.proofs.iter().filter(|(at, i)| i == suspect && *at >= asked);
        let (wrote, _) = writes.next().expect("it writes");
        assert!(
            wrote - asked <= 2_200,
            "node-{suspect} was silent for {} ms",
            wrote - asked
        );
    }
    asked_about
}

/// It hears everybody and nobody hears it: nothing but the question tells it.
#[rstest]
fn who_is_heard_by_nobody_writes_when_it_is_asked(#[values(1, 2, 3, 4, 5, 6, 7, 8)] seed: u64) {
    let mut net = Net::settled(5, seed);
    net.run(20_000);
    let began = net.now;
    net.cut.extend((1..5).map(|other| (5, other)));
    net.run(10_000);
    assert_eq!(each_writes_after_it_was_asked_about(&net, &[5], began), 1);
}

/// Who has lost half of its zone and proven its link loses the rest a minute later.
#[rstest]
fn who_loses_its_zone_bit_by_bit_writes_each_time(#[values(1, 2, 3, 4, 5, 6, 7, 8)] seed: u64) {
    let mut net = Net::settled(4, seed);
    net.run(20_000);
    net.split(&[1, 2], &[3, 4]);
    net.run(60_000);
    let began = net.now;
    net.cut.extend([(3, 4), (4, 3)]);
    // It can be voted dead by those who can vote together again.
    net.cut
        .retain(|pair| !matches!(pair, (4, _) | (_, 4)) || matches!(pair, (3, 4) | (4, 3)));
    net.run(15_000);
    assert_eq!(each_writes_after_it_was_asked_about(&net, &[3], began), 1);
}

/// Above all-pairs size everybody knows a part of the zone alone, which may be the better one.
#[rstest]
fn in_a_zone_that_breaks_in_two_those_who_are_voted_dead_write(#[values(1, 2, 3)] seed: u64) {
    let mut net = Net::settled(30, seed);
    net.run(20_000);
    let began = net.now;
    let (most, few): (Vec<usize>, Vec<usize>) = ((1..=18).collect(), (19..=30).collect());
    net.split(&most, &few);
    net.run(15_000);
    let asked_about = each_writes_after_it_was_asked_about(&net, &few, began);
    assert!(asked_about >= 10, "{asked_about}");
}

/// What the log of an agent says of its doubts: nothing of those that every life begins with.
#[rstest]
fn a_life_that_meets_nobody_says_so_once(#[values(5, 16)] count: u8) {
    let mut net = Net::settled(count, 3);
    let doubts = |net: &Net| -> Vec<(u64, usize)> {
        let notes = net.notes.iter();
        let doubts = notes.filter(|(_, _, note)| *note == Note::Doubt(true));
        doubts.map(|(at, i, _)| (*at, *i)).collect()
    };
    net.run(60_000);
    assert_eq!(doubts(&net), []);
    net.kill(1);
    net.run(1_000);
    net.split(&[1], &(2..=usize::from(count)).collect::<Vec<_>>());
    let began = net.now;
    net.start(1);
    net.run(120_000);
    let [(at, 1)] = doubts(&net)[..] else {
        panic!("{:?}", doubts(&net))
    };
    assert!(
        (10_000..10_100).contains(&(at - began)),
        "after {} ms",
        at - began
    );
}
