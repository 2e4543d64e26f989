//! Deaths while a cell comes back from a power cut (hazard 43).

use super::*;

/// Two rounds about a node that has just renewed for the last time, far enough apart to confirm its death.
fn voted_dead_twice(mut case: Case1, is_returning: bool) -> Case1 {
    case.renews = false;
    case.evidence.zone.is_returning = is_returning;
    let last = case.second;
    case.go(last + 4);
    case.convict(4);
    case.look();
    case.go(last + 20);
    case.convict(20);
    case.look();
    case
}

/// Machines that boot one after the other, as for a new kernel, are no power cut for those that stay up.
#[rstest]
#[case::no_power_cut(false)]
#[case::a_power_cut_that_did_not_reach_it(true)]
fn the_death_of_a_node_that_was_never_away_is_confirmed(#[case] is_returning: bool) {
    assert_eq!(
        voted_dead_twice(Case1::watched(), is_returning).state(),
        CONFIRMED
    );
}

/// It was gone for longer than makes a Lease stale, and comes back at second 140.
#[rstest]
#[case::for_a_minute(200, CONFIRMED)]
#[case::for_50_s(190, STOCK_PACE)]
fn the_death_of_a_node_that_returned_is_confirmed_once_it_was_back_for_a_minute(
    #[case] lived_until: u64,
    #[case] expected: NodeState,
) {
    let mut case = Case1::watched();
    case.renews = false;
    case.go(130);
    case.renews = true;
    case.go(lived_until);
    assert_eq!(voted_dead_twice(case.clone(), true).state(), expected);
    assert_eq!(voted_dead_twice(case, false).state(), CONFIRMED);
}

#[test]
fn a_doubt_about_a_death_stays_and_what_was_confirmed_stays_confirmed() {
    let mut back = Case1::watched();
    back.memory.lived_from = Some(at(90));
    let mut doubted = voted_dead_twice(back.clone(), true);
    doubted.evidence.zone.is_returning = false;
    let mut confirmed = voted_dead_twice(back, false);
    confirmed.evidence.zone.is_returning = true;
    for case in [&mut doubted, &mut confirmed] {
        case.go(140);
        case.convict(40);
        case.look();
    }
    assert_eq!((doubted.state(), confirmed.state()), (STOCK_PACE, CONFIRMED));
    assert_eq!(doubted.look().reason, Reason::VotedDeadSlowly(Slow::Returning));
}
