//! Who reports, and that it does not change without need.

use super::net::Net;
use crate::fixture::Fixture;
use rstest::rstest;
use std::collections::BTreeSet;

/// Hazards 11 and 45.
#[rstest]
fn in_ten_calm_minutes_the_same_three_stand(#[values(3, 11, 12, 16, 33, 64)] count: u8) {
    let mut net = Net::fresh(count, 50);
    (net.loss_percent, net.jitter_ms) = (1, 60);
    net.run(60_000);
    let calm_from = net.now;
    net.run_checking(600_000, |net| assert!(net.standing.len() <= 3));
    let changes: Vec<_> = net.stands.iter().filter(|(at, ..)| *at >= calm_from).collect();
    assert!(changes.is_empty(), "{changes:?}");
    let mut first: Vec<usize> = net.rendezvous().into_iter().take(3).collect();
    first.sort_unstable();
    assert_eq!(net.standing.iter().copied().collect::<Vec<_>>(), first);
    assert!(net.requests.is_empty(), "nobody was listed");
}

/// An outage that all agents see together, and shorter than a link counts. Those who do not report are back
/// first.
#[rstest]
fn an_outage_of_the_api_server_of_fifteen_seconds_changes_no_reporter(#[values(5, 16, 33)] count: u8) {
    let mut net = Net::fresh(count, 51);
    net.run(60_000);
    let began = net.now;
    for i in 1..=usize::from(count) {
        net.cut_cloud(i);
    }
    net.run(15_000);
    for i in net.rendezvous().into_iter().rev() {
        net.heal_cloud(i);
        net.run(5_000 / u64::from(count));
    }
    net.run(60_000);
    let changes: Vec<_> = net.stands.iter().filter(|(at, ..)| *at >= began).collect();
    assert!(changes.is_empty(), "{changes:?}");
}

/// With 31 of 64 dead, one cell of 25 looks like this. Each of the three watches ten members, of which six
/// are dead, and asks about one: a majority answers.
#[test]
fn reporters_whose_samples_are_mostly_dead_report_where_a_majority_answers() {
    let mut net = Net::fresh(64, 57);
    net.run(60_000);
    let reporters: Vec<usize> = net.rendezvous().into_iter().take(3).collect();
    let mut dead = BTreeSet::new();
    for reporter in &reporters {
        let mut sample = net.subjects_of(*reporter);
        sample.retain(|member| !reporters.contains(member));
        let more = 6_usize.saturating_sub(sample.iter().filter(|member| dead.contains(*member)).count());
        let living = sample.into_iter().filter(|member| !dead.contains(member));
        let dying: Vec<usize> = living.take(more).collect();
        dead.extend(dying);
    }
    assert!(dead.len() < 32, "a majority lives: {dead:?}");
    for i in &dead {
        net.kill(*i);
    }
    net.until("all are announced", 15_000, |net| {
        dead.iter().all(|i| net.is_dead(*i))
    });
}

/// The next in the order hears of it from those who watch the dead.
#[rstest]
fn when_all_three_die_at_once_the_next_one_convicts_them(
    #[values(7, 16, 24)] count: u8,
    #[values(1, 2)] seed: u64,
) {
    let mut net = Net::fresh(count, seed);
    net.run(60_000);
    let dying: Vec<usize> = net.rendezvous().into_iter().take(3).collect();
    for i in &dying {
        net.kill(*i);
    }
    net.until("all of them are dead", 10_000, |net| {
        dying.iter().all(|i| net.is_dead(*i))
    });
    net.run_checking(60_000, |net| assert!(net.standing.len() <= 3));
}

/// Cuts nodes off from all others and from the cloud, or ends that. Their agents and kubelets go on.
fn isolate(net: &mut Net, nodes: &[usize], cut: bool) {
    let others: Vec<usize> = (1..=net.count()).filter(|i| !nodes.contains(i)).collect();
    if cut {
        net.split(nodes, &others);
    } else {
        net.cut.clear();
    }
    for i in nodes {
        if cut {
            net.cut_cloud(*i);
        } else {
            net.heal_cloud(*i);
        }
    }
}

