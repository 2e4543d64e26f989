//! Challenges: when a cell gets a new one (hazard 41).
//!
//! A ballot that signs a challenge is younger than it. So a cell that has something to vote about gets a new
//! one every few seconds, and a calm one once a minute, since each is a write to the API server that every
//! agent of the cell receives. The confirmation of a death waits for a ballot that is younger than its first
//! round by 12 s ([`DeadLatch::first_rounds`]); the challenge that proves it comes at exactly that time.

use super::Planner;
use super::action::{Action, Plan};
use crate::world::Decisions;
use crate::world::facts::{CellFacts, ChallengeFacts, Cluster};
use evenkeel_judge::Latch;
use evenkeel_judge::memory::DeadLatch;
use evenkeel_zone::Millis;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// In a calm cell.
const CALM_EVERY_MS: u64 = 60_000;
/// The first one after a listing comes up to so much later. Thousands of cells that are listed together, as
/// after an outage of the API server, would else hold their rounds, and write what comes of them, at once.
const SPREAD_MS: u64 = 5_000;
/// For [`BUSY_MS`] after a member was listed.
const BUSY_EVERY_MS: u64 = 10_000;
const BUSY_MS: u64 = 120_000;
/// Readers accept the current challenge and the one before. Within this time every reporter knows a new one,
/// so that none still signs the one before that.
const APART_MS: u64 = 5_000;

/// What decides about the next challenge of a cell.
#[derive(Clone, Debug, Default)]
struct Schedule {
    /// When this process drew the current one; `None` if another one did.
    drawn: Option<Millis>,
    /// When the current one was first seen here.
    seen: Millis,
    /// When this process began to lead.
    leads_since: Millis,
    /// How much later than it could this cell gets the first one after a listing.
    spread: u64,
    /// When each listed member was listed.
    listed: Vec<Millis>,
    /// When the first round of each death was received that is not confirmed, and from when on a challenge
    /// confirms it.
    deaths: Vec<(Millis, Millis)>,
}

impl Schedule {
    /// When the current challenge is to be replaced.
    fn due(&self) -> Millis {
        let Some(drawn) = self.drawn else {
            // When another controller drew it, nobody knows here. Where nothing is to be voted on, that does
            // not matter.
            let calm = self.listed.is_empty() && self.deaths.is_empty();
            return if calm {
                self.leads_since.max(self.seen).plus(CALM_EVERY_MS)
            } else {
                self.leads_since.max(self.seen.plus(APART_MS))
            };
        };
        let mut due = drawn.plus(CALM_EVERY_MS);
        for listed in &self.listed {
            let busy = drawn.plus(BUSY_EVERY_MS).max(listed.plus(self.spread));
            if busy < listed.plus(BUSY_MS) {
                due = due.min(busy);
            }
        }
        let first = self.deaths.iter().map(|(received, _)| *received);
        let confirming = self.deaths.iter().map(|(_, confirmable)| *confirmable);
        let ahead = |at: &Millis| *at > drawn;
        due = first
            .filter(ahead)
            .fold(due, Millis::min)
            .max(drawn.plus(APART_MS));
        // One that comes shortly before it would put off the one that confirms a death.
        let confirming = confirming.filter(ahead).min();
        match confirming {
            Some(at) if at < due.plus(APART_MS) => at.max(drawn.plus(APART_MS)),
            _ => due,
        }
    }
}

impl Planner {
    /// Plans the write of every challenge that is to be replaced, and of every list of wanted members that is
    /// out of date.
    pub(super) fn challenge_cells(
        &mut self,
        cluster: &Cluster,
        decisions: &Decisions,
        now: Millis,
        plan: &mut Plan,
    ) {
        let leads_since = *self.leads_since.get_or_insert(now);
        let latched = decisions.nodes.values().filter_map(|judged| {
            let Latch::Dead(death) = judged.decision.memory.latch else {
                return None;
            };
            Some((judged.uid.as_str(), death))
        });
        let latched: BTreeMap<&str, DeadLatch> = latched.collect();
        for (object, cell) in &cluster.cells {
            let members = &cell.roster.members;
            if members.is_empty() {
                continue;
            }
            let wanted = self.wanted(members);
            let published = cluster.challenges.get(object);
            let draw = published.is_none_or(|published| {
                let deaths = members
                    .iter()
                    .filter_map(|member| latched.get(member.uid.as_str()));
                let schedule = Schedule {
                    drawn: published.current.drawn,
                    seen: published.current.seen,
                    leads_since,
                    spread: spread(object),
                    listed: wanted
                        .iter()
                        .filter_map(|uid| self.listed_since.get(uid))
                        .copied()
                        .collect(),
                    deaths: deaths.flat_map(awaiting_confirmation).collect(),
                };
                now >= schedule.due()
            });
            if draw || published.is_some_and(|published| published.wanted != wanted) {
                plan.actions.push(challenge(cell, published, wanted, draw));
            }
        }
    }
}

