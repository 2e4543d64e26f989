use super::*;
use rstest::rstest;

#[test]
fn the_tour_is_a_scenario_and_reads_as_a_script() {
    let tour = Scenario::load("tour").unwrap();
    assert_eq!(
        tour.node_names(),
        ["shore-1", "shore-2", "shore-3", "shore-4", "shore-5"]
    );
    let script: Vec<String> = tour
        .steps()
        .filter(|step| !matches!(step, Step::Note(_)))
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        script,
        [
            "wait until clean, at most 60s",
            "cut shore-2's cloud link (both ways)",
            "hold for 60s: 0 pods moved, 0 endpoints lost",
            "heal everything",
            "wait until clean, at most 30s",
            "power off a node that runs deployment/web and statefulset/db",
            "expect endpoints out within 10s, Deployment pods ready elsewhere within 30s, StatefulSet pods not moved",
            "heal everything",
            "wait until clean, at most 45s",
        ]
    );
    assert!(tour.apply.iter().all(|manifest| manifest.text().is_some()));
}

/// Each row: a scenario, the line that is wrong, words that the message must hold.
#[rstest]
#[case::unknown_top("name: x\nsteps: []\nnoodles: 5\n", 3, &["noodles"])]
#[case::no_steps("name: x\n", 1, &["steps"])]
#[case::unknown_step("name: x\nsteps:\n  - explode: {}\n", 3, &["explode"])]
#[case::unknown_field("name: x\nsteps:\n  - cut:\n      node: shore-1\n      knot: 3\n", 5, &["knot"])]
#[case::wrong_type("name: x\nnodes: many\nsteps: []\n", 2, &["nodes: many"])]
#[case::bad_duration("name: x\nsteps:\n  - wait:\n      until: ready\n      within: soon\n", 5, &["soon", "1m30s"])]
#[case::zero_duration("name: x\nsteps:\n  - hold: {for: 0s}\n", 3, &["0s"])]
#[case::bad_condition("name: x\nsteps:\n  - wait:\n      until: happy\n      within: 1s\n", 4, &["happy"])]
#[case::unknown_node("name: x\nsteps:\n  - cut:\n      node: shore-9\n", 4, &["cut.node", "shore-9", "shore-5"])]
#[case::unknown_peer("name: x\nsteps:\n  - cut: {node: shore-1, link: moon}\n", 3, &["cut.link", "moon"])]
#[case::unknown_heal("name: x\nsteps:\n  - heal: {node: shore-7}\n", 3, &["heal.node", "shore-7"])]
#[case::unknown_agent("name: x\nsteps:\n  - crash: {agent: x-1}\n", 3, &["crash.agent", "x-1"])]
#[case::unknown_except("name: x\nsteps:\n  - kill: {running: [a/b], except: [z]}\n", 3, &["kill.except", "z"])]
#[case::kill_nobody("name: x\nsteps:\n  - kill: {}\n", 3, &["kill: give", "running"])]
#[case::kill_twice("name: x\nsteps:\n  - kill: {node: shore-1, running: [a/b]}\n", 3, &["either"])]
#[case::too_many("name: x\nnodes: 51\nsteps: []\n", 2, &["nodes: 51", "50"])]
#[case::no_nodes("name: x\nnodes: 0\nsteps: []\n", 2, &["nodes: 0"])]
#[case::bad_prefix("name: x\nnodePrefix: Shore\nsteps: []\n", 2, &["nodePrefix", "Shore"])]
#[case::too_lossy("name: x\nsteps:\n  - cut: {node: shore-1, dropPercent: 101}\n", 3, &["cut.dropPercent"])]
#[case::nothing_to_judge("name: x\nsteps:\n  - expect: {replaced: 3s}\n", 3, &["assertion", "before it"])]
#[case::sum_of_zones("name: x\nnodes: 4\nzones: {a: 3, b: 2}\nsteps: []\n", 2, &["nodes: 4", "sum", "5"])]
#[case::prefix_of_zones("name: x\nzones: {a: 3}\nnodePrefix: z\nsteps: []\n", 3, &["nodePrefix", "zones"])]
#[case::many_in_zones("name: x\nzones: {a: 30, b: 30}\nsteps: []\n", 2, &["zones: 60 nodes", "50"])]
#[case::empty_zone("name: x\nzones: {a: 0}\nsteps: []\n", 2, &["zones: a"])]
#[case::no_zone("name: x\nzones: {}\nsteps: []\n", 2, &["zones: 0 nodes"])]
#[case::bad_zone("name: x\nzones: {A: 2}\nsteps: []\n", 2, &["zones: `A`"])]
#[case::zone_size("name: x\nzones: {a: many}\nsteps: []\n", 2, &[])]
#[case::node_of_zone("name: x\nzones: {a: 1}\nsteps:\n  - stall: {node: shore-1, for: 1s}\n", 4, &["stall.node", "a-1"])]
#[case::no_controller("name: x\ncontrollers: 0\nsteps: []\n", 2, &["controllers: 0", "3"])]
#[case::which_controller("name: x\ncontrollers: 2\nsteps:\n  - crash: {controller: 3}\n", 4, &["crash.controller", "it has 2"])]
#[case::what_controller("name: x\nsteps:\n  - crash: {controller: boss}\n", 3, &["boss", "leader"])]
#[case::bad_profile("name: x\nprofile: sea\nsteps: []\n", 2, &["sea"])]
#[case::outage_without_end("name: x\nsteps:\n  - crash: apiserver\n", 3, &["apiserver", "for: 6s"])]
#[case::outage_option("name: x\nsteps:\n  - crash: {apiserver: {for: 6s, stocks: true}}\n", 3, &["stocks"])]
#[case::what_crashes("name: x\nsteps:\n  - crash: {kettle: 1}\n", 3, &["kettle", "apiserver"])]
#[case::two_crashes("name: x\nsteps:\n  - crash: {agent: shore-1, controller: 1}\n", 3, &["controller", "a step for each"])]
#[case::stall_without_end("name: x\nsteps:\n  - stall: {node: shore-1}\n", 3, &["for"])]
#[case::stall_of_nobody("name: x\nsteps:\n  - stall: {node: shore-9, for: 3s}\n", 3, &["stall.node", "shore-9"])]
#[case::kubelet_of_nobody("name: x\nsteps:\n  - restart-kubelet: {node: x, for: 3s}\n", 3, &["restart-kubelet.node", "x"])]
#[case::no_such_state("name: x\nsteps:\n  - crash: controller\n  - expect: {reported: {state: Sad, within: 1s}}\n", 4, &["reported.state", "Sad", "Isolated"])]
#[case::on_nobody("name: x\nsteps:\n  - crash: controller\n  - hold: {for: 1s, on: [x], podsMoved: 0}\n", 4, &["hold.on", "x"])]
#[case::on_nothing("name: x\nsteps:\n  - crash: controller\n  - hold: {for: 1s, on: [shore-1]}\n", 4, &["hold.on", "podsMoved"])]
#[case::expect_nothing("name: x\nsteps:\n  - crash: controller\n  - expect: {}\n", 4, &["expect", "at least one"])]
#[case::not_yaml("name: [\n", 1, &[])]
fn what_is_wrong_is_named(#[case] text: &str, #[case] line: u64, #[case] words: &[&str]) {
    let error = Scenario::parse(text, "my.yaml").unwrap_err();
    let message = error.to_string();
    let ScenarioError::Malformed { line: found, .. } = &error else {
        panic!("{message}")
    };
    assert_eq!(*found, line, "{message}");
    assert!(message.starts_with(&format!("my.yaml:{line}: ")), "{message}");
    assert!(!message.contains('\n'), "{message}");
    for word in words {
        assert!(message.contains(word), "no `{word}` in: {message}");
    }
}

