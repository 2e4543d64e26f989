//! Checks the signed statements behind one published verdict.

use crate::keys::Verifier;
use crate::roster::{MemberId, Roster};
use crate::vote::{Council, Vote};
use crate::wire::{self, Body, Frame, Nonce, WireError};
use evenkeel_api::zone::{NodeVerdict, VerdictKind};
use std::collections::BTreeMap;

/// Why a published verdict was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The roster in the object does not hold together.
    #[error("roster: {0}")]
    Roster(crate::roster::RosterError),
    /// Two rosters of one version.
    #[error("a different roster of version {0} was seen before")]
    TwoRosters(u64),
    /// The node is not in the roster.
    #[error("node {0} is not a member of the zone")]
    NotAMember(String),
    /// The statements are no majority for what the report says.
    #[error("{valid} valid statements ({refused} refused, last: {last}) do not carry the verdict")]
    NoMajority {
        /// How many statements count.
        valid: usize,
        /// How many statements do not count.
        refused: usize,
        /// Why the last of those does not count.
        last: String,
    },
}

/// Statements of one round that hold, with the round.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// The round of all of them.
    pub round: Nonce,
    /// Sequence and vote by voter.
    pub votes: BTreeMap<MemberId, (u64, Vote)>,
}

impl Checked {
    /// The votes without their sequences.
    pub fn votes(&self) -> Vec<Vote> {
        self.votes.values().map(|(_, vote)| *vote).collect()
    }
}

/// Opens the statements behind a verdict and checks that they carry it. `fresh` decides by voter and sequence
/// whether a statement is new enough to count.
pub fn check(
    verifier: &dyn Verifier,
    council: &Council<'_>,
    verdict: &NodeVerdict,
    fresh: impl Fn(MemberId, u64, Nonce) -> bool,
) -> Result<Checked, Refusal> {
    let suspect = MemberId::of(&verdict.uid);
    if !council.current.contains(suspect) {
        return Err(Refusal::NotAMember(verdict.name.clone()));
    }
    let mut checked = Checked::default();
    let mut refused = 0;
    let mut last = String::from("none");
    // A verdict never needs more statements than there are members.
    for text in verdict.evidence.iter().take(council.current.len()) {
        match open(verifier, council.current, text) {
            Ok((sequence, vote)) if vote.ballot.suspect != suspect => {
                refused += 1;
                last = format!("statement {sequence} speaks of another node");
            }
            Ok((sequence, vote)) if !fresh(vote.voter, sequence, vote.ballot.round) => {
                refused += 1;
                last = format!("statement {sequence} is older than one seen before");
            }
            Ok((sequence, vote)) if !checked.votes.is_empty() && vote.ballot.round != checked.round => {
                refused += 1;
                last = format!("statement {sequence} is of another round");
            }
            Ok((sequence, vote)) => {
                if checked.votes.is_empty() {
                    checked.round = vote.ballot.round;
                }
                checked.votes.insert(vote.voter, (sequence, vote));
            }
            Err(error) => {
                refused += 1;
                last = error;
            }
        }
    }
    let outcome = council.tally(suspect, checked.round, &checked.votes(), false);
    let carried = verdict.verdict == VerdictKind::None || verdict.verdict == outcome;
    if carried {
        Ok(checked)
    } else {
        Err(Refusal::NoMajority {
            valid: checked.votes.len(),
            refused,
            last,
        })
    }
}

fn open(verifier: &dyn Verifier, roster: &Roster, text: &str) -> Result<(u64, Vote), String> {
    let say = |error: WireError| error.to_string();
    let bytes = wire::from_evidence(text).map_err(say)?;
    let frame = Frame::parse(&bytes).map_err(say)?;
    let member = roster
        .get(frame.from())
        .ok_or("signed by somebody who is not a member")?;
    let message = frame.open_with(&member.key, verifier).map_err(say)?;
    match message.body {
        Body::Ballot(ballot) => Ok((
            message.header.sequence,
            Vote {
                voter: message.header.from,
                ballot,
            },
        )),
        other => Err(format!("{} is not a statement about a node", other.name())),
    }
}
