use super::*;
use rstest::rstest;

/// Nothing rare.
const PLAIN: Budget = Budget {
    crashes: 0,
    stops: 0,
    hand_overs: 0,
    deletions: 0,
    stale_changes: 0,
};

/// One of each rare thing.
const ONE_OF_EACH: Budget = Budget {
    crashes: 1,
    stops: 1,
    hand_overs: 1,
    deletions: 0,
    stale_changes: 1,
};

const ONE_DELETION: Budget = Budget {
    deletions: 1,
    ..PLAIN
};

fn check(grid: Grid, budget: Budget, depth: u32) -> Outcome {
    // Deeper on request: minutes and gigabytes.
    let more = std::env::var("EVENKEEL_MODEL_DEPTH")
        .ok()
        .and_then(|text| text.parse().ok());
    let outcome = search(&Model::new(grid, budget, more.unwrap_or(depth))).unwrap();
    println!("{outcome}");
    outcome
}

#[rstest]
#[case::plain(Grid::COARSE, PLAIN, 18)]
#[case::drifting(Grid::DRIFTING, PLAIN, 14)]
#[case::one_deletion(Grid::COARSE, ONE_DELETION, 16)]
fn no_interleaving_opens_two_gates(#[case] grid: Grid, #[case] budget: Budget, #[case] depth: u32) {
    let outcome = check(grid, budget, depth);
    assert!(outcome.found.is_none(), "{outcome}");
    assert!(outcome.take_overs > 0, "there was something to find: {outcome}");
}

/// Too shallow for a take-over by expiry, deep enough for every order of the rare things around a first term.
#[test]
fn no_interleaving_of_rare_things_opens_two_gates() {
    let outcome = check(Grid::COARSE, ONE_OF_EACH, 11);
    assert!(outcome.found.is_none(), "{outcome}");
}

/// The check can fail: what each rule is for shows when it is missing.
#[rstest]
#[case::no_deadline_check(Grid::COARSE, Mutation::NoDeadlineCheck)]
#[case::no_version_check(Grid::COARSE, Mutation::NoVersionCheck)]
#[case::impatient(Grid::COARSE, Mutation::Impatient)]
#[case::deadline_from_answer(Grid::DRIFTING, Mutation::DeadlineFromAnswer)]
#[case::rates_beyond_the_limit(Grid::BEYOND, Mutation::None)]
fn a_missing_rule_is_found_out(#[case] grid: Grid, #[case] mutation: Mutation) {
    let model = Model::new(grid, PLAIN, 20).without(mutation);
    let outcome = search(&model).unwrap();
    println!("{outcome}");
    let found = outcome.found.unwrap();
    assert_eq!(found.violation, Violation::TwoOpenGates);
    assert!(found.trace.to_string().contains("both gates are open"));
}
