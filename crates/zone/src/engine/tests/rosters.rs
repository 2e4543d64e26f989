//! Rosters that settle, and learners.

use super::net::Net;
use crate::fixture::Fixture;
use evenkeel_api::zone::RosterSpec;
use std::collections::BTreeSet;

/// Everybody learns a newer roster, in which these nodes have no vote.
fn reissue(net: &mut Net, learners: &[usize], settled_voters: &[usize]) {
    for member in &mut net.spec.members {
        member.learner = learners.iter().any(|node| Fixture::uid(*node) == member.uid);
    }
    settle(net, settled_voters);
}

/// Everybody learns a newer roster, for which these have to agree until it is settled.
fn settle(net: &mut Net, settled_voters: &[usize]) {
    net.spec.version += 1;
    net.spec.settled_voters = settled_voters.iter().map(|node| Fixture::uid(*node)).collect();
    net.introduce();
}

/// A zone whose last node joins as a learner when the others have run for 20 s.
fn with_learner(count: u8) -> Net {
    with_learner_by(count, 31)
}

fn with_learner_by(count: u8, seed: u64) -> Net {
    let mut net = Net::fresh(count, seed);
    let last = usize::from(count);
    let whole = net.spec.clone();
    net.spec.members.retain(|member| member.uid != Fixture::uid(last));
    net.stop_agent(last);
    for i in 1..last {
        net.start(i);
    }
    net.run(20_000);
    net.spec = RosterSpec { version: 1, ..whole };
    reissue(&mut net, &[last], &[]);
    net.start(last);
    net
}

#[test]
fn a_learner_meets_a_full_cell_within_seconds_and_says_so() {
    let mut net = with_learner(64);
    net.until("the learner has met all", 15_000, |net| {
        net.acknowledged
            .iter()
            .any(|(_, i, said)| *i == 64 && *said == (2, 63, 63))
    });
    let learner = Fixture::id(64);
    let met = |i: &usize| net.memory_of(*i).contains(&learner);
    assert_eq!((1..64).filter(met).count(), 63, "and everybody has met it");
    let tellers: BTreeSet<usize> = net.acknowledged.iter().map(|(_, i, _)| *i).collect();
    assert_eq!(tellers, [64].into(), "the others have nothing to acknowledge");
}

#[test]
fn a_learner_has_no_vote_and_its_death_is_found() {
    let mut net = with_learner(4);
    net.run(20_000);
    net.kill(3);
    net.until("a voter is dead", 6_000, |net| net.is_dead(3));
    net.kill(2);
    net.run(15_000);
    assert!(
        !net.is_dead(2),
        "of three voters one is no majority, whatever a learner says"
    );
    // As the controller does where an incident is open.
    net.want(&[2, 3]);
    net.revive(2);
    net.revive(3);
    net.until("they are back", 40_000, |net| !net.is_dead(2) && !net.is_dead(3));
    net.want(&[]);
    net.run(20_000);
    net.kill(4);
    net.until("the learner is dead", 6_000, |net| net.is_dead(4));
}

#[test]
fn a_learner_that_is_cut_off_is_vouched_for_and_reports_for_nobody() {
    let mut net = with_learner(4);
    net.run(20_000);
    net.cut_cloud(4);
    net.until("the learner is alive", 15_000, |net| net.is_alive(4));
    net.heal_cloud(4);
    for i in 1..=3 {
        net.cut_cloud(i);
    }
    net.run(60_000);
    assert!(net.stands.iter().all(|(_, i, stands)| *i != 4 || !stands));
}

#[test]
fn a_settled_cell_acknowledges_nothing() {
    let mut net = Net::settled(5, 32);
    reissue(&mut net, &[], &[]);
    net.run(120_000);
    assert_eq!(net.acknowledged, []);
}

#[test]
fn an_unsettled_roster_is_acknowledged_by_everybody_once_a_minute_until_it_is_settled() {
    let mut net = Net::settled(5, 33);
    reissue(&mut net, &[], &[1, 2, 3, 4]);
    let told = |net: &Net| -> Vec<usize> { net.acknowledged.iter().map(|(_, i, _)| *i).collect() };
    let took = net.until("all have acknowledged", 2_000, |net| told(net).len() == 5);
    assert!(took > 100, "{took} ms: not all at once");
    assert_eq!(told(&net).iter().collect::<BTreeSet<_>>().len(), 5);
    net.run(50_000);
    assert_eq!(told(&net).len(), 5);
    // What was written may be gone with the object.
    net.run(15_000);
    assert_eq!(told(&net).len(), 10);
    settle(&mut net, &[]);
    net.run(120_000);
    assert_eq!(told(&net).len(), 10);
}