/// Far more of the ranking die together than the others exchange heartbeats with: as many as a majority
/// survives, in the order of the ranking.
#[rstest]
#[case(16, 6)]
#[case(24, 10)]
#[case(64, 16)]
#[case(64, 25)]
fn when_all_the_first_of_the_ranking_die_at_once_the_next_ones_convict_them_in_time(
    #[case] count: u8,
    #[case] dying: usize,
    #[values((0, 56), (0, 60), (10, 56))] (loss_percent, seed): (u64, u64),
) {
    let mut net = Net::fresh(count, seed);
    net.run(60_000);
    let dying: Vec<usize> = net.rendezvous().into_iter().take(dying).collect();
    for i in &dying {
        net.kill(*i);
    }
    net.loss_percent = loss_percent;
    net.until("all of them are dead", 15_000, |net| {
        dying.iter().all(|i| net.is_dead(*i))
    });
    // Those who stand in for them are known to the others from now on, and change no more.
    net.run(30_000);
    let settled = net.now;
    net.run_checking(60_000, |net| assert!(net.standing.len() <= 3));
    let changes: Vec<_> = net.stands.iter().filter(|(at, ..)| *at >= settled).collect();
    assert!(changes.is_empty(), "{changes:?}");
}

/// The first of the ranking were away for some seconds shortly before, so that a search was on already.
#[rstest]
fn a_ranking_that_was_away_and_then_dies_is_searched_for_again(#[values(2_500, 3_500, 4_000)] away: u64) {
    let mut net = Net::fresh(64, 57);
    net.run(60_000);
    let dying: Vec<usize> = net.rendezvous().into_iter().take(16).collect();
    isolate(&mut net, &dying, true);
    net.run(away);
    isolate(&mut net, &dying, false);
    net.run(15_000);
    assert!(
        dying.iter().all(|i| !net.is_dead(*i)),
        "nobody was gone for long enough"
    );
    for i in &dying {
        net.kill(*i);
    }
    net.until("all of them are dead", 15_000, |net| {
        dying.iter().all(|i| net.is_dead(*i))
    });
}

/// Another version of the roster comes in the middle of a search.
#[rstest]
fn a_search_goes_on_when_the_roster_changes(#[values(4_500, 5_500, 6_500)] at: u64) {
    let mut net = Net::fresh(64, 58);
    net.run(60_000);
    let dying: Vec<usize> = net.rendezvous().into_iter().take(25).collect();
    for i in &dying {
        net.kill(*i);
    }
    net.run(at);
    net.spec.version += 1;
    let roster = net.roster();
    for i in (1..=net.count()).filter(|i| !dying.contains(i)) {
        net.teach(i, roster.clone());
    }
    net.until("all of them are dead", 15_000 - at, |net| {
        dying.iter().all(|i| net.is_dead(*i))
    });
}

/// Candidates that have been dead for long begin no searches, though all their observers say without end that
/// they are lost.
#[test]
fn those_who_are_dead_for_long_cost_few_heartbeats() {
    let mut net = Net::fresh(64, 59);
    net.run(60_000);
    let order = net.rendezvous();
    for i in &order[..2] {
        net.kill(*i);
    }
    net.run(120_000);
    let living = &order[2..];
    let watched = |net: &Net, by: usize, i: usize| net.observers_of(i).contains(&by);
    let began = net.now;
    let mut together = 0;
    for _ in 0..60 {
        net.run(1_000);
        for by in living {
            let asked = order[4..8]
                .iter()
                .filter(|i| *i != by && !watched(&net, *by, **i));
            let last = asked.map(|i| net.heartbeats.get(&(*by, *i)).copied().unwrap_or_default());
            let last: Vec<u64> = last.collect();
            let newest = last.iter().max().copied().unwrap_or_default();
            let at_once = last.len() > 1 && last.iter().all(|at| *at == newest);
            together += usize::from(at_once && newest > began && newest + 1_000 >= net.now);
        }
    }
    assert_eq!(together, 0, "searches of {} members in a minute", living.len());
}

