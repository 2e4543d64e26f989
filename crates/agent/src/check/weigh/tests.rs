use super::super::Registry;
use super::*;
use evenkeel_api::zone::KubeletEndpoint;
use evenkeel_zone::fixture::Fixture;
use rstest::rstest;

fn checks(check: &str, line: f64) -> Checks {
    try_checks(check, &[], line).unwrap()
}

fn try_checks(
    check: &str,
    flags: &[(&'static str, &'static str, &str)],
    line: f64,
) -> Result<Checks, String> {
    let checks = Registry::default().checks(&[check.to_owned()], flags.iter().copied(), &[], line);
    checks.map_err(|error| error.to_string())
}

#[test]
fn identity_outweighs_presence_and_presence_outweighs_silence() {
    let (silence, bare) = (
        Outcome::Failed(Failure::Timeout),
        Outcome::Alive { identity: false },
    );
    let known = Outcome::Alive { identity: true };
    let stranger = Outcome::WrongIdentity {
        expected: "a".into(),
        presented: "b".into(),
    };
    let ours = Outcome::Failed(Failure::Local("no socket".into()));
    let table: [([&Outcome; 2], CheckResult); 8] = [
        ([&ours, &ours], CheckResult::Unavailable),
        ([&silence, &silence], CheckResult::Failed),
        ([&ours, &silence], CheckResult::Failed),
        ([&bare, &silence], CheckResult::Inconclusive),
        ([&silence, &stranger], CheckResult::Inconclusive),
        (
            [&silence, &Outcome::Failed(Failure::Refused)],
            CheckResult::Inconclusive,
        ),
        ([&bare, &known], CheckResult::Identity),
        (
            [&silence, &Outcome::Failed(Failure::NoStatus(String::new()))],
            CheckResult::Identity,
        ),
    ];
    let checks = checks("ping,kubelet", 100.0);
    for (outcomes, expected) in table {
        assert_eq!(
            checks.weigh(&outcomes.map(Clone::clone)),
            expected,
            "{outcomes:?}"
        );
    }
}

#[test]
fn answers_are_worth_their_weight_and_what_cannot_be_checked_counts_for_nothing() {
    let (silence, bare) = (
        Outcome::Failed(Failure::Timeout),
        Outcome::Alive { identity: false },
    );
    let ours = Outcome::Failed(Failure::Local("no socket".into()));
    let weights = "ping:weight=0.3,kubelet:weight=0.6,http:port=80,weight=0.1";
    let table: [(f64, [&Outcome; 3], CheckResult); 8] = [
        (100.0, [&bare, &bare, &bare], CheckResult::Inconclusive),
        (100.0, [&bare, &silence, &bare], CheckResult::Failed),
        (40.0, [&bare, &silence, &bare], CheckResult::Inconclusive),
        (40.0, [&bare, &silence, &silence], CheckResult::Failed),
        (30.0, [&bare, &silence, &silence], CheckResult::Inconclusive),
        // Only 30 of 100 points could be reached.
        (40.0, [&silence, &ours, &ours], CheckResult::Unavailable),
        (30.0, [&silence, &ours, &ours], CheckResult::Failed),
        (40.0, [&silence, &silence, &ours], CheckResult::Failed),
    ];
    for (line, outcomes, expected) in table {
        let outcomes = outcomes.map(Clone::clone);
        assert_eq!(
            checks(weights, line).weigh(&outcomes),
            expected,
            "{line}: {outcomes:?}"
        );
    }
}

