//! What a reader holds of one cell.

use super::evidence::{Checked, Refusal, check};
use super::{ALIVE_TTL_MS, Alive, Death, Deaths, NoVerdict, ROSTER_SETTLE_MS, STORM_WINDOW_MS, Verdict};
use crate::Millis;
use crate::keys::Verifier;
use crate::roster::{MemberId, Roster};
use crate::vote::{Council, Vote};
use crate::wire::{Answer, Nonce};
use evenkeel_api::zone::{NodeVerdict, RosterSpec, VerdictKind, ZoneHealthStatus};
use std::collections::BTreeMap;

/// What a reader remembers of one cell.
#[derive(Debug, Default)]
pub(super) struct Cell {
    roster: Option<Roster>,
    /// The roster before, and when the present one was first seen.
    previous: Option<(Roster, Millis)>,
    /// Whether a report was taken in at all: how old the first one is, nobody knows.
    reported: bool,
    /// Whether a heartbeat was seen at all.
    lease_seen: bool,
    /// Last time that signed evidence or the Lease were seen to advance.
    advanced: Option<Millis>,
    nodes: BTreeMap<MemberId, Held>,
    /// Newest sequence that carried accepted evidence, by (voter, subject).
    newest: BTreeMap<(MemberId, MemberId), u64>,
}

/// What is held of one node. Newer evidence replaces older; nothing else takes evidence away (hazard 40).
#[derive(Debug, Default)]
struct Held {
    conclusion: Conclusion,
    /// The statements that the word rests on, as published.
    accepted: Vec<String>,
    /// When this death began, for storms.
    died: Option<Millis>,
    /// The newest statement about it was refused; for people, where there is no evidence.
    refused: bool,
    /// The reporters say that no majority exists; for people, likewise.
    undecided: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Conclusion {
    #[default]
    Nothing,
    Alive(Nonce, Alive),
    Dead(Death),
    OneShort(Death),
}

impl Conclusion {
    fn round(&self) -> Option<Nonce> {
        match self {
            Self::Nothing => None,
            Self::Alive(round, _) => Some(*round),
            Self::Dead(death) | Self::OneShort(death) => Some(death.round),
        }
    }
}

impl Cell {
    pub(super) fn has_member(&self, id: MemberId) -> bool {
        self.roster.as_ref().is_some_and(|roster| roster.contains(id))
    }

    pub(super) fn advanced(&self) -> Option<Millis> {
        self.advanced
    }

    pub(super) fn deaths(&self, now: Millis) -> Deaths {
        let recent = |held: &&Held| held.died.is_some_and(|died| now.since(died) < STORM_WINDOW_MS);
        Deaths {
            recent: self.nodes.values().filter(recent).count(),
            members: self.roster.as_ref().map_or(0, Roster::len),
        }
    }

    pub(super) fn heartbeat(&mut self, now: Millis, holder: &str) {
        let member = |roster: &Roster| roster.members().iter().any(|member| member.name == holder);
        if !self.roster.as_ref().is_some_and(member) {
            return;
        }
        if self.lease_seen {
            self.advanced = Some(now);
        }
        self.lease_seen = true;
    }

    pub(super) fn verdict(&self, id: MemberId) -> Verdict {
        if self.advanced.is_none() {
            return Verdict::None(NoVerdict::Void);
        }
        let Some(held) = self.nodes.get(&id) else {
            return Verdict::None(NoVerdict::NotListed);
        };
        match held.conclusion {
            Conclusion::Alive(_, alive) => Verdict::Alive(alive),
            Conclusion::Dead(death) => Verdict::Dead(death),
            Conclusion::OneShort(death) => Verdict::OneShort(death),
            Conclusion::Nothing if held.refused => Verdict::None(NoVerdict::Refused),
            Conclusion::Nothing if held.undecided => Verdict::None(NoVerdict::NoMajority),
            Conclusion::Nothing => Verdict::None(NoVerdict::NotListed),
        }
    }

    pub(super) fn observe(
        &mut self,
        verifier: &dyn Verifier,
        now: Millis,
        spec: &RosterSpec,
        status: &ZoneHealthStatus,
    ) -> Vec<(String, Refusal)> {
        if let Err(refusal) = self.take_roster(now, spec) {
            return vec![(String::from("roster"), refusal)];
        }
        let Some(roster) = self.roster.take() else {
            return Vec::new();
        };
        let previous = self.previous.take();
        let settling = previous
            .as_ref()
            .filter(|(_, since)| now.since(*since) < ROSTER_SETTLE_MS);
        let council = Council {
            current: &roster,
            previous: settling.map(|(roster, _)| roster),
        };
        let mut refusals = Vec::new();
        for node in &status.nodes {
            let id = MemberId::of(&node.uid);
            // What was verified once is not verified again.
            let known = |held: &Held| held.accepted == node.evidence && !node.evidence.is_empty();
            if self.nodes.get(&id).is_some_and(known) {
                continue;
            }
            if let Err(refusal) = self.take_node(verifier, now, &council, node) {
                if roster.contains(id) {
                    self.nodes.entry(id).or_default().refused = true;
                }
                refusals.push((node.name.clone(), refusal));
            }
        }
        self.reported = true;
        self.roster = Some(roster);
        self.previous = previous;
        refusals
    }

