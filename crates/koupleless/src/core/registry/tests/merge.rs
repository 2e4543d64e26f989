use super::*;
use rstest::rstest;

const A: &str = "192.0.2.2";

fn heart() -> Sighting {
    Sighting::Heart(word(A, A))
}

#[test]
fn a_port_of_zero_over_http_is_the_usual_one() {
    let mut room = Room::new();
    room.see(Sighting::Heartbeat {
        word: word(A, A),
        port: 0,
        peer: ip(A),
    });
    assert_eq!(room.base(A).endpoint, http(A, 1238));
}

#[test]
fn http_is_preferred_to_mqtt_in_whatever_order_they_come() {
    for order in [[heart(), heartbeat(A, A)], [heartbeat(A, A), heart()]] {
        let mut room = Room::new();
        for sighting in order {
            room.see(sighting);
        }
        assert_eq!(room.base(A).endpoint, http(A, 1238));
    }
}

#[test]
fn a_base_that_speaks_by_mqtt_alone_for_a_minute_is_reached_so() {
    let mut room = Room::served(A);
    for _ in 0..6 {
        room.pass(10);
        room.see(heart());
    }
    assert_eq!(room.base(A).endpoint.by, Connection::Mqtt);
    let changes = room.see(heartbeat(A, A));
    assert!(matches!(&changes[..], [Change::Changed { from }] if from.endpoint.by == Connection::Mqtt));
}

#[test]
fn what_answers_is_not_given_up_for_mqtt() {
    let mut room = Room::served(A);
    for _ in 0..12 {
        room.pass(10);
        room.see(heart());
        room.see(answered(A, A, None));
    }
    assert_eq!(room.base(A).endpoint, http(A, 1238));
}

#[test]
fn a_changed_port_is_told() {
    let mut room = Room::served(A);
    let changes = room.see(Sighting::Heartbeat {
        word: word(A, A),
        port: 1239,
        peer: ip(A),
    });
    assert!(matches!(&changes[..], [Change::Changed { from }] if from.port() == Some(1238)));
    assert_eq!(room.base(A).port(), Some(1239));
}

#[rstest]
#[case(Some(UNNAMED), Some("web"), "web")]
#[case(Some("shop"), Some("web"), "shop")]
#[case(Some(UNNAMED), None, UNNAMED)]
#[case(None, Some("web"), "web")]
fn an_unnamed_base_has_the_name_that_others_know(
    #[case] said: Option<&str>,
    #[case] declared: Option<&str>,
    #[case] name: &str,
) {
    let mut room = Room::new();
    room.see(Sighting::Pod(PodSeen {
        name: declared.map(str::to_owned),
        ..pod_seen("u", A, PodState::Ready)
    }));
    room.see(Sighting::Heartbeat {
        word: Word {
            name: said.map(str::to_owned),
            ..word(A, A)
        },
        port: 1238,
        peer: ip(A),
    });
    assert_eq!(room.base(A).name.as_deref(), Some(name));
    assert_eq!(room.base(A).pod, Some(pod_ref("u")));
}

#[test]
fn a_base_without_address_is_found_by_its_identity_or_refused() {
    let mut room = Room::new();
    let nowhere = |identity: &str| {
        Sighting::Heart(Word {
            address: None,
            ..word(identity, A)
        })
    };
    assert_eq!(room.see(nowhere(A)), [Change::Online]);
    assert_eq!(room.base(A).endpoint.address, ip(A));
    assert_eq!(room.refused(nowhere("shop")), Refused::NoAddress(id("shop")));
    room.see(heartbeat("shop", "192.0.2.7"));
    assert_eq!(room.see(nowhere("shop")), []);
}

#[test]
fn an_address_of_ipv4_in_ipv6_is_the_ipv4_address() {
    let mut room = Room::new();
    room.see(Sighting::Heartbeat {
        word: word(A, A),
        port: 1238,
        peer: ip("::ffff:192.0.2.2"),
    });
    assert_eq!(room.base(A).endpoint.address, ip(A));
}

#[test]
fn a_node_keeps_its_name_when_more_becomes_known() {
    let mut room = Room::with(Settings::default(), V2_DESIGN);
    room.see(heartbeat(A, A));
    let name = room.node(A);
    room.see(pod("u", A, PodState::Ready));
    assert_eq!(room.base(A).pod, Some(pod_ref("u")));
    assert_eq!(room.node(A), name);
}
