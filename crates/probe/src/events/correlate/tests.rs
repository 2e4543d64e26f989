use super::*;
use crate::core::Role;
use rstest::rstest;

fn about(pod: &str, container: &str) -> EventAbout {
    EventAbout {
        uid: format!("uid-{pod}").into(),
        namespace: "shop".into(),
        name: pod.into(),
        container: container.into(),
        role: Role::Regular,
    }
}

fn event(message: &str) -> Event {
    Event {
        warning: true,
        reason: "Unhealthy",
        message: message.to_owned(),
    }
}

fn at(seconds: u64) -> Now {
    Now {
        mono: Duration::from_secs(seconds),
        wall: Duration::from_secs(1_700_000_000 + seconds),
    }
}

/// In short: `+N` an object made, `=N` a count raised, `-` nothing; with the message where it is a combined
/// one.
fn told(action: &Action) -> String {
    let text = |sign: &str, record: &Record| {
        let combined = record
            .event
            .message
            .starts_with("(combined from similar events): ");
        format!(
            "{sign}{}{}",
            record.count,
            if combined { " combined" } else { "" }
        )
    };
    match action {
        Action::Create(record) => text("+", record),
        Action::Patch(record) => text("=", record),
        Action::Drop => "-".to_owned(),
    }
}

/// Events as (second, pod, container, message).
fn run(events: &[(u64, &str, &str, &str)]) -> Vec<String> {
    let mut correlator = Correlator::default();
    let tell = |&(second, pod, container, message): &(u64, &str, &str, &str)| {
        told(&correlator.correlate(about(pod, container), event(message), at(second)))
    };
    events.iter().map(tell).collect()
}

#[rstest]
#[case::equal_events_raise_the_count(
    &[(0, "a", "app", "x"), (10, "a", "app", "x"), (20, "a", "app", "x")], &["+1", "=2", "=3"])]
#[case::another_message_is_another_event(
    &[(0, "a", "app", "x"), (10, "a", "app", "y"), (20, "a", "app", "x")], &["+1", "+1", "=2"])]
#[case::another_pod_is_another_event(
    &[(0, "a", "app", "x"), (10, "b", "app", "x"), (20, "b", "app", "x")], &["+1", "+1", "=2"])]
#[case::another_container_is_another_event(
    &[(0, "a", "app", "x"), (10, "a", "log", "x"), (20, "a", "log", "x")], &["+1", "+1", "=2"])]
#[case::the_tenth_message_for_a_reason_is_combined(
    &[(0, "a", "app", "0"), (1, "a", "app", "1"), (2, "a", "app", "2"), (3, "a", "app", "3"), (4, "a", "app", "4"),
      (5, "a", "app", "5"), (6, "a", "app", "6"), (7, "a", "app", "7"), (8, "a", "app", "8"), (9, "a", "app", "9"),
      (10, "a", "app", "10"), (11, "a", "app", "3"), (12, "a", "log", "11"), (13, "b", "app", "12")],
    &["+1", "+1", "+1", "+1", "+1", "+1", "+1", "+1", "+1", "+1 combined", "=2 combined", "=2", "=3 combined", "+1"])]
#[case::after_ten_quiet_minutes_nothing_is_similar(
    &[(0, "a", "app", "0"), (1, "a", "app", "1"), (2, "a", "app", "2"), (3, "a", "app", "3"), (4, "a", "app", "4"),
      (5, "a", "app", "5"), (6, "a", "app", "6"), (7, "a", "app", "7"), (8, "a", "app", "8"),
      (608, "a", "app", "9"), (1209, "a", "app", "10"), (1210, "a", "app", "11")],
    &["+1", "+1", "+1", "+1", "+1", "+1", "+1", "+1", "+1", "+1 combined", "+1", "+1"])]
fn events_are_correlated_as_client_go_does(
    #[case] events: &[(u64, &str, &str, &str)],
    #[case] expected: &[&str],
) {
    assert_eq!(run(events), expected);
}

#[test]
fn an_object_has_25_events_at_once_and_then_one_per_five_minutes() {
    let mut events = vec![(0, "a", "app", "x"); 27];
    events.extend([
        (299, "a", "app", "x"),
        (300, "a", "app", "x"),
        (301, "a", "app", "x"),
        (301, "b", "app", "x"),
        (1200, "a", "app", "x"),
        (1200, "a", "app", "x"),
        (1200, "a", "app", "x"),
        (1200, "a", "app", "x"),
    ]);
    let told = run(&events);
    let expected: Vec<String> = (1..=25)
        .map(|count| {
            if count == 1 {
                "+1".into()
            } else {
                format!("={count}")
            }
        })
        .collect();
    assert_eq!(told[..25], expected);
    // What is not told counts all the same.
    assert_eq!(
        told[25..],
        ["-", "-", "-", "=29", "-", "+1", "=31", "=32", "=33", "-"]
    );
}

