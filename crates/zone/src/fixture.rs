//! Signed zones made to measure: keys, rosters, ballots and reports for tests. Not part of the product.
#![allow(
    clippy::unwrap_used,
    reason = "test support: a wrong fixture should fail the test at once"
)]

pub mod fuzz;

use crate::Millis;
use crate::keys::stand_in::StandIn;
use crate::keys::{Ed25519, PublicKey, Signer, SigningKey, Verifier};
use crate::roster::{self, MemberId, Roster};
use crate::verdict::Issued;
use crate::vote::Vote;
use crate::wire::{
    self, Answer, Ballot, Body, Challenge, ConfirmRequest, Facts, Frame, Header, Message, Nonce, Renewal,
    Said, Suspect,
};
use evenkeel_api::zone::{ListedNode, Report, RosterMember, RosterSpec, SignedRoster, SignedRound};
use std::net::SocketAddr;
use std::sync::Arc;

/// What somebody with `author`'s key writes as a datagram for who has the other key.
pub fn seal_for(author: &dyn Signer, receiver: &PublicKey, header: Header, body: &Body) -> Vec<u8> {
    let shared = author.shared_with(receiver);
    wire::seal(&mut Vec::new(), &header, body, author, &*shared).to_vec()
}

/// What a datagram of `author` says to who has the other key; nothing where the proof does not hold.
pub fn open_for(
    receiver: &dyn Signer,
    author: &PublicKey,
    verifier: &dyn Verifier,
    bytes: &[u8],
) -> Option<Message> {
    let frame = Frame::parse(bytes).ok()?;
    let shared = receiver.shared_with(author);
    frame.open(&mut Vec::new(), (author, verifier), &*shared).ok()
}

/// What the header of a datagram says, whoever wrote it.
pub fn claimed_header(bytes: &[u8]) -> Option<Header> {
    Frame::parse(bytes).ok()?.header().ok()
}

/// A zone of nodes `node-1`, `node-2`, … with UIDs `uid-1`, … and the keys of their agents.
pub struct Fixture {
    version: i64,
    /// `None` where members sign with Ed25519.
    stand_in: Option<StandIn>,
    keys: Vec<Arc<dyn Signer>>,
    sequence: u64,
    report: i64,
    /// Nodes without a vote.
    pub learners: Vec<usize>,
    /// So many of the first nodes are in another cell of the zone.
    pub elsewhere: usize,
    /// Nodes that voted in the last settled roster; none where this one is settled.
    pub settled_voters: Vec<usize>,
    /// What the requests of this zone sign.
    pub challenge: Challenge,
    /// The renewal that they name; `None`: no Lease was read.
    pub renewal: Option<Renewal>,
    /// For how many seconds its machines have been up, as its ballots say.
    pub uptime: u16,
}

/// A roster as the next version of Evenkeel may publish it: with fields that this one does not know.
pub fn publish_as_next_version(roster: &RosterSpec, key: &dyn Signer) -> SignedRoster {
    let text = roster.to_text();
    let later = text.replacen('{', "{\"laterField\":{\"deep\":[1]},", 1);
    let later = later.replace("\"address\":", "\"laterOfMember\":true,\"address\":");
    roster::publish_text(roster, later, Some(key))
}

impl Fixture {
    /// A zone of `members` nodes, roster version 1, that sign with Ed25519.
    pub fn new(members: u8) -> Self {
        Self::signing_by(None, members)
    }

    /// The same, signing with the stand-in: for simulations of many engines.
    pub fn stand_in(members: u8) -> Self {
        Self::signing_by(Some(StandIn::new([7; 32])), members)
    }

    fn signing_by(stand_in: Option<StandIn>, members: u8) -> Self {
        let mut zone = Self {
            version: 1,
            stand_in,
            keys: Vec::new(),
            sequence: 0,
            report: 0,
            learners: Vec::new(),
            elsewhere: 0,
            settled_voters: Vec::new(),
            challenge: Self::CHALLENGE,
            renewal: Some(Self::RENEWAL),
            uptime: 3_600,
        };
        zone.keys = (1..=members).map(|i| zone.make_key(i)).collect();
        zone
    }