    fn take_roster(&mut self, now: Millis, spec: &RosterSpec) -> Result<(), Refusal> {
        let roster = Roster::from_spec(spec).map_err(Refusal::Roster)?;
        if let Some(current) = &self.roster {
            let (seen, known) = (roster.reference(), current.reference());
            if seen.version < known.version || seen == known {
                return Ok(());
            }
            if seen.version == known.version {
                return Err(Refusal::TwoRosters(seen.version));
            }
        }
        self.nodes.retain(|id, _| roster.contains(*id));
        // With another key a voter is another agent, and counts from where it likes.
        let before = self.roster.take();
        let same_key = |voter: MemberId| {
            let key = |roster: &Roster| roster.get(voter).map(|member| member.key.clone());
            before.as_ref().is_some_and(|before| key(before) == key(&roster))
        };
        self.newest
            .retain(|(voter, subject), _| same_key(*voter) && roster.contains(*subject));
        self.previous = before.map(|before| (before, now));
        self.roster = Some(roster);
        Ok(())
    }

    fn take_node(
        &mut self,
        verifier: &dyn Verifier,
        now: Millis,
        council: &Council<'_>,
        node: &NodeVerdict,
    ) -> Result<(), Refusal> {
        let first = !self.reported;
        let id = MemberId::of(&node.uid);
        let standing = self.nodes.get(&id).and_then(|held| held.conclusion.round());
        let newest = &self.newest;
        // Newer than anything seen of this voter about this node, or part of the very evidence that stands.
        let fresh = |voter: MemberId, sequence: u64, round: Nonce| {
            let seen = newest.get(&(voter, id)).copied();
            seen.is_none_or(|seen| sequence > seen || (sequence == seen && Some(round) == standing))
        };
        let checked = check(verifier, council, node, fresh)?;
        // Without having seen the report before, nobody knows when it was written: as old as can be.
        let stated = node.round_age_ms.and_then(|age| u64::try_from(age).ok());
        let round_age = stated.filter(|_| !first).unwrap_or(u64::MAX);
        let conclusion = match node.verdict {
            VerdictKind::None => one_short(now, council, id, round_age, &checked).map(Conclusion::OneShort),
            VerdictKind::Dead => {
                let needed = council.current.majority();
                Some(Conclusion::Dead(death(now, round_age, needed, &checked)))
            }
            VerdictKind::Alive => {
                let needed = council.current.majority();
                Some(Conclusion::Alive(
                    checked.round,
                    alive(now, round_age, needed, &checked),
                ))
            }
        };
        let held = self.nodes.entry(id).or_default();
        held.refused = false;
        held.undecided = node.verdict == VerdictKind::None;
        let Some(conclusion) = conclusion else {
            return Ok(());
        };
        if standing == Some(checked.round) {
            return Ok(());
        }
        held.died = match conclusion {
            Conclusion::Dead(_) => held.died.or(Some(now)),
            _ => None,
        };
        held.conclusion = conclusion;
        held.accepted.clone_from(&node.evidence);
        let sequences = checked.votes.iter();
        self.newest
            .extend(sequences.map(|(voter, (sequence, _))| ((*voter, id), *sequence)));
        if !first {
            self.advanced = Some(now);
        }
        Ok(())
    }
}

fn death(now: Millis, round_age: u64, needed: usize, checked: &Checked) -> Death {
    Death {
        round: checked.round,
        requested: Millis(now.0.saturating_sub(round_age)),
        received: now,
        silence_ms: shared_age(checked, Answer::No, needed, std::cmp::Reverse).unwrap_or_default(),
    }
}

/// In a roster of two: the peer's no, unless the suspect itself speaks.
fn one_short(
    now: Millis,
    council: &Council<'_>,
    suspect: MemberId,
    round_age: u64,
    checked: &Checked,
) -> Option<Death> {
    let peers_no = checked
        .votes
        .iter()
        .all(|(voter, (_, vote))| *voter != suspect && vote.ballot.answer == Answer::No);
    let pair = council.current.len() == 2 && !checked.votes.is_empty();
    (pair && peers_no).then(|| death(now, round_age, 1, checked))
}

fn alive(now: Millis, round_age: u64, needed: usize, checked: &Checked) -> Alive {
    let votes = checked.votes();
    let yes: Vec<&Vote> = votes
        .iter()
        .filter(|vote| vote.ballot.answer == Answer::Yes)
        .collect();
    // A majority is fresh as long as the `needed`-th best of the contacts is.
    let age = shared_age(checked, Answer::Yes, needed, |age| age).unwrap_or(ALIVE_TTL_MS);
    let left = ALIVE_TTL_MS.saturating_sub(age).saturating_sub(round_age);
    Alive {
        received: now,
        until: now.plus(left),
        cloud: most(yes.iter().map(|vote| vote.ballot.facts.cloud)),
        kubelet: most(yes.iter().map(|vote| vote.ballot.facts.kubelet)),
        runtime: most(yes.iter().map(|vote| vote.ballot.facts.runtime)),
    }
}

/// The `needed`-th of the ages of contact of those who gave this answer, in the order of `key`.
fn shared_age<K: Ord>(
    checked: &Checked,
    answer: Answer,
    needed: usize,
    key: impl Fn(u64) -> K,
) -> Option<u64> {
    let votes = checked.votes.values();
    let mut ages: Vec<u64> = votes
        .filter(|(_, vote)| vote.ballot.answer == answer)
        .map(|(_, vote)| u64::from(vote.ballot.contact_age))
        .collect();
    ages.sort_unstable_by_key(|age| key(*age));
    ages.get(needed.checked_sub(1)?).copied()
}

/// What most voters say; a tie, or nobody who knows, is the default: unknown.
fn most<T: Copy + Default + Ord>(values: impl Iterator<Item = T>) -> T {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for value in values.filter(|value| *value != T::default()) {
        *counts.entry(value).or_default() += 1;
    }
    let best = counts.values().copied().max().unwrap_or_default();
    let mut leaders = counts
        .into_iter()
        .filter(|(_, count)| *count == best)
        .map(|(value, _)| value);
    match (leaders.next(), leaders.next()) {
        (Some(value), None) => value,
        _ => T::default(),
    }
}