/// The same for a cell whenever it is asked for, and another one for each cell.
fn spread(object: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.hash(&mut hasher);
    hasher.finish() % SPREAD_MS
}

/// When first rounds of a death were received, and from when on a challenge confirms each. One that keeps the
/// stock pace needs none.
fn awaiting_confirmation(death: &DeadLatch) -> impl Iterator<Item = (Millis, Millis)> {
    let awaits = death.confirmed.is_none() && death.slow.is_none();
    let rounds = death.first_rounds().filter(move |_| awaits);
    rounds.map(|(first, confirmable, _)| (first, confirmable))
}

fn challenge(
    cell: &CellFacts,
    published: Option<&ChallengeFacts>,
    wanted: Vec<String>,
    draw: bool,
) -> Action {
    Action::Challenge {
        zone: cell.zone.clone(),
        cell: cell.number,
        replaces: published.map(|published| published.current.value.clone()),
        draw,
        wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_judge::memory::CONFIRMED_AFTER_MS;
    use rstest::rstest;
    use std::collections::BTreeSet;

    fn at(seconds: u64) -> Millis {
        Millis(1_000_000 + seconds * 1_000)
    }

    /// Drawn at second 0 by this process.
    fn drawn(listed: &[u64], deaths: &[u64]) -> Schedule {
        Schedule {
            drawn: Some(at(0)),
            seen: at(0),
            leads_since: at(0),
            spread: 0,
            listed: listed.iter().map(|second| at(*second)).collect(),
            deaths: deaths
                .iter()
                .map(|second| (at(*second), at(*second).plus(CONFIRMED_AFTER_MS)))
                .collect(),
        }
    }

    #[rstest]
    #[case::calm(&[], &[], 60)]
    #[case::just_listed(&[2], &[], 10)]
    #[case::listed_later(&[30], &[], 30)]
    #[case::never_twice_within_five_seconds(&[1], &[2], 5)]
    #[case::a_first_dead_round(&[20], &[20], 20)]
    #[case::just_before_the_confirmation(&[], &[0], 12)]
    #[case::no_other_shortly_before_it(&[0], &[0], 12)]
    #[case::one_well_before_it(&[0], &[3], 5)]
    #[case::at_once_for_the_second_of_two(&[0, 0], &[0, 1], 5)]
    fn a_challenge_is_replaced_when_it_is_needed(
        #[case] listed: &[u64],
        #[case] deaths: &[u64],
        #[case] due: u64,
    ) {
        assert_eq!(drawn(listed, deaths).due(), at(due));
    }

    #[test]
    fn two_minutes_after_a_listing_a_cell_is_as_calm_as_any() {
        let mut schedule = drawn(&[0], &[]);
        for second in (10..120).step_by(10) {
            assert_eq!(schedule.due(), at(second));
            schedule.drawn = Some(at(second));
        }
        assert_eq!(schedule.due(), at(110 + 60));
    }

    #[test]
    fn cells_that_are_listed_together_get_their_challenges_one_after_the_other() {
        let due = |cell: u32, deaths: &[u64]| {
            let schedule = Schedule {
                spread: spread(&format!("shore.{cell}")),
                ..drawn(&[30], deaths)
            };
            schedule.due()
        };
        let seconds: BTreeSet<u64> = (0..79).map(|cell| due(cell, &[]).since(at(30)) / 1_000).collect();
        assert_eq!(seconds, (0..5).collect());
        // They keep their distance, and a death waits for nothing.
        assert!((0..79).all(|cell| due(cell, &[30]) == at(30)));
    }

    /// The sequence of one death, received at second 3: a challenge at once, and one 12 s later.
    #[test]
    fn a_death_brings_two_challenges() {
        let mut schedule = drawn(&[3], &[3]);
        let mut replaced = Vec::new();
        for _ in 0..3 {
            let due = schedule.due();
            replaced.push(due.since(at(0)) / 1_000);
            schedule.drawn = Some(due);
        }
        assert_eq!(replaced, [5, 15, 25]);
    }

    #[rstest]
    #[case::calm(&[], 0, 70)]
    #[case::calm_and_just_replaced(&[], 20, 80)]
    #[case::something_is_wanted(&[1], 0, 10)]
    #[case::something_is_wanted_and_it_was_just_replaced(&[1], 8, 13)]
    fn a_new_leader_replaces_what_it_did_not_draw(
        #[case] listed: &[u64],
        #[case] seen: u64,
        #[case] due: u64,
    ) {
        let schedule = Schedule {
            drawn: None,
            seen: at(seen),
            leads_since: at(10),
            ..drawn(listed, &[])
        };
        assert_eq!(schedule.due(), at(due));
    }
}
