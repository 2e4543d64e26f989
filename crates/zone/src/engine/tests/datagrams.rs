//! What an engine believes of what it is sent.

use super::heard;
use crate::Millis;
use crate::engine::{Config, Engine, Identity, Input, Met, Output};
use crate::fixture::Fixture;
use crate::keys::{Signer, SigningKey};
use crate::roster::MemberId;
use crate::wire::{self, Ack, Ballot, Body, Header, Heartbeat, Message};
use proptest::prelude::*;
use std::sync::Arc;

const NOW: Millis = Millis(50_000);

/// The agent of node 1 of three.
fn engine() -> Engine {
    engine_in(&Fixture::new(3))
}

fn engine_in(zone: &Fixture) -> Engine {
    let identity = Identity {
        uid: Fixture::uid(1),
        key: zone.signer(1),
        incarnation: 77,
        sequence_base: 0,
        seed: [5; 32],
        uptime_ms: 3_600_000,
        met: Met::default(),
    };
    Engine::new(Config::default(), identity, Arc::new(zone.roster()), NOW).verifying_with(zone.verifier())
}

fn datagram(from: usize, to: usize, incarnation: u64, sequence: u64, body: Body) -> Vec<u8> {
    let (zone, header) = (Fixture::new(3), header(from, to, incarnation, sequence));
    zone.seal(zone.key(from), header, &body)
}

fn header(from: usize, to: usize, incarnation: u64, sequence: u64) -> Header {
    Header {
        from: Fixture::id(from),
        to: Fixture::id(to),
        incarnation,
        sequence,
    }
}

fn heartbeat(incarnation: u64, sequence: u64) -> Vec<u8> {
    datagram(2, 1, incarnation, sequence, Body::Heartbeat(Heartbeat::default()))
}

fn sent(outputs: &[Output]) -> Vec<Message> {
    let zone = Fixture::new(3);
    let open = |output: &Output| match output {
        Output::Send { bytes, .. } => Some(zone.open(bytes).unwrap()),
        _ => None,
    };
    outputs.iter().filter_map(open).collect()
}

fn refused(outputs: &[Output]) -> Vec<&'static str> {
    outputs
        .iter()
        .filter_map(|output| {
            if let Output::Refused(reason) = output {
                Some(*reason)
            } else {
                None
            }
        })
        .collect()
}

/// The heartbeat among them.
fn asked(outputs: &[Output]) -> Message {
    let mut sent = sent(outputs).into_iter();
    let is_heartbeat = |message: &Message| matches!(message.body, Body::Heartbeat(_));
    sent.find(is_heartbeat).unwrap()
}

/// Node 2 answers the engine's challenge.
fn introduce(engine: &mut Engine, incarnation: u64) {
    let outputs = engine.on(NOW, heard(&heartbeat(incarnation, 1)));
    let challenge = asked(&outputs);
    let ack = Ack {
        echo_incarnation: challenge.header.incarnation,
        echo_sequence: challenge.header.sequence,
        ..Ack::default()
    };
    let outputs = engine.on(NOW, heard(&datagram(2, 1, incarnation, 2, Body::Ack(ack))));
    assert!(outputs.contains(&Output::Met), "{outputs:?}");
}

#[test]
fn a_heartbeat_of_an_unproven_life_is_answered_and_does_not_count() {
    let mut engine = engine();
    let outputs = engine.on(NOW, heard(&heartbeat(9, 1)));
    let bodies: Vec<&str> = sent(&outputs).iter().map(|message| message.body.name()).collect();
    assert_eq!(
        (bodies, refused(&outputs)),
        (vec!["heartbeat", "ack"], vec!["replay"])
    );
    assert_eq!(engine.reach(), (0, 2));
}

#[test]
fn a_proven_life_counts_each_datagram_once() {
    let mut engine = engine();
    introduce(&mut engine, 9);
    assert_eq!(engine.reach(), (1, 2));
    assert_eq!(
        refused(&engine.on(NOW, heard(&heartbeat(9, 3)))),
        Vec::<&str>::new()
    );
    assert_eq!(refused(&engine.on(NOW, heard(&heartbeat(9, 3)))), vec!["replay"]);
}