    fn make_key(&self, seed: u8) -> Arc<dyn Signer> {
        let seed = [seed; 32];
        match &self.stand_in {
            Some(scheme) => Arc::new(scheme.signer(&seed)),
            None => Arc::new(SigningKey::from_seed(&seed).unwrap()),
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

    /// Address of node `i` in the roster.
    pub fn address(i: usize) -> SocketAddr {
        SocketAddr::from(([127, 77, 0, u8::try_from(i).unwrap()], 7959))
    }

    /// Key of the agent of node `i`.
    pub fn key(&self, i: usize) -> &dyn Signer {
        &**self.keys.get(i - 1).unwrap()
    }

    /// The same, as an engine takes it.
    pub fn signer(&self, i: usize) -> Arc<dyn Signer> {
        self.keys.get(i - 1).unwrap().clone()
    }

    /// The controllers' key, which signs rosters.
    pub fn roster_key(&self) -> Arc<dyn Signer> {
        self.make_key(255)
    }

    /// What checks the signatures of this zone.
    pub fn verifier(&self) -> Arc<dyn Verifier> {
        match &self.stand_in {
            Some(scheme) => Arc::new(scheme.clone()),
            None => Arc::new(Ed25519),
        }
    }

    /// What somebody with `author`'s key writes as a datagram with this header.
    pub fn seal(&self, author: &dyn Signer, header: Header, body: &Body) -> Vec<u8> {
        let receiver = self.node(header.to).map_or(author, |node| self.key(node));
        seal_for(author, receiver.public(), header, body)
    }

    /// Reads what a node wrote for another one, of an answer to a request the ballot; nothing where the proof
    /// does not hold.
    pub fn open(&self, bytes: &[u8]) -> Option<Message> {
        let frame = Frame::parse(bytes).ok()?;
        let (from, to) = (self.node(frame.from())?, self.node(frame.to())?);
        let message = open_for(self.key(to), self.key(from).public(), &*self.verifier(), bytes)?;
        match message.body {
            Body::Voted(voted) => self.open(&voted.ballot),
            _ => Some(message),
        }
    }

    fn node(&self, id: MemberId) -> Option<usize> {
        (1..=self.keys.len()).find(|node| Self::id(*node) == id)
    }

    /// Adds one node and raises the version.
    pub fn grow(&mut self) {
        let next = u8::try_from(self.keys.len() + 1).unwrap();
        self.keys.push(self.make_key(next));
        self.version += 1;
    }

    /// Gives node `i` another key.
    pub fn rekey(&mut self, i: usize, seed: u8) {
        let key = self.make_key(seed);
        *self.keys.get_mut(i - 1).unwrap() = key;
    }

    /// Raises the version of the roster.
    pub fn reissue(&mut self) {
        self.version += 1;
    }

    /// The roster as the controller writes it.
    pub fn spec(&self) -> RosterSpec {
        let member = |(position, key): (usize, &Arc<dyn Signer>)| RosterMember {
            name: format!("node-{}", position + 1),
            uid: Self::uid(position + 1),
            address: Self::address(position + 1).to_string(),
            public_key: key.public().to_base64(),
            kubelet: None,
            next_public_key: None,
            learner: self.learners.contains(&(position + 1)),
        };
        RosterSpec {
            version: self.version,
            members: self
                .keys
                .iter()
                .enumerate()
                .skip(self.elsewhere)
                .map(member)
                .collect(),
            settled_voters: self.settled_voters.iter().map(|node| Self::uid(*node)).collect(),
            ..RosterSpec::default()
        }
    }

    /// The roster as engines and readers hold it.
    pub fn roster(&self) -> Roster {
        Roster::from_spec(&self.spec()).unwrap()
    }

    /// A vote of `voter` on `suspect`, bound to the present roster, resting on a contact just now.
    pub fn vote(&self, voter: usize, suspect: usize, answer: Answer) -> Vote {
        Vote {
            voter: Self::id(voter),
            suspect: Self::id(suspect),
            roster: self.roster().reference(),
            answer,
            contact_age: if answer == Answer::Yes { 0 } else { u32::MAX },
            facts: Facts::default(),
        }
    }

    /// What the requests of a new zone sign.
    pub const CHALLENGE: Challenge = Challenge([7; 16]);
    /// The renewal that they name.
    pub const RENEWAL: Renewal = Renewal(100);

    /// A suspect whose Lease was read.
    pub fn suspect(node: usize) -> Suspect {
        Suspect {
            member: Self::id(node),
            renewal: Some(Self::RENEWAL),
        }
    }

    /// The challenge as the reader that drew it knows it.
    pub fn issued(&self, drawn: Millis) -> Issued {
        Issued {
            challenge: self.challenge,
            drawn: Some(drawn),
        }
    }

    /// A request for votes on these nodes; `round` names it.
    pub fn request(&self, suspects: &[usize], round: u8) -> ConfirmRequest {
        ConfirmRequest {
            round: Nonce([round; 16]),
            roster: self.roster().reference(),
            challenge: self.challenge,
            budget: 1_000,
            suspects: suspects
                .iter()
                .map(|suspect| Suspect {
                    renewal: self.renewal,
                    ..Self::suspect(*suspect)
                })
                .collect(),
            ..ConfirmRequest::default()
        }
    }

    /// The ballot of `voter` with these votes, signed with its next sequence, as evidence.
    pub fn sign(&mut self, voter: usize, request: &ConfirmRequest, votes: &[Vote]) -> String {
        self.sequence += 1;
        let header = Header {
            from: Self::id(voter),
            sequence: self.sequence,
            ..Header::default()
        };
        let said = votes.iter().map(|vote| {
            let index = request
                .suspects
                .iter()
                .position(|suspect| suspect.member == vote.suspect);
            Said {
                index: u8::try_from(index.unwrap_or(usize::from(u8::MAX))).unwrap(),
                answer: vote.answer,
                contact_age: vote.contact_age,
                facts: vote.facts,
            }
        });
        let ballot = Ballot {
            request: request.digest(),
            roster: votes
                .first()
                .map_or_else(|| self.roster().reference(), |vote| vote.roster),
            uptime: self.uptime,
            said: said.collect(),
        };
        wire::to_evidence(&wire::sign(&header, ballot, self.key(voter)))
    }

    /// A round as a report carries it, asked for `age_ms` ago: each voter with what it says of the suspects.
    pub fn round(
        &mut self,
        request: &ConfirmRequest,
        age_ms: i64,
        votes: &[(usize, Vec<Vote>)],
    ) -> SignedRound {
        SignedRound {
            age_ms,
            request: wire::to_evidence(&request.to_bytes()),
            ballots: votes
                .iter()
                .map(|(voter, votes)| self.sign(*voter, request, votes))
                .collect(),
        }
    }

    /// A round asked for a second ago, in which `voters` say that `node` is dead.
    pub fn dead(&mut self, node: usize, voters: &[usize], round: u8) -> SignedRound {
        let request = self.request(&[node], round);
        let votes: Vec<_> = voters
            .iter()
            .map(|voter| (*voter, vec![self.vote(*voter, node, Answer::No)]))
            .collect();
        self.round(&request, 1_000, &votes)
    }

    /// A round just now, in which `voters` say that `node` lives, with what they say of it.
    pub fn alive(&mut self, node: usize, voters: &[usize], round: u8, facts: Facts) -> SignedRound {
        let request = self.request(&[node], round);
        let votes: Vec<_> = voters
            .iter()
            .map(|voter| {
                let vote = self.vote(*voter, node, Answer::Yes);
                (*voter, vec![Vote { facts, ..vote }])
            })
            .collect();
        self.round(&request, 0, &votes)
    }

    /// The listing of a node about which no majority exists.
    pub fn undecided(node: usize) -> ListedNode {
        ListedNode {
            name: format!("node-{node}"),
            uid: Self::uid(node),
            ..ListedNode::default()
        }
    }

    /// The next report of a reporter.
    pub fn report(&mut self, rounds: Vec<SignedRound>) -> Report {
        self.report += 1;
        Report {
            roster_version: self.version,
            sequence: self.report,
            members: i32::try_from(self.keys.len()).unwrap(),
            rounds,
            ..Report::default()
        }
    }
}
