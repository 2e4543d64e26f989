//! Rules that are broken on purpose. Tests play scenarios with each of them and demand that a promise breaks:
//! what no test can break is not looked at.
//!
//! Nothing of the product is changed for that. The simulator forges what the reader sees, or concludes what
//! the reader's book does not say.

use crate::machine::Machine;
use evenkeel_api::zone::{Report, SignedRound, VerdictKind};
use evenkeel_zone::keys::{PublicKey, Verifier};
use evenkeel_zone::roster::{Member, MemberId, Roster};
use evenkeel_zone::verdict::Issued;
use evenkeel_zone::wire::{
    self, Answer, Ballot, Challenge, ConfirmRequest, Frame, Header, Nonce, Renewal, Said, Suspect,
};
use std::collections::BTreeSet;

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
    /// Ballots count for every request.
    pub any_request: bool,
    /// Ballots count against every renewal.
    pub any_renewal: bool,
    /// Ballots count although later ones of the same voters are known.
    pub any_sequence: bool,
    /// A voter has as many votes as it signs ballots.
    pub counts_ballots: bool,
    /// Nobody looks at the codes of datagrams.
    pub no_codes: bool,
    /// Nothing bounds what a member can have others look for.
    pub no_bounds: bool,
}

/// Makes a round of a hostile member count where only rules that are broken refuse it: its ballots sign anew
/// what the broken rules bind them to, with the keys of their voters, and what they say stays as it is.
pub(crate) fn unbind(
    round: &mut SignedRound,
    rules: Rules,
    (roster, challenge): (&Roster, Challenge),
    renewal: impl Fn(MemberId) -> Renewal,
    machines: &[Machine],
) {
    let Some(mut request) = request(round).filter(|_| rules != Rules::default()) else {
        return;
    };
    let asked = request.digest();
    if rules.any_challenge {
        request.challenge = challenge;
    }
    for suspect in request.suspects.iter_mut().filter(|_| rules.any_renewal) {
        suspect.renewal = Some(renewal(suspect.member));
    }
    let mut voters: BTreeSet<MemberId> = round.ballots.iter().filter_map(|text| voter(text)).collect();
    let mut counted = BTreeSet::new();
    for text in &mut round.ballots {
        let signed = voter(text).and_then(|id| Some((id, machine_of(id, roster, machines)?)));
        let Some((mut id, mut machine)) = signed else {
            continue;
        };
        let Some((mut header, mut ballot)) = read(text, machine) else {
            continue;
        };
        if ballot.request == asked || rules.any_request {
            ballot.request = request.digest();
        }
        if rules.any_sequence {
            header.sequence = header.sequence.max(sequence_of(machine));
        }
        // Each further ballot of a voter counts as that of a member that gave none.
        if rules.counts_ballots && !counted.insert(id) {
            let mut others = roster.members().iter().map(|member| member.id);
            let other = others.rfind(|other| !voters.contains(other));
            let other = other.and_then(|other| Some((other, machine_of(other, roster, machines)?)));
            let Some(other) = other else { continue };
            (id, machine) = other;
            voters.insert(id);
            (header.from, header.sequence) = (id, sequence_of(machine));
        }
        *text = wire::to_evidence(&wire::sign(&header, ballot, &*machine.signer));
    }
    round.request = wire::to_evidence(&request.to_bytes());
}

/// What the voters of a published round were asked.
pub(crate) fn request(round: &SignedRound) -> Option<ConfirmRequest> {
    let bytes = wire::from_evidence(&round.request).ok()?;
    ConfirmRequest::read(&bytes).ok()
}

/// Who claims to have signed a ballot.
pub(crate) fn voter(text: &str) -> Option<MemberId> {
    let bytes = wire::from_evidence(text).ok()?;
    Some(Frame::parse(&bytes).ok()?.from())
}

fn read(text: &str, machine: &Machine) -> Option<(Header, Ballot)> {
    let bytes = wire::from_evidence(text).ok()?;
    let frame = Frame::parse(&bytes).ok()?;
    frame.open_evidence([machine.signer.public()], &Any).ok()
}

/// Takes every signature: what is read here is signed anew, or was signed by a member.
#[derive(Debug)]
struct Any;

impl Verifier for Any {
    fn verifies(&self, _: &PublicKey, _: &[u8], _: &[u8]) -> bool {
        true
    }
}

fn machine_of<'a>(id: MemberId, roster: &Roster, machines: &'a [Machine]) -> Option<&'a Machine> {
    let number = crate::api::build::node_of_uid(&roster.get(id)?.uid)?;
    machines.get(number.checked_sub(1)?)
}

fn sequence_of(machine: &Machine) -> u64 {
    let said = machine.agent.as_ref().map(|agent| agent.engine.sequence());
    said.unwrap_or(machine.sequence)
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
    let requests = report.rounds.iter().filter_map(request);
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
    let header = Header {
        from: voter.id,
        sequence: sequence_of(machine),
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
