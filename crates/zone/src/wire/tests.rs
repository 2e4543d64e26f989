//! What datagrams look like, and what is read of others.

mod corpus;

use super::*;
use crate::fixture::Fixture;
use crate::keys::stand_in::StandIn;
use crate::keys::{Ed25519, SigningKey};
use crate::roster::{Epoch, RosterRef};
use crate::verdict::{Health, Link};
use evenkeel_api::zone::VerdictKind;
use proptest::prelude::*;

/// The two ends of a way: who writes, and who reads.
struct Ends {
    writer: Box<dyn Signer>,
    verifier: Box<dyn Verifier>,
    /// What they share, as each of them derives it.
    written_with: Box<dyn Mac>,
    read_with: Box<dyn Mac>,
}

impl Ends {
    fn of(writer: impl Signer + 'static, reader: &dyn Signer, verifier: impl Verifier + 'static) -> Self {
        Self {
            written_with: writer.shared_with(reader.public()),
            read_with: reader.shared_with(writer.public()),
            writer: Box::new(writer),
            verifier: Box::new(verifier),
        }
    }

    /// Agents as they are, with the keys of these two seeds.
    fn seeded(writer: u8, reader: u8) -> Self {
        let key = |seed: u8| SigningKey::from_seed(&[seed; 32]).unwrap();
        Self::of(key(writer), &key(reader), Ed25519)
    }

    fn seal(&self, message: &Message) -> Vec<u8> {
        let (key, shared) = (&*self.writer, &*self.written_with);
        seal(&mut Vec::new(), &message.header, &message.body, key, shared).to_vec()
    }

    fn seal_as(&self, version: u8, message: &Message) -> Vec<u8> {
        let (key, shared) = (&*self.writer, &*self.written_with);
        seal_as_version(version, &message.header, &message.body, key, shared)
    }

    fn open(&self, bytes: &[u8]) -> Result<Message, WireError> {
        let trusted = (self.writer.public(), &*self.verifier);
        Frame::parse(bytes)?.open(&mut Vec::new(), trusted, &*self.read_with)
    }

    /// The body as it is, in a datagram of this kind and version.
    fn frame(&self, kind: u8, (major, minor): (u8, u8), body: &[u8]) -> Vec<u8> {
        let mut bytes = seal_body(kind, body, &*self.writer, &*self.written_with);
        bytes.truncate(bytes.len() - proof_len(kind));
        (bytes[2], bytes[3]) = (major, minor);
        self.prove(kind, CONTEXT, bytes)
    }

    /// Appends a proof for the context.
    fn prove(&self, kind: u8, context: &[u8], mut bytes: Vec<u8>) -> Vec<u8> {
        let text = [context, &bytes].concat();
        if kind < message::SIGNED {
            bytes.extend(self.written_with.code(&text));
        } else {
            bytes.extend(self.writer.sign(&text));
        }
        bytes
    }
}

