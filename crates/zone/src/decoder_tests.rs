//! What others may send or publish, changed at random: it panics nowhere, grows by no more than is stated,
//! and what was read is written and read again as the same.

use crate::Millis;
use crate::fixture::Fixture;
use crate::fixture::fuzz::target;
use crate::keys::stand_in::StandIn;
use crate::keys::{MAC_LEN, Mac, PublicKey, SIGNATURE_LEN, SigningKey, Verifier};
use crate::roster::{CellRef, MemberId, Roster, RosterKeys, publish};
use crate::verdict::{Book, Issued};
use crate::wire::{
    self, Challenge, ConfirmRequest, Facts, Frame, MAX_FRAME, Message, from_evidence, to_evidence,
};
use evenkeel_api::zone::{
    KubeletEndpoint, Report, ReportDraft, RosterContact, RosterSpec, SignedRoster, SignedRound,
};
use std::sync::Arc;

/// Believes every proof: what a member that lies can write.
#[derive(Debug)]
struct Believing;

impl Verifier for Believing {
    fn verifies(&self, _: &PublicKey, _: &[u8], _: &[u8]) -> bool {
        true
    }
}

impl Mac for Believing {
    fn code(&self, _: &[u8]) -> [u8; MAC_LEN] {
        [0; MAC_LEN]
    }

    fn verifies(&self, _: &[u8], _: &[u8]) -> bool {
        true
    }
}

struct Agent(crate::keys::stand_in::StandInSigner);

impl Agent {
    fn new() -> Self {
        Self(StandIn::new([3; 32]).signer(&[1; 32]))
    }

    fn open(&self, bytes: &[u8]) -> Option<Message> {
        let frame = Frame::parse(bytes).ok()?;
        // What is looked at before the proof.
        let _ = (frame.header(), frame.claimed_request(), frame.claimed_key());
        let _ = frame.open_evidence([self.key()], &Believing);
        frame
            .open(&mut Vec::new(), (self.key(), &Believing), &Believing)
            .ok()
    }

    fn key(&self) -> &PublicKey {
        crate::keys::Signer::public(&self.0)
    }

    fn seal(&self, message: &Message) -> Vec<u8> {
        let (header, body) = (&message.header, &message.body);
        wire::seal(&mut Vec::new(), header, body, &self.0, &Believing).to_vec()
    }

    fn open_again(&self, bytes: &[u8]) -> Option<usize> {
        let message = self.open(bytes)?;
        let sealed = self.seal(&message);
        assert_eq!(self.open(&sealed), Some(message));
        Some(sealed.len())
    }
}

/// One of each kind, of this version and of the next one.
fn datagrams() -> Vec<Vec<u8>> {
    let agent = Agent::new();
    let corpora = [
        include_str!("wire/tests/corpus/3.0.txt"),
        include_str!("wire/tests/corpus/3.1.txt"),
    ];
    let lines = corpora.iter().flat_map(|corpus| corpus.lines());
    let present = lines.map(|line| from_evidence(line.split_once(' ').unwrap().1).unwrap());
    let both = present.flat_map(|bytes| {
        let Message { header, body } = agent.open(&bytes).unwrap();
        [
            wire::seal_as_version(wire::MINOR + 1, &header, &body, &agent.0, &Believing),
            bytes,
        ]
    });
    // No part of a roster is longer.
    let full = wire::Part {
        length: 2_048,
        bytes: vec![7; wire::PART],
        ..wire::Part::default()
    };
    let full = Message {
        header: wire::Header::default(),
        body: wire::Body::RosterPart(full),
    };
    both.chain([agent.seal(&full)]).collect()
}

#[test]
fn datagrams_are_borne() {
    let agent = Agent::new();
    target("datagrams", &datagrams(), (1, 0), |bytes| agent.open_again(bytes));
}

/// Behind a proof that holds, in a frame that fits.
#[test]
fn bodies_are_borne() {
    let agent = Agent::new();
    let frame = 7 + SIGNATURE_LEN;
    let body_of = |bytes: Vec<u8>| {
        let proof = if bytes[4] < 128 { MAC_LEN } else { SIGNATURE_LEN };
        [&bytes[4..5], &bytes[7..bytes.len() - proof]].concat()
    };
    let seeds: Vec<_> = datagrams().into_iter().map(body_of).collect();
    target("bodies", &seeds, (1, frame), |bytes| {
        let (kind, body) = bytes.split_first()?;
        agent.open_again(&wire::seal_body(*kind, body, &agent.0, &Believing))
    });
}

/// A ballot signs the digest of the request, so that not a bit of it may be lost.
#[test]
fn requests_are_borne() {
    let zone = Fixture::stand_in(5);
    let later = [zone.request(&[3, 4, 5], 1).to_bytes(), b"later".to_vec()].concat();
    let seeds = [zone.request(&[], 1).to_bytes(), later];
    target("requests", &seeds, (1, 0), |bytes| {
        let written = ConfirmRequest::read(bytes).ok()?.to_bytes();
        assert_eq!(written, bytes);
        Some(written.len())
    });
}

