//! A zone whose agents sign what a test wants them to say.

use evenkeel_api::zone::{NodeVerdict, RosterMember, RosterSpec, VerdictKind, ZoneHealthStatus};
use evenkeel_zone::keys::SigningKey;
use evenkeel_zone::roster::{MemberId, Roster};
use evenkeel_zone::wire::{self, Answer, Ballot, Body, Facts, Header, Message, Nonce};

pub(crate) struct Zone {
    /// Name and UID of each node.
    nodes: Vec<(String, String)>,
    keys: Vec<SigningKey>,
    sequence: u64,
    report: i64,
}

impl Zone {
    pub(crate) fn new(nodes: Vec<(String, String)>) -> Self {
        let seeds = 1..=u8::try_from(nodes.len()).unwrap();
        Self {
            keys: seeds
                .map(|seed| SigningKey::from_seed(&[seed; 32]).unwrap())
                .collect(),
            nodes,
            sequence: 0,
            report: 0,
        }
    }

    pub(crate) fn roster(&self) -> RosterSpec {
        let mut members: Vec<RosterMember> = self
            .nodes
            .iter()
            .zip(&self.keys)
            .enumerate()
            .map(|(i, ((name, uid), key))| RosterMember {
                name: name.clone(),
                uid: uid.clone(),
                address: format!("127.77.0.{}:7946", i + 1),
                public_key: key.public().to_base64(),
                kubelet: None,
            })
            .collect();
        members.sort_by(|a, b| a.uid.cmp(&b.uid));
        RosterSpec { version: 1, members }
    }

    /// A report in which all others vouch for `node`, with what its agent says of itself.
    pub(crate) fn vouches(&mut self, node: &str, facts: Facts) -> ZoneHealthStatus {
        let uid = self
            .nodes
            .iter()
            .find(|(name, _)| name == node)
            .unwrap()
            .1
            .clone();
        self.report += 1;
        let round = Nonce([u8::try_from(self.report % 250).unwrap(); 16]);
        let roster = Roster::from_spec(&self.roster()).unwrap();
        let mut evidence = Vec::new();
        for ((name, voter), key) in self.nodes.iter().zip(&self.keys) {
            if name == node {
                continue;
            }
            self.sequence += 1;
            let ballot = Ballot {
                round,
                suspect: MemberId::of(&uid),
                roster: roster.reference(),
                answer: Answer::Yes,
                contact_age: 0,
                facts,
                ..Ballot::default()
            };
            let header = Header {
                from: MemberId::of(voter),
                sequence: self.sequence,
                ..Header::default()
            };
            let message = Message {
                header,
                body: Body::Ballot(ballot),
            };
            evidence.push(wire::to_evidence(&wire::seal(&message, key)));
        }
        let verdict = NodeVerdict {
            name: node.to_owned(),
            uid,
            verdict: VerdictKind::Alive,
            round_age_ms: Some(0),
            evidence,
            ..NodeVerdict::default()
        };
        self.status(vec![verdict])
    }

    /// A report in which nobody is in trouble.
    pub(crate) fn plain(&mut self) -> ZoneHealthStatus {
        self.report += 1;
        self.status(Vec::new())
    }

    fn status(&self, nodes: Vec<NodeVerdict>) -> ZoneHealthStatus {
        let reference = Roster::from_spec(&self.roster()).unwrap().reference();
        ZoneHealthStatus {
            reporter: self.nodes[0].0.clone(),
            roster_version: 1,
            epoch: reference.epoch.to_string(),
            sequence: self.report,
            members: i32::try_from(self.nodes.len()).unwrap(),
            nodes,
            ..ZoneHealthStatus::default()
        }
    }
}