#[test]
fn an_acknowledgement_that_fails_is_repeated() {
    let mut net = Net::settled(3, 34);
    net.cut_cloud(2);
    reissue(&mut net, &[], &[1, 2]);
    net.run(20_000);
    assert!(net.acknowledged.iter().all(|(_, i, _)| *i != 2));
    net.heal_cloud(2);
    net.until("it is acknowledged", 6_000, |net| {
        net.acknowledged.iter().any(|(_, i, _)| *i == 2)
    });
}

/// The API server was restored from a backup: the controller must go beyond what members have, and they say
/// so. A cache that is behind for less than half a minute is no such server.
#[test]
fn a_later_roster_than_the_api_server_shows_is_acknowledged_until_it_shows_a_later_one() {
    let mut net = Net::settled(5, 36);
    let former = net.spec.clone();
    reissue(&mut net, &[], &[]);
    let last = net.spec.version;
    net.run(10_000);
    let show = |net: &mut Net, spec: &RosterSpec| {
        net.spec = spec.clone();
        net.introduce();
    };
    let later = net.spec.clone();
    show(&mut net, &former);
    net.run(25_000);
    show(&mut net, &later);
    net.run(60_000);
    assert_eq!(net.acknowledged, [], "a cache that was behind");
    show(&mut net, &former);
    net.run(29_000);
    assert_eq!(net.acknowledged, []);
    net.until("all have acknowledged", 3_000, |net| {
        let tellers: BTreeSet<usize> = net.acknowledged.iter().map(|(_, i, _)| *i).collect();
        tellers.len() == 5
    });
    let versions = net.acknowledged.iter().map(|(_, _, (version, ..))| *version);
    assert!(versions.clone().all(|version| i64::try_from(version) == Ok(last)));
    net.run(65_000);
    assert_eq!(net.acknowledged.len(), 10, "again, once a minute");
    net.spec = later;
    reissue(&mut net, &[], &[]);
    net.run(120_000);
    assert_eq!(net.acknowledged.len(), 10);
}

/// Newcomers came on one side of a split: they alone cannot convict the other side, for however long it
/// lasts.
#[test]
fn newcomers_on_one_side_of_a_split_convict_nobody_of_the_other() {
    let mut net = Net::fresh(8, 35);
    let whole = net.spec.clone();
    net.spec
        .members
        .retain(|member| (1..=5).any(|node| Fixture::uid(node) == member.uid));
    for newcomer in 6..=8 {
        net.stop_agent(newcomer);
    }
    for founder in 1..=5 {
        net.start(founder);
    }
    net.run(20_000);
    net.split(&[1, 2, 6, 7, 8], &[3, 4, 5]);
    for lost in 3..=5 {
        net.cut_cloud(lost);
    }
    net.spec = RosterSpec { version: 1, ..whole };
    reissue(&mut net, &[], &[1, 2, 3, 4, 5]);
    for newcomer in 6..=8 {
        net.start(newcomer);
    }
    // They have met the others before the split.
    for i in 1..=8 {
        net.meet_all(i);
    }
    net.run_checking(120_000, |net| assert!((3..=5).all(|i| !net.is_dead(i))));
    settle(&mut net, &[]);
    net.until("nothing else has kept them", 60_000, |net| net.is_dead(3));
}

/// Node 3 gets a kubelet elsewhere, to which a firewall lets nobody: whoever begins anew then has not found
/// it there, though it had where it was.
#[test]
fn a_kubelet_that_moves_behind_a_firewall_convicts_nobody_after_restarts() {
    let mut net = Net::settled(5, 36);
    net.run(30_000);
    net.spec.members[2].kubelet.as_mut().unwrap().address = "10.9.9.9:10250".to_owned();
    net.spec.version += 1;
    net.kubelets.remove(&3);
    net.introduce();
    for i in [1, 2, 4] {
        net.stop_agent(i);
        net.start(i);
    }
    net.run(20_000);
    net.stop_agent(3);
    net.run_checking(40_000, |net| assert!(!net.is_dead(3)));
}

/// Its own word is a ballot, but no vote: reports must not show it in the place of one that readers count.
#[test]
fn a_learner_that_is_cut_off_beside_a_dead_voter_spoils_no_verdict() {
    for seed in 40..46 {
        let mut net = with_learner_by(12, seed);
        net.run(20_000);
        net.cut_cloud(12);
        net.kill(3);
        net.until("the voter is dead", 6_000, |net| net.is_dead(3));
        net.until("the learner is alive", 15_000, |net| net.is_alive(12));
        net.run_checking(30_000, |net| assert!(net.is_dead(3) && net.is_alive(12)));
    }
}

/// Machines that registered over the cloud, and whose UDP is firewalled, are no reason to doubt.
#[test]
fn learners_that_nobody_reaches_do_not_silence_the_voters() {
    let mut net = Net::fresh(6, 36);
    for newcomer in 4..=6 {
        net.kill(newcomer);
    }
    net.spec.version = 1;
    reissue(&mut net, &[4, 5, 6], &[]);
    net.run(30_000);
    net.kill(2);
    net.until("the death is found", 6_000, |net| net.is_dead(2));
}