#[test]
fn evidence_is_borne() {
    let seeds: Vec<_> = datagrams()
        .iter()
        .map(|bytes| to_evidence(bytes).into_bytes())
        .collect();
    target("evidence", &seeds, (1, 0), |text| {
        let bytes = from_evidence(std::str::from_utf8(text).ok()?).ok()?;
        assert_eq!(from_evidence(&to_evidence(&bytes)), Ok(bytes.clone()));
        assert!(bytes.len() <= MAX_FRAME + 4);
        Some(bytes.len())
    });
}

#[test]
fn challenges_are_borne() {
    let seeds = [Fixture::CHALLENGE.to_base64().into_bytes()];
    target("challenges", &seeds, (1, 0), |text| {
        let challenge = Challenge::from_base64(std::str::from_utf8(text).ok()?)?;
        assert_eq!(Challenge::from_base64(&challenge.to_base64()), Some(challenge));
        Some(challenge.0.len())
    });
}

#[test]
fn public_keys_are_borne() {
    let key = |seed| SigningKey::from_seed(&[seed; 32]).unwrap();
    let seeds: Vec<_> = (1..9)
        .map(|seed| key(seed).public().to_base64().into_bytes())
        .collect();
    let own = key(9);
    target("public keys", &seeds, (1, 0), |text| {
        let key = PublicKey::from_base64(std::str::from_utf8(text).ok()?).ok()?;
        assert_eq!(PublicKey::from_base64(&key.to_base64()).as_ref(), Ok(&key));
        let shared = crate::keys::Signer::shared_with(&own, &key);
        assert!(!key.verifies(b"text", &shared.code(b"text").repeat(4)));
        Some(key.as_bytes().len())
    });
}

#[test]
fn private_keys_are_borne() {
    let seeds: Vec<_> = (1..4)
        .map(|seed| {
            SigningKey::from_seed(&[seed; 32])
                .unwrap()
                .to_pem()
                .unwrap()
                .into_bytes()
        })
        .collect();
    target("private keys", &seeds, (1, 200), |text| {
        let key = SigningKey::from_pem(std::str::from_utf8(text).ok()?).ok()?;
        let written = key.to_pem().unwrap();
        assert_eq!(SigningKey::from_pem(&written).unwrap().public(), key.public());
        Some(written.len())
    });
}

const CELL: CellRef<'_> = CellRef {
    name: "shore",
    uid: "u",
};

fn spec() -> RosterSpec {
    let mut zone = Fixture::stand_in(2);
    (zone.learners, zone.settled_voters) = (vec![2], vec![1]);
    let mut spec = zone.spec();
    (spec.cell, spec.cell_uid) = (CELL.name.into(), CELL.uid.into());
    spec.members[0].kubelet = Some(KubeletEndpoint {
        address: "192.0.2.1:10250".into(),
        certificate_sha256: "ab".repeat(32),
    });
    spec.contacts = vec![RosterContact {
        uid: "elsewhere".into(),
        address: "[2001:db8::1]:7959".into(),
        public_key: spec.members[0].public_key.clone(),
    }];
    spec
}

/// Rosters as agents pass them on: a signature and a text.
fn rosters() -> Vec<Vec<u8>> {
    let key = StandIn::new([3; 32]).signer(&[255; 32]);
    let next = crate::fixture::publish_as_next_version(&spec(), &key);
    [publish(&spec(), Some(&key)), next]
        .map(|signed| {
            let signature = to_evidence(&[7; SIGNATURE_LEN]);
            let signed = SignedRoster { signature, ..signed };
            Roster::reopen(&signed, &RosterKeys::default())
                .unwrap()
                .to_bytes()
                .unwrap()
        })
        .to_vec()
}

#[test]
fn roster_texts_are_borne() {
    let seeds: Vec<_> = rosters()
        .iter()
        .map(|bytes| bytes[SIGNATURE_LEN..].to_vec())
        .collect();
    target("roster texts", &seeds, (3, 200), |text| {
        let spec = RosterSpec::from_text(std::str::from_utf8(text).ok()?).ok()?;
        let written = spec.to_text();
        assert_eq!(RosterSpec::from_text(&written).unwrap(), spec);
        Some(written.len())
    });
}

