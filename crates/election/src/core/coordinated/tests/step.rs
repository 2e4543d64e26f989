//! One look at a Lease and its candidates, and elections played out look by look.

use super::{ago, candidate, now};
use crate::core::coordinated::{
    Answer, Candidate, HIGHEST_WEIGHT, HighestWeight, LeaseChange, LeaseView, OLDEST_EMULATION_VERSION,
    Refusal, Step, Strategies, Timing, WEIGHT_ANNOTATION, answer, reconcile,
};
use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use std::time::Duration;

const THIRD_PARTY: &str = "foo.com/bar";

/// A Lease of 10 s.
fn lease(holder: &str, renewed_seconds_ago: i64) -> LeaseView {
    LeaseView {
        holder: holder.to_owned(),
        duration_seconds: Some(10),
        renew_time: Some(ago(renewed_seconds_ago)),
        ..LeaseView::default()
    }
}

fn look(lease: Option<&LeaseView>, candidates: &[Candidate]) -> Result<Step, Refusal> {
    reconcile(
        lease,
        candidates,
        &Strategies::default(),
        &Timing::default(),
        now(),
    )
}

fn create(holder: &str) -> Step {
    Step::Write(LeaseChange::Create {
        strategy: OLDEST_EMULATION_VERSION.to_owned(),
        holder: Some(holder.to_owned()),
    })
}

fn assign(holder: &str) -> Step {
    Step::Write(LeaseChange::Assign {
        strategy: OLDEST_EMULATION_VERSION.to_owned(),
        holder: holder.to_owned(),
    })
}

fn prefer(holder: &str) -> Step {
    Step::Write(LeaseChange::Prefer {
        strategy: OLDEST_EMULATION_VERSION.to_owned(),
        holder: holder.to_owned(),
    })
}

fn label(strategy: &str) -> Step {
    Step::Write(LeaseChange::Label {
        strategy: strategy.to_owned(),
    })
}

fn poll(names: &[&str]) -> Step {
    Step::Poll {
        ping: names.iter().map(|&name| name.to_owned()).collect(),
    }
}

fn one() -> Candidate {
    candidate("component-identity-1", "1.19.0", "1.19.0")
}

#[rstest]
#[case::no_candidates_no_lease_noop(None, &[], Step::Idle)]
#[case::no_candidates_lease_exists_noop(Some(LeaseView::default()), &[], Step::Idle)]
#[case::no_lease_creates_lease(None, &[one()], create("component-identity-1"))]
#[case::suboptimal_sets_preferred_holder(
    Some(lease("component-identity-1", 0)),
    &[one(), candidate("component-identity-2", "1.18.0", "1.18.0")],
    prefer("component-identity-2")
)]
#[case::only_acked_candidates_are_elected(
    None,
    &[one().pinged(10).renewed(20), candidate("component-identity-2", "1.20.0", "1.20.0").pinged(0)],
    create("component-identity-2")
)]
#[case::lease_expired(Some(lease("component-identity-expired", 60)), &[one()], assign("component-identity-1"))]
#[case::pings_on_election(None, &[one().renewed(10)], poll(&["component-identity-1"]))]
#[case::pinged_candidate_has_the_election_duration(None, &[one().pinged(0).renewed(60)], poll(&[]))]
#[case::third_party_strategy_keeps_the_expired_holder(
    Some(lease("component-identity-expired", 60)), &[one().by(THIRD_PARTY)], label(THIRD_PARTY)
)]
fn reconcile_election_step(
    #[case] lease: Option<LeaseView>,
    #[case] candidates: &[Candidate],
    #[case] expected: Step,
) {
    let step = look(lease.as_ref(), candidates).unwrap();
    assert_eq!(step, expected);
    assert_eq!(step.requeue(&Timing::default()).is_some(), step != Step::Idle);
}

#[test]
fn no_acked_candidates_is_an_error() {
    let refused = look(None, &[one().pinged(60).renewed(120)]).unwrap_err();
    assert_eq!(
        refused,
        Refusal::NobodyAnswered {
            asked: 1,
            within: Duration::from_secs(5)
        }
    );
    assert!(
        refused
            .to_string()
            .contains("none of the 1 candidates answered within 5s"),
        "{refused}"
    );
}