#[test]
fn warnings_do_not_use_up_what_normal_events_may() {
    let mut correlator = Correlator::default();
    for _ in 0..30 {
        correlator.correlate(about("a", "app"), event("x"), at(0));
    }
    let killing = Event {
        warning: false,
        reason: "Killing",
        message: "k".to_owned(),
    };
    let action = correlator.correlate(about("a", "app"), killing, at(0));
    assert_eq!(told(&action), "+1");
}

#[test]
fn a_record_says_how_often_since_when_and_by_which_name() {
    let mut correlator = Correlator::default();
    let Action::Create(first) = correlator.correlate(about("web-0", "app"), event("x"), at(5)) else {
        panic!("not made");
    };
    assert_eq!(
        first.name,
        format!("web-0.{:x}", 1_700_000_005_u64 * 1_000_000_000)
    );
    let Action::Patch(second) = correlator.correlate(about("web-0", "app"), event("x"), at(9)) else {
        panic!("not raised");
    };
    let expected = Record {
        count: 2,
        last: at(9).wall,
        ..first
    };
    assert_eq!(second, expected);
}

#[test]
fn names_are_unique_and_fit_however_long_the_pods_and_however_coarse_the_clock() {
    let mut correlator = Correlator::default();
    let long = format!("{}.-{}", "p".repeat(234), "q".repeat(17));
    let mut names = std::collections::HashSet::new();
    for message in ["1", "2", "3"] {
        let Action::Create(record) = correlator.correlate(about(&long, "app"), event(message), at(0)) else {
            panic!("not made");
        };
        assert!(record.name.len() <= 253, "{}", record.name);
        assert!(
            record.name.starts_with("ppp") && !record.name.contains("-."),
            "{}",
            record.name
        );
        assert!(names.insert(record.name));
    }
}

#[rstest]
#[case("x".repeat(1025), 1024)]
#[case("x".repeat(1024), 1024)]
#[case("ü".repeat(600), 1024)]
#[case(format!("x{}", "ü".repeat(600)), 1023)]
#[case("€".repeat(600), 1023)]
#[case(String::new(), 0)]
fn messages_are_cut_at_a_character(#[case] message: String, #[case] bytes: usize) {
    let mut correlator = Correlator::default();
    let Action::Create(record) = correlator.correlate(about("a", "app"), event(&message), at(0)) else {
        panic!("not made");
    };
    assert_eq!(record.event.message.len(), bytes);
    assert!(message.starts_with(&record.event.message));
}

#[test]
fn a_combined_message_is_cut_too() {
    let mut correlator = Correlator::default();
    for round in 0..10 {
        let message = format!("{round}{}", "x".repeat(1023));
        let action = correlator.correlate(about("a", "app"), event(&message), at(0));
        let Action::Create(record) = action else {
            panic!("not made: {action:?}");
        };
        assert_eq!(record.event.message.len(), 1024);
    }
}

#[test]
fn memory_is_bounded_and_forgets_the_least_used() {
    let mut correlator = Correlator::default();
    correlator.correlate(about("first", "app"), event("x"), at(0));
    for pod in 0..2 * ENTRIES {
        correlator.correlate(about(&pod.to_string(), "app"), event("x"), at(0));
        if pod.is_multiple_of(1000) {
            // Used, so kept, as long as its allowance lasts.
            let action = correlator.correlate(about("kept", "app"), event("x"), at(0));
            assert!(matches!(action, Action::Create(_) | Action::Patch(_)));
        }
    }
    for (entries, order) in [
        (correlator.recorded.entries.len(), correlator.recorded.order.len()),
        (correlator.similar.entries.len(), correlator.similar.order.len()),
        (
            correlator.allowances.entries.len(),
            correlator.allowances.order.len(),
        ),
    ] {
        assert_eq!((entries, order), (ENTRIES, ENTRIES));
    }
    let again = correlator.correlate(about("first", "app"), event("x"), at(0));
    assert_eq!(told(&again), "+1");
    let again = correlator.correlate(about("kept", "app"), event("x"), at(0));
    assert_eq!(told(&again), "=10");
}
