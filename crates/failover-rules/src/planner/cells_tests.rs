use super::*;
use proptest::prelude::*;
use rstest::rstest;

fn uid(number: usize) -> String {
    format!("uid-{number:04}")
}

/// `racks` racks, filled in turn.
fn zone(members: usize, racks: usize) -> Zone {
    let rack = |number: usize| format!("rack-{}", number % racks);
    Zone {
        present: (0..members).map(|number| (uid(number), rack(number))).collect(),
        ..Zone::default()
    }
}

fn sizes(division: &Division) -> Vec<usize> {
    division.cells.values().map(BTreeSet::len).collect()
}

/// The zone as it stands after a division was published.
fn published(zone: &Zone) -> Zone {
    Zone {
        cells: divide(zone).cells,
        ..zone.clone()
    }
}

#[rstest]
#[case(0, &[])]
#[case(1, &[1])]
#[case(2, &[2])]
#[case(64, &[64])]
#[case(65, &[33, 32])]
#[case(128, &[64, 64])]
#[case(129, &[33, 64, 32])]
fn a_zone_is_one_cell_up_to_64_members(#[case] members: usize, #[case] cells: &[usize]) {
    let division = divide(&zone(members, 4));
    assert_eq!(sizes(&division), cells);
    assert_eq!(division.without_cell, BTreeSet::new());
}

#[test]
fn the_65th_member_halves_the_cell_and_later_ones_fill_the_smaller_half() {
    let mut now = published(&zone(64, 1));
    for members in [65, 66, 67, 100] {
        now.present = zone(members, 1).present;
        now = published(&now);
    }
    assert_eq!(
        now.cells.values().map(BTreeSet::len).collect::<Vec<_>>(),
        [50, 50]
    );
}

#[test]
fn racks_are_spread_over_cells() {
    let division = divide(&zone(65, 4));
    for (number, members) in &division.cells {
        for rack in 0..4 {
            let rack = format!("rack-{rack}");
            let zone = zone(65, 4);
            let here = members.iter().filter(|uid| zone.present[*uid] == rack).count();
            assert!((7..=9).contains(&here), "cell {number} holds {here} of {rack}");
        }
    }
}

/// Whoever left is no member at once, listed or not: nobody waits for a node that is gone.
#[test]
fn members_that_are_gone_leave_at_once() {
    let mut now = published(&zone(5, 1));
    now.waiting.insert(0);
    now.listed.insert(uid(2));
    now.present.remove(&uid(2));
    assert_eq!(sizes(&divide(&now)), [4]);
}

#[test]
fn a_cell_that_became_small_joins_the_smallest_other_one() {
    let mut now = published(&zone(70, 1));
    let second: Vec<String> = now.cells[&1].iter().cloned().collect();
    for gone in &second[15..] {
        now.present.remove(gone);
    }
    let division = divide(&now);
    assert_eq!(sizes(&division), [50, 0], "35 and 15 fit in one cell");
    assert_eq!(
        divide(&Zone {
            cells: division.cells.clone(),
            ..now
        }),
        division
    );
}

#[test]
fn two_cells_that_do_not_fit_in_one_share_their_members() {
    let mut now = published(&zone(128, 1));
    let second: Vec<String> = now.cells[&1].iter().cloned().collect();
    for gone in &second[15..] {
        now.present.remove(gone);
    }
    assert_eq!(sizes(&divide(&now)), [40, 39]);
}

#[test]
fn the_only_cell_of_a_zone_stays_however_small() {
    assert_eq!(sizes(&divide(&published(&zone(2, 1)))), [2]);
}

#[test]
fn while_a_member_was_listed_lately_nobody_moves_and_newcomers_wait_until_three_found_a_cell() {
    let mut now = published(&zone(64, 1));
    now.waiting.insert(0);
    now.present = zone(66, 1).present;
    let division = divide(&now);
    assert_eq!(sizes(&division), [64]);
    assert_eq!(division.without_cell, BTreeSet::from([uid(64), uid(65)]));
    now.present = zone(67, 1).present;
    assert_eq!(sizes(&divide(&now)), [64, 3]);
}

/// After ten minutes the others move; the listed member keeps the neighbours that know it.
#[test]
fn a_listed_member_never_moves() {
    for listed in 0..64 {
        let mut now = published(&zone(64, 1));
        now.listed.insert(uid(listed));
        now.present = zone(65, 1).present;
        let division = divide(&now);
        assert_eq!(sizes(&division), [33, 32]);
        assert!(division.cells[&0].contains(&uid(listed)));
    }
}