/// What was read is passed on as it came, and each member is found under its name in datagrams.
#[test]
fn rosters_are_borne() {
    let signer = Agent::new();
    let keys = RosterKeys::new(vec![signer.key().clone()]).verifying_with(Arc::new(Believing));
    target("rosters", &rosters(), (1, 0), |bytes| {
        let roster = Roster::from_bytes(bytes, CELL, &keys).ok()?;
        let passed = roster.to_bytes().unwrap();
        assert_eq!(passed, bytes);
        for (member, position) in roster.members().iter().zip(roster.positions()) {
            assert_eq!(roster.position(member.id), Some(position));
            assert!(!roster.subjects_of(position).contains(&position));
        }
        let voters = roster.positions().filter(|index| roster.has_vote(*index));
        assert_eq!(roster.rendezvous().len(), voters.count());
        let _ = roster.cell_number();
        Some(passed.len())
    });
}

fn report() -> Report {
    let mut zone = Fixture::stand_in(3);
    let both = zone.request(&[3, 2], 3);
    let votes = [3, 2].map(|suspect| zone.vote(1, suspect, crate::wire::Answer::No));
    let rounds = vec![
        zone.dead(3, &[1, 2], 1),
        zone.alive(1, &[2, 3], 2, Facts::default()),
        zone.round(&both, 5, &[(1, votes.to_vec())]),
    ];
    let nodes = vec![Fixture::undecided(3), Fixture::undecided(1)];
    Report {
        nodes,
        written_at: Some("2026-01-31T12:00:00Z".into()),
        ..zone.report(rounds)
    }
}

#[test]
fn drafts_are_borne() {
    let draft = ReportDraft {
        report: report(),
        held_for_ms: [("uid-1".to_owned(), 5)].into(),
    };
    target("drafts", &[draft.to_text().into_bytes()], (3, 200), |text| {
        let mut draft = ReportDraft::from_text(text).ok()?;
        let written = draft.to_text();
        assert_eq!(ReportDraft::from_text(written.as_bytes()).unwrap(), draft);
        draft.grow_older(u64::MAX);
        Some(written.len())
    });
}

/// Takes a report in, twice, with a book that believes every signature; so many refusals followed.
fn take(roster: &Roster, report: &Report) -> usize {
    let mut book = Book::verifying_with(Arc::new(Believing));
    let (challenge, drawn) = (Fixture::CHALLENGE, Some(Millis(5)));
    book.challenges(Millis(9), "shore", &[Issued { challenge, drawn }]);
    book.roster(Millis(9), "shore", roster.clone());
    let first = book.report(Millis(u64::MAX - 1), "shore", "node-1", report);
    let again = book.report(Millis(u64::MAX), "shore", "node-1", report);
    for node in ["uid-1", "uid-2", "uid-3", "uid-4"] {
        let _ = book.verdict(node);
    }
    book.deaths("shore", Millis(u64::MAX));
    first.len().max(again.len())
}

/// One refusal for each suspect of each round at most, and a suspect takes 16 bytes.
#[test]
fn reports_are_borne() {
    let (seed, roster) = (
        serde_json::to_vec(&report()).unwrap(),
        Fixture::stand_in(3).roster(),
    );
    target("reports", &[seed], (1, 0), |text| {
        let report: Report = serde_json::from_slice(text).ok()?;
        Some(16 * take(&roster, &report))
    });
}

/// Requests and ballots as bytes, each after its length, in which every ballot answers the request.
#[test]
fn rounds_are_borne() {
    let roster = Fixture::stand_in(3).roster();
    let seeds: Vec<_> = report()
        .rounds
        .iter()
        .map(|round| {
            let texts = std::iter::once(&round.request).chain(&round.ballots);
            let written = texts.map(|text| from_evidence(text).unwrap());
            written
                .flat_map(|bytes| [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat())
                .collect()
        })
        .collect();
    target("rounds", &seeds, (1, 32), |bytes| {
        let mut chunks = chunks(bytes);
        let request = chunks.next()?;
        let digest = ConfirmRequest::read(request).ok()?.digest();
        let ballot = |bytes: &[u8]| {
            let mut ballot = bytes.to_vec();
            // Behind the frame's head and the header.
            if let Some(place) = ballot.get_mut(7 + 32..7 + 64) {
                place.copy_from_slice(&digest.0);
            }
            to_evidence(&ballot)
        };
        let round = SignedRound {
            age_ms: -1,
            request: to_evidence(request),
            ballots: chunks.map(ballot).collect(),
        };
        let rounds = vec![round.clone(), round];
        let report = Report {
            rounds,
            ..Report::default()
        };
        Some(8 * take(&roster, &report))
    });
}

fn chunks(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk::<2>()?;
        let (chunk, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        bytes = rest;
        Some(chunk)
    })
}

#[test]
fn zone_names_are_borne() {
    let seeds = ["shore", "Shore_1", "", "shore.1"].map(|name| name.as_bytes().to_vec());
    target("zone names", &seeds, (1, 63), |text| {
        let name = crate::roster::zone_object_name(std::str::from_utf8(text).ok()?);
        let id = MemberId::of(&name);
        assert!(id != MemberId::NOBODY && !name.contains('.') && !name.is_empty());
        Some(name.len())
    });
}
