//! Several replicas, and what earlier processes left.

use super::*;

const A: &str = "192.0.2.2";
const B: &str = "192.0.2.3";

fn record(address: &str) -> Base {
    Base {
        identity: id("shop"),
        name: Some("web".to_owned()),
        version: None,
        cluster: None,
        host_name: None,
        endpoint: http(address, 1238),
        pod: Some(pod_ref("u")),
    }
}

fn node(address: &str) -> Observation {
    Observation::Node {
        node: "vnode.shop.dev".into(),
        record: record(address),
    }
}

fn served(here: bool) -> Observation {
    Observation::Served {
        node: "vnode.shop.dev".into(),
        here,
    }
}

#[test]
fn a_node_of_an_earlier_process_is_adopted_with_a_full_measure_of_silence() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.observe(node(A)), [Change::Online]);
    assert_eq!(fixture.base("shop"), record(A));
    fixture.pass(50);
    assert_eq!(fixture.observe(served(true)), []);
    assert_eq!(fixture.pass(24), []);
    assert_eq!(fixture.pass(1), [Change::Silent]);
    assert_eq!(fixture.pass(34), []);
    assert_eq!(fixture.pass(1), [Change::Lost(silence(60))]);
}

#[test]
fn a_node_keeps_the_name_that_it_has() {
    let mut fixture = Fixture::new();
    fixture.observe(Observation::Node {
        node: "some-other-name".into(),
        record: record(A),
    });
    fixture.observe(heartbeat("shop", A));
    assert_eq!(&*fixture.node("shop"), "some-other-name");
}

#[test]
fn others_bases_are_not_judged() {
    let mut fixture = Fixture::new();
    fixture.observe(node(A));
    assert_eq!(fixture.pass(600), []);
    assert_eq!(fixture.observe(port_refused("shop", A)), []);
    assert_eq!(fixture.observe(Observation::PodDeleted("u".into())), []);
    assert_eq!(fixture.observe(deactivation("shop", A)), []);
}

#[test]
fn what_was_proven_meanwhile_counts_once_the_node_is_ours() {
    let mut fixture = Fixture::new();
    fixture.observe(node(A));
    fixture.observe(Observation::PodDeleted("u".into()));
    let lost = Change::Lost(Evidence::PodDeleted("shop/web-u".to_owned()));
    assert_eq!(fixture.observe(served(true)), [lost]);
    let mut fixture = Fixture::new();
    fixture.observe(node(A));
    fixture.observe(deactivation("shop", A));
    assert_eq!(
        fixture.observe(served(true)),
        [Change::Lost(Evidence::Deactivated)]
    );
}

#[test]
fn a_node_that_others_serve_again_is_not_judged_any_more() {
    let mut fixture = Fixture::new();
    fixture.observe(node(A));
    fixture.observe(served(true));
    assert_eq!(fixture.pass(25), [Change::Silent]);
    assert_eq!(fixture.observe(served(false)), []);
    assert_eq!(fixture.pass(600), []);
    assert_eq!(fixture.life("shop"), Life::Alive);
}

#[test]
fn a_base_whose_node_others_have_removed_is_forgotten() {
    let mut fixture = Fixture::new();
    fixture.observe(node(A));
    let gone = Observation::NodeGone("vnode.shop.dev".into());
    assert_eq!(fixture.observe(gone.clone()), [Change::Left]);
    fixture.observe(node(A));
    fixture.observe(served(true));
    assert_eq!(fixture.observe(gone), [], "ours is registered anew");
}

#[test]
fn a_base_of_which_nobody_makes_a_node_is_forgotten() {
    let mut fixture = Fixture::new();
    fixture.observe(heartbeat("shop", A));
    assert_eq!(fixture.pass(59), []);
    assert_eq!(fixture.pass(1), [Change::Left]);
}

#[test]
fn what_others_heard_of_a_silent_base_brings_it_back() {
    let mut fixture = Fixture::new();
    fixture.observe(node(A));
    fixture.observe(served(true));
    fixture.pass(30);
    let changes = fixture.observe(node(B));
    assert!(
        matches!(&changes[..], [Change::Changed { .. }, Change::Back]),
        "{changes:?}"
    );
    assert_eq!(fixture.base("shop").endpoint.address, ip(B));
    assert_eq!(fixture.observe(node(B)), [], "it is read once");
}

#[test]
fn what_others_heard_of_a_living_base_elsewhere_is_refused() {
    let mut fixture = Fixture::new();
    fixture.observe(node(A));
    fixture.observe(served(true));
    fixture.observe(heartbeat("shop", A));
    let refused = fixture.refused(node(B));
    assert!(matches!(refused, Refused::LivesElsewhere { .. }), "{refused}");
    assert_eq!(fixture.observe(node(B)), [], "it is told once");
    assert_eq!(fixture.base("shop").endpoint.address, ip(A));
    let outdated: Vec<_> = fixture
        .registry
        .outdated()
        .map(|(node, _, ours)| (&**node, ours))
        .collect();
    assert_eq!(
        outdated,
        [("vnode.shop.dev", true)],
        "the Node is to be corrected"
    );
}

#[test]
fn what_others_write_of_their_base_counts() {
    let mut fixture = Fixture::new();
    fixture.observe(node(A));
    fixture.observe(heartbeat("shop", A));
    assert!(fixture.observe(node(B)).iter().all(is_changed));
    assert_eq!(fixture.base("shop").endpoint.address, ip(B));
}

#[test]
fn nodes_of_which_no_node_object_is_there_are_known() {
    let mut fixture = Fixture::new();
    let unseen = |fixture: &Fixture| fixture.registry.unseen().count();
    fixture.observe(heartbeat("shop", A));
    assert_eq!(unseen(&fixture), 1);
    let found = record(A);
    fixture.observe(Observation::Node {
        node: "vnode.shop.dev".into(),
        record: found,
    });
    assert_eq!(unseen(&fixture), 0);
    assert_eq!(
        fixture.registry.outdated().count(),
        1,
        "more is known than it records"
    );
}

#[test]
fn what_is_written_of_a_node_while_it_is_removed_does_not_bring_it_back() {
    let removed = || {
        let mut fixture = Fixture::new();
        fixture.observe(node(A));
        fixture.observe(served(true));
        assert_eq!(fixture.pass(68).len(), 3);
        fixture
    };
    let mut fixture = removed();
    assert_eq!(fixture.observe(node(A)), []);
    fixture.observe(Observation::NodeGone("vnode.shop.dev".into()));
    assert_eq!(fixture.observe(node(A)), [Change::Online], "this is another Node");
    let mut fixture = removed();
    assert_eq!(fixture.observe(heartbeat("shop", A)), [Change::Online]);
    let mut fixture = removed();
    fixture.pass(60);
    assert_eq!(
        fixture.observe(node(A)),
        [Change::Online],
        "nobody has removed it"
    );
}
