//! The vote: from signed ballots of one round to an outcome. No minority ever decides anything.

use crate::roster::{MemberId, Roster, RosterRef};
use crate::wire::{Answer, Facts};
use evenkeel_api::zone::VerdictKind;
use std::collections::BTreeMap;

/// A yes that rests on a contact older than this does not count: it would let *alive* outlive the node.
pub const FRESH_CONTACT_MS: u32 = 5_000;

/// The rosters that a verdict needs a majority of: the one in force, and while it settles, the one before.
///
/// Of the roster before, only those count who are still members. So a member that was taken out has no vote,
/// and members that were just added on one side of a split cannot outvote those who were there.
#[derive(Clone, Copy, Debug)]
pub struct Council<'a> {
    /// The roster in force.
    pub current: &'a Roster,
    /// The roster before, until the current one has settled.
    pub previous: Option<&'a Roster>,
}

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

impl Council<'_> {
    /// Whether votes may be bound to that roster: the one in force, or any before it. A voter that is cut off
    /// keeps the roster it has, for days if need be; it and its vote count as long as the roster in force
    /// holds voter and suspect, and the majority is always one of the roster in force. Of one version there
    /// is one roster.
    pub fn knows(&self, reference: RosterRef) -> bool {
        let current = self.current.reference();
        reference == current || (1..current.version).contains(&reference.version)
    }

    /// What votes of one round say of a suspect: *dead* if more than half of the roster, the suspect
    /// counted in, says no and the suspect is silent; *alive* if more than half says yes; in all other cases
    /// there is no majority, which is [`VerdictKind::None`] and never "as before". `suspect_self_yes`: an
    /// authenticated answer of the suspect's agent arrived during the round, by whatever way; it vetoes
    /// *dead*.
    ///
    /// Votes on other suspects, under unknown rosters and of non-members do not count. A voter who says two
    /// things in one round has said nothing. Every other member has a vote: a sample of
    /// them could be a minority (hazard 42).
    pub fn tally(&self, suspect: MemberId, votes: &[Vote], suspect_self_yes: bool) -> VerdictKind {
        if self.current.len() < 2 || !self.current.contains(suspect) {
            return VerdictKind::None;
        }
        let mut said: BTreeMap<MemberId, Answer> = BTreeMap::new();
        let valid = |vote: &&Vote| vote.suspect == suspect && self.knows(vote.roster);
        for vote in votes.iter().filter(valid) {
            let answer = effective(vote);
            let entry = said.entry(vote.voter).or_insert(answer);
            if *entry != answer {
                *entry = Answer::Abstain;
            }
        }
        let own_voice = said.remove(&suspect) == Some(Answer::Yes);
        let (voters, threshold) = (self.current.others(suspect), self.current.majority());
        let counted = |answer: Answer, of: &[MemberId]| {
            of.iter().filter(|voter| said.get(voter) == Some(&answer)).count()
        };
        let own = usize::from(own_voice);
        let dead = counted(Answer::No, &voters) >= threshold;
        let alive = counted(Answer::Yes, &voters) + own >= threshold;
        let (before_dead, before_alive) = self.before(suspect, own, &counted);
        match (dead && before_dead, alive && before_alive) {
            (true, false) if !own_voice && !suspect_self_yes => VerdictKind::Dead,
            (false, true) => VerdictKind::Alive,
            _ => VerdictKind::None,
        }
    }

    /// Whether those who were members before, and still are, agree by a majority of themselves: (dead,
    /// alive).
    fn before(
        &self,
        suspect: MemberId,
        own: usize,
        counted: &impl Fn(Answer, &[MemberId]) -> usize,
    ) -> (bool, bool) {
        let Some(previous) = self.previous else {
            return (true, true);
        };
        let stayed: Vec<MemberId> = previous
            .members()
            .iter()
            .map(|member| member.id)
            .filter(|id| self.current.contains(*id))
            .collect();
        let voters: Vec<MemberId> = stayed.iter().copied().filter(|id| *id != suspect).collect();
        // A suspect that was not a member before adds nothing to the count of those who were.
        let own = if stayed.len() == voters.len() { 0 } else { own };
        let threshold = stayed.len() / 2 + 1;
        if stayed.len() < 2 {
            // One founding member cannot hold back everybody who joined.
            return (true, true);
        }
        (
            counted(Answer::No, &voters) >= threshold,
            counted(Answer::Yes, &voters) + own >= threshold,
        )
    }
}

/// One roster alone, without a predecessor: see [`Council::tally`].
pub fn tally(roster: &Roster, suspect: MemberId, votes: &[Vote], suspect_self_yes: bool) -> VerdictKind {
    Council {
        current: roster,
        previous: None,
    }
    .tally(suspect, votes, suspect_self_yes)
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
