//! What a reader holds of one zone.

use super::evidence::{Checked, Refusal, check};
use super::{
    ALIVE_TTL_MS, Health, Link, NoVerdict, ROSTER_SETTLE_MS, SILENT_AFTER_MS, Verdict, is_newer_report,
};
use crate::Millis;
use crate::roster::{MemberId, Roster};
use crate::vote::{Council, Vote};
use crate::wire::{Answer, Nonce};
use evenkeel_api::zone::{NodeVerdict, RosterSpec, VerdictKind, ZoneHealthStatus};
use std::collections::{BTreeMap, BTreeSet};

/// One zone.
#[derive(Debug, Default)]
pub(super) struct Zone {
    roster: Option<Roster>,
    /// The roster before, and when the present one was first seen.
    previous: Option<(Roster, Millis)>,
    /// Newest report taken in.
    sequence: Option<i64>,
    /// Whether a heartbeat was seen at all.
    lease_seen: bool,
    /// Last time that report or Lease were seen to advance.
    advanced: Option<Millis>,
    storm: bool,
    nodes: BTreeMap<MemberId, Held>,
    /// Newest sequence that carried an accepted verdict, by (voter, subject).
    newest: BTreeMap<(MemberId, MemberId), u64>,
}

/// What is held of one node.
#[derive(Debug, Default)]
struct Held {
    listed: Listed,
    /// A report no longer listed it. Its evidence says nothing any more, and is not used up either: nobody signed
    /// that omission, and the next report may list it again.
    acquitted: bool,
    dead: Option<Dead>,
    alive: Option<Alive>,
}

/// How the newest report lists a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Listed {
    #[default]
    No,
    NoMajority,
    Alive,
    Dead,
    Refused,
}

/// Deaths count for a storm this long after they were first seen (hazard 24).
const STORM_WINDOW_MS: u64 = 60_000;

#[derive(Debug)]
struct Dead {
    /// When this death was first seen; later rounds about it are no new deaths.
    since: Millis,
    round: Nonce,
    round_began: Millis,
}

#[derive(Debug)]
struct Alive {
    round: Nonce,
    until: Millis,
    cloud: Link,
    kubelet: Health,
    runtime: Health,
}

impl Zone {
    pub(super) fn has_member(&self, uid: &str) -> bool {
        self.roster
            .as_ref()
            .is_some_and(|roster| roster.contains(MemberId::of(uid)))
    }

    pub(super) fn storm(&self) -> bool {
        self.storm
    }

    pub(super) fn heartbeat(&mut self, now: Millis) {
        if self.lease_seen {
            self.advanced = Some(now);
        }
        self.lease_seen = true;
    }

    pub(super) fn reports(&self, now: Millis) -> bool {
        self.advanced.is_some_and(|at| now.since(at) < SILENT_AFTER_MS)
    }

    pub(super) fn verdict(&self, uid: &str, now: Millis) -> Verdict {
        if self.advanced.is_none() {
            return Verdict::None(NoVerdict::ZoneSilent);
        }
        let held = self.nodes.get(&MemberId::of(uid)).filter(|held| !held.acquitted);
        if let Some(dead) = held.and_then(|held| held.dead.as_ref()) {
            return Verdict::Dead {
                round_began: dead.round_began,
            };
        }
        if let Some(alive) = held
            .and_then(|held| held.alive.as_ref())
            .filter(|alive| alive.until > now)
        {
            return Verdict::Alive {
                cloud: alive.cloud,
                kubelet: alive.kubelet,
                runtime: alive.runtime,
            };
        }
        if !self.reports(now) {
            return Verdict::None(NoVerdict::ZoneSilent);
        }
        Verdict::None(match held.map(|held| held.listed).unwrap_or_default() {
            Listed::No => NoVerdict::NotListed,
            Listed::NoMajority => NoVerdict::NoMajority,
            Listed::Alive => NoVerdict::Expired,
            // A listed death that is not held was refused when it arrived.
            Listed::Refused | Listed::Dead => NoVerdict::Refused,
        })
    }

