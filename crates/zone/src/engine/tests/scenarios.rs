//! What a zone concludes.

use super::net::{Net, ZONE};
use crate::Millis;
use crate::verdict::{Health, Link, NoVerdict, Verdict, is_storm};
use crate::wire::Facts;
use rstest::rstest;
use std::collections::BTreeSet;

fn nobody_is_dead(net: &Net) {
    for i in 1..=net.count() {
        assert!(!net.is_dead(i), "node-{i} is called dead: {}", net.summary());
    }
}

#[rstest]
fn a_crash_is_a_verdict_within_six_seconds(#[values(3, 4, 5, 6, 7)] count: u8, #[values(1, 2)] seed: u64) {
    let mut net = Net::settled(count, seed);
    let victim = (net.leader() % usize::from(count)) + 1;
    net.kill(victim);
    let took = net.until("the victim is dead", 6_000, |net| net.is_dead(victim));
    assert!(took >= 1_000, "{took} ms is too good to be true");
    for i in (1..=usize::from(count)).filter(|i| *i != victim) {
        assert!(!net.is_listed(i), "node-{i}");
    }
}

#[rstest]
fn the_death_of_the_reporter_costs_no_more(#[values(3, 4, 5, 7)] count: u8, #[values(1, 2, 3)] seed: u64) {
    let mut net = Net::settled(count, seed);
    let victim = net.leader();
    net.kill(victim);
    net.until("the reporter is dead", 6_000, |net| net.is_dead(victim));
}

#[rstest]
fn a_second_victim_while_the_first_stays_dead(#[values(5, 7)] count: u8) {
    let mut net = Net::settled(count, 7);
    net.kill(2);
    net.until("the first is dead", 6_000, |net| net.is_dead(2));
    net.run(20_000);
    net.kill(4);
    net.until("the second is dead", 6_000, |net| net.is_dead(4));
    assert!(net.is_dead(2));
}

#[test]
fn two_at_once_are_found_in_one_go() {
    let mut net = Net::settled(7, 3);
    net.kill(2);
    net.kill(5);
    net.until("both are dead", 6_500, |net| net.is_dead(2) && net.is_dead(5));
    assert!(
        is_storm(&[net.book.deaths(ZONE, Millis(net.now))]),
        "two of seven within a minute, by signed evidence, are a storm"
    );
    net.run(75_000);
    assert!(!is_storm(&[net.book.deaths(ZONE, Millis(net.now))]) && net.is_dead(2) && net.is_dead(5));
}

#[rstest]
fn a_node_cut_from_the_cloud_is_attested_alive_for_as_long_as_it_lives(#[values(3, 5)] count: u8) {
    let mut net = Net::settled(count, 4);
    let cut = net.leader();
    net.cut_cloud(cut);
    net.until("it is attested", 13_000, |net| net.is_alive(cut));
    net.run_checking(60_000, |net| {
        let expected = Facts {
            cloud: Link::Down,
            kubelet: Health::Ok,
            runtime: Health::Ok,
        };
        assert_eq!(net.vouched(cut), Some(expected));
        nobody_is_dead(net);
    });
    // And when it dies too, that is seen.
    net.kill(cut);
    net.until("it is dead", 6_000, |net| net.is_dead(cut));
}

const WELL: Facts = Facts {
    cloud: Link::Up,
    kubelet: Health::Ok,
    runtime: Health::Ok,
};

#[rstest]
fn a_wanted_member_is_attested_alive_for_as_long_as_it_is_wanted_though_it_looks_healthy(
    #[values(3, 5, 16)] count: u8,
    #[values(false, true)] reports_itself: bool,
) {
    let mut net = Net::settled(count, 30);
    net.run(40_000);
    let step = usize::from(!reports_itself);
    let wanted = (net.leader() - 1 + step) % usize::from(count) + 1;
    assert!(!net.is_listed(wanted));
    net.want(&[wanted]);
    net.until("it is attested", 3_000, |net| net.vouched(wanted) == Some(WELL));
    net.run_checking(60_000, |net| assert_eq!(net.vouched(wanted), Some(WELL)));
    net.want(&[]);
    net.until("it is off the list", 10_000, |net| !net.is_listed(wanted));
    net.run_checking(20_000, |net| {
        assert!(!net.is_listed(wanted));
    });
}