/// A zone loses its uplink, and one node has another one. Stock Kubernetes marks a node 40 s after its last
/// renewal, which is up to 10 s old by then.
#[rstest]
fn the_only_member_with_a_link_reports_before_stock_kubernetes_acts(
    #[values(5, 16, 33)] count: u8,
    #[values(false, true)] is_last: bool,
) {
    let mut net = Net::fresh(count, 52);
    net.run(60_000);
    let order = net.rendezvous();
    let only = if is_last { order[order.len() - 1] } else { order[3] };
    let others: Vec<usize> = order.into_iter().filter(|i| *i != only).collect();
    for i in &others {
        net.cut_cloud(*i);
    }
    net.until("all are attested", 29_000, |net| {
        others.iter().all(|i| net.is_alive(*i))
    });
    net.run_checking(60_000, |net| {
        assert!(others.iter().all(|i| net.is_alive(*i)));
    });
    assert_eq!(net.standing.iter().copied().collect::<Vec<_>>(), vec![only]);
}

/// They answer the others every 14 s, and send no edges to themselves.
#[rstest]
fn a_reporter_costs_little_more_than_others(#[values(11, 16, 64)] count: u8) {
    let mut net = Net::fresh(count, 53);
    net.run(60_000);
    net.sent_bytes.clear();
    net.run(60_000);
    let rates: Vec<usize> = net.rendezvous().iter().map(|i| net.sent_bytes[i] / 60).collect();
    let most = rates.iter().skip(4).max().unwrap();
    assert!(
        rates.iter().take(4).all(|rate| *rate <= most + 250),
        "{rates:?} B/s"
    );
    assert!(*most <= 2_300, "{rates:?} B/s");
}

/// In an outage of the API server nobody stands for long, but who will report after it is needed at once.
#[rstest]
fn who_takes_a_dead_reporters_place_in_an_outage_knows_it(#[values(5, 16, 33)] count: u8) {
    let mut net = Net::fresh(count, 58);
    net.run(60_000);
    let order = net.rendezvous();
    let first: BTreeSet<usize> = order.iter().take(3).copied().collect();
    assert_eq!(net.ranked, first);
    for i in 1..=usize::from(count) {
        net.cut_cloud(i);
    }
    net.run(60_000);
    assert!(net.standing.is_empty(), "{:?}", net.standing);
    assert_eq!(net.ranked, first);
    net.kill(order[0]);
    net.until("the next one is ranked", 20_000, |net| {
        net.ranked.contains(&order[3])
    });
    // Who is dead cannot say that it is not.
    let living = net.ranked.iter().filter(|i| **i != order[0]);
    assert_eq!(living.count(), 3);
}

/// Only it has lost its link: the next one takes its place long before 30 s are over, and gives it back.
#[rstest]
fn a_reporter_that_says_that_its_link_is_down_is_replaced_until_it_is_back(#[values(5, 16, 33)] count: u8) {
    let mut net = Net::fresh(count, 54);
    net.run(60_000);
    let order = net.rendezvous();
    let (first, next) = (order[0], order[3]);
    net.cut_cloud(first);
    net.until("the next one stands", 15_000, |net| net.standing.contains(&next));
    net.until("the first one stands no longer", 30_000, |net| {
        !net.standing.contains(&first)
    });
    net.heal_cloud(first);
    net.until("it is as it was", 15_000, |net| {
        net.standing.contains(&first) && !net.standing.contains(&next)
    });
    net.run_checking(30_000, |net| assert_eq!(net.standing.len(), 3));
}