fn forged(message: &Message) -> WireError {
    if matches!(message.body, Body::Ballot(_)) {
        WireError::Signature
    } else {
        WireError::Code
    }
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
    };
    let bodies = vec![
        Body::Heartbeat(Heartbeat {
            roster: 7,
            doubt: 1,
            facts: facts(),
            cloud_age: 9,
            via: Fixture::id(4),
        }),
        Body::Ack(Ack {
            echo_incarnation: 1,
            echo_sequence: 2,
            roster: 7,
            doubt: 3,
            facts: facts(),
            cloud_age: 4,
        }),
        Body::Relay(Relay {
            target: Fixture::id(3),
            inner: vec![1, 2, 3],
        }),
        Body::Edges(Edges {
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
            later: Vec::new(),
        }),
        Body::Ballot(Ballot {
            request: RequestDigest([4; 32]),
            roster,
            uptime: 300,
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
        Body::RosterAsked(PartAsked {
            version: 8,
            offset: 1_024,
        }),
        Body::RosterPart(Part {
            version: 8,
            length: 1_030,
            offset: 1_024,
            bytes: vec![1, 2, 3, 4, 5, 6],
        }),
        Body::HandOver(HandOver {
            key: [5; 32],
            cell: 7,
            report: 9,
            age_ms: 30_000,
            spare: true,
        }),
        Body::Carried(Carried {
            incarnation: 4,
            written: 9,
            roster: 8,
            challenge: Fixture::CHALLENGE,
            wanted: vec![Fixture::id(3), Fixture::id(4)],
        }),
        Body::Referral(Referral {
            others: ["192.0.2.1:7947", "[2001:db8::1]:7947"]
                .map(|address| Referred {
                    id: Fixture::id(3),
                    address: address.parse().unwrap(),
                    key: [6; 32],
                })
                .into(),
        }),
        Body::ReportAsked(PartAsked {
            version: 9,
            offset: 2_048,
        }),
        Body::ReportPart(Part {
            version: 9,
            length: 1_030,
            offset: 1_024,
            bytes: vec![1, 2, 3, 4, 5, 6],
        }),
        Body::RenewalsAsked(RenewalsAsked {
            members: vec![Fixture::id(3), Fixture::id(4)],
        }),
        Body::RenewalsRead(RenewalsRead {
            renewals: vec![
                (Fixture::id(3), Some(Renewal(5))),
                (Fixture::id(4), None),
                (Fixture::id(5), Some(Renewal::NO_LEASE)),
            ],
        }),
        Body::Voted(Voted {
            ballot: vec![1, 2, 3],
        }),
    ];
    bodies.into_iter().map(|body| Message { header, body }).collect()
}

#[test]
fn every_kind_comes_back_as_it_went() {
    let ends = Ends::seeded(1, 2);
    for message in all() {
        assert_eq!(ends.open(&ends.seal(&message)), Ok(message));
    }
}

/// Ten of each go out every two seconds: with 42 bytes of Ethernet, IPv4 and UDP 1,210 bytes a second.
#[test]
fn a_heartbeat_has_75_bytes_and_an_ack_83() {
    let ends = Ends::seeded(1, 2);
    let lengths = all()
        .iter()
        .take(2)
        .map(|message| ends.seal(message).len())
        .collect::<Vec<_>>();
    assert_eq!(lengths, [75, 83]);
}

/// What an agent answers to somebody whom it does not know is no longer than what was asked.
#[test]
fn a_referral_is_no_longer_than_a_hand_over_and_a_shorter_hand_over_is_refused() {
    let ends = Ends::seeded(1, 2);
    let sealed = |body| {
        ends.seal(&Message {
            header: Header::default(),
            body,
        })
    };
    let other = Referred {
        id: Fixture::id(3),
        address: "192.0.2.1:7947".parse().unwrap(),
        key: [6; 32],
    };
    let referral = sealed(Body::Referral(Referral {
        others: vec![other; MAX_REFERRED],
    }));
    let offer = sealed(Body::HandOver(HandOver::default()));
    assert_eq!(offer.len(), referral.len());
    let body = &offer[HEAD..offer.len() - MAC_LEN - 1];
    let shorter = ends.frame(9, (MAJOR, MINOR), body);
    assert_eq!(ends.open(&shorter), Err(WireError::Truncated));
}

#[test]
fn a_request_about_a_whole_cell_has_at_most_1200_bytes() {
    let request = ConfirmRequest {
        suspects: vec![Fixture::suspect(1); MAX_SUSPECTS],
        ..ConfirmRequest::default()
    };
    let header = Header::default();
    let length = Ends::seeded(1, 2)
        .seal(&Message {
            header,
            body: Body::Confirm(request),
        })
        .len();
    assert!(length <= 1_200, "{length}");
}

/// Whoever fetches parts knows how many there are by their length.
#[test]
fn a_part_that_is_longer_than_parts_are_is_refused() {
    let ends = Ends::seeded(1, 2);
    let opened = |count: usize| {
        let mut body = encoded(&Message {
            header: Header::default(),
            body: Body::ReportPart(Part::default()),
        });
        body.truncate(body.len() - 2);
        body.extend((count as u16).to_be_bytes());
        body.extend(vec![7; count]);
        ends.open(&ends.frame(13, (MAJOR, MINOR), &body))
    };
    assert!(opened(PART).is_ok());
    assert_eq!(opened(PART + 1), Err(WireError::Field("length of a part")));
}

#[test]
fn every_single_bit_counts() {
    let ends = Ends::seeded(1, 2);
    for message in all() {
        let bytes = ends.seal(&message);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // The minor version is the one field that may differ, and even it is covered.
            assert!(ends.open(&flipped).is_err(), "{} bit {bit}", message.body.name());
        }
    }
}

