//! What rounds name: the last renewal of a suspect's Lease, and the controller's challenge.

use super::net::Net;
use crate::engine::Note;
use crate::fixture::Fixture;
use crate::wire::{Challenge, Renewal};
use rstest::rstest;

/// Rounds that were begun from `since` on about a suspect: when, by whom, what they name and sign.
fn rounds(net: &Net, since: u64, suspect: usize) -> Vec<(u64, usize, Option<Renewal>, Challenge)> {
    let id = Fixture::id(suspect);
    let mut rounds: Vec<_> = net
        .requests
        .iter()
        .filter_map(|((asker, round), request)| {
            let named = request.suspects.iter().find(|about| about.member == id)?;
            let at = net.rounds[&(*asker, *round, id)];
            (at >= since).then_some((at, *asker, named.renewal, request.challenge))
        })
        .collect();
    rounds.sort_unstable();
    rounds
}

/// When node `i` read the Lease of a suspect, from `since` on.
fn reads(net: &Net, since: u64, i: usize, suspect: usize) -> Vec<u64> {
    let of = |(at, reader, about): &(u64, usize, usize)| {
        (*at >= since && *reader == i && *about == suspect).then_some(*at)
    };
    net.reads.iter().filter_map(of).collect()
}

/// A zone whose leader has a victim at hand.
fn zone(seed: u64) -> (Net, usize, usize) {
    zone_of(5, seed)
}

fn zone_of(count: u8, seed: u64) -> (Net, usize, usize) {
    let mut net = Net::settled(count, seed);
    net.run(20_000);
    let leader = net.leader();
    (net, leader, leader % usize::from(count) + 1)
}

#[rstest]
fn a_round_names_the_renewal_that_was_read_after_the_loss(#[values(1, 2, 3)] seed: u64) {
    let (mut net, leader, victim) = zone(seed);
    net.kill(victim);
    let killed_at = net.now;
    let last = net.renewals[&victim];
    net.until("the victim is dead", 6_000, |net| net.is_dead(victim));
    net.run(30_000);
    for (at, asker, named, _) in rounds(&net, killed_at, victim) {
        assert_eq!(named, Some(last), "the round of node-{asker} at {at}");
    }
    let gaps: Vec<u64> = reads(&net, killed_at, leader, victim)
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .collect();
    assert!(
        gaps.len() >= 6 && gaps.iter().all(|gap| *gap >= 4_000),
        "not more often than every 4 s: {gaps:?}"
    );
}

#[test]
fn without_a_reading_rounds_are_held_and_convict_nobody() {
    let (mut net, leader, victim) = zone(4);
    net.reads_fail = true;
    net.kill(victim);
    let killed_at = net.now;
    net.run_checking(20_000, |net| assert!(!net.is_dead(victim)));
    let held = rounds(&net, killed_at, victim);
    assert!(held.len() >= 4 && held.iter().all(|(_, _, named, _)| named.is_none()));
    let asked = reads(&net, killed_at, leader, victim).len();
    assert!((3..=5).contains(&asked), "{asked} readings in 20 s");
    net.reads_fail = false;
    net.until("a reading makes the votes count", 10_000, |net| {
        net.is_dead(victim)
    });
}

/// A node without a Lease is as dead as others.
#[test]
fn that_there_is_no_lease_is_a_reading() {
    let (mut net, _, victim) = zone(5);
    net.kill(victim);
    net.renewals.remove(&victim);
    net.until("the victim is dead", 6_000, |net| net.is_dead(victim));
}

#[rstest]
#[case::that_comes_in_time(Some(300), 300, 350, true)]
#[case::that_comes_too_late(Some(700), 500, 550, false)]
#[case::that_never_comes(None, 500, 550, false)]
fn a_round_waits_for_a_reading(
    #[case] read_ms: Option<u64>,
    #[case] least: u64,
    #[case] most: u64,
    #[case] is_named: bool,
) {
    let (mut net, leader, victim) = zone(6);
    net.read_ms = read_ms;
    net.kill(victim);
    let killed_at = net.now;
    net.run(5_000);
    let by_leader = |(_, asker, ..): &&(u64, usize, Option<Renewal>, Challenge)| *asker == leader;
    let held = rounds(&net, killed_at, victim);
    let (began, _, named, _) = *held.iter().find(by_leader).expect("a round is held");
    let waited = began - reads(&net, killed_at, leader, victim)[0];
    assert!((least..=most).contains(&waited), "{waited} ms");
    assert_eq!(named.is_some(), is_named);
    // What came too late for the first round serves the second one, a second later.
    net.run(1_000);
    assert_eq!(net.is_dead(victim), read_ms.is_some());
}

/// Not by being called over and over.
#[test]
fn a_reporter_that_waits_for_a_reading_sleeps() {
    let (mut net, leader, victim) = zone(13);
    net.read_ms = None;
    net.kill(victim);
    let killed_at = net.now;
    net.until("the Lease is read", 6_000, |net| {
        !reads(net, killed_at, leader, victim).is_empty()
    });
    net.run(120);
    net.ticks.clear();
    net.run(300);
    // 30 steps; heartbeats, their answers and edges of four others make some.
    let ticks = net.ticks.get(&leader).copied().unwrap_or_default();
    assert!(ticks <= 15, "{ticks}");
}

