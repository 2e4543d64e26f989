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

fn node(address: &str) -> Sighting {
    Sighting::Node {
        node: "vnode.shop.dev".into(),
        record: record(address),
    }
}

fn served(here: bool) -> Sighting {
    Sighting::Served {
        node: "vnode.shop.dev".into(),
        here,
    }
}

#[test]
fn a_node_of_an_earlier_process_is_adopted_with_a_full_measure_of_silence() {
    let mut room = Room::new();
    assert_eq!(room.see(node(A)), [Change::Online]);
    assert_eq!(room.base("shop"), record(A));
    room.pass(50);
    assert_eq!(room.see(served(true)), []);
    assert_eq!(room.pass(24), []);
    assert_eq!(room.pass(1), [Change::Silent]);
    assert_eq!(room.pass(34), []);
    assert_eq!(room.pass(1).len(), 2);
}

#[test]
fn a_node_keeps_the_name_that_it_has() {
    let mut room = Room::new();
    room.see(Sighting::Node {
        node: "some-other-name".into(),
        record: record(A),
    });
    room.see(heartbeat("shop", A));
    assert_eq!(&*room.node("shop"), "some-other-name");
}

#[test]
fn others_bases_are_not_judged() {
    let mut room = Room::new();
    room.see(node(A));
    assert_eq!(room.pass(600), []);
    assert_eq!(room.see(port_refused("shop", A)), []);
    assert_eq!(room.see(Sighting::PodDeleted("u".into())), []);
    assert_eq!(room.see(deactivation("shop", A)), []);
}

#[test]
fn what_was_proven_meanwhile_counts_once_the_node_is_ours() {
    let mut room = Room::new();
    room.see(node(A));
    room.see(Sighting::PodDeleted("u".into()));
    let lost = Change::Lost(Evidence::PodDeleted("shop/web-u".to_owned()));
    assert_eq!(room.see(served(true)), [lost]);
    let mut room = Room::new();
    room.see(node(A));
    room.see(deactivation("shop", A));
    assert_eq!(room.see(served(true)), [Change::Lost(Evidence::Deactivated)]);
}

#[test]
fn a_node_that_others_serve_again_is_not_judged_any_more() {
    let mut room = Room::new();
    room.see(node(A));
    room.see(served(true));
    assert_eq!(room.pass(25), [Change::Silent]);
    assert_eq!(room.see(served(false)), []);
    assert_eq!(room.pass(600), []);
    assert_eq!(room.life("shop"), Life::Alive);
}

#[test]
fn a_base_whose_node_others_have_removed_is_forgotten() {
    let mut room = Room::new();
    room.see(node(A));
    let gone = Sighting::NodeGone("vnode.shop.dev".into());
    assert_eq!(room.see(gone.clone()), [Change::Left]);
    room.see(node(A));
    room.see(served(true));
    assert_eq!(room.see(gone), [], "ours is registered anew");
}

#[test]
fn a_base_of_which_nobody_makes_a_node_is_forgotten() {
    let mut room = Room::new();
    room.see(heartbeat("shop", A));
    assert_eq!(room.pass(59), []);
    assert_eq!(room.pass(1), [Change::Left]);
}

#[test]
fn what_others_heard_of_a_silent_base_brings_it_back() {
    let mut room = Room::new();
    room.see(node(A));
    room.see(served(true));
    room.pass(30);
    let changes = room.see(node(B));
    assert!(
        matches!(&changes[..], [Change::Changed { .. }, Change::Back]),
        "{changes:?}"
    );
    assert_eq!(room.base("shop").endpoint.address, ip(B));
    assert_eq!(room.see(node(B)), [], "it is read once");
}

#[test]
fn what_others_heard_of_a_living_base_elsewhere_is_refused() {
    let mut room = Room::new();
    room.see(node(A));
    room.see(served(true));
    room.see(heartbeat("shop", A));
    let refused = room.refused(node(B));
    assert!(matches!(refused, Refused::LivesElsewhere { .. }), "{refused}");
    assert_eq!(room.see(node(B)), [], "it is told once");
    assert_eq!(room.base("shop").endpoint.address, ip(A));
    let outdated: Vec<_> = room
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
    let mut room = Room::new();
    room.see(node(A));
    room.see(heartbeat("shop", A));
    assert!(room.see(node(B)).iter().all(is_changed));
    assert_eq!(room.base("shop").endpoint.address, ip(B));
}

#[test]
fn nodes_of_which_no_node_object_is_there_are_known() {
    let mut room = Room::new();
    let unseen = |room: &Room| room.registry.unseen().count();
    room.see(heartbeat("shop", A));
    assert_eq!(unseen(&room), 1);
    let found = record(A);
    room.see(Sighting::Node {
        node: "vnode.shop.dev".into(),
        record: found,
    });
    assert_eq!(unseen(&room), 0);
    assert_eq!(
        room.registry.outdated().count(),
        1,
        "more is known than it records"
    );
}

#[test]
fn what_is_written_of_a_node_while_it_is_removed_does_not_bring_it_back() {
    let removed = || {
        let mut room = Room::new();
        room.see(node(A));
        room.see(served(true));
        assert_eq!(room.pass(60).len(), 3);
        room
    };
    let mut room = removed();
    assert_eq!(room.see(node(A)), []);
    room.see(Sighting::NodeGone("vnode.shop.dev".into()));
    assert_eq!(room.see(node(A)), [Change::Online], "this is another Node");
    let mut room = removed();
    assert_eq!(room.see(heartbeat("shop", A)), [Change::Online]);
    let mut room = removed();
    room.pass(60);
    assert_eq!(room.see(node(A)), [Change::Online], "nobody has removed it");
}
