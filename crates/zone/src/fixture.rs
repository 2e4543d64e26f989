//! Signed zones made to measure: keys, rosters, ballots and reports for tests. Not part of the product.
#![allow(
    clippy::unwrap_used,
    reason = "test support: a wrong fixture should fail the test at once"
)]

use crate::keys::SigningKey;
use crate::roster::{MemberId, Roster};
use crate::vote::Vote;
use crate::wire::{self, Answer, Ballot, Body, Facts, Header, Message, Nonce};
use evenkeel_api::zone::{NodeVerdict, RosterMember, RosterSpec, VerdictKind, ZoneHealthStatus};

/// A zone of nodes `node-1`, `node-2`, … with UIDs `uid-1`, … and the keys of their agents.
pub struct Fixture {
    version: i64,
    keys: Vec<SigningKey>,
    sequence: u64,
    report: i64,
}

impl Fixture {
    /// A zone of `members` nodes, roster version 1.
    pub fn new(members: u8) -> Self {
        let keys = (1..=members)
            .map(|i| SigningKey::from_seed(&[i; 32]).unwrap())
            .collect();
        Self {
            version: 1,
            keys,
            sequence: 0,
            report: 0,
        }
    }

    /// UID of node `i`, 1-based.
    pub fn uid(i: usize) -> String {
        format!("uid-{i}")
    }

    /// Name on the wire of node `i`.
    pub fn id(i: usize) -> MemberId {
        MemberId::of(&Self::uid(i))
    }

    /// Key of the agent of node `i`.
    pub fn key(&self, i: usize) -> &SigningKey {
        self.keys.get(i - 1).unwrap()
    }

    /// Adds one node and raises the version.
    pub fn grow(&mut self) {
        let next = u8::try_from(self.keys.len() + 1).unwrap();
        self.keys.push(SigningKey::from_seed(&[next; 32]).unwrap());
        self.version += 1;
    }

    /// Gives node `i` another key.
    pub fn rekey(&mut self, i: usize, seed: u8) {
        *self.keys.get_mut(i - 1).unwrap() = SigningKey::from_seed(&[seed; 32]).unwrap();
    }

    /// Raises the version of the roster.
    pub fn reissue(&mut self) {
        self.version += 1;
    }

    /// The roster as the controller writes it.
    pub fn spec(&self) -> RosterSpec {
        let member = |(position, key): (usize, &SigningKey)| RosterMember {
            name: format!("node-{}", position + 1),
            uid: Self::uid(position + 1),
            address: format!("127.77.0.{}:7946", position + 1),
            public_key: key.public().to_base64(),
            kubelet: None,
        };
        RosterSpec {
            version: self.version,
            members: self.keys.iter().enumerate().map(member).collect(),
        }
    }

    /// The roster.
    pub fn roster(&self) -> Roster {
        Roster::from_spec(&self.spec()).unwrap()
    }

    /// A vote of `voter` on `suspect`, bound to the present roster, resting on a contact just now.
    pub fn vote(&self, voter: usize, suspect: usize, round: u8, answer: Answer) -> Vote {
        let ballot = Ballot {
            round: Nonce([round; 16]),
            suspect: Self::id(suspect),
            roster: self.roster().reference(),
            answer,
            contact_age: if answer == Answer::Yes { 0 } else { u32::MAX },
            ..Ballot::default()
        };
        Vote {
            voter: Self::id(voter),
            ballot,
        }
    }

    /// The vote signed by its voter with the next sequence, as evidence.
    pub fn sign(&mut self, voter: usize, vote: Vote) -> String {
        self.sequence += 1;
        let header = Header {
            from: vote.voter,
            sequence: self.sequence,
            ..Header::default()
        };
        let message = Message {
            header,
            body: Body::Ballot(vote.ballot),
        };
        wire::to_evidence(&wire::seal(&message, self.key(voter)))
    }

    /// A verdict that `node` is dead, signed by `voters`.
    pub fn dead(&mut self, node: usize, voters: &[usize], round: u8) -> NodeVerdict {
        let sign = |voter: &usize| {
            let vote = self.vote(*voter, node, round, Answer::No);
            self.sign(*voter, vote)
        };
        let evidence = voters.iter().map(sign).collect();
        listing(node, VerdictKind::Dead, Some(1000), evidence)
    }

    /// A verdict that `node` lives, signed by `voters`, with what they say of it.
    pub fn alive(&mut self, node: usize, voters: &[usize], round: u8, facts: Facts) -> NodeVerdict {
        let sign = |voter: &usize| {
            let mut vote = self.vote(*voter, node, round, Answer::Yes);
            vote.ballot.facts = facts;
            self.sign(*voter, vote)
        };
        let evidence = voters.iter().map(sign).collect();
        listing(node, VerdictKind::Alive, Some(0), evidence)
    }

    /// A verdict that there is none.
    pub fn undecided(node: usize) -> NodeVerdict {
        listing(node, VerdictKind::None, None, Vec::new())
    }

    /// The next report of the zone.
    pub fn report(&mut self, nodes: Vec<NodeVerdict>) -> ZoneHealthStatus {
        self.report += 1;
        let reference = self.roster().reference();
        ZoneHealthStatus {
            reporter: "node-1".into(),
            roster_version: self.version,
            epoch: reference.epoch.to_string(),
            sequence: self.report,
            members: i32::try_from(self.keys.len()).unwrap(),
            nodes,
            ..ZoneHealthStatus::default()
        }
    }
}

fn listing(
    node: usize,
    verdict: VerdictKind,
    round_age_ms: Option<i64>,
    evidence: Vec<String>,
) -> NodeVerdict {
    let (name, uid) = (format!("node-{node}"), Fixture::uid(node));
    NodeVerdict {
        name,
        uid,
        verdict,
        round_age_ms,
        evidence,
        ..NodeVerdict::default()
    }
}