#[test]
fn a_replayed_life_does_not_come_back() {
    let mut engine = engine();
    introduce(&mut engine, 9);
    introduce_again(&mut engine, 10);
    let outputs = engine.on(NOW, heard(&heartbeat(9, 50)));
    assert_eq!(refused(&outputs), vec!["replay"]);
}

/// An answer that was under way while the agent was started again: the life that has proven itself since
/// stays.
#[test]
fn a_late_answer_of_a_former_life_does_not_end_the_present_one() {
    let mut engine = engine();
    let outputs = engine.on(NOW, heard(&heartbeat(8, 1)));
    let first = asked(&outputs);
    introduce_again(&mut engine, 10);
    let ack = Ack {
        echo_incarnation: 77,
        echo_sequence: first.header.sequence,
        ..Ack::default()
    };
    let (late, next) = (NOW.plus(600), NOW.plus(700));
    let outputs = engine.on(late, heard(&datagram(2, 1, 8, 2, Body::Ack(ack))));
    assert_eq!(refused(&outputs), vec!["stale-ack"]);
    let outputs = engine.on(next, heard(&heartbeat(10, 3)));
    assert_eq!(refused(&outputs), Vec::<&str>::new(), "it counts as before");
}

fn introduce_again(engine: &mut Engine, incarnation: u64) {
    let later = NOW.plus(500);
    let outputs = engine.on(later, heard(&heartbeat(incarnation, 1)));
    let challenge = asked(&outputs);
    let ack = Ack {
        echo_incarnation: 77,
        echo_sequence: challenge.header.sequence,
        ..Ack::default()
    };
    let outputs = engine.on(later, heard(&datagram(2, 1, incarnation, 2, Body::Ack(ack))));
    assert_eq!(refused(&outputs), Vec::<&str>::new());
}

#[test]
fn an_ack_must_echo_a_fresh_number_of_ours_and_once() {
    let mut engine = engine();
    let outputs = engine.on(NOW, heard(&heartbeat(9, 1)));
    let asked = self::asked(&outputs);
    let ack = |incarnation, sequence| {
        Body::Ack(Ack {
            echo_incarnation: incarnation,
            echo_sequence: sequence,
            ..Ack::default()
        })
    };
    let right = asked.header.sequence;
    let wrong = [
        ("another number", datagram(2, 1, 9, 2, ack(77, right + 40))),
        ("a former life of ours", datagram(2, 1, 9, 2, ack(76, right))),
        ("somebody else's", datagram(3, 1, 9, 2, ack(77, right))),
    ];
    for (what, bytes) in wrong {
        assert_eq!(
            refused(&engine.on(NOW, heard(&bytes))),
            vec!["stale-ack"],
            "{what}"
        );
    }
    let good = datagram(2, 1, 9, 2, ack(77, right));
    assert_eq!(refused(&engine.on(NOW, heard(&good))), Vec::<&str>::new());
    assert_eq!(refused(&engine.on(NOW, heard(&good))), vec!["stale-ack"]);
    let again = datagram(2, 1, 9, 3, ack(77, right));
    assert_eq!(refused(&engine.on(NOW, heard(&again))), vec!["stale-ack"]);
}

#[test]
fn strangers_forgers_and_misaddressed_datagrams_are_refused() {
    let mut engine = engine();
    let header = Header {
        from: MemberId::of("uid-9"),
        to: Fixture::id(1),
        incarnation: 1,
        sequence: 1,
    };
    let body = || Body::Heartbeat(Heartbeat::default());
    let zone = Fixture::new(3);
    let stranger = zone.seal(&SigningKey::from_seed(&[9; 32]).unwrap(), header, &body());
    let header = Header {
        from: Fixture::id(2),
        ..header
    };
    let forged = zone.seal(zone.key(3), header, &body());
    let ballot = zone.seal(zone.key(3), header, &Body::Ballot(Ballot::default()));
    let elsewhere = datagram(2, 3, 1, 1, body());
    let own = datagram(1, 1, 77, 1, body());
    for (bytes, reason) in [
        (stranger, "stranger"),
        (forged, "code"),
        (ballot, "unasked"),
        (elsewhere, "addressee"),
        (own, "own"),
    ] {
        let outputs = engine.on(NOW, heard(&bytes));
        assert_eq!((outputs.len(), refused(&outputs)), (1, vec![reason]));
    }
}

