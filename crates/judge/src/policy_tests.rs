use super::*;
use rstest::rstest;

fn labels(text: &str) -> BTreeMap<String, String> {
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn policy(name: &str, selector: &str, change: impl FnOnce(&mut FailoverPolicySpec)) -> Policy {
    let mut spec = FailoverPolicySpec {
        node_labels: labels(selector),
        ..Default::default()
    };
    change(&mut spec);
    Policy {
        name: name.to_owned(),
        generation: 1,
        spec,
    }
}

#[test]
fn without_policies_the_profile_holds() {
    let builtin = effective(&[], &labels(""), Profile::Builtin).0;
    assert_eq!((builtin.autonomy_seconds, builtin.evict_after_seconds), (0, 30));
    assert_eq!(builtin.endpoints, EndpointsPolicy::Keep);
    assert_eq!(builtin.isolated, IsolatedPolicy::Report);
    assert_eq!(builtin.fencing, FencingPolicy::Observe);
    assert_eq!(builtin.mode, ModePolicy::Act);
    let edge = effective(&[], &labels(""), Profile::Edge).0;
    assert_eq!((edge.autonomy_seconds, edge.evict_after_seconds), (86_400, 0));
}

#[rstest]
#[case::empty_selects_all("", "", true)]
#[case::all_labels_there("a=1", "a=1,b=2", true)]
#[case::other_value("a=1", "a=2", false)]
#[case::one_of_two("a=1,b=2", "a=1", false)]
fn a_policy_selects_nodes_that_carry_all_its_labels(
    #[case] selector: &str,
    #[case] node: &str,
    #[case] expected: bool,
) {
    assert_eq!(
        selects(&policy("p", selector, |_| ()).spec, &labels(node)),
        expected
    );
}

#[test]
fn a_policy_changes_only_what_it_says() {
    let policies = [policy("p", "", |spec| spec.evict_after_seconds = Some(5))];
    let (settings, overruled) = effective(&policies, &labels(""), Profile::Edge);
    assert_eq!(
        (settings.autonomy_seconds, settings.evict_after_seconds),
        (86_400, 5)
    );
    assert_eq!(overruled, []);
}

#[test]
fn a_policy_for_other_nodes_says_nothing() {
    let policies = [policy("p", "tier=edge", |spec| {
        spec.evict_after_seconds = Some(5);
    })];
    assert_eq!(
        effective(&policies, &labels("tier=core"), Profile::Builtin).0,
        Settings::of(Profile::Builtin)
    );
}

#[test]
fn of_two_policies_the_most_cautious_value_wins_field_by_field() {
    let policies = [
        policy("quick", "", |spec| {
            spec.evict_after_seconds = Some(0);
            spec.autonomy_seconds = Some(600);
            spec.mode = Some(ModePolicy::Act);
            spec.fencing = Some(FencingPolicy::Observe);
            spec.isolated = Some(IsolatedPolicy::Withdraw);
            spec.endpoints = Some(EndpointsPolicy::Keep);
        }),
        policy("slow", "", |spec| {
            spec.evict_after_seconds = Some(120);
            spec.autonomy_seconds = Some(60);
            spec.mode = Some(ModePolicy::Observe);
            spec.fencing = Some(FencingPolicy::Off);
            spec.isolated = Some(IsolatedPolicy::Report);
            spec.endpoints = Some(EndpointsPolicy::Stock);
        }),
    ];
    let expected = Settings {
        mode: ModePolicy::Observe,
        autonomy_seconds: 600,
        evict_after_seconds: 120,
        endpoints: EndpointsPolicy::Stock,
        isolated: IsolatedPolicy::Report,
        fencing: FencingPolicy::Off,
    };
    let (settings, overruled) = effective(&policies, &labels(""), Profile::Builtin);
    assert_eq!(settings, expected);
    let reversed: Vec<Policy> = policies.iter().rev().cloned().collect();
    assert_eq!(
        effective(&reversed, &labels(""), Profile::Builtin).0,
        expected,
        "order says nothing"
    );
    let of = |name: &str| overruled.iter().filter(|one| one.policy == name).count();
    assert_eq!((of("quick"), of("slow")), (5, 1));
    let text = "evictAfterSeconds 0: overruled by the more cautious 120 of slow";
    assert!(
        overruled
            .iter()
            .any(|one| one.policy == "quick" && one.text == text),
        "{overruled:?}"
    );
}

#[test]
fn a_policy_may_be_less_cautious_than_the_default() {
    let policies = [policy("p", "", |spec| spec.evict_after_seconds = Some(0))];
    assert_eq!(
        effective(&policies, &labels(""), Profile::Builtin)
            .0
            .evict_after_seconds,
        0
    );
}

#[test]
fn equal_values_are_no_conflict() {
    let same = |name| policy(name, "", |spec| spec.evict_after_seconds = Some(5));
    assert_eq!(
        effective(&[same("a"), same("b")], &labels(""), Profile::Builtin).1,
        []
    );
}

#[test]
fn negative_seconds_count_as_none_at_all() {
    let policies = [policy("p", "", |spec| spec.evict_after_seconds = Some(-7))];
    assert_eq!(
        effective(&policies, &labels(""), Profile::Builtin)
            .0
            .evict_after_seconds,
        0
    );
}

/// Settings that do nothing yet.
#[test]
fn a_stored_value_that_nothing_acts_upon_reads_as_its_cautious_one_and_is_named() {
    let asked = policy("old", "", |spec| {
        spec.endpoints = Some(EndpointsPolicy::KeepLocal);
        spec.fencing = Some(FencingPolicy::Enforce);
        spec.stateful_failover = Some(true);
        spec.evict_after_seconds = Some(-7);
    });
    let settings = effective(std::slice::from_ref(&asked), &labels(""), Profile::Builtin).0;
    assert_eq!(settings.endpoints, EndpointsPolicy::Stock);
    assert_eq!(settings.fencing, FencingPolicy::Observe);
    let refused = refused(&asked.spec);
    for field in ["endpoints", "fencing", "statefulFailover", "evictAfterSeconds"] {
        assert!(refused.iter().any(|why| why.starts_with(field)), "{refused:?}");
    }
    assert_eq!(
        super::refused(&FailoverPolicySpec::default()),
        Vec::<String>::new()
    );
}
