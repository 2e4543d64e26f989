//! Nodes that are found dead again and again (hazard 14).

use super::*;

/// The node dies once more, for 20 s, and its peers vouch for it for the rest of the time; returns what its
/// death came to.
fn dies(case: &mut Case1, every: u64) -> NodeState {
    let begins = case.second;
    case.renews = false;
    case.go(begins + 4);
    case.convict(4);
    case.look();
    case.go(begins + 20);
    case.convict(20);
    let state = case.look().state();
    case.renews = true;
    case.renew();
    case.vouched_until(begins + every);
    state
}

/// The fifth death of a node that dies every minute, and the seventh of one that does so every three, go at
/// the pace of stock Kubernetes.
#[rstest]
#[case::every_minute(60, &[true, true, true, true, false, false])]
#[case::every_three_minutes(180, &[true, true, true, true, true, true, false, false])]
#[case::every_five_minutes(300, &[true; 20])]
fn a_node_that_dies_again_and_again_is_not_moved_each_time(#[case] every: u64, #[case] accelerated: &[bool]) {
    let mut case = Case1::watched();
    for (number, accelerated) in accelerated.iter().enumerate() {
        let state = dies(&mut case, every);
        let expected = if *accelerated { CONFIRMED } else { STOCK_PACE };
        assert_eq!(state, expected, "death {}", number + 1);
    }
}

#[test]
fn after_half_an_hour_of_rest_a_death_is_a_death_again() {
    let mut case = Case1::watched();
    for _ in 0..6 {
        dies(&mut case, 60);
    }
    let until = case.second + 1_800;
    case.vouched_until(until);
    assert_eq!(dies(&mut case, 60), CONFIRMED);
}

/// Rounds that repeat one death are no further deaths, and what the node is blamed for is said.
#[test]
fn one_death_counts_once_however_long_it_lasts() {
    let mut case = Case1::watched();
    case.renews = false;
    let begins = case.second;
    for second in 4..304 {
        case.go(begins + second);
        case.convict(second);
        case.look();
    }
    case.renews = true;
    case.renew();
    case.vouched_until(begins + 340);
    assert_eq!(dies(&mut case, 60), CONFIRMED);
    for _ in 0..5 {
        dies(&mut case, 60);
    }
    case.renews = false;
    let begins = case.second;
    case.go(begins + 4);
    case.convict(4);
    assert_eq!(case.look().reason, Reason::VotedDeadSlowly(Slow::Flapping));
}