#[test]
fn every_shorter_and_longer_text_is_refused() {
    let ends = Ends::seeded(1, 2);
    for message in all() {
        let mut bytes = ends.seal(&message);
        for end in 0..bytes.len() {
            assert!(ends.open(&bytes[..end]).is_err());
        }
        bytes.push(0);
        assert!(Frame::parse(&bytes).is_err());
    }
}

#[test]
fn another_writer_another_reader_and_another_context_are_refused() {
    let ends = Ends::seeded(1, 2);
    for message in all() {
        let forger = Ends::seeded(3, 2).seal(&message);
        assert_eq!(ends.open(&forger), Err(forged(&message)));
        // Who reads evidence may be anybody.
        let elsewhere = Ends::seeded(1, 3).open(&ends.seal(&message));
        let expected = Err(WireError::Code);
        assert_eq!(elsewhere.is_ok(), matches!(message.body, Body::Ballot(_)));
        assert!(elsewhere.is_ok() || elsewhere == expected);
        let (kind, mut bare) = (message.body.kind(), ends.seal(&message));
        bare.truncate(bare.len() - proof_len(kind));
        let proven = |context: &[u8]| ends.open(&ends.prove(kind, context, bare.clone()));
        assert_eq!(proven(b""), Err(forged(&message)));
        assert_eq!(proven(b"evenkeel zone datagram 2\0"), Err(forged(&message)));
        assert_eq!(proven(CONTEXT), Ok(message));
    }
}

#[test]
fn evidence_is_for_everybody_and_nothing_else_is_evidence() {
    let ends = Ends::seeded(1, 2);
    for message in all() {
        let bytes = ends.seal(&message);
        let opened = Frame::parse(&bytes)
            .unwrap()
            .open_evidence([ends.writer.public()], &Ed25519);
        let expected = match message.body {
            Body::Ballot(ballot) => {
                assert_eq!(bytes, sign(&message.header, ballot.clone(), &*ends.writer));
                Ok((message.header, ballot))
            }
            other => Err(WireError::Kind(other.kind())),
        };
        assert_eq!(opened, expected);
    }
}

#[test]
fn the_stand_in_speaks_the_same_format_and_refuses_what_is_forged() {
    let scheme = StandIn::new([3; 32]);
    let signer = |seed: u8| scheme.signer(&[seed; 32]);
    let ends = Ends::of(signer(1), &signer(2), scheme.clone());
    for message in all() {
        let bytes = ends.seal(&message);
        assert_eq!(bytes.len(), Ends::seeded(1, 2).seal(&message).len());
        assert_eq!(ends.open(&bytes).as_ref(), Ok(&message));
        let elsewhere = StandIn::new([4; 32]);
        let others = [
            Ends::of(signer(3), &signer(2), scheme.clone()),
            Ends::of(elsewhere.signer(&[1; 32]), &elsewhere.signer(&[2; 32]), elsewhere),
            Ends::of(signer(1), &signer(2), Ed25519),
        ];
        let refused = others.iter().take(if message.body.kind() < message::SIGNED {
            2
        } else {
            3
        });
        for other in refused {
            assert_eq!(other.open(&bytes), Err(forged(&message)));
        }
    }
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    fields::encode(&mut codec::Writer(&mut out), &message.header, &message.body);
    out
}

#[test]
fn a_later_minor_version_is_read_as_far_as_it_is_known_and_another_major_is_not() {
    let ends = Ends::seeded(1, 2);
    for message in all() {
        let (mut body, appended) = (encoded(&message), b"appended by a later version");
        body.extend_from_slice(appended);
        let kind = message.body.kind();
        let mut expected = message.clone();
        if let Body::Confirm(request) = &mut expected.body {
            request.later = appended.to_vec();
        }
        assert_eq!(
            ends.open(&ends.frame(kind, (MAJOR, MINOR + 3), &body)).as_ref(),
            Ok(&expected)
        );
        let another = ends.open(&ends.frame(kind, (MAJOR + 1, MINOR), &body));
        assert_eq!(another, Err(WireError::Version(MAJOR + 1)));
    }
}

