//! Each rule can fail.

use super::history::{Act, FIELDS, Revision, Violation, check, terms};
use rstest::rstest;
use std::time::Duration;

const LEASE: u64 = 3;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A first revision of a term, stored at once. Times are milliseconds.
fn taken(holder: &str, transitions: i64, at: i64) -> Revision {
    let time = Some(jiff::Timestamp::from_millisecond(at).unwrap());
    Revision {
        uid: "uid".to_owned(),
        version: at.to_string(),
        received: millis(at.unsigned_abs()),
        written: millis(at.unsigned_abs()),
        holder: holder.to_owned(),
        seconds: LEASE,
        acquired: time,
        renewed: time,
        transitions,
        fields: FIELDS.map(str::to_owned).to_vec(),
    }
}

fn renewed(before: &Revision, at: i64) -> Revision {
    Revision {
        acquired: before.acquired,
        ..taken(&before.holder, before.transitions, at)
    }
}

fn released(before: &Revision, at: i64) -> Revision {
    Revision {
        seconds: 1,
        ..taken("", before.transitions, at)
    }
}

fn act(identity: &str, transitions: i64, from: u64, until: u64) -> Act {
    Act {
        identity: identity.to_owned(),
        transitions,
        from: millis(from),
        until: millis(until),
    }
}

/// `a` takes, renews and crashes; `b` takes over and releases; `a` takes.
fn good() -> Vec<Revision> {
    let first = taken("a", 0, 1_000);
    let renewal = renewed(&first, 2_000);
    let second = taken("b", 1, 5_000);
    let release = released(&second, 5_500);
    vec![first, renewal, second, release, taken("a", 2, 5_600)]
}

#[test]
fn a_good_history_has_no_violations() {
    let acts = [
        act("a", 0, 1_010, 3_900),
        act("b", 1, 5_010, 5_490),
        act("a", 2, 5_610, 6_000),
    ];
    assert_eq!(check(&good(), &acts, LEASE), []);
    let expected = [("a", 0), ("b", 1), ("a", 2)];
    assert_eq!(
        terms(&good()),
        expected.map(|(holder, term)| (holder.to_owned(), term))
    );
}

#[test]
fn a_lease_made_anew_begins_at_zero() {
    let mut anew = taken("b", 0, 2_100);
    anew.uid = "another".to_owned();
    let mut history = good()[..2].to_vec();
    history.push(anew);
    assert_eq!(check(&history, &[], LEASE), []);
}

#[test]
fn a_holder_may_begin_anew_when_its_record_has_expired() {
    assert_eq!(
        check(&[taken("a", 0, 1_000), taken("a", 1, 4_000)], &[], LEASE),
        []
    );
    let expected = Violation::Early {
        version: "3999".to_owned(),
        holder: "a".to_owned(),
        by: "a".to_owned(),
        early: millis(1),
    };
    let found = check(&[taken("a", 0, 1_000), taken("a", 1, 3_999)], &[], LEASE);
    assert_eq!(found, [expected]);
}

/// A renewal within the same second is none for client-go, and one for everybody else.
#[test]
fn client_go_may_count_from_the_first_record_of_a_second() {
    let first = taken("a", 0, 1_100);
    let taken_by = |by: &str, at: i64, renewals: &[i64]| {
        let renewals = renewals.iter().map(|at| renewed(&first, *at));
        let mut history: Vec<Revision> = std::iter::once(first.clone()).chain(renewals).collect();
        history.push(taken(by, 1, at));
        check(&history, &[], LEASE)
    };
    assert_eq!(taken_by("clientgo-1", 4_100, &[1_104, 1_999]), []);
    for (by, at, renewals) in [
        ("clientgo-1", 4_099, &[1_104][..]),
        ("clientgo-1", 4_100, &[2_000]),
        ("clientgo-1", 4_999, &[1_104, 2_000]),
        ("ours-1", 4_103, &[1_104]),
    ] {
        let found = taken_by(by, at, renewals);
        assert!(
            matches!(&found[..], [Violation::Early { .. }]),
            "{by} at {at}: {found:?}"
        );
    }
}

