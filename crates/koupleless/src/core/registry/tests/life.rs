use super::*;

const A: &str = "192.0.2.2";

#[test]
fn a_base_that_speaks_stays_alive() {
    let mut fixture = Fixture::served(A);
    for _ in 0..20 {
        assert_eq!(fixture.pass(12), []);
        assert_eq!(fixture.observe(heartbeat(A, A)), []);
    }
    assert_eq!(fixture.life(A), Life::Alive);
}

#[test]
fn silence_makes_it_silent_after_25_s_and_lost_after_60_s() {
    let mut fixture = Fixture::served(A);
    assert_eq!(fixture.pass(24), []);
    assert_eq!(fixture.pass(1), [Change::Silent]);
    assert_eq!(fixture.pass(34), []);
    let lost = silence(60);
    assert_eq!(fixture.pass(1), [Change::Lost(lost.clone())]);
    assert_eq!(fixture.pass(7), [], "its pods are deleted meanwhile");
    assert_eq!(fixture.pass(1), [Change::Gone(Why::Lost(lost))]);
    assert_eq!(fixture.registry.len(), 0);
}

#[test]
fn a_node_without_pods_goes_with_its_base() {
    let mut fixture = Fixture::served(A);
    let node = fixture.node(A);
    fixture.pass(60);
    let lost = Change::Gone(Why::Lost(silence(60)));
    assert_eq!(fixture.observe(Observation::Pods { node, count: 0 }), [lost]);
}

/// The silence of all bases of a broker is that of the broker, or ours.
#[test]
fn while_the_broker_is_not_reached_nobody_is_lost_by_silence() {
    let mut fixture = Fixture::new();
    let heart = || Observation::MqttHeartbeat(announcement(A, A));
    assert_eq!(fixture.observe(heart()), [Change::Online]);
    fixture.serve(A);
    let broker = |stands| Observation::Broker { stands };
    assert_eq!(fixture.observe(broker(false)), []);
    assert_eq!(fixture.pass(600), [Change::Silent]);
    assert_eq!(fixture.observe(broker(true)), []);
    assert_eq!(fixture.observe(broker(true)), [], "told twice");
    assert_eq!(fixture.pass(59), [], "a full measure of silence");
    assert_eq!(fixture.pass(1), [Change::Lost(silence(60))]);

    // One that is silent for good is lost although the link is cut again and again.
    let mut fixture = Fixture::new();
    fixture.observe(heart());
    fixture.serve(A);
    let mut changes = Vec::new();
    for _ in 0..6 {
        changes.extend(fixture.pass(10));
        fixture.observe(broker(false));
        changes.extend(fixture.pass(10));
        fixture.observe(broker(true));
    }
    let lost = Change::Lost(silence(60));
    assert_eq!(changes.get(..2), Some(&[Change::Silent, lost][..]), "{changes:?}");

    let mut fixture = Fixture::served(A);
    fixture.observe(broker(false));
    fixture.pass(59);
    let lost = [Change::Lost(silence(60))];
    assert_eq!(fixture.pass(1), lost, "it speaks over HTTP");
}

#[test]
fn answers_and_hearts_are_signs_of_life_like_heartbeats() {
    let heart = || Observation::MqttHeartbeat(announcement(A, A));
    for sign in [
        heart,
        || answered(A, A, None),
        || answered(A, A, Some(A)),
        || heartbeat(A, A),
    ] {
        let mut fixture = Fixture::served(A);
        assert_eq!(fixture.pass(30), [Change::Silent]);
        assert_eq!(fixture.observe(sign()), [Change::Back]);
        assert_eq!(fixture.pass(24), []);
        assert_eq!(fixture.pass(1), [Change::Silent]);
    }
}

#[test]
fn an_answer_from_where_it_is_not_any_more_is_none() {
    let mut fixture = Fixture::served(A);
    fixture.pass(30);
    assert_eq!(fixture.observe(answered(A, "192.0.2.9", None)), []);
    assert_eq!(fixture.life(A), Life::Silent);
}

#[test]
fn a_refused_connection_counts_in_silence_alone() {
    let mut fixture = Fixture::served(A);
    assert_eq!(fixture.observe(port_refused(A, A)), []);
    assert_eq!(fixture.pass(24), []);
    assert_eq!(
        fixture.observe(port_refused(A, A)),
        [],
        "what restarts refuses for a while"
    );
    assert_eq!(fixture.pass(1), [Change::Silent]);
    assert_eq!(
        fixture.observe(port_refused(A, "192.0.2.9")),
        [],
        "somewhere else"
    );
    let lost = Evidence::PortRefused("192.0.2.2:1238".parse().unwrap());
    assert_eq!(fixture.observe(port_refused(A, A)), [Change::Lost(lost.clone())]);
    assert_eq!(fixture.observe(port_refused(A, A)), [], "told once");
    assert_eq!(fixture.pass(34), [], "its node stays for its return");
    assert_eq!(fixture.pass(1), [Change::Gone(Why::Lost(lost))]);
}

