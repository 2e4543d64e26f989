//! Deaths while a cell comes back from a power cut (hazard 43).

use super::*;

/// Two rounds about a node that has just renewed for the last time, far enough apart to confirm its death.
fn voted_dead_twice(mut case: Case1, returned: Option<u64>) -> Case1 {
    case.renews = false;
    case.evidence.zone.returned = returned.map(at);
    let last = case.second;
    case.go(last + 4);
    case.convict(4);
    case.look();
    case.go(last + 20);
    case.convict(20);
    case.look();
    case
}

/// A node that renewed from second 10 to second 100, in a cell of which most are back since `returned`.
#[rstest]
#[case::no_power_cut(None, CONFIRMED)]
#[case::back_before_this_node(Some(5), CONFIRMED)]
#[case::a_minute_before_it_died(Some(40), CONFIRMED)]
#[case::less_than_a_minute_before(Some(41), STOCK_PACE)]
#[case::after_it_died(Some(103), STOCK_PACE)]
fn a_death_is_confirmed_of_who_was_back_for_a_minute(
    #[case] returned: Option<u64>,
    #[case] expected: NodeState,
) {
    let case = voted_dead_twice(Case1::watched(), returned);
    assert_eq!(case.state(), expected);
}

/// One that was gone for longer than makes a Lease stale comes back at second 140.
#[rstest]
#[case::for_a_minute(200, CONFIRMED)]
#[case::for_50_s(190, STOCK_PACE)]
fn whoever_was_away_is_back_from_its_return_on(#[case] lived_until: u64, #[case] expected: NodeState) {
    let mut case = Case1::watched();
    case.renews = false;
    case.go(130);
    case.renews = true;
    case.go(lived_until);
    assert_eq!(voted_dead_twice(case, Some(20)).state(), expected);
}

#[test]
fn a_doubt_about_a_death_stays_and_what_was_confirmed_stays_confirmed() {
    let mut doubted = voted_dead_twice(Case1::watched(), Some(90));
    doubted.evidence.zone.returned = None;
    let mut confirmed = voted_dead_twice(Case1::watched(), None);
    confirmed.evidence.zone.returned = Some(at(90));
    for case in [&mut doubted, &mut confirmed] {
        case.go(140);
        case.convict(40);
        case.look();
    }
    assert_eq!((doubted.state(), confirmed.state()), (STOCK_PACE, CONFIRMED));
    assert_eq!(doubted.look().reason, Reason::VotedDeadSlowly(Slow::Returning));
}