fn early(by: u64) -> Violation {
    Violation::Early {
        version: (5_000 - by).to_string(),
        holder: "a".to_owned(),
        by: "b".to_owned(),
        early: millis(by),
    }
}

fn wrong_transitions(version: &str, expected: i64, found: i64) -> Violation {
    Violation::Transitions {
        version: version.to_owned(),
        expected,
        found,
    }
}

#[rstest]
#[case::taken_a_moment_too_early(&[taken("a", 0, 2_000), taken("b", 1, 4_999)], early(1))]
#[case::counted_from_the_acquisition(
    &[taken("a", 0, 1_000), renewed(&taken("a", 0, 1_000), 2_000), taken("b", 1, 4_000)],
    early(1_000)
)]
#[case::take_over_not_counted(&[taken("a", 0, 1), taken("b", 0, 4_000)], wrong_transitions("4000", 1, 0))]
#[case::renewal_counted(
    &[taken("a", 0, 1), Revision { transitions: 1, ..renewed(&taken("a", 0, 1), 2) }],
    wrong_transitions("2", 0, 1)
)]
#[case::release_counted(
    &[taken("a", 0, 1), Revision { transitions: 1, ..released(&taken("a", 0, 1), 2) }],
    wrong_transitions("2", 0, 1)
)]
#[case::take_over_after_a_release_not_counted(
    &[taken("a", 0, 1), released(&taken("a", 0, 1), 2), taken("a", 0, 3)],
    wrong_transitions("3", 1, 0)
)]
#[case::first_not_zero(&[taken("a", 1, 1)], wrong_transitions("1", 0, 1))]
#[case::acquired_anew_by_a_renewal(
    &[taken("a", 0, 1), taken("a", 0, 2)],
    Violation::AcquireTime { version: "2".to_owned() }
)]
#[case::acquired_by_the_one_before(
    &[taken("a", 0, 1), Revision { acquired: taken("a", 0, 1).acquired, ..taken("b", 1, 4_000) }],
    Violation::AcquireTime { version: "4000".to_owned() }
)]
#[case::another_duration(
    &[Revision { seconds: 4, ..taken("a", 0, 1) }],
    Violation::LeaseDuration { version: "1".to_owned(), expected: 3, found: 4 }
)]
#[case::a_release_that_lasts(
    &[taken("a", 0, 1), taken("", 0, 2)],
    Violation::LeaseDuration { version: "2".to_owned(), expected: 1, found: 3 }
)]
#[case::a_field_too_few(
    &[Revision { fields: vec!["holderIdentity".to_owned()], ..taken("a", 0, 1) }],
    Violation::Fields { version: "1".to_owned(), fields: vec!["holderIdentity".to_owned()] }
)]
fn a_bad_record_is_found(#[case] revisions: &[Revision], #[case] expected: Violation) {
    assert_eq!(check(revisions, &[], LEASE), [expected]);
}

#[test]
fn an_act_in_no_term_is_found() {
    for act in [
        act("c", 0, 1_010, 1_020),
        act("a", 1, 5_010, 5_020),
        act("a", 0, 999, 1_010),
    ] {
        let expected = Violation::WithoutLease { act: act.clone() };
        assert_eq!(check(&good(), &[act], LEASE), [expected]);
    }
}

#[test]
fn an_act_beyond_the_next_revision_of_somebody_else_is_found() {
    let late = act("a", 0, 1_010, 5_001);
    let expected = Violation::Outlived {
        act: late.clone(),
        holder: "b".to_owned(),
        version: "5000".to_owned(),
    };
    assert_eq!(check(&good(), std::slice::from_ref(&late), LEASE), [expected]);
    let after_release = act("b", 1, 5_010, 5_501);
    let found = check(&good(), &[after_release], LEASE);
    assert!(
        matches!(&found[..], [Violation::Outlived { holder, .. }] if holder.is_empty()),
        "{found:?}"
    );
}

#[test]
fn acts_of_two_at_once_are_found() {
    let (one, other) = (act("a", 0, 1_010, 5_020), act("b", 1, 5_020, 5_100));
    let found = check(&good(), &[one.clone(), other.clone()], LEASE);
    assert!(found.contains(&Violation::Overlap { one, other }), "{found:?}");
}
