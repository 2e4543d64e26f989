use super::*;
use crate::fixture::Fixture;
use crate::keys::SigningKey;
use crate::keys::stand_in::StandIn;
use crate::roster::{Epoch, RosterRef};
use crate::verdict::{Health, Link};
use evenkeel_api::zone::VerdictKind;
use proptest::prelude::*;

fn key() -> SigningKey {
    SigningKey::from_seed(&[1; 32]).unwrap()
}

fn facts() -> Facts {
    Facts {
        cloud: Link::Down,
        kubelet: Health::Failing,
        runtime: Health::Ok,
    }
}

fn all() -> Vec<Message> {
    let roster = RosterRef {
        version: 7,
        epoch: Epoch([3; 8]),
    };
    let header = Header {
        from: Fixture::id(1),
        to: Fixture::id(2),
        incarnation: 5,
        sequence: 6,
    };
    let edge = Edge {
        subject: Fixture::id(3),
        state: EdgeState::OneWay,
        facts: facts(),
        age: 8,
    };
    let bodies = vec![
        Body::Heartbeat(Heartbeat {
            roster,
            doubt: 1,
            facts: facts(),
            cloud_age: 9,
            via: Fixture::id(4),
        }),
        Body::Ack(Ack {
            echo_incarnation: 1,
            echo_sequence: 2,
            roster,
            doubt: 3,
            facts: facts(),
            cloud_age: 4,
        }),
        Body::Relay(Relay {
            target: Fixture::id(3),
            inner: vec![1, 2, 3],
        }),
        Body::Edges(Edges {
            roster,
            doubt: 0,
            edges: vec![edge; 10],
        }),
        Body::Confirm(ConfirmRequest {
            round: Nonce([4; 16]),
            roster,
            challenge: Fixture::CHALLENGE,
            budget: 800,
            suspects: vec![
                Fixture::suspect(3),
                Suspect::default(),
                Suspect {
                    member: Fixture::id(2),
                    renewal: Some(Renewal::NO_LEASE),
                },
            ],
        }),
        Body::Ballot(Ballot {
            request: RequestDigest([4; 32]),
            roster,
            said: [Answer::No, Answer::Yes, Answer::Abstain]
                .into_iter()
                .zip(0..)
                .map(|(answer, index)| Said {
                    index,
                    answer,
                    contact_age: 12_300,
                    facts: facts(),
                })
                .collect(),
        }),
        Body::Published(Published {
            verdicts: [VerdictKind::None, VerdictKind::Alive, VerdictKind::Dead]
                .map(|kind| PublishedVerdict {
                    subject: Fixture::id(3),
                    kind,
                })
                .into(),
        }),
    ];
    bodies.into_iter().map(|body| Message { header, body }).collect()
}

#[test]
fn every_kind_comes_back_as_it_went() {
    for message in all() {
        let bytes = seal(&message, &key());
        assert_eq!(Frame::parse(&bytes).unwrap().open(key().public()), Ok(message));
    }
}

#[test]
fn a_heartbeat_has_at_most_100_bytes_and_its_signature() {
    for message in all().into_iter().take(2) {
        let length = seal(&message, &key()).len();
        assert!(
            length <= 100 + SIGNATURE_LEN,
            "{} has {length}",
            message.body.name()
        );
    }
}

#[test]
fn every_single_bit_counts() {
    for message in all() {
        let bytes = seal(&message, &key());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let opened = Frame::parse(&flipped).and_then(|frame| frame.open(key().public()));
            // The minor version is the one field that may differ, and even it is signed.
            assert!(opened.is_err(), "{} bit {bit}", message.body.name());
        }
    }
}

#[test]
fn every_shorter_and_longer_text_is_refused() {
    for message in all() {
        let mut bytes = seal(&message, &key());
        for end in 0..bytes.len() {
            assert!(
                Frame::parse(&bytes[..end])
                    .and_then(|frame| frame.open(key().public()))
                    .is_err()
            );
        }
        bytes.push(0);
        assert!(Frame::parse(&bytes).is_err());
    }
}

#[test]
fn another_key_and_another_context_are_refused() {
    let other = SigningKey::from_seed(&[2; 32]).unwrap();
    let bytes = seal(&all()[0], &other);
    assert_eq!(
        Frame::parse(&bytes).unwrap().open(key().public()),
        Err(WireError::Signature)
    );
    // The same bytes signed without the context.
    let mut bare = seal(&all()[0], &key());
    let at = bare.len() - SIGNATURE_LEN;
    let signature = key().sign(&bare[..at]);
    bare[at..].copy_from_slice(&signature);
    assert_eq!(
        Frame::parse(&bare).unwrap().open(key().public()),
        Err(WireError::Signature)
    );
}