#[rstest]
#[case::the_holder_is_the_best(Some(lease("component-identity-1", 0)), &[one()], Step::Settled { again: Duration::from_secs(5) })]
#[case::again_when_the_lease_would_expire(
    Some(lease("component-identity-1", 8)), &[one()], Step::Settled { again: Duration::from_millis(2001) }
)]
#[case::a_free_lease(Some(lease("", 0)), &[one()], assign("component-identity-1"))]
#[case::a_lease_without_a_duration(
    Some(LeaseView { duration_seconds: None, ..lease("other", 0) }), &[one()], assign("component-identity-1")
)]
#[case::a_lease_without_a_renew_time(
    Some(LeaseView { renew_time: None, ..lease("other", 0) }), &[one()], assign("component-identity-1")
)]
#[case::expired_candidates_are_none(None, &[one().renewed(1801)], Step::Idle)]
#[case::a_candidate_without_a_sign_of_life_is_none(None, &[Candidate { renew_time: None, ..one() }], Step::Idle)]
#[case::after_fifteen_minutes_all_are_asked(
    Some(lease("component-identity-1", 0)),
    &[one().renewed(100).pinged(400), candidate("component-identity-2", "1.20.0", "1.20.0").renewed(901)],
    poll(&["component-identity-1", "component-identity-2"])
)]
#[case::before_that_nobody_is(
    Some(lease("component-identity-1", 0)),
    &[one().renewed(100), candidate("component-identity-2", "1.20.0", "1.20.0").renewed(899)],
    Step::Settled { again: Duration::from_secs(5) }
)]
#[case::an_unanswered_ping_is_not_repeated(
    None, &[one().renewed(100).pinged(6), candidate("component-identity-2", "1.20.0", "1.20.0")], create("component-identity-2")
)]
#[case::an_answered_one_is(None, &[one().renewed(100).pinged(101)], poll(&["component-identity-1"]))]
#[case::an_answer_dated_at_the_ping_counts(None, &[one().renewed(0).pinged(0)], create("component-identity-1"))]
#[case::the_preferred_holder_is_named_once(
    Some(LeaseView {
        preferred_holder: "component-identity-2".into(),
        strategy: OLDEST_EMULATION_VERSION.into(),
        ..lease("component-identity-1", 9)
    }),
    &[one(), candidate("component-identity-2", "1.18.0", "1.18.0")],
    Step::Settled { again: Duration::from_millis(1001) }
)]
#[case::an_expired_holder_that_is_elected_again_hears_of_it(
    Some(lease("component-identity-1", 60)), &[one()], assign("component-identity-1")
)]
#[case::third_party_free_lease_gets_no_holder(
    Some(LeaseView { strategy: THIRD_PARTY.into(), ..lease("", 0) }), &[one().by(THIRD_PARTY)],
    Step::Settled { again: Duration::from_secs(5) }
)]
#[case::third_party_new_lease_has_no_holder(
    None, &[one().by(THIRD_PARTY)],
    Step::Write(LeaseChange::Create { strategy: THIRD_PARTY.into(), holder: None })
)]
#[case::third_party_valid_lease_is_left_alone(
    Some(lease("whoever", 0)), &[one().by(THIRD_PARTY)], Step::Settled { again: Duration::from_secs(5) }
)]
fn further_steps(#[case] lease: Option<LeaseView>, #[case] candidates: &[Candidate], #[case] expected: Step) {
    assert_eq!(look(lease.as_ref(), candidates).unwrap(), expected);
}

