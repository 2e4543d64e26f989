//! Members whose evidence is to be renewed share rounds, whenever they were listed (hazard 44).

use super::net::{Net, stored_bytes};
use crate::fixture::Fixture;
use evenkeel_api::zone::VerdictKind;
use rstest::rstest;
use std::collections::BTreeSet;

/// The rounds that node `i` has begun from `since` on: when, and about how many members.
fn rounds(net: &Net, since: u64, i: usize) -> Vec<(u64, usize)> {
    let requests = net.requests.iter().filter(|((asker, _), _)| *asker == i);
    let mut rounds: Vec<(u64, usize)> = requests
        .map(|((_, round), request)| {
            let first = request.suspects[0].member;
            (net.rounds[&(i, *round, first)], request.suspects.len())
        })
        .filter(|(at, _)| *at >= since)
        .collect();
    rounds.sort_unstable();
    rounds
}

/// A calm cell of 64, its leader, and all others.
fn cell(seed: u64) -> (Net, usize) {
    let mut net = Net::fresh(64, seed);
    net.run(60_000);
    let leader = net.leader();
    (net, leader)
}

#[test]
fn a_whole_cell_that_is_listed_one_after_the_other_ends_up_in_one_round() {
    let (mut net, leader) = cell(60);
    for count in 1..=64 {
        net.want(&(1..=count).collect::<Vec<_>>());
        net.run(160);
    }
    net.run(10_000);
    let steady_from = net.now;
    net.run(45_000);
    assert!((1..=64).all(|i| net.is_alive(i)), "{}", net.summary());
    let report = &net.published[&leader];
    assert_eq!(report.nodes.len(), 64);
    let ballots: Vec<usize> = report.rounds.iter().map(|round| round.ballots.len()).collect();
    assert_eq!(ballots, [33]);
    let bytes = stored_bytes(report);
    assert!(bytes <= 40_000, "{bytes} bytes");
    // A round every 4.5 s, and one write about it.
    let held = rounds(&net, steady_from, leader);
    assert!((9..=11).contains(&held.len()), "{held:?}");
    let writes = net
        .reports
        .iter()
        .filter(|(at, i)| *at >= steady_from && *i == leader);
    assert!(writes.clone().count() <= 11, "{:?}", writes.collect::<Vec<_>>());
}

/// Each has a round of its own at first, and all of them do not fit into a report.
#[rstest]
fn a_cell_that_is_listed_within_seconds_fits_into_a_report_all_the_time(#[values(20, 32, 64)] count: u8) {
    let mut net = Net::fresh(count, 65);
    net.run(100_000);
    let all: Vec<usize> = (1..=usize::from(count)).collect();
    for listed in 1..=all.len() {
        net.want(&all[..listed]);
        net.run(70);
    }
    net.run(8_000);
    assert!(all.iter().all(|i| net.is_alive(*i)), "{}", net.summary());
    assert!(net.largest <= 40_000, "{} bytes", net.largest);
}

#[test]
fn the_dead_and_the_living_share_rounds() {
    let (mut net, leader) = cell(61);
    let dying: BTreeSet<usize> = net.rendezvous().into_iter().skip(4).take(20).collect();
    net.want(&(1..=64).collect::<Vec<_>>());
    for i in &dying {
        net.kill(*i);
        net.run(500);
    }
    net.run(10_000);
    for i in 1..=64 {
        assert_eq!(net.is_dead(i), dying.contains(&i), "node-{i}");
    }
    assert!(net.largest <= 40_000, "{} bytes", net.largest);
    for young in [true, false] {
        let report = &net.published[&leader];
        let ballots: Vec<usize> = report.rounds.iter().map(|round| round.ballots.len()).collect();
        assert!(
            ballots.len() <= 2 && ballots.iter().all(|count| *count <= 33),
            "young: {young}, {ballots:?}"
        );
        let bytes = stored_bytes(report);
        assert!(bytes <= 40_000, "{bytes} bytes");
        net.run(75_000);
    }
}

#[test]
fn a_new_challenge_leaves_the_evidence_of_a_cell_in_one_round() {
    let (mut net, leader) = cell(62);
    net.want(&(1..=64).collect::<Vec<_>>());
    let victim = net.rendezvous()[5];
    net.kill(victim);
    net.run(20_000);
    let challenged_at = net.now;
    net.challenge(9);
    net.run(2_200);
    let held = rounds(&net, challenged_at, leader);
    assert_eq!(held.len(), 1, "{held:?}");
    assert_eq!(net.published[&leader].rounds.len(), 1);
}

/// The first round about a member is not put off.
#[rstest]
fn whoever_is_listed_later_is_voted_on_at_once_and_then_with_the_others(#[values(3, 5, 7)] count: u8) {
    let mut net = Net::settled(count, 63);
    net.run(20_000);
    let leader = net.leader();
    let others: Vec<usize> = (1..=usize::from(count)).filter(|i| *i != leader).collect();
    net.want(&others[..1]);
    net.run(7_700);
    let wanted_at = net.now;
    net.want(&others[..2]);
    net.run(30_000);
    let first = net
        .rounds_of(leader, others[1])
        .into_iter()
        .find(|at| *at >= wanted_at);
    assert!(first.unwrap() - wanted_at <= 50);
    let since = |i: usize| -> Vec<u64> {
        let rounds = net.rounds_of(leader, i);
        rounds.into_iter().filter(|at| *at >= wanted_at + 5_000).collect()
    };
    assert_eq!(since(others[0]), since(others[1]));
    assert!(since(others[0]).len() >= 5);
}

/// Some members have no majority either way. Others do not wait for them, nor are they asked about for ever.
#[test]
fn who_gets_no_verdict_is_tried_again_with_the_others() {
    let mut net = Net::fresh(5, 64);
    net.kill(5);
    net.run(20_000);
    let leader = net.leader();
    let other = leader % 4 + 1;
    net.want(&[other, 5]);
    let wanted_at = net.now;
    net.run(40_000);
    let listed = net.listed();
    assert_eq!(listed["node-5"].verdict, VerdictKind::None, "nobody has met it");
    assert!(net.is_alive(other));
    let tries = net
        .rounds_of(leader, 5)
        .into_iter()
        .filter(|at| *at >= wanted_at)
        .count();
    assert!((8..=12).contains(&tries), "{tries} in 40 s");
    assert!(
        net.rounds_of(leader, 5)
            .iter()
            .any(|at| net.rounds_of(leader, other).contains(at))
    );
    let ids: BTreeSet<_> = [other, 5].map(Fixture::id).into();
    let shared = |request: &&crate::wire::ConfirmRequest| {
        request
            .suspects
            .iter()
            .map(|suspect| suspect.member)
            .collect::<BTreeSet<_>>()
            == ids
    };
    assert!(net.requests.values().any(|request| shared(&request)));
}
