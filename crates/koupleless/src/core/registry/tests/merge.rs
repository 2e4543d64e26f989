use super::*;
use rstest::rstest;

const A: &str = "192.0.2.2";

fn heart() -> Observation {
    Observation::MqttHeartbeat(announcement(A, A))
}

#[test]
fn a_port_of_zero_over_http_is_the_usual_one() {
    let mut fixture = Fixture::new();
    fixture.observe(Observation::HttpHeartbeat {
        announcement: announcement(A, A),
        port: 0,
        peer: ip(A),
    });
    assert_eq!(fixture.base(A).endpoint, http(A, 1238));
}

#[test]
fn http_is_preferred_to_mqtt_in_whatever_order_they_come() {
    for order in [[heart(), heartbeat(A, A)], [heartbeat(A, A), heart()]] {
        let mut fixture = Fixture::new();
        for observation in order {
            fixture.observe(observation);
        }
        assert_eq!(fixture.base(A).endpoint, http(A, 1238));
    }
}

#[test]
fn a_base_that_speaks_by_mqtt_alone_for_a_minute_is_reached_so() {
    let mut fixture = Fixture::served(A);
    for _ in 0..6 {
        fixture.pass(10);
        fixture.observe(heart());
    }
    assert_eq!(fixture.base(A).endpoint.by, Connection::Mqtt);
    let changes = fixture.observe(heartbeat(A, A));
    assert!(matches!(&changes[..], [Change::Changed { from }] if from.endpoint.by == Connection::Mqtt));
}

#[test]
fn what_answers_is_not_given_up_for_mqtt() {
    let mut fixture = Fixture::served(A);
    for _ in 0..12 {
        fixture.pass(10);
        fixture.observe(heart());
        fixture.observe(answered(A, A, None));
    }
    assert_eq!(fixture.base(A).endpoint, http(A, 1238));
}

#[test]
fn a_changed_port_is_told() {
    let mut fixture = Fixture::served(A);
    let changes = fixture.observe(Observation::HttpHeartbeat {
        announcement: announcement(A, A),
        port: 1239,
        peer: ip(A),
    });
    assert!(matches!(&changes[..], [Change::Changed { from }] if from.port() == Some(1238)));
    assert_eq!(fixture.base(A).port(), Some(1239));
}

#[rstest]
#[case(Some(UNNAMED), Some("web"), "web")]
#[case(Some("shop"), Some("web"), "shop")]
#[case(Some(UNNAMED), None, UNNAMED)]
#[case(None, Some("web"), "web")]
fn an_unnamed_base_has_the_name_that_others_know(
    #[case] claim: Option<&str>,
    #[case] declared: Option<&str>,
    #[case] name: &str,
) {
    let mut fixture = Fixture::new();
    fixture.observe(Observation::Pod(PodSeen {
        name: declared.map(str::to_owned),
        ..pod_seen("u", A, PodState::Ready)
    }));
    fixture.observe(Observation::HttpHeartbeat {
        announcement: Announcement {
            name: claim.map(str::to_owned),
            ..announcement(A, A)
        },
        port: 1238,
        peer: ip(A),
    });
    assert_eq!(fixture.base(A).name.as_deref(), Some(name));
    assert_eq!(fixture.base(A).pod, Some(pod_ref("u")));
}

#[test]
fn a_base_without_address_is_found_by_its_identity_or_refused() {
    let mut fixture = Fixture::new();
    let nowhere = |identity: &str| {
        Observation::MqttHeartbeat(Announcement {
            address: None,
            ..announcement(identity, A)
        })
    };
    assert_eq!(fixture.observe(nowhere(A)), [Change::Online]);
    assert_eq!(fixture.base(A).endpoint.address, ip(A));
    assert_eq!(fixture.refused(nowhere("shop")), Refused::NoAddress(id("shop")));
    fixture.observe(heartbeat("shop", "192.0.2.7"));
    assert_eq!(fixture.observe(nowhere("shop")), []);
}

#[test]
fn an_address_of_ipv4_in_ipv6_is_the_ipv4_address() {
    let mut fixture = Fixture::new();
    fixture.observe(Observation::HttpHeartbeat {
        announcement: announcement(A, A),
        port: 1238,
        peer: ip("::ffff:192.0.2.2"),
    });
    assert_eq!(fixture.base(A).endpoint.address, ip(A));
}

#[test]
fn a_node_keeps_its_name_when_more_becomes_known() {
    let mut fixture = Fixture::with(Settings::default(), V2_DESIGN);
    fixture.observe(heartbeat(A, A));
    let name = fixture.node(A);
    fixture.observe(pod("u", A, PodState::Ready));
    assert_eq!(fixture.base(A).pod, Some(pod_ref("u")));
    assert_eq!(fixture.node(A), name);
}