#[test]
fn another_base_that_answers_at_its_place_is_proof_in_silence() {
    let mut fixture = Fixture::served(A);
    assert_eq!(fixture.observe(answered(A, A, Some("other"))), []);
    assert_eq!(fixture.pass(25), [Change::Silent]);
    let lost = Evidence::Replaced("192.0.2.2:1238".parse().unwrap(), id("other"));
    assert_eq!(
        fixture.observe(answered(A, A, Some("other"))),
        [Change::Lost(lost)]
    );
}

#[test]
fn a_base_that_restarts_finds_its_node_again() {
    let mut fixture = Fixture::served(A);
    fixture.pass(26);
    fixture.observe(port_refused(A, A));
    fixture.pass(20);
    assert_eq!(fixture.observe(heartbeat(A, A)), [Change::Back]);
    assert_eq!(fixture.life(A), Life::Alive);
    assert_eq!(fixture.pass(24), []);
}

#[test]
fn a_deactivated_base_is_lost_at_once_and_goes_when_its_node_has_no_pods() {
    let mut fixture = Fixture::served(A);
    let node = fixture.node(A);
    let pods = |count| Observation::Pods {
        node: node.clone(),
        count,
    };
    assert_eq!(fixture.observe(pods(2)), []);
    assert_eq!(
        fixture.observe(deactivation(A, A)),
        [Change::Lost(Evidence::Deactivated)]
    );
    assert_eq!(fixture.observe(deactivation(A, A)), [], "told once");
    assert_eq!(
        fixture.observe(answered(A, A, None)),
        [],
        "it answers and does not serve"
    );
    assert_eq!(fixture.observe(pods(1)), []);
    let gone = Change::Gone(Why::Lost(Evidence::Deactivated));
    assert_eq!(fixture.observe(pods(0)), [gone]);
    assert_eq!(
        fixture.observe(deactivation(A, A)),
        [],
        "it is nobody's business any more"
    );
}

#[test]
fn pods_that_were_counted_before_a_base_came_back_count_no_more() {
    let mut fixture = Fixture::served(A);
    let node = fixture.node(A);
    fixture.pass(26);
    let refused = Evidence::PortRefused("192.0.2.2:1238".parse().unwrap());
    assert_eq!(fixture.observe(port_refused(A, A)), [Change::Lost(refused)]);
    fixture.observe(Observation::Pods { node, count: 0 });
    assert_eq!(fixture.observe(heartbeat(A, A)), [Change::Back]);
    let lost = [Change::Lost(Evidence::Deactivated)];
    assert_eq!(
        fixture.observe(deactivation(A, A)),
        lost,
        "there may be pods again"
    );
    assert_eq!(fixture.pass(7), []);
}

#[test]
fn a_deactivated_base_with_pods_goes_after_8_s_although_it_speaks() {
    let mut fixture = Fixture::served(A);
    let node = fixture.node(A);
    fixture.observe(deactivation(A, A));
    for _ in 0..7 {
        // Each that is deleted is replaced.
        let pods = Observation::Pods {
            node: node.clone(),
            count: 3,
        };
        assert_eq!(fixture.observe(pods), []);
        assert_eq!(fixture.pass(1), []);
        assert_eq!(fixture.observe(deactivation(A, A)), []);
    }
    assert_eq!(fixture.pass(1), [Change::Gone(Why::Lost(Evidence::Deactivated))]);
}

#[test]
fn a_deactivated_base_may_come_back() {
    let mut fixture = Fixture::served(A);
    fixture.observe(deactivation(A, A));
    assert_eq!(fixture.observe(heartbeat(A, A)), [Change::Back]);
}

#[test]
fn our_own_pause_is_nobodys_silence() {
    let mut fixture = Fixture::served(A);
    fixture.pass(10);
    fixture.now += 600;
    assert_eq!(fixture.pass(1), []);
    assert_eq!(fixture.pass(14), []);
    assert_eq!(
        fixture.pass(1),
        [Change::Silent],
        "10 s before the pause, 15 s after it"
    );
}

#[test]
fn a_clock_that_goes_back_changes_nothing() {
    let mut fixture = Fixture::served(A);
    fixture.now -= 50;
    assert_eq!(fixture.observe(heartbeat(A, A)), []);
    fixture.now += 50;
    assert_eq!(fixture.pass(24), []);
    assert_eq!(fixture.pass(1), [Change::Silent]);
}

#[test]
fn times_are_settings() {
    let settings = Settings {
        silent: Duration::from_secs(2),
        gone: Duration::from_secs(4),
        ..Settings::default()
    };
    let mut fixture = Fixture::with(settings, KOUPLELESS);
    fixture.observe(heartbeat(A, A));
    fixture.serve(A);
    assert_eq!(fixture.pass(2), [Change::Silent]);
    assert_eq!(fixture.pass(2), [Change::Lost(silence(4))]);
}

#[test]
fn what_nobody_knows_harms_nobody() {
    let mut fixture = Fixture::new();
    let node: Arc<str> = "n".into();
    for observation in [
        deactivation(A, A),
        answered(A, A, None),
        port_refused(A, A),
        Observation::NodeGone(node.clone()),
        Observation::PodDeleted("u".into()),
        Observation::PodForgotten("u".into()),
        Observation::Served {
            node: node.clone(),
            here: true,
        },
        Observation::Pods { node, count: 0 },
    ] {
        assert_eq!(fixture.observe(observation), []);
    }
    assert_eq!(fixture.registry.len(), 0);
}
