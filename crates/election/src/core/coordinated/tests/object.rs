//! One candidate's object: its answers, and its end.

use super::{ago, candidate, now};
use crate::core::coordinated::{Answer, Candidate, RENEW_INTERVAL, Timing, answer, expired_candidates};
use jiff::SignedDuration;
use rstest::rstest;
use std::time::Duration;

fn wanted() -> Candidate {
    candidate("me", "1.0.0", "1.0.0")
}

fn renew(renew_time: jiff::Timestamp) -> Answer {
    Answer::Renew { renew_time }
}

#[rstest]
#[case::missing(None, Answer::Create)]
#[case::fresh(Some(wanted().renewed(10)), Answer::Wait { at_most: Duration::from_secs(290) })]
#[case::due(Some(wanted().renewed(300)), renew(now()))]
#[case::never_renewed(Some(Candidate { renew_time: None, ..wanted() }), renew(now()))]
#[case::pinged(Some(wanted().renewed(10).pinged(1)), renew(now()))]
#[case::answered(Some(wanted().renewed(1).pinged(2)), Answer::Wait { at_most: Duration::from_secs(299) })]
#[case::other_version(Some(candidate("me", "1.0.0", "1.1.0")), renew(now()))]
#[case::other_emulation(Some(candidate("me", "0.9.0", "1.0.0")), renew(now()))]
#[case::other_strategy(Some(wanted().by("foo.com/bar")), renew(now()))]
#[case::annotation_of_another_stays(
    Some(wanted().renewed(0).annotated("team", "blue")), Answer::Wait { at_most: RENEW_INTERVAL }
)]
#[case::from_the_future(Some(wanted().renewed(-60)), renew(now()))]
#[case::other_lease(
    Some(Candidate { lease_name: "component-B".into(), ..wanted() }), Answer::Foreign { lease_name: "component-B".into() }
)]
fn a_candidate_keeps_its_object(#[case] found: Option<Candidate>, #[case] expected: Answer) {
    assert_eq!(answer(found.as_ref(), &wanted(), now()), expected);
}

#[test]
fn a_candidate_whose_clock_is_behind_answers_after_the_ping() {
    let found = wanted().renewed(0).pinged(-60);
    let Answer::Renew { renew_time } = answer(Some(&found), &wanted(), now()) else {
        panic!("no answer");
    };
    assert_eq!(renew_time, ago(-60) + SignedDuration::from_micros(1));
    let answered = Candidate {
        renew_time: Some(renew_time),
        ..found
    };
    assert_eq!(answered.unanswered_ping(), None);
    // And is done with it, although that time is still to come.
    let next = answer(Some(&answered), &wanted(), now());
    assert_eq!(
        next,
        Answer::Wait {
            at_most: RENEW_INTERVAL
        }
    );
}

#[test]
fn an_annotation_that_was_changed_is_set_again() {
    let wanted = wanted().annotated("weight", "5");
    let found = wanted.clone().annotated("weight", "4").renewed(1);
    assert_eq!(answer(Some(&found), &wanted, now()), renew(now()));
}

#[rstest]
#[case::delete_expired_lease_candidates(
    &[candidate("candidate1", "", "").renewed(30 * 60 + 1), candidate("candidate2", "", "").renewed(30 * 60 + 1),
      candidate("candidate3", "", "").renewed(0)],
    &["candidate1", "candidate2"]
)]
#[case::no_expired_lease_candidates(&[candidate("candidate1", "", "")], &[])]
#[case::never_renewed(&[Candidate { renew_time: None, ..candidate("candidate1", "", "") }], &["candidate1"])]
#[case::just_in_time(&[candidate("candidate1", "", "").renewed(30 * 60)], &[])]
fn candidate_gc(#[case] candidates: &[Candidate], #[case] deleted: &[&str]) {
    let expired = expired_candidates(candidates, &Timing::default(), now());
    let names: Vec<&str> = expired.iter().map(|candidate| candidate.name.as_str()).collect();
    assert_eq!(names, deleted);
}