#[test]
fn a_wanted_member_that_dies_and_returns_stays_listed_until_it_is_no_longer_wanted() {
    let mut net = Net::settled(5, 31);
    net.want(&[3]);
    net.until("it is attested", 3_000, |net| net.vouched(3) == Some(WELL));
    net.kill(3);
    net.until("it is dead", 6_000, |net| net.is_dead(3));
    net.run(30_000);
    net.revive(3);
    net.until("there is evidence of life", 6_000, |net| net.is_alive(3));
    net.run_checking(60_000, |net| {
        assert!(net.is_alive(3), "{}", net.summary());
    });
    net.want(&[]);
    net.until("it is acquitted", 25_000, |net| !net.is_listed(3));
}

#[test]
fn wanted_members_that_left_the_roster_trouble_nobody() {
    let mut net = Net::settled(3, 32);
    net.want(&[2, 7]);
    net.until("node-2 is attested", 3_000, |net| net.vouched(2) == Some(WELL));
    net.run_checking(20_000, |net| assert_eq!(net.listed().len(), 1));
}

fn gaps(times: &[u64]) -> Vec<u64> {
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[rstest]
fn a_young_death_is_voted_on_every_four_seconds_and_an_old_one_every_nine(#[values(3, 5, 7)] count: u8) {
    let mut net = Net::settled(count, 33);
    let reporter = net.leader();
    let victim = reporter % usize::from(count) + 1;
    net.kill(victim);
    net.until("the victim is dead", 6_000, |net| net.is_dead(victim));
    let dead_at = net.now;
    net.run(120_000);
    // From the round that was the first to end with a death.
    let rounds = net.rounds_of(reporter, victim);
    let first = rounds.iter().rposition(|at| *at < dead_at).unwrap();
    let gaps = gaps(&rounds[first..]);
    assert_eq!(gaps[..15], [4_000; 15], "the first minute");
    assert!(
        gaps[17..].iter().all(|gap| *gap == 9_000) && gaps.len() >= 20,
        "afterwards: {gaps:?}"
    );
}

#[test]
fn a_healed_cloud_link_takes_the_node_off_the_list() {
    let mut net = Net::settled(3, 5);
    net.cut_cloud(2);
    net.until("it is attested", 13_000, |net| net.is_alive(2));
    net.cut.clear();
    net.until("it is well", 15_000, |net| !net.is_listed(2));
}

#[test]
fn a_node_that_returns_is_alive_first_and_acquitted_later() {
    let mut net = Net::settled(5, 6);
    net.kill(3);
    net.until("it is dead", 6_000, |net| net.is_dead(3));
    net.run(30_000);
    assert!(net.is_dead(3));
    net.revive(3);
    net.until("there is evidence of life", 6_000, |net| net.is_alive(3));
    let took = net.until("it is acquitted", 25_000, |net| !net.is_listed(3));
    assert!(took >= 10_000, "acquitted after {took} ms");
    net.run_checking(30_000, nobody_is_dead);
}

#[rstest]
#[case::half_and_half(&[1, 2], &[3, 4])]
#[case::two_of_five(&[1, 2, 3], &[4, 5])]
fn the_minority_side_of_a_split_convicts_nobody(#[case] left: &[usize], #[case] right: &[usize]) {
    let count = left.len() + right.len();
    let mut net = Net::settled(u8::try_from(count).unwrap(), 8);
    net.split(left, right);
    net.run_checking(40_000, |net| {
        for i in left {
            assert!(!net.is_dead(*i), "node-{i} is called dead by the smaller side");
        }
    });
    let convicted = right.iter().filter(|i| net.is_dead(**i)).count();
    // Two halves decide nothing; three of five are a majority and cannot tell the other side from dead.
    assert_eq!(convicted, if left.len() > right.len() { right.len() } else { 0 });
    net.cut.clear();
    net.until("everybody is well again", 40_000, |net| {
        (1..=count).all(|i| !net.is_listed(i))
    });
}

/// Hazard 51: what one of four or five sees wrongly of all others makes no storm.
#[rstest]
fn one_broken_direction_at_one_node_convicts_none_of_the_others(
    #[values(4, 5)] count: u8,
    #[values(true, false)] deaf: bool,
) {
    let mut net = Net::settled(count, 9);
    let others = || (1..=usize::from(count)).filter(|i| *i != 3);
    for i in others() {
        net.cut.insert(if deaf { (i, 3) } else { (3, i) });
    }
    net.run_checking(40_000, |net| {
        for i in others() {
            assert!(!net.is_dead(i), "node-{i}");
        }
        let deaths = net.book.deaths(ZONE, Millis(net.now));
        assert!(deaths.recent <= usize::from(!deaf), "{deaths:?}");
        assert!(!is_storm(&[deaths]));
        // Who still sends is not dead, though it hears nothing.
        assert!(!(deaf && net.is_dead(3)));
    });
}

#[test]
fn a_pair_that_cannot_talk_convicts_nobody() {
    let mut net = Net::settled(3, 10);
    net.split(&[1], &[2]);
    net.run_checking(40_000, nobody_is_dead);
    assert!(net.listed().is_empty(), "{}", net.summary());
}

#[rstest]
#[case(10)]
#[case(30)]
fn loss_convicts_nobody_and_hides_no_death(#[case] percent: u64) {
    let mut net = Net::settled(5, 11);
    net.loss_percent = percent;
    net.run_checking(60_000, nobody_is_dead);
    net.kill(2);
    net.until("the victim is dead", 10_000, |net| net.is_dead(2));
}

#[test]
fn a_silent_agent_on_a_living_node_is_not_dead() {
    let mut net = Net::settled(3, 12);
    net.stop_agent(3);
    net.until("the kubelet vouches for the node", 8_000, |net| net.is_alive(3));
    net.run_checking(30_000, nobody_is_dead);
    let unknown = Facts {
        cloud: Link::Unknown,
        kubelet: Health::Ok,
        runtime: Health::Unknown,
    };
    assert_eq!(net.vouched(3), Some(unknown));
}

/// Hazard 57: a rollout that takes two agents at a time.
#[test]
fn two_agents_that_are_down_are_no_storm() {
    let mut net = Net::settled(5, 12);
    let nobody_died = |net: &Net| {
        let deaths = net.book.deaths(ZONE, Millis(net.now));
        assert_eq!((deaths.recent, deaths.members), (0, 5), "{}", net.summary());
    };
    for pair in [[1, 2], [3, 4]] {
        for agent in pair {
            net.stop_agent(agent);
        }
        net.run_checking(20_000, nobody_died);
        assert!(pair.iter().all(|agent| net.is_alive(*agent)), "{}", net.summary());
        for agent in pair {
            net.start(agent);
        }
        net.run_checking(20_000, nobody_died);
    }
}

/// Hazard 11: while something is wrong, everybody tells everybody in each period, because what was told may
/// be lost.
#[test]
fn what_is_wrong_is_told_in_every_period() {
    let mut net = Net::settled(5, 12);
    net.run(20_000);
    net.edges.clear();
    net.run(20_000);
    assert_eq!(net.edges, [], "all is well");
    net.kill(5);
    net.run(24_000);
    let until = net.now;
    for (from, to) in (1..=4).flat_map(|from| (1..=4).map(move |to| (from, to))) {
        let mut times: Vec<u64> = net
            .edges
            .iter()
            .filter(|(_, i, j)| (*i, *j) == (from, to))
            .map(|(at, ..)| *at)
            .collect();
        times.push(until);
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max();
        // A period is 2 s, and a step of this network 10 ms.
        assert_eq!(
            longest.is_none_or(|longest| longest > 2_010),
            from == to,
            "{from} to {to}"
        );
    }
}

#[test]
fn a_dead_kubelet_under_a_living_agent_is_not_dead() {
    let mut net = Net::settled(3, 13);
    net.kubelets.remove(&2);
    net.until("the kubelet is known to fail", 8_000, |net| {
        matches!(
            net.vouched(2),
            Some(Facts {
                cloud: Link::Up,
                kubelet: Health::Failing,
                ..
            })
        )
    });
    net.run_checking(30_000, nobody_is_dead);
}

#[rstest]
fn an_agent_killed_and_started_again_changes_nothing_and_sees_the_next_death(
    #[values(1, 2, 3)] restarted: usize,
) {
    let mut net = Net::settled(3, 14);
    net.stop_agent(restarted);
    net.run_checking(1_000, nobody_is_dead);
    net.start(restarted);
    net.run_checking(20_000, nobody_is_dead);
    let victim = restarted % 3 + 1;
    net.kill(victim);
    net.until("the victim is dead", 6_500, |net| net.is_dead(victim));
}

#[rstest]
fn a_node_that_is_cut_off_is_vouched_for_through_a_restart_of_all_agents(
    #[values(0, 1_100, 2_200, 3_300)] later_ms: u64,
) {
    let mut net = Net::settled(5, later_ms);
    net.cut_cloud(2);
    net.until("it is attested", 13_000, |net| net.is_alive(2));
    // As the controller does with a node that is Disconnected.
    net.want(&[2]);
    net.run(10_000 + later_ms);
    for i in 1..=5 {
        net.stop_agent(i);
    }
    let vouched_for = |net: &Net| assert!(net.is_alive(2), "{}", net.summary());
    net.run_checking(7_000, vouched_for);
    for i in 1..=5 {
        net.start(i);
    }
    net.run_checking(30_000, vouched_for);
}

#[test]
fn verdicts_outlive_the_restart_of_any_agent() {
    let mut net = Net::settled(3, 15);
    net.kill(3);
    net.until("the victim is dead", 6_000, |net| net.is_dead(3));
    for restarted in [1, 2] {
        net.stop_agent(restarted);
        net.run(500);
        net.start(restarted);
        net.run_checking(25_000, |net| assert!(net.is_dead(3), "{}", net.summary()));
    }
    // The survivors remember that they have seen the victim alive, and confirm its death again.
    let written = net.written.len();
    net.run(25_000);
    assert!(net.written.len() >= written + 2);
}

#[test]
fn a_subject_never_seen_alive_gets_no_verdict() {
    let mut net = Net::fresh(3, 16);
    net.kill(3);
    net.run_checking(40_000, nobody_is_dead);
    assert_eq!(net.verdict(3), Verdict::None(NoVerdict::NoMajority));
}

/// Hazard 46: nobody has ever found the machine, so that a check that fails says nothing of it.
#[test]
fn where_a_firewall_drops_checks_an_agent_that_stops_is_no_dead_machine() {
    let mut net = Net::fresh(5, 16);
    net.checks_are_dropped = true;
    for i in 1..=5 {
        net.start(i);
    }
    net.run(60_000);
    net.stop_agent(3);
    net.run_checking(40_000, nobody_is_dead);
    assert_eq!(net.not_found_by(1), [2, 3, 4, 5].into());
    // The port is opened.
    net.checks_are_dropped = false;
    net.start(3);
    net.until("checks find everybody", 700_000, |net| {
        (1..=5).all(|i| net.not_found_by(i).is_empty())
    });
    net.kill(3);
    net.until("a death is found", 6_000, |net| net.is_dead(3));
}

/// The port is closed after everybody was found. Agents that begin anew find that out at once, the others
/// within 5 x 90 s.
#[rstest]
fn a_port_that_is_closed_later_makes_no_agent_that_stops_a_dead_machine(
    #[values(true, false)] upgraded: bool,
) {
    let mut net = Net::settled(5, 23);
    net.run(30_000);
    net.checks_are_dropped = true;
    if upgraded {
        for i in [1, 2, 4] {
            net.stop_agent(i);
            net.start(i);
            net.run(10_000);
        }
    } else {
        net.run(500_000);
    }
    net.stop_agent(3);
    net.run_checking(40_000, nobody_is_dead);
    // What they have learned outlives them.
    for i in [1, 2, 4] {
        net.stop_agent(i);
        net.start(i);
    }
    net.run_checking(40_000, nobody_is_dead);
}

/// It was away for so long that checks of it had become rare, and the first ones after its return fail.
#[test]
fn a_machine_that_is_back_after_long_is_checked_as_often_as_a_new_one() {
    let mut net = Net::settled(5, 24);
    net.run(30_000);
    net.kill(3);
    net.run(1_200_000);
    net.checks_are_dropped = true;
    net.revive(3);
    net.run(30_000);
    net.checks_are_dropped = false;
    net.run(45_000);
    net.kill(3);
    net.until("a death is found", 8_000, |net| net.is_dead(3));
}

#[test]
fn three_of_five_dead_is_no_verdict_and_no_sign_of_life() {
    let mut net = Net::settled(5, 17);
    for i in [1, 2, 3] {
        net.kill(i);
    }
    net.run_checking(40_000, |net| {
        nobody_is_dead(net);
        assert!((1..=5).all(|i| !net.is_alive(i)));
    });
    assert!(
        net.book.advanced(ZONE).is_some_and(|at| net.now - at.0 > 30_000),
        "silent"
    );
}

/// Whoever of them holds the Lease, which lasts for long.
#[rstest]
fn of_two_one_convicts_nobody_and_says_so(#[values(true, false)] holder_dies: bool) {
    let mut net = Net::settled(2, 18);
    if holder_dies {
        net.freeze_lease();
    }
    net.kill(2);
    net.until("one vote short", 12_000, |net| {
        matches!(net.verdict(2), Verdict::OneShort(_))
    });
    net.run_checking(20_000, nobody_is_dead);
}

#[test]
fn one_node_alone_reports_and_judges_nobody() {
    let net = Net::settled(1, 19);
    assert!(!net.is_listed(1));
}

#[test]
fn a_paused_agent_accuses_nobody_when_it_resumes() {
    let mut net = Net::settled(3, 20);
    net.run_without(1, 4_000);
    net.run_checking(30_000, nobody_is_dead);
}

#[test]
fn a_reporter_that_keeps_a_verdict_back_is_overtaken() {
    let mut net = Net::settled(5, 21);
    let leader = net.leader();
    net.lying.insert(leader);
    let victim = leader % 5 + 1;
    net.kill(victim);
    net.until("the victim is dead", 8_000, |net| net.is_dead(victim));
    let told = |(_, i, summary): &(u64, usize, String)| (summary.contains("dead")).then_some(*i);
    let tellers: BTreeSet<usize> = net.written.iter().filter_map(told).collect();
    assert!(!tellers.is_empty() && !tellers.contains(&leader), "{tellers:?}");
}

#[test]
fn a_node_that_joins_is_watched_and_its_death_seen() {
    let mut net = Net::settled(4, 22);
    let whole = net.spec.clone();
    let mut part = whole.clone();
    part.members.pop();
    let mut net_of_three = Net::fresh(4, 22);
    net_of_three.spec = part;
    std::mem::swap(&mut net, &mut net_of_three);
    net.stop_agent(4);
    for i in 1..=3 {
        net.start(i);
    }
    net.run(20_000);
    net.spec = evenkeel_api::zone::RosterSpec { version: 2, ..whole };
    net.start(4);
    net.introduce();
    net.run(20_000);
    net.run_checking(5_000, nobody_is_dead);
    net.kill(4);
    net.until("the newcomer is dead", 6_000, |net| net.is_dead(4));
}

#[test]
fn traffic_stays_below_two_kilobytes_a_second_up_to_eleven_nodes() {
    for count in [3, 7, 11] {
        let mut net = Net::settled(count, 23);
        net.sent_bytes.clear();
        net.run(20_000);
        for (i, bytes) in &net.sent_bytes {
            assert!(
                bytes / 20 <= 2_048,
                "node-{i} of {count} sends {} B/s",
                bytes / 20
            );
        }
    }
}

#[test]
fn a_zone_above_all_pairs_size_finds_its_dead() {
    let mut net = Net::fresh(16, 24);
    net.run(50_000);
    let victim = net.leader() % 16 + 1;
    net.kill(victim);
    net.until("the victim is dead", 7_000, |net| net.is_dead(victim));
    let cut = (victim % 16) + 1;
    net.cut_cloud(cut);
    net.until("the cut node is attested", 15_000, |net| net.is_alive(cut));
    net.run_checking(20_000, |net| assert!(net.is_alive(cut) && net.is_dead(victim)));
}

#[test]
fn a_death_whose_observers_all_died_too_is_found() {
    let mut net = Net::fresh(24, 25);
    net.run(60_000);
    let victim = net.leader() % 24 + 1;
    let mut dying = net.observers_of(victim);
    dying.push(victim);
    assert!(dying.len() <= 11, "a majority is left");
    for i in &dying {
        net.kill(*i);
    }
    net.until("all of them are dead", 20_000, |net| {
        dying.iter().all(|i| net.is_dead(*i))
    });
    // And none of them is acquitted because nobody is left who watches it.
    net.run_checking(40_000, |net| assert!(dying.iter().all(|i| net.is_dead(*i))));
}

#[rstest]
fn a_change_of_reporters_forgets_no_attested_node(#[values(1, 2, 3, 4, 5, 6)] seed: u64) {
    let mut net = Net::settled(5, 100 + seed);
    let cut = net.leader() % 5 + 1;
    net.cut_cloud(cut);
    net.until("it is attested", 13_000, |net| net.is_alive(cut));
    for pause in [3_500, 6_500] {
        let leader = net.leader();
        net.run_without_checking(leader, pause, |net| {
            assert!(net.is_alive(cut), "{}", net.summary());
        });
        net.run_checking(20_000, |net| {
            assert!(net.is_alive(cut), "{}", net.summary());
        });
    }
}

#[rstest]
fn nodes_that_join_while_others_are_cut_off_do_not_silence_them(#[values(26, 27)] seed: u64) {
    // Nodes 1 to 3 of five lose the cloud, then two nodes join: they are strangers to the cut ones.
    let mut net = Net::fresh(7, seed);
    let whole = net.spec.clone();
    net.spec.members.truncate(5);
    for i in [6, 7] {
        net.stop_agent(i);
    }
    for i in 1..=5 {
        net.start(i);
    }
    net.run(20_000);
    for i in 1..=3 {
        net.cut_cloud(i);
        // Nobody outside of the node can reach its kubelet.
        net.kubelets.remove(&i);
    }
    net.until("they are attested", 13_000, |net| {
        (1..=3).all(|i| net.is_alive(i))
    });
    net.spec = evenkeel_api::zone::RosterSpec { version: 2, ..whole };
    for i in [6, 7] {
        net.start(i);
    }
    for i in 4..=7 {
        let roster = net.roster();
        net.teach(i, roster);
    }
    net.run_checking(60_000, |net| {
        assert!((1..=3).all(|i| net.is_alive(i)), "{}", net.summary());
    });
}
