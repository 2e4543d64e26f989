use super::*;
use rstest::rstest;

const A: &str = "192.0.2.2";
const B: &str = "192.0.2.3";

fn from(peer: &str, identity: &str, address: &str) -> Observation {
    Observation::HttpHeartbeat {
        announcement: announcement(identity, address),
        port: 1238,
        peer: ip(peer),
    }
}

#[test]
fn nobody_speaks_for_another_address() {
    let mut fixture = Fixture::new();
    let refused = fixture.refused(from(B, A, A));
    assert!(matches!(refused, Refused::NotItsAddress { .. }), "{refused}");
}

#[test]
fn addresses_are_translated_on_the_way_to_where_base_pods_are_known() {
    let mut fixture = Fixture::new();
    fixture.observe(pod("u", A, PodState::NotReady));
    assert_eq!(fixture.observe(from(B, A, A)), [Change::Online]);
}

#[test]
fn the_check_of_addresses_can_be_switched_off() {
    let settings = Settings {
        check_addresses: false,
        ..Settings::default()
    };
    let mut fixture = Fixture::with(settings, KOUPLELESS);
    assert_eq!(fixture.observe(from(B, A, A)), [Change::Online]);
}

#[rstest]
#[case("0.0.0.0")]
#[case("255.255.255.255")]
#[case("224.0.0.1")]
#[case("::")]
#[case("ff02::1")]
fn addresses_that_nobody_has_are_refused_in_any_case(#[case] address: &str) {
    let settings = Settings {
        check_addresses: false,
        ..Settings::default()
    };
    let mut fixture = Fixture::with(settings, KOUPLELESS);
    let refused = fixture.refused(from(B, "a", address));
    assert!(matches!(refused, Refused::Unusable { .. }), "{refused}");
}

#[test]
fn a_living_identity_stays_where_it_is_and_a_silent_one_may_move() {
    let mut fixture = Fixture::new();
    fixture.observe(heartbeat("shop", A));
    fixture.serve("shop");
    let refused = fixture.refused(heartbeat("shop", B));
    assert!(matches!(refused, Refused::LivesElsewhere { .. }), "{refused}");
    fixture.pass(20);
    fixture.refused(heartbeat("shop", B));
    assert_eq!(
        fixture.pass(5),
        [Change::Silent],
        "the newcomer is no sign of its life"
    );
    let changes = fixture.observe(heartbeat("shop", B));
    assert!(
        matches!(&changes[..], [Change::Changed { from }, Change::Back] if from.endpoint.address == ip(A)),
        "{changes:?}"
    );
    assert_eq!(fixture.base("shop").endpoint, http(B, 1238));
}

#[test]
fn a_base_pods_address_takes_a_living_identity_over() {
    let mut fixture = Fixture::new();
    fixture.observe(heartbeat("shop", A));
    fixture.serve("shop");
    fixture.observe(pod("u", B, PodState::NotReady));
    assert!(fixture.observe(heartbeat("shop", B)).iter().all(is_changed));
    assert_eq!(fixture.base("shop").endpoint.address, ip(B));
    assert_eq!(fixture.base("shop").pod, Some(pod_ref("u")));
}

#[test]
fn of_two_base_pods_with_one_identity_the_first_has_it() {
    let mut fixture = Fixture::new();
    fixture.observe(pod("u", A, PodState::Ready));
    fixture.observe(pod("v", B, PodState::Ready));
    fixture.observe(heartbeat("shop", A));
    fixture.serve("shop");
    let refused = fixture.refused(heartbeat("shop", B));
    assert!(matches!(refused, Refused::LivesElsewhere { .. }), "{refused}");
}

#[test]
fn a_pod_that_is_declared_to_be_a_base_is_no_other() {
    let mut fixture = Fixture::new();
    fixture.observe(declared("u", A, "shop"));
    let refused = fixture.refused(heartbeat("other", A));
    assert!(matches!(refused, Refused::PodOfAnother { .. }), "{refused}");
    assert_eq!(fixture.observe(heartbeat("shop", A)), [Change::Online]);
}

#[test]
fn nobody_takes_the_address_of_another_base_pod_for_its_name() {
    let mut fixture = Fixture::new();
    fixture.observe(pod("u", A, PodState::Ready));
    let refused = fixture.refused(heartbeat(A, B));
    assert!(matches!(refused, Refused::AddressOfAnother { .. }), "{refused}");
}

