use super::*;
use rstest::rstest;
use serde_json::json;

fn pod(annotations: &[(&str, &str)]) -> Pod {
    let annotations: serde_json::Map<_, _> = annotations
        .iter()
        .map(|(key, value)| (format!("{}{key}", names::PREFIX), json!(value)))
        .collect();
    serde_json::from_value(json!({
        "metadata": {"annotations": annotations},
        "spec": {
            "initContainers": [{"name": "init"}, {"name": "side", "restartPolicy": "Always"}],
            "containers": [{"name": "web"}, {"name": "db"}],
            "ephemeralContainers": [{"name": "debug"}],
        },
    }))
    .unwrap()
}

#[rstest]
#[case("start-delay", "soon")]
#[case("crash-after", "5")]
#[case("exit-code", "256")]
#[case("stop-delay", "-1s")]
#[case("readiness", "maybe")]
#[case("liveness", "ok, fail")]
#[case("log-interval", "0")]
#[case("pull-error", "often")]
#[case("run", "image")]
#[case("serve", "0")]
#[case("serve", "http")]
#[case("cpu", "much")]
#[case("start-delay.web", "soon")]
#[case("start-delay.cache", "1s")]
#[case("strat-delay", "1s")]
fn a_bad_value_is_refused_by_name_and_value(#[case] key: &str, #[case] value: &str) {
    let refusal = admit(&pod(&[(key, value)])).unwrap_err();
    assert_eq!(refusal.reason, "InvalidSimulation");
    assert!(
        refusal
            .message
            .contains(&format!("simulated.evenkeel.io/{key}={value:?}")),
        "{}",
        refusal.message
    );
}

#[test]
fn a_bad_value_for_all_is_refused_even_where_each_container_has_its_own() {
    let annotations = [
        "start-delay.web",
        "start-delay.db",
        "start-delay.init",
        "start-delay.side",
        "start-delay.debug",
    ];
    let mut annotations: Vec<_> = annotations.iter().map(|key| (*key, "1s")).collect();
    assert_eq!(admit(&pod(&annotations)), Ok(()));
    annotations.push(("start-delay", "bad"));
    assert!(admit(&pod(&annotations)).is_err());
}

#[test]
fn annotations_of_others_are_not_looked_at() {
    let mut other = pod(&[]);
    other.metadata.annotations = Some([("example.com/start-delay".to_owned(), "soon".to_owned())].into());
    assert_eq!(admit(&other), Ok(()));
}

#[test]
fn a_containers_own_value_goes_before_the_pods() {
    let pod = pod(&[("start-delay", "1s"), ("start-delay.db", "2s")]);
    assert_eq!(
        plan(&pod, "web", Role::Regular).unwrap().start_delay,
        Some(Duration::from_secs(1))
    );
    assert_eq!(
        plan(&pod, "db", Role::Regular).unwrap().start_delay,
        Some(Duration::from_secs(2))
    );
}

#[test]
fn without_annotations_main_containers_run_for_ever_and_init_containers_end_well() {
    let pod = pod(&[]);
    assert_eq!(plan(&pod, "web", Role::Regular).unwrap(), Plan::default());
    assert_eq!(plan(&pod, "side", Role::Sidecar).unwrap(), Plan::default());
    let end = plan(&pod, "init", Role::Init).unwrap().end.unwrap();
    assert_eq!((end.after, end.code), (Plan::MOMENT, 0));
}

#[rstest]
#[case(&[("crash-after", "5s")], 5, 1)]
#[case(&[("crash-after", "5s"), ("exit-code", "42")], 5, 42)]
#[case(&[("exit-after", "5s")], 5, 0)]
#[case(&[("exit-after", "5s"), ("exit-code", "3")], 5, 3)]
#[case(&[("exit-after", "5s"), ("crash-after", "9s")], 5, 0)]
#[case(&[("exit-after", "9s"), ("crash-after", "5s")], 5, 1)]
#[case(&[("crash-after", "5s"), ("exit-code", "0")], 5, 1)]
fn the_first_end_counts_and_a_crash_is_never_a_success(
    #[case] annotations: &[(&str, &str)],
    #[case] seconds: u64,
    #[case] code: i32,
) {
    let end = plan(&pod(annotations), "web", Role::Regular)
        .unwrap()
        .end
        .unwrap();
    assert_eq!((end.after, end.code), (Duration::from_secs(seconds), code));
}

#[test]
fn failures_are_counted_or_for_ever_and_may_have_words() {
    let failing = |text: &str| {
        plan(&pod(&[("pull-error", text)]), "web", Role::Regular)
            .unwrap()
            .pull_error
    };
    assert_eq!(failing("0"), None);
    assert_eq!(failing("2").unwrap().times, Some(2));
    let always = failing("always: no such image: v7").unwrap();
    assert_eq!(
        (always.times, always.message.as_str()),
        (None, "no such image: v7")
    );
}

#[test]
fn sockets_may_name_ports() {
    let serve = |text: &str| {
        plan(&pod(&[("serve", text)]), "web", Role::Regular)
            .unwrap()
            .serve
    };
    assert_eq!(serve("false"), None);
    assert_eq!(serve("true").unwrap().ports, Vec::<u16>::new());
    assert_eq!(serve("8080, 9090").unwrap().ports, vec![8080, 9090]);
}