#[test]
fn a_reporter_without_a_link_reads_nothing_and_waits_for_nothing() {
    // Of three members all are reporters.
    let (mut net, leader, victim) = zone_of(3, 7);
    net.cut_cloud(leader);
    net.run(15_000);
    net.kill(victim);
    let killed_at = net.now;
    net.run(6_000);
    assert_eq!(reads(&net, killed_at, leader, victim), Vec::<u64>::new());
    let is_suspect = |(at, i, note): &&(u64, usize, Note)| {
        *at >= killed_at && *i == leader && matches!(note, Note::Suspect { .. })
    };
    let (suspected_at, ..) = net.notes.iter().find(is_suspect).expect("it suspects the victim");
    let held = rounds(&net, killed_at, victim);
    let (began, ..) = held
        .iter()
        .find(|(_, asker, ..)| *asker == leader)
        .expect("it holds a round");
    assert!(began - suspected_at <= 150, "{} ms", began - suspected_at);
    assert!(net.is_dead(victim), "the reporter with a link convicts it");
}

#[test]
fn who_is_heard_needs_no_reading() {
    let (mut net, _, cut) = zone(8);
    let began = net.now;
    net.cut_cloud(cut);
    net.want(&[cut % 5 + 1]);
    net.until("it is attested", 13_000, |net| net.is_alive(cut));
    net.run(30_000);
    assert_eq!(
        net.reads.iter().filter(|(at, ..)| *at >= began).count(),
        0,
        "{:?}",
        net.reads
    );
}

/// A member that needs no reading is voted on while another one's Lease is being read.
#[test]
fn a_round_does_not_wait_for_the_lease_of_somebody_for_whom_none_is_due() {
    let (mut net, leader, victim) = zone(9);
    let other = victim % 5 + 1;
    net.want(&[other]);
    net.until("it is attested", 3_000, |net| net.is_alive(other));
    net.read_ms = None;
    net.kill(victim);
    net.run(60_000);
    let times = net.rounds_of(leader, other);
    let late = times.windows(2).filter(|pair| pair[1] - pair[0] > 5_100);
    assert_eq!(late.count(), 0, "{times:?}");
}

#[test]
fn a_new_challenge_brings_a_round_about_a_young_death_at_once_and_is_signed() {
    let (mut net, leader, victim) = zone(10);
    net.kill(victim);
    let killed_at = net.now;
    net.until("the victim is dead", 6_000, |net| net.is_dead(victim));
    net.run(2_500);
    for (number, expected) in [(8, 1), (8, 0), (9, 1)] {
        let asked_at = net.now;
        net.challenge(number);
        net.run(600);
        let held = rounds(&net, asked_at, victim);
        let of_leader: Vec<_> = held.iter().filter(|(_, asker, ..)| *asker == leader).collect();
        assert_eq!(of_leader.len(), expected, "{number}: {held:?}");
        for (at, _, named, signed) in of_leader {
            // The Lease may have to be read before.
            assert!(at - asked_at <= 100, "{} ms", at - asked_at);
            assert_eq!((*signed, named.is_some()), (Challenge([number; 16]), true));
        }
        // Past the round that is under way, and before the next one is due.
        net.run(500);
    }
    let signed = rounds(&net, killed_at, victim)[0].3;
    assert_eq!(signed, Fixture::CHALLENGE);
}

/// Otherwise the death would be confirmed 4 s later.
#[test]
fn a_challenge_that_comes_during_a_round_brings_another_one() {
    let (mut net, leader, victim) = zone(11);
    net.kill(victim);
    let killed_at = net.now;
    net.until("a round is under way", 6_000, |net| {
        rounds(net, killed_at, victim)
            .iter()
            .any(|(_, asker, ..)| *asker == leader)
    });
    net.run(100);
    let challenged_at = net.now;
    net.challenge(8);
    net.until("it is signed", 1_500, |net| {
        let signs =
            |(_, asker, _, signed): &(_, usize, _, _)| *asker == leader && *signed == Challenge([8; 16]);
        rounds(net, challenged_at, victim).iter().any(signs)
    });
}

#[test]
fn an_old_death_is_not_voted_on_for_a_new_challenge() {
    let (mut net, leader, victim) = zone(12);
    net.kill(victim);
    net.until("the victim is dead", 6_000, |net| net.is_dead(victim));
    net.run(75_000);
    let before = net.rounds_of(leader, victim).len();
    net.until("a round has begun", 12_000, |net| {
        net.rounds_of(leader, victim).len() > before
    });
    net.run(1_500);
    let asked_at = net.now;
    net.challenge(8);
    net.run(5_000);
    assert_eq!(rounds(&net, asked_at, victim), vec![]);
}

/// The holder of the cell's Lease dies, and for some time nobody else holds it.
#[rstest]
fn a_death_that_signs_a_new_challenge_is_reported_soon_though_nobody_leads(#[values(1, 2, 3)] seed: u64) {
    let (mut net, leader, _) = zone(seed);
    net.kill(leader);
    net.until("the leader is dead", 6_000, |net| net.is_dead(leader));
    net.freeze_lease();
    net.run(10_000);
    let (challenged_at, before) = (net.now, net.reports.len());
    net.challenge(8);
    net.until("it is reported", 3_500, |net| net.reports.len() > before);
    assert!(!rounds(&net, challenged_at, leader).is_empty());
}