#[rstest]
#[case("10s", Some(10_000))]
#[case("500ms", Some(500))]
#[case("1m30s", Some(90_000))]
#[case("24h", Some(86_400_000))]
#[case("25h", None)]
#[case("", None)]
#[case("10", None)]
#[case("s", None)]
#[case("-1s", None)]
#[case("1.5s", None)]
#[case("99999999999999999999s", None)]
#[case("18446744073709551615h", None)]
fn durations(#[case] text: &str, #[case] millis: Option<u64>) {
    assert_eq!(seconds::parse(text).ok(), millis.map(Duration::from_millis));
}

#[test]
fn steps_read_as_sentences() {
    let text = "
name: all steps
steps:
  - note: ' first '
  - cut: {node: shore-1, link: shore-2, way: from}
  - cut: {node: shore-1, link: peers, delay: 200ms, dropPercent: 30}
  - kill: {node: shore-3}
  - crash: controller
  - crash: {controller: 1}
  - crash: {controller: leader}
  - crash: {agent: shore-4}
  - crash: {apiserver: {for: 6s}}
  - crash: {apiserver: {for: 30s, stock: true}}
  - stall: {node: shore-2, for: 3s}
  - restart-kubelet: {node: shore-2, for: 20s}
  - heal: {node: shore-1}
  - hold: {for: 5s}
  - hold: {for: 5s, podsMoved: 2}
  - hold: {for: 5s, on: [shore-1, shore-2], endpointsLost: 0, stateChanges: 2}
  - expect: {endpointsBack: 30s, reported: {state: Isolated, within: 40s}, podsMoved: 0, on: [shore-1]}
";
    let scenario = Scenario::parse(text, "x").unwrap();
    let script: Vec<String> = scenario.steps().map(ToString::to_string).collect();
    assert_eq!(
        script,
        [
            "first",
            "cut shore-1's link to shore-2 (outgoing)",
            "delay by 200ms and lose 30 % on shore-1's links to its peers (both ways)",
            "power off shore-3",
            "crash the controller",
            "crash controller 1",
            "crash the leading controller",
            "crash the agent of shore-4",
            "crash the API server for 6s",
            "crash the API server and the stock controllers for 30s",
            "freeze shore-2 for 3s",
            "stop the kubelet of shore-2 for 20s",
            "heal shore-1",
            "hold for 5s",
            "hold for 5s: at most 2 pods moved",
            "hold for 5s: 0 endpoints lost, at most 2 state changes per node on shore-1, shore-2",
            "expect endpoints back within 30s, reported as Isolated within 40s, 0 pods moved on shore-1",
        ]
    );
}