/// With a tenth node, `uid-10` stands between `uid-1` and `uid-2`, and all others have another position.
/// What is shared with them goes along.
#[test]
fn secrets_follow_their_members_when_a_roster_changes() {
    let mut zone = Fixture::new(9);
    let mut engine = engine_in(&zone);
    let heard = |engine: &mut Engine, zone: &Fixture, from: usize, sequence: u64| {
        let body = Body::Heartbeat(Heartbeat::default());
        let bytes = zone.seal(zone.key(from), header(from, 1, 9, sequence), &body);
        let outputs = engine.on(NOW, heard(&bytes));
        let answers = outputs.iter().filter_map(|output| match output {
            Output::Send { bytes, .. } => Some(zone.open(bytes).unwrap().header.to),
            _ => None,
        });
        (answers.collect::<Vec<_>>(), refused(&outputs))
    };
    for from in 2..=9 {
        let expected = (vec![Fixture::id(from); 2], vec!["replay"]);
        assert_eq!(
            heard(&mut engine, &zone, from, 1),
            expected,
            "an ack, and a question in return"
        );
    }
    zone.grow();
    engine.on(NOW, Input::Roster(Arc::new(zone.roster())));
    for from in 2..=10 {
        let (answers, refused) = heard(&mut engine, &zone, from, 2);
        assert_eq!(
            (answers[0], refused),
            (Fixture::id(from), vec!["replay"]),
            "node {from}"
        );
    }
}

#[test]
fn an_engine_of_a_simulation_checks_tags_of_the_stand_in_as_strictly() {
    let zone = Fixture::stand_in(3);
    let mut engine = engine_in(&zone);
    let mut say = |key: &dyn Signer| {
        let body = Body::Heartbeat(Heartbeat::default());
        let bytes = zone.seal(key, header(2, 1, 9, 1), &body);
        engine.on(NOW, heard(&bytes))
    };
    let answered = say(zone.key(2));
    let answers = answered.iter().filter_map(|output| match output {
        Output::Send { bytes, .. } => zone.open(bytes),
        _ => None,
    });
    assert_eq!(
        answers.map(|message| message.body.name()).collect::<Vec<_>>(),
        ["heartbeat", "ack"]
    );
    assert_eq!(refused(&say(zone.key(3))), ["code"]);
    assert_eq!(refused(&say(Fixture::new(3).key(2))), ["code"]);
}

#[test]
fn only_the_words_of_the_asker_itself_are_passed_on() {
    let mut engine = engine();
    introduce(&mut engine, 9);
    let relay = |inner: Vec<u8>, target, sequence| {
        datagram(
            2,
            1,
            9,
            sequence,
            Body::Relay(wire::Relay {
                target: Fixture::id(target),
                inner,
            }),
        )
    };
    let own_words = datagram(2, 3, 9, 30, Body::Heartbeat(Heartbeat::default()));
    let outputs = engine.on(NOW, heard(&relay(own_words.clone(), 3, 31)));
    let passed = Output::Send {
        to: Fixture::id(3),
        address: "127.77.0.3:7959".parse().unwrap(),
        bytes: own_words.clone().into(),
    };
    assert_eq!(outputs, vec![passed]);
    let others_words = datagram(3, 2, 9, 30, Body::Heartbeat(Heartbeat::default()));
    let spoilt = [
        relay(others_words, 3, 32),
        relay(vec![1, 2, 3], 3, 33),
        relay(own_words, 2, 34),
    ];
    for bytes in spoilt {
        assert_eq!(refused(&engine.on(NOW, heard(&bytes))), vec!["relay"]);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), later in 0_u64..100_000) {
        let mut engine = engine();
        engine.on(NOW.plus(later), heard(&bytes));
        engine.on(NOW.plus(later), Input::Tick);
    }
}
