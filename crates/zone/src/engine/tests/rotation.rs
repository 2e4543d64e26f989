//! A member changes its key while the cell runs (hazard 53).

use super::net::Net;
use crate::engine::{Input, Note};
use crate::keys::SigningKey;
use rstest::rstest;
use std::sync::Arc;

const ROTATING: usize = 2;
const VICTIM: usize = 3;

/// The key of the rotating member: the fixture's, and the one after it.
fn keys() -> [Arc<SigningKey>; 2] {
    [2, 102].map(|seed| Arc::new(SigningKey::from_seed(&[seed; 32]).unwrap()))
}

/// The steps of a change, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Before,
    Announced,
    Switched,
    Published,
    Forgotten,
}

impl Step {
    const ALL: [Self; 5] = [
        Self::Before,
        Self::Announced,
        Self::Switched,
        Self::Published,
        Self::Forgotten,
    ];

    fn take(self, net: &mut Net) {
        let [former, new] = keys();
        let member = &mut net.spec.members[ROTATING - 1];
        let own = match self {
            Self::Before => return,
            Self::Announced => {
                member.next_public_key = Some(new.public().to_base64());
                Some((former, Some(new)))
            }
            Self::Switched => Some((new, Some(former))),
            Self::Published => {
                member.public_key = new.public().to_base64();
                member.next_public_key = None;
                None
            }
            Self::Forgotten => Some((new, None)),
        };
        if let Some((key, other)) = own {
            let other = other.map(|key| key as _);
            net.feed(ROTATING, Input::Keys { key, other });
        }
        if matches!(self, Self::Announced | Self::Published) {
            net.spec.version += 1;
            // Every second one hears of it 10 s before the others.
            for first in [1, 2] {
                for i in (first..=net.count()).step_by(2) {
                    net.teach(i, net.roster());
                }
                net.run(10_000);
            }
        }
        net.run(20_000);
    }
}

fn after(count: u8, seed: u64, steps: impl IntoIterator<Item = Step>) -> Net {
    let mut net = Net::settled(count, seed);
    net.notes.clear();
    for step in steps {
        step.take(&mut net);
    }
    net
}

fn doubts(net: &Net) -> Vec<&(u64, usize, Note)> {
    let doubt = |note: &&(u64, usize, Note)| matches!(note.2, Note::Edge { .. } | Note::Suspect { .. });
    net.notes.iter().filter(doubt).collect()
}

#[rstest]
fn a_key_that_is_announced_changes_without_a_doubt_and_the_member_votes_all_along(
    #[values(3, 5, 12)] count: u8,
    #[values(
        Step::Before,
        Step::Announced,
        Step::Switched,
        Step::Published,
        Step::Forgotten
    )]
    last: Step,
) {
    let steps = Step::ALL.into_iter().filter(|step| *step <= last);
    let mut net = after(count, 61 + u64::from(count), steps);
    assert_eq!(doubts(&net), Vec::<&(u64, usize, Note)>::new());
    // With three members nobody is found dead without the vote of the rotating one.
    net.kill(VICTIM);
    net.until("the victim is dead", 7_000, |net| net.is_dead(VICTIM));
    net.kill(ROTATING);
    net.run(10_000);
    assert_eq!(
        net.is_dead(ROTATING),
        count > 3,
        "and it is found dead as others are"
    );
}

#[test]
fn while_the_members_know_of_the_change_at_different_times_votes_count_at_each_moment() {
    // Half of the members know the roster, the other half does not yet.
    for step in [Step::Announced, Step::Published] {
        let before = Step::ALL.into_iter().filter(|earlier| *earlier < step);
        let mut net = after(5, 71, before);
        let [former, new] = keys();
        let member = &mut net.spec.members[ROTATING - 1];
        if step == Step::Announced {
            member.next_public_key = Some(new.public().to_base64());
            let other = Some(new as _);
            net.feed(ROTATING, Input::Keys { key: former, other });
        } else {
            member.public_key = new.public().to_base64();
            member.next_public_key = None;
        }
        net.spec.version += 1;
        for i in [1, 2] {
            net.teach(i, net.roster());
        }
        net.kill(VICTIM);
        net.until("the victim is dead", 7_000, |net| net.is_dead(VICTIM));
        let others = (1..=5).filter(|i| *i != VICTIM);
        assert_eq!(others.filter(|i| net.is_dead(*i)).count(), 0, "{step:?}");
    }
}

#[test]
fn a_key_that_nobody_announced_is_nobodys() {
    let mut net = after(5, 81, []);
    let [_, key] = keys();
    net.feed(ROTATING, Input::Keys { key, other: None });
    net.run(20_000);
    let known =
        |note: &(u64, usize, Note)| matches!(&note.2, Note::Suspect { subject, .. } if subject == "node-2");
    assert!(net.notes.iter().any(known), "{:?}", net.notes);
}

/// It is answered by the key that it knows, for as long as the other one has it.
#[test]
fn who_knows_nothing_of_the_change_still_speaks_with_the_member() {
    let net = after(5, 81, [Step::Switched]);
    assert_eq!(doubts(&net), Vec::<&(u64, usize, Note)>::new());
}

#[test]
fn a_key_that_was_given_up_proves_nothing_any_more() {
    let mut net = after(5, 91, Step::ALL);
    net.notes.clear();
    let [former, _] = keys();
    net.feed(
        ROTATING,
        Input::Keys {
            key: former,
            other: None,
        },
    );
    net.until("it is taken for lost", 15_000, |net| !doubts(net).is_empty());
}

/// It was without network while the others learned of the end of a change, and then reaches the changed one
/// alone: it goes by the key that the other one proves itself with, and so gets the roster.
#[test]
fn who_missed_the_end_of_a_change_has_the_roster_from_the_changed_member() {
    let mut net = Net::signed(5, 95);
    net.run(20_000);
    Step::Announced.take(&mut net);
    net.cut_cloud(1);
    net.split(&[1], &[2, 3, 4, 5]);
    let [former, new] = keys();
    let other = Some(former as _);
    net.feed(
        ROTATING,
        Input::Keys {
            key: new.clone(),
            other,
        },
    );
    let member = &mut net.spec.members[ROTATING - 1];
    member.public_key = new.public().to_base64();
    member.next_public_key = None;
    net.spec.version += 1;
    for i in 2..=5 {
        net.teach(i, net.roster());
    }
    net.run(20_000);
    net.feed(
        ROTATING,
        Input::Keys {
            key: new,
            other: None,
        },
    );
    net.run(20_000);
    net.cut
        .retain(|link| !matches!(link, (1, ROTATING) | (ROTATING, 1)));
    let version = u64::try_from(net.spec.version).unwrap();
    net.until("it has the roster", 30_000, |net| {
        net.passed_on.contains(&(1, version))
    });
}
