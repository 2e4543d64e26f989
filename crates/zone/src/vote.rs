//! The vote: from signed ballots of one round to an outcome. No minority ever decides anything.

use crate::roster::{MemberId, Roster, RosterRef};
use crate::wire::{Answer, Facts};
use evenkeel_api::zone::VerdictKind;
use std::collections::{BTreeMap, BTreeSet};

/// A yes that rests on a contact older than this does not count: it would let *alive* outlive the node.
pub const FRESH_CONTACT_MS: u32 = 5_000;

/// What a voter says of one suspect: a part of its ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    /// Who signed the ballot; the signature has been checked.
    pub voter: MemberId,
    /// The member that is voted on.
    pub suspect: MemberId,
    /// The roster that the voter has.
    pub roster: RosterRef,
    /// The vote.
    pub answer: Answer,
    /// As in [`Said::contact_age`](crate::wire::Said::contact_age).
    pub contact_age: u32,
    /// What the suspect says of itself, and the voter's check of its kubelet.
    pub facts: Facts,
}

/// Whether votes may be bound to that roster: the one in force, or any before it. A voter that is cut off
/// keeps the roster it has, for days if need be; it and its vote count as long as the roster in force
/// holds voter and suspect, and the majority is always one of the roster in force. Of one version there
/// is one roster.
pub fn counts_under(roster: &Roster, reference: RosterRef) -> bool {
    let current = roster.reference();
    reference == current || (1..current.version).contains(&reference.version)
}

/// What votes of one round say of a suspect: *dead* if more than half of the voters, the suspect counted in
/// if it is one, says no and the suspect is silent; *alive* if more than half says yes; in all other cases
/// there is no majority, which is [`VerdictKind::None`] and never "as before". `suspect_self_yes`: an
/// authenticated answer of the suspect's agent arrived during the round, by whatever way; it vetoes *dead*.
///
/// While the roster is not settled, the voters of the last settled one have to agree by a majority of
/// themselves as well: members that joined on one side of a split cannot outvote those who were there.
///
/// Votes on other suspects, under unknown rosters, of learners and of non-members do not count. A voter who
/// says two things in one round has said nothing. Every other voter has a vote: a sample of them could be a
/// minority (hazard 42).
pub fn tally(roster: &Roster, suspect: MemberId, votes: &[Vote], suspect_self_yes: bool) -> VerdictKind {
    if roster.voters() < 2 || !roster.contains(suspect) {
        return VerdictKind::None;
    }
    let mut said: BTreeMap<MemberId, Answer> = BTreeMap::new();
    let valid = |vote: &&Vote| vote.suspect == suspect && counts_under(roster, vote.roster);
    for vote in votes.iter().filter(valid) {
        let answer = effective(vote);
        let entry = said.entry(vote.voter).or_insert(answer);
        if *entry != answer {
            *entry = Answer::Abstain;
        }
    }
    let own_voice = said.get(&suspect) == Some(&Answer::Yes);
    said.retain(|voter, _| roster.is_voter(*voter));
    let settled: BTreeSet<MemberId> = roster.settled_voters().collect();
    let agree = |answer: Answer| {
        let given = || said.iter().filter(|(_, given)| **given == answer);
        let before = given().filter(|(voter, _)| settled.contains(voter)).count();
        given().count() >= roster.majority() && (settled.is_empty() || before > settled.len() / 2)
    };
    match (agree(Answer::No), agree(Answer::Yes)) {
        (true, false) if !own_voice && !suspect_self_yes => VerdictKind::Dead,
        (false, true) => VerdictKind::Alive,
        _ => VerdictKind::None,
    }
}

/// Whether what a member says of a suspect is looked at: it has a vote, or it speaks of itself, which vetoes
/// its death.
pub(crate) fn has_a_word(roster: &Roster, voter: MemberId, suspect: MemberId) -> bool {
    voter == suspect || roster.is_voter(voter)
}

fn effective(vote: &Vote) -> Answer {
    let by_suspect = vote.voter == vote.suspect;
    match vote.answer {
        Answer::Yes if by_suspect || vote.contact_age <= FRESH_CONTACT_MS => Answer::Yes,
        Answer::No if !by_suspect => Answer::No,
        _ => Answer::Abstain,
    }
}

#[cfg(test)]
mod tests;