/// Those who reach the API server report for the others: if all of them left, nobody would.
#[rstest]
#[case(31, [48, 17])]
#[case(32, [48, 17])]
#[case(33, [64, 0])]
#[case(64, [64, 0])]
fn half_of_those_who_are_not_listed_stay_with_those_who_are(
    #[case] listed: usize,
    #[case] cells: [usize; 2],
) {
    let mut now = published(&zone(64, 1));
    now.listed = (0..listed).map(uid).collect();
    now.present = zone(65, 1).present;
    let division = divide(&now);
    let size = |number: u32| division.cells.get(&number).map_or(0, BTreeSet::len);
    assert_eq!([size(0), size(1)], cells);
    assert_eq!(division.without_cell.len(), 65 - cells[0] - cells[1]);
    assert!(now.listed.is_subset(&division.cells[&0]));
}

#[test]
fn where_one_full_cell_cannot_be_divided_another_one_is() {
    let mut now = published(&zone(128, 1));
    now.listed = now.cells[&0].clone();
    now.present = zone(129, 1).present;
    let division = divide(&now);
    assert_eq!(sizes(&division), [64, 33, 32]);
    assert_eq!(division.without_cell, BTreeSet::new());
}

/// Else it would stay behind alone, and nobody could vouch for it.
#[test]
fn a_cell_with_a_listed_member_is_not_merged() {
    let mut now = published(&zone(70, 1));
    let second: Vec<String> = now.cells[&1].iter().cloned().collect();
    for gone in &second[15..] {
        now.present.remove(gone);
    }
    now.listed.insert(second[0].clone());
    assert_eq!(sizes(&divide(&now)), [35, 15]);
}

/// An earlier version published one roster for a zone of any size.
#[test]
fn a_roster_of_more_than_64_members_is_divided() {
    let mut now = zone(200, 1);
    now.cells.insert(0, now.present.keys().cloned().collect());
    assert!(
        sizes(&divide(&now))
            .iter()
            .all(|size| (SMALLEST..=LARGEST).contains(size))
    );
}

/// The member stands in both cells between the two writes of its move.
#[test]
fn a_move_that_was_interrupted_is_finished() {
    let mut now = published(&zone(65, 1));
    let moved: Vec<String> = now.cells[&1].iter().cloned().collect();
    now.cells.get_mut(&0).unwrap().extend(moved);
    assert_eq!(divide(&now).cells, published(&zone(65, 1)).cells);
}

proptest! {
    /// Zones that grow and shrink in steps, with some members listed.
    #[test]
    fn every_division_keeps_the_rules(
        steps in proptest::collection::vec((0_usize..300, 0_usize..300, proptest::collection::vec(0_usize..300, 0..4)), 1..8),
        racks in 1_usize..6,
    ) {
        let mut now = zone(0, racks);
        for (from, until, listed) in steps {
            let all = zone(300, racks).present;
            now.present = all.into_iter().skip(from.min(until)).take(from.abs_diff(until)).collect();
            let listed = listed.into_iter().map(uid).collect();
            now.listed = listed;
            let division = divide(&now);
            let members: Vec<&String> = division.cells.values().flatten().collect();
            let different: BTreeSet<&String> = members.iter().copied().collect();
            prop_assert_eq!(members.len(), different.len(), "a member has one cell");
            prop_assert_eq!(members.len() + division.without_cell.len(), now.present.len());
            prop_assert!(division.without_cell.is_empty(), "nothing waits");
            prop_assert!(division.cells.values().all(|members| members.len() <= LARGEST));
            for (number, members) in &now.cells {
                let stay = members.iter().filter(|uid| now.listed.contains(*uid) && now.present.contains_key(*uid));
                for uid in stay {
                    prop_assert!(division.cells[number].contains(uid), "{} is listed and moved", uid);
                }
            }
            let founded: Vec<&BTreeSet<String>> = division.cells.values().filter(|members| !members.is_empty()).collect();
            let calm = founded.iter().filter(|members| members.is_disjoint(&now.listed)).count();
            let small = founded.iter().filter(|members| members.is_disjoint(&now.listed) && members.len() < SMALLEST).count();
            prop_assert!(small == 0 || calm < 2, "a small cell is left beside another calm one");
            now.cells = division.cells.clone();
            prop_assert_eq!(divide(&now), division, "a second look changes nothing");
        }
    }
}