#[test]
fn the_stand_in_speaks_the_same_format_and_refuses_what_is_forged() {
    let scheme = StandIn::new([3; 32]);
    let (signer, other) = (scheme.signer(&[1; 32]), scheme.signer(&[2; 32]));
    for message in all() {
        let bytes = seal(&message, &signer);
        assert_eq!(bytes.len(), seal(&message, &key()).len());
        let frame = Frame::parse(&bytes).unwrap();
        assert_eq!(frame.open_with(signer.public(), &scheme), Ok(message));
        let refused = [
            frame.open_with(other.public(), &scheme),
            frame.open_with(signer.public(), &StandIn::new([4; 32])),
            frame.open(signer.public()),
        ];
        assert!(refused.iter().all(|opened| *opened == Err(WireError::Signature)));
    }
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    message::encode(&mut codec::Writer(&mut out), &message.header, &message.body);
    out
}

#[test]
fn a_later_minor_version_is_read_as_far_as_it_is_known_and_another_major_is_not() {
    for message in all() {
        let mut body = encoded(&message);
        body.extend_from_slice(b"appended by a later version");
        let framed = |major: u8| {
            let mut out = CONTEXT.to_vec();
            codec::Writer(&mut out)
                .bytes(&MAGIC)
                .u8(major)
                .u8(MINOR + 3)
                .u8(message.body.kind())
                .u16(body.len() as u16)
                .bytes(&body);
            let signature = key().sign(&out);
            out.extend_from_slice(&signature);
            out.split_off(CONTEXT.len())
        };
        let newer = framed(MAJOR);
        assert_eq!(
            Frame::parse(&newer).unwrap().open(key().public()).as_ref(),
            Ok(&message)
        );
        assert_eq!(
            Frame::parse(&framed(MAJOR + 1)).unwrap_err(),
            WireError::Version(MAJOR + 1)
        );
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..1600)) {
        prop_assert!(Frame::parse(&bytes).and_then(|frame| frame.open(key().public())).is_err());
    }

    #[test]
    fn arbitrary_signed_bodies_never_panic(kind in 0_u8..10, body in proptest::collection::vec(any::<u8>(), 0..400)) {
        let bytes = seal_body(kind, &body, &key());
        if let Ok(message) = Frame::parse(&bytes).and_then(|frame| frame.open(key().public())) {
            // What was read is written again as the front of what came.
            let again = encoded(&message);
            if !matches!(message.body, Body::Edges(_)) {
                let facts_bits = again.iter().zip(&body).filter(|(a, b)| a != b).count();
                prop_assert!(facts_bits <= 1, "only reserved bits of the facts may differ");
            }
        }
    }
}

/// A yes counts while its contact is fresh, and a no for as long as there was none: neither may become
/// stronger on its way.
#[test]
fn ages_are_rounded_against_the_answer_and_saturate() {
    let sent = |answer, contact_age| {
        let ballot = Ballot {
            said: vec![Said {
                answer,
                contact_age,
                ..Said::default()
            }],
            ..Ballot::default()
        };
        let message = Message {
            header: Header::default(),
            body: Body::Ballot(ballot),
        };
        let bytes = seal(&message, &key());
        let Body::Ballot(read) = Frame::parse(&bytes).unwrap().open(key().public()).unwrap().body else {
            panic!("a ballot");
        };
        read.said[0].contact_age
    };
    assert_eq!(
        [sent(Answer::Yes, 4_901), sent(Answer::No, 4_999)],
        [5_000, 4_900]
    );
    assert_eq!(
        [sent(Answer::Yes, u32::MAX), sent(Answer::No, u32::MAX)],
        [6_553_500; 2]
    );
}

#[test]
fn a_request_reads_back_from_a_report_and_nothing_else_does() {
    let request = ConfirmRequest {
        round: Nonce([4; 16]),
        suspects: vec![Fixture::suspect(1); MAX_SUSPECTS],
        ..ConfirmRequest::default()
    };
    let bytes = request.to_bytes();
    assert_eq!(ConfirmRequest::read(&bytes), Ok(request));
    assert!(ConfirmRequest::read(&[&bytes[..], &[0]].concat()).is_err());
    for length in 0..bytes.len() {
        assert!(ConfirmRequest::read(&bytes[..length]).is_err(), "{length} bytes");
    }
}