/// A cell without a link, whose reports agents of other cells would write, and which finds none.
#[rstest]
fn without_a_link_the_first_three_that_live_report(
    #[values((7, 3), (16, 5), (33, 9))] (count, dead): (u8, usize),
    #[values(false, true)] cut_first: bool,
) {
    let mut net = Net::fresh(count, 55);
    net.run(60_000);
    let order = net.rendezvous();
    let (dying, living) = order.split_at(dead);
    let cut = |net: &mut Net| order.iter().for_each(|i| net.cut_cloud(*i));
    if cut_first {
        cut(&mut net);
        net.run(90_000);
    }
    for i in dying {
        net.kill(*i);
    }
    if !cut_first {
        // Until no link counts any more, who noticed the cut last goes first.
        cut(&mut net);
        net.run(40_000);
    }
    let ranks = |net: &Net, of: &[usize]| -> Vec<Option<usize>> {
        let engines = of.iter().map(|i| net.engines[i - 1].as_ref().unwrap());
        engines.map(|engine| engine.reporter.rank()).collect()
    };
    let mut expected = vec![None; living.len()];
    expected[..3].copy_from_slice(&[Some(0), Some(1), Some(2)]);
    net.until("the first three that live report", 60_000, |net| {
        ranks(net, living) == expected
    });
    net.until("the first of them knows all dead", 30_000, |net| {
        let engine = net.engines[living[0] - 1].as_ref().unwrap();
        let held = engine.reporter.held();
        held.filter(|(id, _)| dying.iter().any(|i| Fixture::id(*i) == *id))
            .count()
            == dead
    });
    net.run_checking(120_000, |net| assert_eq!(ranks(net, living), expected));
}

/// Beside the only one that has a link, the others that report are those that live; and it knows them.
#[rstest]
fn the_dead_take_no_place_beside_the_only_link(#[values(7, 16)] count: u8) {
    let mut net = Net::fresh(count, 56);
    net.run(60_000);
    let order = net.rendezvous();
    let only = order[4];
    order[..2].iter().for_each(|i| net.kill(*i));
    order
        .iter()
        .filter(|i| **i != only)
        .for_each(|i| net.cut_cloud(*i));
    net.run(60_000);
    let engine = net.engines[only - 1].as_ref().unwrap();
    let reporters = engine.view().ranking(&engine.cx).reporters();
    let roster = engine.roster();
    let reporters: Vec<_> = reporters
        .iter()
        .map(|index| roster.member(*index).unwrap().id)
        .collect();
    assert_eq!(reporters, [only, order[2], order[3]].map(Fixture::id));
    let ranks = order[2..]
        .iter()
        .map(|i| net.engines[i - 1].as_ref().unwrap().reporter.rank());
    let expected = [Some(1), Some(2), Some(0)]
        .into_iter()
        .chain(std::iter::repeat(None));
    assert!(
        ranks.clone().eq(expected.take(order.len() - 2)),
        "{:?}",
        ranks.collect::<Vec<_>>()
    );
}

/// Nobody answers what it sends, for minutes.
#[test]
fn who_hears_nobody_forgets_its_own_heartbeats() {
    let mut net = Net::settled(11, 1);
    net.split(&[1], &(2..=11).collect::<Vec<_>>());
    let mut most = 0;
    for _ in 0..30 {
        net.run(10_000);
        let engine = net.engines[0].as_ref().unwrap();
        most = most.max(engine.contacts.unanswered());
    }
    assert!((1..200).contains(&most), "{most} heartbeats of 3 s");
}

/// The link of the first reporter runs out 1 s before those of the others: for that long it has no rank.
#[rstest]
fn a_rank_that_comes_back_within_a_second_begins_no_rounds_anew(#[values(5, 16)] count: u8) {
    let mut net = Net::fresh(count, 64);
    net.run(60_000);
    let first = net.rendezvous()[0];
    let all: Vec<usize> = (1..=net.count()).collect();
    net.want(&all);
    net.run(20_000);
    let mut last_contact = |nodes: &[usize]| {
        for i in nodes {
            net.heal_cloud(*i);
            net.cut_cloud(*i);
        }
        net.run(1_000);
    };
    last_contact(&[first]);
    last_contact(&all.iter().copied().filter(|i| *i != first).collect::<Vec<_>>());
    net.run(40_000);
    let rounds = net
        .rounds
        .iter()
        .filter(|((asker, _, about), _)| *asker == first && *about == Fixture::id(2));
    let mut rounds: Vec<u64> = rounds.map(|(_, at)| *at).collect();
    rounds.sort_unstable();
    let gaps: Vec<u64> = rounds.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.len() > 10, "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap >= 4_000), "{gaps:?}");
}
