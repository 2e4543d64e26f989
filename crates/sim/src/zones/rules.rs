//! Rules that are broken on purpose. Tests play scenarios with each of them and demand that a promise breaks:
//! what no test can break is not looked at.
//!
//! Nothing of the product is changed for that. The simulator forges what the reader sees, or concludes what the
//! reader's book does not say.

use crate::machine::Machine;
use evenkeel_api::zone::{RosterSpec, VerdictKind, ZoneHealthStatus};
use evenkeel_zone::keys::Verifier;
use evenkeel_zone::roster::{MemberId, Roster};
use evenkeel_zone::vote::Vote;
use evenkeel_zone::wire::{self, Answer, Body, Frame, Header, Message};

/// Which rules are broken. By default none is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// A death needs one vote less than the majority.
    pub one_vote_less: bool,
    /// Evidence of life counts for ever.
    pub life_never_ends: bool,
    /// A node that a report does not list is well.
    pub omission_is_health: bool,
}

/// Makes a death of every verdict for which one vote was missing, with a vote in the name of somebody who did not
/// give it.
pub(crate) fn forge(
    status: &mut ZoneHealthStatus,
    roster: &RosterSpec,
    machines: &[Machine],
    verifier: &dyn Verifier,
) {
    let Ok(roster) = Roster::from_spec(roster) else {
        return;
    };
    for node in &mut status.nodes {
        if node.verdict != VerdictKind::None {
            continue;
        }
        let suspect = MemberId::of(&node.uid);
        let votes: Vec<(Vote, String)> = node
            .evidence
            .iter()
            .filter_map(|text| Some((open(text, &roster, verifier)?, text.clone())))
            .collect();
        let against: Vec<&(Vote, String)> = votes
            .iter()
            .filter(|(vote, _)| vote.ballot.answer == Answer::No)
            .collect();
        let told = votes.iter().any(|(vote, _)| vote.voter == suspect);
        if told || against.is_empty() || against.len() + 1 != roster.majority() {
            continue;
        }
        let spoke = |id: MemberId| against.iter().any(|(vote, _)| vote.voter == id);
        let Some(silent) = roster
            .members()
            .iter()
            .find(|member| member.id != suspect && !spoke(member.id))
        else {
            continue;
        };
        let number = crate::api::build::node_of_uid(&silent.uid).unwrap_or_default();
        let (Some(machine), Some((vote, _))) = (machines.get(number.wrapping_sub(1)), against.first()) else {
            continue;
        };
        let said = machine.agent.as_ref().map(|agent| agent.engine.sequence());
        let message = Message {
            header: Header {
                from: silent.id,
                sequence: said.unwrap_or(machine.sequence),
                ..Header::default()
            },
            body: Body::Ballot(vote.ballot),
        };
        let mut evidence: Vec<String> = against.iter().map(|(_, text)| text.clone()).collect();
        evidence.push(wire::to_evidence(&wire::seal(&message, &*machine.signer)));
        node.evidence = evidence;
        node.verdict = VerdictKind::Dead;
    }
}

fn open(text: &str, roster: &Roster, verifier: &dyn Verifier) -> Option<Vote> {
    let bytes = wire::from_evidence(text).ok()?;
    let frame = Frame::parse(&bytes).ok()?;
    let member = roster.get(frame.from())?;
    let message = frame.open_with(&member.key, verifier).ok()?;
    match message.body {
        Body::Ballot(ballot) => Some(Vote {
            voter: message.header.from,
            ballot,
        }),
        _ => None,
    }
}
