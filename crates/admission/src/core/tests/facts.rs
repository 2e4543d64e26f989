//! Which nodes are Disconnected, as tables over verdicts, Leases and time.

use crate::core::facts::{Cut, Facts, NodeFacts, PolicyFacts, endpoints_policy};
use crate::core::lease::LeaseFacts;
use evenkeel_api::crd::EndpointsPolicy;
use evenkeel_zone::Millis;
use evenkeel_zone::verdict::{Health, Link, NoVerdict, Verdict};
use jiff::Timestamp;
use rstest::rstest;
use std::collections::BTreeMap;

fn alive(cloud: Link, kubelet: Health) -> Verdict {
    Verdict::Alive {
        cloud,
        kubelet,
        runtime: Health::Ok,
    }
}

const CUT: Verdict = Verdict::Alive {
    cloud: Link::Down,
    kubelet: Health::Ok,
    runtime: Health::Ok,
};

fn second(seconds: u64) -> Millis {
    Millis(seconds * 1_000)
}

fn renewal(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

#[rstest]
#[case::cloud_link_down(CUT, true)]
#[case::cloud_link_up(alive(Link::Up, Health::Ok), false)]
#[case::cloud_link_not_known(alive(Link::Unknown, Health::Ok), false)]
#[case::dead(Verdict::Dead { round_began: Millis(0) }, false)]
#[case::plainly_healthy(Verdict::None(NoVerdict::NotListed), false)]
#[case::zone_silent(Verdict::None(NoVerdict::ZoneSilent), false)]
#[case::evidence_ran_out(Verdict::None(NoVerdict::Expired), false)]
#[case::kubelet_just_failed(alive(Link::Down, Health::Failing), true)]
fn a_node_is_disconnected_by_the_word_of_its_peers(#[case] verdict: Verdict, #[case] expected: bool) {
    assert_eq!(Cut::default().is_disconnected(verdict, second(1)), expected);
}

#[test]
fn a_kubelet_that_stays_broken_for_a_minute_is_down_not_disconnected() {
    let mut cut = Cut::default();
    let broken = alive(Link::Down, Health::Failing);
    assert!(cut.is_disconnected(broken, second(0)));
    assert!(cut.is_disconnected(broken, second(59)));
    assert!(!cut.is_disconnected(broken, second(60)));
    // Repaired: disconnected again, and the minute starts over.
    assert!(cut.is_disconnected(CUT, second(61)));
    assert!(cut.is_disconnected(broken, second(62)));
    assert!(cut.is_disconnected(broken, second(121)));
}

#[test]
fn a_link_that_is_just_back_leaves_the_kubelet_a_minute() {
    let mut cut = Cut::default();
    assert!(cut.is_disconnected(CUT, second(0)));
    let back = alive(Link::Up, Health::Ok);
    assert!(cut.is_disconnected(back, second(10)));
    assert!(cut.is_disconnected(back, second(69)));
    assert!(!cut.is_disconnected(back, second(70)));
    assert!(!cut.is_disconnected(back, second(71)));
}

#[test]
fn evidence_that_ran_out_ends_it_at_once() {
    let mut cut = Cut::default();
    assert!(cut.is_disconnected(CUT, second(0)));
    assert!(!cut.is_disconnected(Verdict::None(NoVerdict::Expired), second(1)));
    assert!(!cut.is_disconnected(alive(Link::Up, Health::Ok), second(2)));
}

/// Leases of `shore-1` (renewing) and `shore-2` (silent since 0), looked at until `end`.
fn leases(end: u64) -> LeaseFacts {
    let mut leases = LeaseFacts::default();
    leases.observe(second(0), "shore-2", Some(renewal(1)));
    leases.observe(second(0), "shore-1", Some(renewal(0)));
    for at in (5..=end).step_by(5) {
        leases.observe(second(at), "shore-1", Some(renewal(i64::try_from(at).unwrap())));
    }
    leases
}

#[test]
fn a_lease_is_stale_after_25_seconds_of_a_watch_that_shows_others_renewing() {
    let leases = leases(25);
    assert!(!leases.is_stale("shore-2", Millis(24_999)));
    assert!(leases.is_stale("shore-2", second(25)));
    assert!(!leases.is_stale("shore-1", second(25)));
    assert!(!leases.is_stale("shore-3", second(25)), "a node without a Lease");
}

#[test]
fn a_watch_without_progress_makes_nobody_stale() {
    let leases = leases(5);
    assert!(!leases.is_live(Millis(20_001)));
    assert!(!leases.is_stale("shore-2", second(30)));
    assert!(!leases.is_stale("shore-1", second(60)));
}

#[test]
fn after_a_gap_in_the_watch_the_count_starts_over() {
    let mut leases = leases(5);
    leases.observe(second(60), "shore-1", Some(renewal(60)));
    leases.observe(second(70), "shore-1", Some(renewal(70)));
    assert!(!leases.is_stale("shore-2", Millis(84_999)));
    assert!(leases.is_stale("shore-2", second(85)));
}

#[test]
fn the_same_lease_again_is_no_renewal() {
    let mut leases = leases(25);
    leases.observe(second(26), "shore-2", Some(renewal(1)));
    assert!(leases.is_stale("shore-2", second(26)));
    assert_eq!(leases.renewed_at("shore-2"), None);
    leases.observe(second(27), "shore-2", Some(renewal(27)));
    assert!(!leases.is_stale("shore-2", second(27)));
    assert_eq!(leases.renewed_at("shore-2"), Some(second(27)));
}

fn node(uid: &str, stock_unknown: bool) -> NodeFacts {
    NodeFacts {
        uid: uid.to_owned(),
        labels: BTreeMap::new(),
        stock_unknown,
        ready: (!stock_unknown).then_some(true),
    }
}

fn is_stale(facts: &mut Facts, at: u64) -> bool {
    facts.view(second(at), |_| CUT).nodes["shore-2"].lease_stale
}

#[test]
fn after_a_restart_in_mid_cut_the_stock_mark_proves_that_the_lease_is_stale() {
    let mut facts = Facts::default();
    facts.lease(second(0), "shore-2", Some(renewal(1)));
    facts.node(second(0), "shore-2", node("uid-2", true));
    assert!(is_stale(&mut facts, 0));
}

#[test]
fn a_renewal_after_the_mark_makes_the_lease_fresh_again() {
    let mut facts = Facts::default();
    facts.lease(second(0), "shore-2", Some(renewal(1)));
    facts.node(second(0), "shore-2", node("uid-2", true));
    facts.lease(second(1), "shore-2", Some(renewal(2)));
    assert!(!is_stale(&mut facts, 1));
    // The node is written for another reason: the mark is still the old one.
    facts.node(second(2), "shore-2", node("uid-2", true));
    assert!(!is_stale(&mut facts, 2));
    // The kubelet reports, is lost again, and marked again.
    facts.node(second(3), "shore-2", node("uid-2", false));
    assert!(!is_stale(&mut facts, 3));
    facts.node(second(60), "shore-2", node("uid-2", true));
    assert!(is_stale(&mut facts, 60));
}

#[test]
fn a_kubelets_own_not_ready_stands_until_it_says_otherwise() {
    let mut facts = Facts::default();
    for (at, ready, expected) in [
        (0, Some(true), false),
        (1, Some(false), true),
        (2, None, true),
        (3, Some(true), false),
        (4, None, false),
    ] {
        let facts_of_node = NodeFacts {
            ready,
            ..node("uid-2", ready.is_none())
        };
        facts.node(second(at), "shore-2", facts_of_node);
        let view = facts.view(second(at), |_| CUT);
        assert_eq!(view.nodes["shore-2"].says_not_ready, expected, "at {at} s");
    }
}

#[test]
fn only_disconnected_nodes_are_in_the_view() {
    let mut facts = Facts::default();
    facts.node(second(0), "shore-1", node("uid-1", false));
    facts.node(second(0), "shore-2", node("uid-2", false));
    let view = facts.view(second(1), |uid| {
        if uid == "uid-2" {
            CUT
        } else {
            Verdict::None(NoVerdict::NotListed)
        }
    });
    assert_eq!(view.made_at, Some(second(1)));
    assert_eq!(view.nodes.keys().collect::<Vec<_>>(), ["shore-2"]);
    facts.forget_node("shore-2");
    assert!(facts.view(second(2), |_| CUT).nodes.keys().eq(["shore-1"]));
    facts.retain_nodes(|_| false);
    assert!(facts.view(second(3), |_| CUT).nodes.is_empty());
}

#[test]
fn a_node_that_is_registered_again_starts_without_history() {
    let mut facts = Facts::default();
    facts.node(second(0), "shore-2", node("uid-2", true));
    assert!(is_stale(&mut facts, 1));
    facts.node(second(2), "shore-2", node("uid-9", false));
    assert!(!is_stale(&mut facts, 2));
}

fn policy(labels: &[(&str, &str)], endpoints: Option<EndpointsPolicy>) -> PolicyFacts {
    PolicyFacts {
        node_labels: labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        endpoints,
    }
}

#[rstest]
#[case::no_policy(vec![], EndpointsPolicy::Keep)]
#[case::one(vec![policy(&[], Some(EndpointsPolicy::KeepLocal))], EndpointsPolicy::KeepLocal)]
#[case::the_most_cautious_wins(
    vec![policy(&[], Some(EndpointsPolicy::Stock)), policy(&[], Some(EndpointsPolicy::Keep))],
    EndpointsPolicy::Stock
)]
#[case::says_nothing(vec![policy(&[], None)], EndpointsPolicy::Keep)]
#[case::selects_this_node(vec![policy(&[("role", "edge")], Some(EndpointsPolicy::Stock))], EndpointsPolicy::Stock)]
#[case::selects_others(vec![policy(&[("role", "core")], Some(EndpointsPolicy::Stock))], EndpointsPolicy::Keep)]
#[case::all_labels_count(
    vec![policy(&[("role", "edge"), ("tier", "1")], Some(EndpointsPolicy::Stock))],
    EndpointsPolicy::Keep
)]
fn policies_decide_about_endpoints(#[case] policies: Vec<PolicyFacts>, #[case] expected: EndpointsPolicy) {
    let labels = [("role".to_owned(), "edge".to_owned())].into();
    assert_eq!(endpoints_policy(&labels, &policies), expected);
}
