//! Who is best, and by which rule.

use super::{candidate, now};
use crate::core::coordinated::{
    Candidate, HIGHEST_WEIGHT, HighestWeight, OLDEST_EMULATION_VERSION, Strategies, Strategy,
    WEIGHT_ANNOTATION, compare, parse_version, pick_best_leader, pick_best_strategy, should_reelect,
};
use rstest::rstest;
use std::cmp::Ordering;

const THIRD_PARTY: &str = "foo.com/bar";

fn refs(candidates: &[Candidate]) -> Vec<&Candidate> {
    candidates.iter().collect()
}

#[rstest]
#[case::empty(&[], None)]
#[case::single_candidate(&[candidate("candidate1", "0.1.0", "0.1.0")], Some("candidate1"))]
#[case::different_emulation_versions(
    &[candidate("candidate1", "0.1.0", "0.1.0").born(3600), candidate("candidate2", "0.2.0", "0.2.0").born(0)],
    Some("candidate1")
)]
#[case::same_emulation_different_binary_versions(
    &[candidate("candidate1", "0.1.0", "0.1.0").born(3600), candidate("candidate2", "0.1.0", "0.2.0").born(0)],
    Some("candidate1")
)]
#[case::same_versions_different_creation_timestamps(
    &[candidate("candidate2", "0.1.0", "0.1.0").born(0), candidate("candidate1", "0.1.0", "0.1.0").born(3600)],
    Some("candidate1")
)]
#[case::the_younger_wins_with_the_older_version(
    &[candidate("candidate1", "0.2.0", "0.2.0").born(3600), candidate("candidate2", "0.1.0", "0.2.0").born(0)],
    Some("candidate2")
)]
#[case::unreadable_emulation_version_is_passed_over(
    &[candidate("candidate1", "invalid", "0.1.0"), candidate("candidate2", "0.1.0", "0.1.0")],
    Some("candidate2")
)]
#[case::unreadable_binary_version_is_passed_over(
    &[candidate("candidate1", "0.1.0", "invalid"), candidate("candidate2", "0.1.0", "0.1.0")],
    Some("candidate2")
)]
#[case::nobody_is_readable(&[candidate("candidate1", "", "0.1.0")], None)]
fn pick_best_leader_cases(#[case] candidates: &[Candidate], #[case] best: Option<&str>) {
    let mut candidates = candidates.to_vec();
    for _ in 0..2 {
        let picked = pick_best_leader(&refs(&candidates)).map(|candidate| candidate.name.as_str());
        assert_eq!(picked, best);
        candidates.reverse();
    }
}

#[rstest]
#[case::identical_versions_earlier_timestamp(
    candidate("l", "1.20.0", "1.21.0").born(0), candidate("r", "1.20.0", "1.21.0").born(1), Ordering::Greater
)]
#[case::no_lhs_version(candidate("l", "", ""), candidate("r", "1.20.0", "1.21.0"), Ordering::Less)]
#[case::invalid_lhs_version(
    candidate("l", "xyz", "xyz"),
    candidate("r", "1.20.0", "1.21.0"),
    Ordering::Less
)]
#[case::lhs_less_than_rhs(
    candidate("l", "1.19.0", "1.20.0"),
    candidate("r", "1.20.0", "1.20.0"),
    Ordering::Less
)]
#[case::numeric_not_lexicographic(
    candidate("l", "1.2.0", "1.20.0"),
    candidate("r", "1.19.0", "1.20.0"),
    Ordering::Less
)]
#[case::build_metadata_does_not_decide_and_the_binary_version_does(
    candidate("a", "1.2.0+k3s9", "1.2.0"),
    candidate("b", "1.2.0", "1.1.0"),
    Ordering::Greater
)]
#[case::the_name_settles_a_tie(
    candidate("l", "1.20.0", "1.21.0").born(1), candidate("r", "1.20.0", "1.21.0").born(1), Ordering::Less
)]
fn compare_cases(#[case] left: Candidate, #[case] right: Candidate, #[case] expected: Ordering) {
    assert_eq!(compare(&left, &right), expected);
    assert_eq!(compare(&right, &left), expected.reverse());
}

#[rstest]
#[case::candidate_with_newer_binary_version(
    &[candidate("component-identity-1", "1.19.0", "1.19.0"), candidate("component-identity-2", "1.19.0", "1.20.0")],
    false
)]
#[case::no_newer_candidates(
    &[candidate("component-identity-1", "1.19.0", "1.19.0"), candidate("component-identity-2", "1.19.0", "1.19.0")],
    false
)]
#[case::no_candidates(&[], false)]
#[case::candidate_with_older_emulation_version(
    &[candidate("component-identity-1", "1.19.0", "1.19.0"), candidate("component-identity-2", "1.18.0", "1.19.0")],
    true
)]
fn should_reelect_cases(#[case] candidates: &[Candidate], #[case] expected: bool) {
    let leader = candidate("component-identity-1", "1.19.0", "1.19.0");
    assert_eq!(should_reelect(&refs(candidates), &leader), expected);
}