#[test]
fn nobody_deactivates_another_base() {
    let mut fixture = Fixture::served(A);
    let forged = Observation::HttpHeartbeat {
        announcement: Announcement {
            active: false,
            ..announcement(A, A)
        },
        port: 1238,
        peer: ip(B),
    };
    fixture.refused(forged);
    fixture.refused(deactivation(A, B));
    assert_eq!(fixture.life(A), Life::Alive);
}

#[test]
fn two_bases_never_share_a_node() {
    // Characters that no name can hold make a digest of the identity necessary, so that names collide by
    // adoption alone.
    let mut fixture = Fixture::new();
    let node: Arc<str> = KOUPLELESS.node_name(&record("shop", B), "dev").into();
    fixture.observe(Observation::Node {
        node: node.clone(),
        record: record("other", A),
    });
    let refused = fixture.refused(heartbeat("shop", B));
    assert!(matches!(refused, Refused::SameNode { .. }), "{refused}");
    let refused = fixture.refused(Observation::Node {
        node,
        record: record("shop", B),
    });
    assert!(matches!(refused, Refused::SameNode { .. }), "{refused}");
    let refused = fixture.refused(Observation::Node {
        node: "another".into(),
        record: record("other", A),
    });
    assert!(matches!(refused, Refused::TwoNodes { .. }), "{refused}");
}

fn record(identity: &str, address: &str) -> Base {
    Base {
        identity: id(identity),
        name: None,
        version: None,
        cluster: None,
        host_name: None,
        endpoint: http(address, 1238),
        pod: None,
    }
}

#[test]
fn bases_are_bounded() {
    let settings = Settings {
        most: 2,
        ..Settings::default()
    };
    let mut fixture = Fixture::with(settings, KOUPLELESS);
    fixture.observe(heartbeat("a", A));
    fixture.observe(heartbeat("b", A));
    assert_eq!(fixture.refused(heartbeat("c", A)), Refused::Full(2));
    assert_eq!(
        fixture.observe(heartbeat("a", A)),
        [],
        "those that are known go on"
    );
}

#[test]
fn a_peer_cannot_make_up_bases_without_end() {
    let settings = Settings {
        newcomers: 2,
        ..Settings::default()
    };
    let mut fixture = Fixture::with(settings, KOUPLELESS);
    for identity in ["a", "b"] {
        fixture.observe(heartbeat(identity, A));
    }
    let refused = fixture.refused(heartbeat("c", A));
    assert!(matches!(refused, Refused::Flood { .. }), "{refused}");
    assert_eq!(
        fixture.observe(heartbeat("a", A)),
        [],
        "those that are known go on"
    );
    assert_eq!(
        fixture.observe(heartbeat("c", B)),
        [Change::Online],
        "and so do other peers"
    );
    fixture.pass(60);
    assert!(fixture.observe(heartbeat("d", A)).contains(&Change::Online));
}

#[test]
fn a_base_that_answers_keeps_its_port() {
    let mut fixture = Fixture::served(A);
    let beat = |port, active| Observation::HttpHeartbeat {
        announcement: Announcement {
            active,
            ..announcement(A, A)
        },
        port,
        peer: A.parse().unwrap(),
    };
    // One that does not say who it is may be another one.
    assert_eq!(fixture.observe(answered(A, A, None)), []);
    assert!(matches!(
        &fixture.observe(beat(1239, true))[..],
        [Change::Changed { .. }]
    ));
    fixture.observe(beat(1238, true));
    assert_eq!(fixture.observe(answered(A, A, Some(A))), []);
    for active in [true, false] {
        let refused = fixture.refused(beat(1239, active));
        assert!(matches!(refused, Refused::AnswersElsewhere { .. }), "{refused}");
    }
    assert_eq!(fixture.observe(beat(1238, true)), [], "its own");
    // It was restarted, and another port was free.
    assert_eq!(fixture.observe(port_refused(A, A)), []);
    assert!(matches!(
        &fixture.observe(beat(1239, true))[..],
        [Change::Changed { .. }]
    ));
    assert_eq!(fixture.base(A).socket(), Some("192.0.2.2:1239".parse().unwrap()));
    // Nobody has asked it for long.
    fixture.observe(Observation::Answered {
        identity: id(A),
        endpoint: http(A, 1239),
        says: Some(id(A)),
    });
    fixture.refused(beat(1240, true));
    fixture.pass(15);
    assert!(matches!(
        &fixture.observe(beat(1240, true))[..],
        [Change::Changed { .. }]
    ));
}
