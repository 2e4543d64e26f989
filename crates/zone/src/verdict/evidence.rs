//! Reads published rounds and checks the signatures of their ballots.

use crate::keys::Verifier;
use crate::roster::{MemberId, Roster};
use crate::vote::Vote;
use crate::wire::{self, ConfirmRequest, Frame, WireError};
use evenkeel_api::zone::SignedRound;
use std::collections::BTreeMap;

/// Why evidence was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The roster in the object does not hold together.
    #[error("roster: {0}")]
    Roster(crate::roster::RosterError),
    /// A report shows more ballots than one that keeps the rules ever does.
    #[error("the report has more than {0} ballots that were not seen before: the rest was not checked")]
    TooManyBallots(usize),
    /// Two rosters of one version.
    #[error("a different roster of version {0} was seen before")]
    TwoRosters(u64),
    /// The request cannot be read, so that no ballot can belong to it.
    #[error("the request of a round cannot be read: {0}")]
    Request(WireError),
    /// A suspect of the round is not in the roster.
    #[error("a round speaks of {0}, who is not a member of the cell")]
    NotAMember(String),
    /// The ballots are no majority for anything, or older than what is known already.
    #[error("{valid} valid ballots ({refused} refused, last: {last}) decide nothing about {node}")]
    NoMajority {
        /// Name of the member.
        node: String,
        /// How many ballots count.
        valid: usize,
        /// How many ballots do not count.
        refused: usize,
        /// Why the last of those does not count.
        last: String,
    },
}

/// A round with the ballots that hold. A ballot is checked once, however many suspects it speaks of.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) request: ConfirmRequest,
    /// By voter.
    ballots: BTreeMap<MemberId, Counted>,
    refused: usize,
    last: String,
}

/// A ballot that holds.
#[derive(Clone, Debug)]
struct Counted {
    sequence: u64,
    uptime: u16,
    /// What it says of each suspect, in the order of the request.
    votes: Vec<Vote>,
}

/// What the voters of a round were asked.
pub(super) fn request(round: &SignedRound) -> Result<ConfirmRequest, Refusal> {
    let bytes = wire::from_evidence(&round.request).map_err(Refusal::Request)?;
    ConfirmRequest::read(&bytes).map_err(Refusal::Request)
}

impl Round {
    /// Checks the signature of each ballot, of no more than are `left`. Of a voter with several ballots only
    /// the first counts.
    pub(super) fn open(
        verifier: &dyn Verifier,
        roster: &Roster,
        request: ConfirmRequest,
        ballots: &[String],
        left: &mut usize,
    ) -> Self {
        let mut opened = Self {
            request,
            ballots: BTreeMap::new(),
            refused: 0,
            last: String::from("none"),
        };
        // A round never has more ballots than there are members.
        for text in ballots.iter().take(roster.len().min(*left)) {
            *left -= 1;
            match opened.ballot(verifier, roster, text) {
                Ok((voter, counted)) => {
                    opened.ballots.entry(voter).or_insert(counted);
                }
                Err(why) => {
                    opened.refused += 1;
                    opened.last = why;
                }
            }
        }
        opened
    }

    fn ballot(
        &self,
        verifier: &dyn Verifier,
        roster: &Roster,
        text: &str,
    ) -> Result<(MemberId, Counted), String> {
        let say = |error: WireError| error.to_string();
        let bytes = wire::from_evidence(text).map_err(say)?;
        let frame = Frame::parse(&bytes).map_err(say)?;
        let member = roster
            .get(frame.from())
            .ok_or("signed by somebody who is not a member")?;
        let (header, ballot) = frame.open_evidence(member.keys(), verifier).map_err(say)?;
        if ballot.request != self.request.digest() {
            return Err(format!("ballot {} is of another round", header.sequence));
        }
        let counted = Counted {
            sequence: header.sequence,
            uptime: ballot.uptime,
            votes: ballot.votes(member.id, &self.request),
        };
        Ok((member.id, counted))
    }

    /// For how many seconds the machine of each voter has been up, as its ballot says.
    pub(super) fn uptimes(&self) -> impl Iterator<Item = (MemberId, u16)> {
        let uptimes = self.ballots.iter();
        uptimes.map(|(voter, counted)| (*voter, counted.uptime))
    }

    /// The votes on a suspect that are new enough to count, by voter, with the ballots' sequences. `fresh`
    /// decides that by voter and sequence.
    pub(super) fn votes_on(
        &self,
        suspect: MemberId,
        fresh: impl Fn(MemberId, u64) -> bool,
    ) -> BTreeMap<MemberId, (u64, Vote)> {
        let of_ballot = |(voter, counted): (&MemberId, &Counted)| {
            let vote = counted.votes.iter().find(|vote| vote.suspect == suspect)?;
            fresh(*voter, counted.sequence).then_some((*voter, (counted.sequence, *vote)))
        };
        self.ballots.iter().filter_map(of_ballot).collect()
    }

    /// Why nothing follows from it for a member.
    pub(super) fn no_majority(&self, node: &str, valid: usize) -> Refusal {
        Refusal::NoMajority {
            node: node.to_owned(),
            valid,
            refused: self.refused,
            last: self.last.clone(),
        }
    }
}