#[rstest]
#[case::single_candidate_single_strategy(&[candidate("candidate1", "", "")], Some(OLDEST_EMULATION_VERSION))]
#[case::different_strategies_without_versions_fail(
    &[candidate("candidate1", "", ""), candidate("candidate2", "", "").by(THIRD_PARTY)], None
)]
#[case::different_strategies_different_binary_versions_resolve(
    &[candidate("candidate1", "", "1.32.0"), candidate("candidate2", "", "1.31.0").by(THIRD_PARTY)],
    Some(OLDEST_EMULATION_VERSION)
)]
#[case::different_strategies_different_binary_versions_resolve_order_agnostic(
    &[candidate("candidate2", "", "1.31.0").by(THIRD_PARTY), candidate("candidate1", "", "1.32.0")],
    Some(OLDEST_EMULATION_VERSION)
)]
#[case::numeric_not_string_comparison(
    &[candidate("candidate1", "", "1.1.10"), candidate("candidate2", "", "1.1.2").by(THIRD_PARTY)],
    Some(OLDEST_EMULATION_VERSION)
)]
#[case::same_strategy(
    &[candidate("candidate1", "", "1.31.0"), candidate("candidate2", "", "1.31.0")], Some(OLDEST_EMULATION_VERSION)
)]
#[case::conflicting_strategies_at_the_same_version(
    &[candidate("candidate1", "", "1.31.0"), candidate("candidate2", "", "1.31.0").by(THIRD_PARTY)], None
)]
fn pick_best_strategy_cases(#[case] candidates: &[Candidate], #[case] expected: Option<&str>) {
    match (pick_best_strategy(&refs(candidates)), expected) {
        (Ok(picked), Some(_)) => assert_eq!(picked, expected),
        (Err(conflict), None) => {
            let text = conflict.to_string();
            assert!(
                text.contains("candidate1") && text.contains("candidate2"),
                "{text}"
            );
            assert!(text.contains(THIRD_PARTY), "{text}");
        }
        (picked, _) => panic!("{picked:?} instead of {expected:?}"),
    }
}

#[test]
fn without_candidates_there_is_no_strategy() {
    assert_eq!(pick_best_strategy(&[]), Ok(None));
}

#[rstest]
#[case("1.20.3", Some("1.20.3"))]
#[case("v1.20.3", Some("1.20.3"))]
#[case("1.20", Some("1.20.0"))]
#[case("v1", Some("1.0.0"))]
#[case(" 01.020.0 ", Some("1.20.0"))]
#[case("1.20-alpha.1+k3s1", Some("1.20.0-alpha.1+k3s1"))]
#[case("", None)]
#[case("v", None)]
#[case("xyz", None)]
#[case("1..2", None)]
#[case("1.2.3.4", None)]
#[case("1.2.3-", None)]
#[case("1.99999999999999999999", None)]
fn versions_are_read_tolerantly(#[case] text: &str, #[case] expected: Option<&str>) {
    assert_eq!(
        parse_version(text).map(|version| version.to_string()).as_deref(),
        expected
    );
}

#[rstest]
#[case::higher_weight(&[("a", "1"), ("b", "10"), ("c", "9")], "b")]
#[case::below_zero_is_a_last_resort(&[("a", "-5"), ("b", ""), ("c", "-1")], "b")]
#[case::nonsense_is_zero(&[("a", "heavy"), ("b", "1")], "b")]
#[case::equal_weights_by_name(&[("b", "7"), ("a", "7")], "a")]
fn the_highest_weight_leads(#[case] weights: &[(&str, &str)], #[case] best: &str) {
    let mut candidates: Vec<Candidate> = weights
        .iter()
        .map(|(name, weight)| {
            candidate(name, "1.0.0", "1.0.0")
                .born(5)
                .annotated(WEIGHT_ANNOTATION, weight)
        })
        .collect();
    for _ in 0..2 {
        assert_eq!(HighestWeight.best(&refs(&candidates)).unwrap().name, best);
        candidates.reverse();
    }
    assert_eq!(HighestWeight.best(&[]), None);
}

#[test]
fn equal_weights_are_settled_by_version() {
    let candidates = [candidate("a", "1.2.0", "1.2.0"), candidate("b", "1.1.0", "1.2.0")];
    assert_eq!(HighestWeight.best(&refs(&candidates)).unwrap().name, "b");
}

#[test]
fn a_coordinator_knows_the_built_in_strategy_and_those_it_is_given() {
    let strategies = Strategies::default();
    assert!(strategies.get(OLDEST_EMULATION_VERSION).is_some());
    assert!(strategies.get(HIGHEST_WEIGHT).is_none());
    let strategies = strategies.with(HighestWeight);
    let chosen = strategies.get(HIGHEST_WEIGHT).unwrap();
    let only = candidate("a", "", "").renewed(0);
    assert_eq!(only.renew_time, Some(now()));
    assert_eq!(chosen.best(&[&only]).unwrap().name, "a");
}