#[rstest]
// The holder's clock is a minute behind or ahead of ours, or was stepped: what counts is what we saw.
#[case::behind_but_renewing(60, 3, false)]
#[case::behind_and_silent(60, 11, true)]
#[case::ahead_and_silent(-60, 11, true)]
#[case::ahead_and_renewing(-60, 10, false)]
fn a_lease_that_was_watched_expires_by_our_clock(
    #[case] renewed_seconds_ago: i64,
    #[case] unchanged_for: u64,
    #[case] replaced: bool,
) {
    let lease = LeaseView {
        unchanged_for: Some(Duration::from_secs(unchanged_for)),
        ..lease("component-identity-0", renewed_seconds_ago)
    };
    let candidates = [candidate("component-identity-0", "1.0.0", "1.0.0"), one()];
    let step = look(Some(&lease), &candidates).unwrap();
    assert_eq!(step == assign("component-identity-0"), replaced, "{step:?}");
}

#[test]
fn a_conflict_of_strategies_stops_the_election() {
    let candidates = [
        one(),
        candidate("component-identity-2", "1.19.0", "1.19.0").by(THIRD_PARTY),
    ];
    for lease in [None, Some(lease("component-identity-1", 0))] {
        let refused = look(lease.as_ref(), &candidates).unwrap_err();
        assert!(matches!(refused, Refusal::Conflict(_)), "{refused:?}");
    }
}

#[test]
fn candidates_without_versions_cannot_be_elected() {
    let refused = look(None, &[candidate("component-identity-1", "", "1.0.0")]).unwrap_err();
    assert_eq!(
        refused,
        Refusal::NobodyElectable {
            strategy: OLDEST_EMULATION_VERSION.to_owned()
        }
    );
}

#[test]
fn a_strategy_that_is_plugged_in_moves_leadership_when_weights_change() {
    let strategies = Strategies::default().with(HighestWeight);
    let weighted = |name: &str, weight: &str| {
        candidate(name, "1.0.0", "1.0.0")
            .by(HIGHEST_WEIGHT)
            .annotated(WEIGHT_ANNOTATION, weight)
    };
    let candidates = [weighted("here", "1"), weighted("there", "2")];
    let step = reconcile(
        Some(&lease("here", 0)),
        &candidates,
        &strategies,
        &Timing::default(),
        now(),
    );
    let expected = Step::Write(LeaseChange::Prefer {
        strategy: HIGHEST_WEIGHT.to_owned(),
        holder: "there".to_owned(),
    });
    assert_eq!(step, Ok(expected));
}

/// A cluster of one Lease, played with whole seconds: candidates that live answer at once, a holder renews
/// each second until it is asked to let go.
struct Play {
    now: Timestamp,
    lease: Option<LeaseView>,
    candidates: Vec<Candidate>,
    dead: Vec<&'static str>,
}

impl Play {
    fn new(lease: Option<LeaseView>, candidates: &[Candidate]) -> Self {
        Self {
            now: now(),
            lease,
            candidates: candidates.to_vec(),
            dead: Vec::new(),
        }
    }

    fn second(&mut self) {
        let step = reconcile(
            self.lease.as_ref(),
            &self.candidates,
            &Strategies::default(),
            &Timing::default(),
            self.now,
        );
        match step {
            Ok(Step::Poll { ping }) => {
                for candidate in self.candidates.iter_mut().filter(|one| ping.contains(&one.name)) {
                    candidate.ping_time = Some(self.now);
                }
            }
            Ok(Step::Write(change)) => self.write(change),
            Ok(Step::Idle | Step::Settled { .. }) | Err(Refusal::NobodyAnswered { .. }) => {}
            Err(refused) => panic!("{refused}"),
        }
        for candidate in &mut self.candidates {
            if self.dead.contains(&candidate.name.as_str()) {
                continue;
            }
            if let Answer::Renew { renew_time } = answer(Some(candidate), &candidate.clone(), self.now) {
                candidate.renew_time = Some(renew_time);
            }
        }
        self.now += SignedDuration::from_secs(1);
        let known = |name: &str| self.candidates.iter().any(|one| one.name == name);
        if let Some(lease) = &mut self.lease {
            let alive = known(&lease.holder) && !self.dead.contains(&lease.holder.as_str());
            if alive && lease.preferred_holder.is_empty() {
                lease.renew_time = Some(self.now);
            }
        }
    }