/// Hazard 48: what a later version asks is signed as it was asked, also by who does not know all of it.
#[test]
fn a_request_of_a_later_version_has_one_digest() {
    let known = ConfirmRequest {
        suspects: vec![Fixture::suspect(1)],
        ..ConfirmRequest::default()
    };
    let bytes = [known.to_bytes(), vec![1, 2, 3]].concat();
    let read = ConfirmRequest::read(&bytes).unwrap();
    assert_eq!((&read.suspects, read.to_bytes()), (&known.suspects, bytes));
    assert_ne!(read.digest(), known.digest());
}

/// Hazard 48: what simulations of several versions play.
#[test]
fn what_the_next_version_writes_is_read_with_an_unknown_runtime() {
    let ends = Ends::seeded(1, 2);
    for message in all() {
        let bytes = ends.seal_as(MINOR + 1, &message);
        assert_eq!(bytes[3], MINOR + 1);
        let mut expected = message.clone();
        let unknown = |facts: &mut Facts| facts.runtime = Health::Unknown;
        match &mut expected.body {
            Body::Heartbeat(body) => unknown(&mut body.facts),
            Body::Ack(body) => unknown(&mut body.facts),
            Body::Edges(body) => body.edges.iter_mut().for_each(|edge| unknown(&mut edge.facts)),
            Body::Ballot(body) => body.said.iter_mut().for_each(|said| unknown(&mut said.facts)),
            _ => {}
        }
        assert_eq!(ends.open(&bytes), Ok(expected), "{}", message.body.name());
    }
}

/// Hazard 48: nothing follows from a value that only a later version knows, and the rest of it counts.
#[test]
fn values_of_a_later_version_are_read_as_the_careful_ones() {
    let ends = Ends::seeded(1, 2);
    let with = |place: usize, value: u8, message: &Message| {
        let mut body = encoded(message);
        let place = body.len() - place;
        body[place] = value;
        ends.open(&ends.frame(message.body.kind(), (MAJOR, MINOR + 1), &body))
            .map(|message| message.body)
    };
    let unknown = Facts::default();
    let all = all();
    let [heartbeat, _, _, edges, _, ballot, published, ..] = all.as_slice() else {
        panic!("the kinds in their order");
    };
    // From the end: 8 bytes of the relay, 2 of the age, and the facts.
    let Ok(Body::Heartbeat(read)) = with(11, 0b11_11_11, heartbeat) else {
        panic!("a heartbeat");
    };
    assert_eq!((read.facts, read.cloud_age), (unknown, 9));
    let Ok(Body::Edges(read)) = with(2, 7, edges) else {
        panic!("edges");
    };
    let states: Vec<EdgeState> = read.edges.iter().map(|edge| edge.state).collect();
    assert_eq!(states, [&[EdgeState::OneWay; 9][..], &[EdgeState::Up]].concat());
    let Ok(Body::Ballot(read)) = with(3, 0b1111_1111, ballot) else {
        panic!("a ballot");
    };
    let last = &read.said[2];
    assert_eq!(
        (last.answer, last.facts, last.contact_age),
        (Answer::Abstain, unknown, 12_300)
    );
    let Ok(Body::Published(read)) = with(1, 9, published) else {
        panic!("what was published");
    };
    assert_eq!(read.verdicts[2].kind, VerdictKind::None);
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..1600)) {
        prop_assert!(Ends::seeded(1, 2).open(&bytes).is_err());
    }

    #[test]
    fn arbitrary_proven_bodies_never_panic(
        kind in prop_oneof![0_u8..18, 126_u8..132],
        body in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let ends = Ends::seeded(1, 2);
        if let Ok(message) = ends.open(&ends.frame(kind, (MAJOR, MINOR), &body)) {
            // What was read is read again as the same.
            let again = ends.open(&ends.frame(kind, (MAJOR, MINOR), &encoded(&message)));
            prop_assert_eq!(again, Ok(message));
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
        let key = SigningKey::from_seed(&[1; 32]).unwrap();
        let bytes = sign(&Header::default(), ballot, &key);
        let (_, read) = Frame::parse(&bytes)
            .unwrap()
            .open_evidence([key.public()], &Ed25519)
            .unwrap();
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
    for length in 0..bytes.len() {
        assert!(ConfirmRequest::read(&bytes[..length]).is_err(), "{length} bytes");
    }
}