#[test]
fn every_built_in_scenario_is_found_by_its_name() {
    for (name, _) in BUILT_IN {
        assert_eq!(Scenario::load(name).unwrap().name, name);
    }
    let error = Scenario::load("no-such-file").unwrap_err().to_string();
    for (name, _) in BUILT_IN {
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn manifests_are_found_beside_the_scenario() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("app.yaml"), "the app").unwrap();
    let path = place.path().join("s.yaml");
    std::fs::write(&path, "name: x\napply:\n  - file: app.yaml\nsteps: []\n").unwrap();
    let scenario = Scenario::load(path.to_str().unwrap()).unwrap();
    assert_eq!(scenario.apply[0].text(), Some("the app"));
    std::fs::write(&path, "name: x\napply:\n  - file: gone.yaml\nsteps: []\n").unwrap();
    let error = Scenario::load(path.to_str().unwrap()).unwrap_err().to_string();
    assert!(
        error.contains("s.yaml:3: ") && error.contains("gone.yaml"),
        "{error}"
    );
}

#[test]
fn zones_have_nodes_of_their_own_in_the_order_of_the_file() {
    let text = "name: x\nzones: {south: 2, north: 1}\ncontrollers: 3\nprofile: builtin\nsteps: []\n";
    let scenario = Scenario::parse(text, "x").unwrap();
    assert_eq!(scenario.node_names(), ["south-1", "south-2", "north-1"]);
    assert_eq!(scenario.layout().places()[2].zone.as_deref(), Some("north"));
    assert_eq!((scenario.controllers(), scenario.profile), (3, Profile::Builtin));
    let same = "name: x\nnodes: 3\nzones: {south: 2, north: 1}\nsteps: []\n";
    assert!(Scenario::parse(same, "x").is_ok(), "the sum is no contradiction");
    let plain = Scenario::parse("name: x\nsteps: []\n", "x").unwrap();
    assert_eq!((plain.controllers(), plain.profile), (1, Profile::Edge));
}
