//! Rules that are broken on purpose. Tests play scenarios with each of them and demand that a promise breaks:
//! what no test can break is not looked at.
//!
//! Nothing of the product is changed for that. The simulator forges what the reader sees, or concludes what
//! the reader's book does not say.

use crate::machine::Machine;
use evenkeel_api::zone::{Report, SignedRound, VerdictKind};
use evenkeel_zone::roster::{Member, MemberId, Roster};
use evenkeel_zone::verdict::Issued;
use evenkeel_zone::wire::{
    self, Answer, Ballot, Challenge, ConfirmRequest, Header, Nonce, Renewal, Said, Suspect,
};

/// Which rules are broken. By default none is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// A death needs one vote less than the majority.
    pub one_vote_less: bool,
    /// Evidence of life counts for ever.
    pub life_never_ends: bool,
    /// A node that a report does not list is well.
    pub omission_is_health: bool,
    /// Somebody keeps back what says that a node is dead, and shows it when no ballot may count any more. No
    /// rule is broken by that.
    pub hoards: bool,
    /// Ballots count whatever challenge they sign.
    pub any_challenge: bool,
}

/// Makes a death of every listing for which one no was missing and nobody said yes, by a round with votes of
/// a majority in which one is of somebody who did not give it.
pub(crate) fn forge(report: &mut Report, roster: &Roster, challenge: Challenge, machines: &[Machine]) {
    for node in &mut report.nodes {
        let Some((0, no)) = votes_in(&node.reason).filter(|_| node.verdict == VerdictKind::None) else {
            continue;
        };
        if no == 0 || no + 1 != roster.majority() {
            continue;
        }
        let suspect = MemberId::of(&node.uid);
        let request = ConfirmRequest {
            round: Nonce([report.sequence.to_be_bytes()[7] ^ suspect.0[0]; 16]),
            roster: roster.reference(),
            challenge,
            budget: 0,
            suspects: vec![Suspect {
                member: suspect,
                renewal: Some(Renewal::NO_LEASE),
            }],
            ..ConfirmRequest::default()
        };
        let voters = roster.members().iter().filter(|member| member.id != suspect);
        let ballots = voters
            .take(roster.majority())
            .filter_map(|voter| ballot(&request, voter, machines))
            .collect();
        report.rounds.push(SignedRound {
            age_ms: 0,
            request: wire::to_evidence(&request.to_bytes()),
            ballots,
        });
        node.verdict = VerdictKind::Dead;
    }
}

/// The challenges that the ballots of a report sign.
pub(crate) fn signed(report: &Report) -> Vec<Issued> {
    let rounds = report.rounds.iter();
    let requests = rounds.filter_map(|round| wire::from_evidence(&round.request).ok());
    let requests = requests.filter_map(|bytes| ConfirmRequest::read(&bytes).ok());
    let issued = |request: ConfirmRequest| Issued {
        challenge: request.challenge,
        drawn: None,
    };
    requests.map(issued).collect()
}

/// Votes yes and no in the reason of a listing without a majority.
fn votes_in(reason: &str) -> Option<(usize, usize)> {
    let (_, counts) = reason.split_once(": ")?;
    let count = |word: &str| {
        let part = counts.split(", ").find(|part| part.ends_with(word))?;
        part.split(' ').next()?.parse().ok()
    };
    Some((count(" yes")?, count(" no")?))
}

fn ballot(request: &ConfirmRequest, voter: &Member, machines: &[Machine]) -> Option<String> {
    let number = crate::api::build::node_of_uid(&voter.uid)?;
    let machine = machines.get(number.checked_sub(1)?)?;
    let said = machine.agent.as_ref().map(|agent| agent.engine.sequence());
    let header = Header {
        from: voter.id,
        sequence: said.unwrap_or(machine.sequence),
        ..Header::default()
    };
    let ballot = Ballot {
        request: request.digest(),
        roster: request.roster,
        uptime: u16::MAX,
        said: vec![Said {
            index: 0,
            answer: Answer::No,
            contact_age: u32::MAX,
            ..Said::default()
        }],
    };
    Some(wire::to_evidence(&wire::sign(&header, ballot, &*machine.signer)))
}