    pub(super) fn observe(
        &mut self,
        now: Millis,
        spec: &RosterSpec,
        status: &ZoneHealthStatus,
    ) -> Vec<(String, Refusal)> {
        if let Err(refusal) = self.take_roster(now, spec) {
            return vec![(String::from("roster"), refusal)];
        }
        let first = self.sequence.is_none();
        if self
            .sequence
            .is_some_and(|newest| !is_newer_report(status.sequence, newest))
        {
            return Vec::new();
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
        let refusals = self.take_report(now, &council, status, first);
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

    fn take_report(
        &mut self,
        now: Millis,
        council: &Council<'_>,
        status: &ZoneHealthStatus,
        first: bool,
    ) -> Vec<(String, Refusal)> {
        let mut refusals = Vec::new();
        let known = |roster: &Roster| {
            let reference = roster.reference();
            reference.version as i64 == status.roster_version && reference.epoch.to_string() == status.epoch
        };
        // A vote counts for every roster that holds both voter and subject; here: for this one and the one before.
        let foreign = !known(council.current) && !council.previous.is_some_and(known);
        if foreign && !status.nodes.is_empty() {
            let made = format!("{} {}", status.roster_version, status.epoch);
            refusals.push((String::from("report"), Refusal::ForeignRoster(made)));
        }
        let mut listed = BTreeSet::new();
        for node in &status.nodes {
            let id = MemberId::of(&node.uid);
            if council.current.contains(id) {
                listed.insert(id);
            }
            if let Err(refusal) = self.take_node(now, council, node, first) {
                if council.current.contains(id) {
                    let held = self.nodes.entry(id).or_default();
                    if held.acquitted {
                        *held = Held::default();
                    }
                    held.listed = Listed::Refused;
                }
                refusals.push((node.name.clone(), refusal));
            }
        }
        if !foreign {
            // Not listed by a report that advances: plainly healthy to its peers.
            for (id, held) in &mut self.nodes {
                held.acquitted |= !listed.contains(id);
            }
        }
        let newly_dead = |held: &&Held| {
            let dead = held.dead.as_ref();
            dead.is_some_and(|dead| now.since(dead.since) < STORM_WINDOW_MS)
        };
        let newly_dead = self.nodes.values().filter(newly_dead).count();
        self.storm = newly_dead > 1 && 4 * newly_dead > council.current.len();
        self.sequence = Some(status.sequence);
        if !first {
            self.advanced = Some(now);
        }
        refusals
    }

    fn take_node(
        &mut self,
        now: Millis,
        council: &Council<'_>,
        node: &NodeVerdict,
        first: bool,
    ) -> Result<(), Refusal> {
        let id = MemberId::of(&node.uid);
        let held = self.nodes.get(&id);
        let dead_round = held.and_then(|held| held.dead.as_ref()).map(|dead| dead.round);
        let alive_round = held.and_then(|held| held.alive.as_ref()).map(|alive| alive.round);
        let newest = &self.newest;
        // Newer than anything seen of this voter about this node, or part of the very evidence that stands.
        let fresh = |voter: MemberId, sequence: u64, round: Nonce| {
            let seen = newest.get(&(voter, id)).copied();
            let standing = Some(round) == dead_round || Some(round) == alive_round;
            seen.is_none_or(|seen| sequence > seen || (sequence == seen && standing))
        };
        let checked = check(council, node, fresh)?;
        let held = self.nodes.entry(id).or_default();
        if std::mem::take(&mut held.acquitted) && node.verdict == VerdictKind::None {
            *held = Held::default();
        }
        // Of an unknown age: as old as can be.
        let round_age = node.round_age_ms.and_then(|age| u64::try_from(age).ok());
        match node.verdict {
            VerdictKind::None => held.listed = Listed::NoMajority,
            VerdictKind::Dead => {
                held.listed = Listed::Dead;
                if dead_round != Some(checked.round) {
                    // Without having seen the report before, nobody knows when it was written.
                    let age = round_age.filter(|_| !first).unwrap_or(u64::MAX);
                    let round_began = Millis(now.0.saturating_sub(age));
                    held.dead = Some(Dead {
                        since: held.dead.as_ref().map_or(now, |dead| dead.since),
                        round: checked.round,
                        round_began,
                    });
                    held.alive = None;
                }
            }
            VerdictKind::Alive => {
                held.listed = Listed::Alive;
                if alive_round != Some(checked.round) {
                    let needed = council.current.electorate(id).threshold;
                    let until = if first {
                        Millis(0)
                    } else {
                        expiry(now, round_age.unwrap_or(u64::MAX), needed, &checked)
                    };
                    let votes = checked.votes();
                    let yes: Vec<&Vote> = votes
                        .iter()
                        .filter(|vote| vote.ballot.answer == Answer::Yes)
                        .collect();
                    held.alive = Some(Alive {
                        round: checked.round,
                        until,
                        cloud: most(yes.iter().map(|vote| vote.ballot.facts.cloud)),
                        kubelet: most(yes.iter().map(|vote| vote.ballot.facts.kubelet)),
                        runtime: most(yes.iter().map(|vote| vote.ballot.facts.runtime)),
                    });
                    if !first {
                        held.dead = None;
                    }
                }
            }
        }
        if node.verdict != VerdictKind::None {
            self.newest.extend(
                checked
                    .votes
                    .iter()
                    .map(|(voter, (sequence, _))| ((*voter, id), *sequence)),
            );
        }
        Ok(())
    }
}

/// Until when a majority of the statements is fresh: the `needed`-th best of their own times.
fn expiry(now: Millis, round_age: u64, needed: usize, checked: &Checked) -> Millis {
    let mut ages: Vec<u64> = checked
        .votes
        .values()
        .filter(|(_, vote)| vote.ballot.answer == Answer::Yes)
        .map(|(_, vote)| u64::from(vote.ballot.contact_age))
        .collect();
    ages.sort_unstable();
    let age = needed
        .checked_sub(1)
        .and_then(|position| ages.get(position))
        .copied()
        .unwrap_or(ALIVE_TTL_MS);
    now.plus(ALIVE_TTL_MS.saturating_sub(age).saturating_sub(round_age))
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
