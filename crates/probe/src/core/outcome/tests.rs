use super::*;

#[test]
fn a_reading_is_written_and_measured_as_upstream_does() {
    let all = [Reading::Success, Reading::Failure, Reading::Unknown];
    assert_eq!(
        all.map(|reading| reading.to_string()),
        ["Success", "Failure", "UNKNOWN"]
    );
    assert_eq!(all.map(Reading::gauge), [0, 1, -1]);
}

#[test]
fn an_outcome_says_one_thing() {
    let ends = [
        (Outcome::success("a"), Verdict::Success, "a", None),
        (Outcome::warning("b"), Verdict::Warning, "b", None),
        (Outcome::failure("c"), Verdict::Failure, "c", None),
        (
            Outcome::error(Verdict::Unknown, "d"),
            Verdict::Unknown,
            "",
            Some("d"),
        ),
    ];
    for (outcome, verdict, output, error) in ends {
        assert_eq!(
            (outcome.verdict, &*outcome.output, outcome.error.as_deref()),
            (verdict, output, error)
        );
    }
}
