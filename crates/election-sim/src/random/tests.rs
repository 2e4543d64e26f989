use super::*;
use rstest::rstest;

/// Enough for a debug build; `examples/elections.rs` runs millions.
const ELECTIONS: u64 = 5_000;

#[rstest]
#[case::of_this_run(rand::random())]
#[case::one_that_has_found_something(1)]
fn no_two_candidates_may_write_at_once(#[case] seed: u64) {
    println!("seed {seed}");
    let report = run(Rules::Evenkeel, seed, ELECTIONS);
    println!("{}", report.tally);
    if let Some(failure) = report.failure {
        panic!("{failure}");
    }
    assert!(
        report.tally.take_overs > ELECTIONS / 2,
        "there was something to find"
    );
    assert_eq!(report.tally.faults.len(), 15, "every fault happens");
}

/// The run can fail: what each rule is for shows when it is missing.
#[rstest]
fn two_may_write_where_a_rule_is_missing(
    #[values(
        Rules::NoDeadlineCheck,
        Rules::RatesBeyond,
        Rules::ClientGo,
        Rules::ClientGoNeverPaused
    )]
    rules: Rules,
) {
    let failure = run(rules, 1, 100_000).failure.unwrap();
    println!("{failure}");
    assert!(matches!(failure.broken, Broken::TwoOpenGates { .. }), "{failure}");
    let again = replay(rules, failure.world).unwrap();
    assert_eq!(again.to_string(), failure.to_string());
}