    fn write(&mut self, change: LeaseChange) {
        let renewed = LeaseView {
            duration_seconds: Some(Timing::default().lease_seconds()),
            renew_time: Some(self.now),
            ..LeaseView::default()
        };
        self.lease = Some(match (change, self.lease.take()) {
            (LeaseChange::Create { strategy, holder }, None) => LeaseView {
                strategy,
                holder: holder.unwrap_or_default(),
                ..renewed
            },
            (LeaseChange::Assign { strategy, holder }, Some(_)) => LeaseView {
                holder,
                strategy,
                ..renewed
            },
            (LeaseChange::Prefer { strategy, holder }, Some(lease)) => LeaseView {
                strategy,
                preferred_holder: holder,
                ..lease
            },
            (LeaseChange::Label { strategy }, Some(lease)) => LeaseView { strategy, ..lease },
            (change, lease) => panic!("{change:?} cannot be done to {lease:?}"),
        });
    }

    fn until_led_by(&mut self, holder: &str, within_seconds: u32) {
        for _ in 0..within_seconds {
            self.second();
            if self.lease.as_ref().is_some_and(|lease| lease.holder == holder) {
                return;
            }
        }
        panic!(
            "{holder} does not lead after {within_seconds} s: {:?}",
            self.lease
        );
    }
}

#[test]
fn single_candidate_leader_election() {
    Play::new(None, &[one()]).until_led_by("component-identity-1", 1);
}

#[test]
fn multiple_candidate_leader_election() {
    let others = [
        candidate("component-identity-2", "1.19.0", "1.20.0"),
        candidate("component-identity-3", "1.20.0", "1.20.0"),
    ];
    let mut play = Play::new(None, &[&[one()], others.as_slice()].concat());
    play.until_led_by("component-identity-1", 1);
    for _ in 0..1000 {
        play.second();
        assert_eq!(play.lease.as_ref().unwrap().holder, "component-identity-1");
        assert_eq!(play.lease.as_ref().unwrap().preferred_holder, "");
    }
}

#[test]
fn deletion_of_lease_triggers_reelection() {
    let mut play = Play::new(Some(lease("some-other-component", -1)), &[one()]);
    play.second();
    assert_eq!(
        play.lease.as_ref().unwrap().preferred_holder,
        "component-identity-1"
    );
    play.lease = None;
    play.until_led_by("component-identity-1", 1);
}

#[test]
fn expired_lease_is_replaced() {
    let lease = LeaseView {
        strategy: OLDEST_EMULATION_VERSION.to_owned(),
        ..lease("some-other-component", 11)
    };
    Play::new(Some(lease), &[one()]).until_led_by("component-identity-1", 1);
}

#[test]
fn better_candidate_triggers_reelection() {
    let holder = candidate("component-identity-1", "1.20.0", "1.20.0");
    let mut play = Play::new(Some(lease("component-identity-1", -1)), &[holder]);
    play.second();
    play.candidates
        .push(candidate("component-identity-2", "1.19.0", "1.19.0"));
    // One look to say so, the holder's 10 s, one to give it away.
    play.until_led_by("component-identity-2", 13);
}

#[test]
fn a_dead_candidate_is_not_elected_and_does_not_hold_up_the_election_for_long() {
    let better = candidate("component-identity-0", "1.0.0", "1.0.0").renewed(60);
    let mut play = Play::new(None, &[better, one().renewed(60)]);
    play.dead.push("component-identity-0");
    // Asked at once; 5 s to answer; then those who did.
    play.until_led_by("component-identity-1", 7);
}

#[test]
fn a_crashed_leader_is_replaced_and_gets_its_lease_back_when_it_returns() {
    let better = candidate("component-identity-0", "1.0.0", "1.0.0");
    let mut play = Play::new(None, &[better, one()]);
    play.until_led_by("component-identity-0", 1);
    // Long enough for its last answer to be old.
    for _ in 0..10 {
        play.second();
    }
    play.dead.push("component-identity-0");
    play.until_led_by("component-identity-1", 20);
    play.dead.clear();
    // Renews by itself after 5 min at the latest, and is then seen to be the better one.
    play.until_led_by("component-identity-0", 330);
}