#[rstest]
#[case(
    "pong",
    "--check pong: there is no check plugin \"pong\"; there are exec, http, icmp, kubelet, ping"
)]
#[case("ping:weight=0", "--check ping: weight=0: give more than 0, at most 1")]
#[case("ping:weight=1.5", "weight=1.5: give more than 0")]
#[case("ping:weight=x", "weight=x: give more than 0")]
#[case("ping:weight=NaN", "weight=NaN: give more than 0")]
#[case(
    "ping:timeout=5",
    "--check ping: timeout=5: give 0.01 to 1, in seconds: a vote waits less"
)]
#[case("ping:timeout=0", "timeout=0: give 0.01 to 1")]
#[case("ping:timeout=0.5,retries=3", "3 attempts of 0.5 s are longer than 1 s")]
#[case("ping:retries=0", "retries=0: give 1 to 3")]
#[case("ping:retrytime=4", "retries=4: give 1 to 3")]
#[case("ping:retries=1,retrytime=1", "retries is given twice")]
#[case("ping:port=0", "--check ping: port=0: give 1 to 65535")]
#[case("ping:port=65536", "port=65536: give 1 to 65535")]
#[case("ping:time=5", "the check plugin ping has no parameter \"time\"")]
#[case("icmp:port=5", "the check plugin icmp has no parameter \"port\"")]
#[case("ping:timeout", "\"timeout\" has no value: write it as in timeout=1")]
#[case("timeout=1,ping", "--check: \"timeout=1\" names no plugin")]
#[case("ping,kubelet,ping", "--check: the plugin ping is given twice")]
#[case("http", "--check http: it needs a port")]
#[case("http:port=80,path=x", "path=x: give a path")]
#[case("exec", "--check exec: it has no command: put checkCommand into a file")]
#[case("", "--check-score-line: 100: all checks together reach 0 points")]
#[case(
    "ping:weight=0.5,kubelet:weight=0.4",
    "100: all checks together reach 90 points: lower it"
)]
fn what_is_wrong_is_named(#[case] check: &str, #[case] words: &str) {
    let error = try_checks(check, &[], 100.0).unwrap_err();
    assert!(error.contains(words), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[rstest]
#[case(0.0)]
#[case(-1.0)]
#[case(100.1)]
#[case(f64::NAN)]
#[case(f64::INFINITY)]
fn a_score_line_is_within_0_and_100(#[case] line: f64) {
    let error = try_checks("ping", &[], line).unwrap_err();
    assert!(error.contains("give more than 0, at most 100"), "{error}");
}

#[rstest]
// Tenths have no exact double: their sum must be.
#[case("ping:weight=0.1,kubelet:weight=0.2,http:port=1,weight=0.7", 3)]
#[case("ping, kubelet: timeout=1 , retrytime=1, weight=1.0, port=10250", 2)]
#[case("ping:timeout=300ms,retries=3", 1)]
fn parameters_are_taken_as_they_are_written_elsewhere(#[case] check: &str, #[case] plugins: usize) {
    assert_eq!(checks(check, 100.0).plugins.len(), plugins);
}

#[test]
fn the_flags_of_the_released_daemon_take_the_place_of_a_plugins_parameters() {
    let flags = [
        ("--ping-plugin", "ping", " "),
        ("--kubelet-plugin", "http", "port=10248,weight=0.5"),
        (
            "--kubelet-auth-plugin",
            "kubelet",
            "timeout=1, retrytime=1, weight=1,port=10250",
        ),
    ];
    let checks = try_checks("ping:weight=0.5,kubelet", &flags, 100.0).unwrap();
    let mut plugins: Vec<String> = checks
        .plugins
        .iter()
        .map(|plugin| format!("{plugin:?}"))
        .collect();
    plugins.sort();
    let expected = [
        "http: 500000 millionths, 1 of None",
        "kubelet: 1000000 millionths, 1 of Some(1s)",
        "ping: 1000000 millionths, 3 of None",
    ];
    assert_eq!(plugins, expected);
    let manifest = [(
        "--kubelet-auth-plugin",
        "kubelet",
        "timeout=5,retrytime=3,weight=1,port=10250",
    )];
    let error = try_checks("ping", &manifest, 100.0).unwrap_err();
    assert!(
        error.starts_with("--kubelet-auth-plugin: timeout=5: give 0.01 to 1"),
        "{error}"
    );
}

/// A machine's kubelet is checked where its agent is reached, unless it is somewhere else in any case.
#[rstest]
#[case::at_home("127.77.0.2:10250", None, Some("127.77.0.2:10250"))]
#[case::moved("127.77.0.2:10250", Some("10.0.0.9:7000"), Some("10.0.0.9:10250"))]
#[case::elsewhere_in_any_case("10.0.0.1:10250", Some("10.0.0.9:7000"), Some("10.0.0.1:10250"))]
#[case::no_address("somewhere", None, None)]
fn a_kubelet_is_checked_where_its_machine_is(
    #[case] kubelet: &str,
    #[case] moved: Option<&str>,
    #[case] checked: Option<&str>,
) {
    let mut member = Fixture::stand_in(3).roster().get(Fixture::id(2)).unwrap().clone();
    member.address = "127.77.0.2:7959".parse().unwrap();
    member.kubelet = Some(KubeletEndpoint {
        address: kubelet.into(),
        certificate_sha256: String::new(),
    });
    let suspect = Suspect::new(&member, moved.map(|at| at.parse().unwrap()), None);
    assert_eq!(
        suspect.map(|suspect| suspect.kubelet),
        checked.map(|at| at.parse().unwrap())
    );
}
