use super::*;
use clap::Parser;
use evenkeel_settings::layers::Layered;
use rstest::rstest;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    koupleless: Layered<KouplelessArgs>,
}

fn read(line: &str) -> Result<Settings, String> {
    let words = std::iter::once("evenkeel").chain(line.split_whitespace());
    let (args, origins) = Cli::try_parse_from(words).unwrap().koupleless.over(&[]).unwrap();
    Settings::new(&args, None, &origins).map_err(|error| error.to_string())
}

#[rstest]
#[case(
    "--no-heartbeat",
    "--no-heartbeat: no base would ever be found; add --mqtt-broker or --base-pod-selector"
)]
#[case("--base-silent 0s", "--base-silent: it must be more than 0")]
#[case("--base-silent 60s", "--base-silent: it must be less than --base-gone")]
#[case(
    "--mqtt-broker b --mqtt-password-file /p",
    "--mqtt-password-file: it goes together with --mqtt-username"
)]
#[case(
    "--mqtt-broker b --mqtt-cert-file /c --mqtt-key-file /k",
    "--mqtt-cert-file: it needs --mqtt-ca-file"
)]
#[case(
    "--mqtt-broker b --mqtt-ca-file /a --mqtt-key-file /k",
    "--mqtt-key-file: it goes together with --mqtt-cert-file"
)]
#[case("--mqtt-broker b:x", "--mqtt-broker: \"x\" is no port; write HOST:PORT")]
#[case("--mqtt-broker b:0", "--mqtt-broker: \"0\" is no port; write HOST:PORT")]
#[case("--mqtt-broker tcp://b", "write HOST")]
#[case(
    "--heartbeat-tls-cert-file /c",
    "--heartbeat-tls-cert-file: it goes together with --heartbeat-tls-key-file"
)]
#[case(
    "--heartbeat-tls-key-file /k",
    "--heartbeat-tls-key-file: it goes together with --heartbeat-tls-cert-file"
)]
#[case(
    "--heartbeat-client-ca-file /a",
    "--heartbeat-client-ca-file: it needs --heartbeat-tls-cert-file"
)]
#[case("--heal-high-threshold 90", "--heal-high-threshold: it needs --heal")]
#[case(
    "--heal --heal-low-threshold 85",
    "--heal-low-threshold: 85 must be less than 85, --heal-high-threshold"
)]
#[case(
    "--heal --heal-high-threshold 70",
    "70 must be less than 70, --heal-high-threshold"
)]
#[case(
    "--heal --heal-drain-timeout 0",
    "--heal-drain-timeout: it must be more than 0"
)]
#[case("--mqtt-username me", "--mqtt-username: it needs --mqtt-broker")]
#[case("--mqtt-ca-file /a", "--mqtt-ca-file: it needs --mqtt-broker")]
#[case("--mqtt-password-file /p", "--mqtt-password-file: it needs --mqtt-broker")]
#[case("--mqtt-client-prefix p", "--mqtt-client-prefix: it needs --mqtt-broker")]
#[case("--log-mark [{module}]", "--log-mark: it needs --base-pod-selector")]
#[case("--base-kubeconfig /k", "--base-kubeconfig: it needs --base-pod-selector")]
#[case(
    "--report-hooks ftp://h/",
    "--report-hooks: alert hook 1: its scheme is neither http nor https"
)]
#[case(
    "--report-hooks-file /nowhere",
    "--report-hooks-file: cannot read /nowhere: No such file"
)]
fn what_makes_no_sense_is_said_with_the_setting_and_what_to_do(#[case] line: &str, #[case] words: &str) {
    let error = read(line).map(|_| ()).unwrap_err();
    assert!(error.contains(words), "{error}");
}

#[rstest]
#[case("b", "b", 1883)]
#[case("b:1", "b", 1)]
#[case("[fd00::1]:1", "fd00::1", 1)]
#[case("[fd00::1]", "fd00::1", 1883)]
#[case("fd00::1", "fd00::1", 1883)]
#[case("b --mqtt-ca-file /a", "b", 8883)]
#[case("b:1 --mqtt-ca-file /a", "b", 1)]
fn a_broker_is_a_host_and_perhaps_a_port(#[case] line: &str, #[case] host: &str, #[case] port: u16) {
    let broker = read(&format!("--mqtt-broker {line}")).unwrap().broker.unwrap();
    assert_eq!((broker.host.as_str(), broker.port), (host, port));
}

#[test]
fn hooks_may_stand_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hooks");
    std::fs::write(
        &path,
        "https://a.example/x\r\n\nhttps://b.example/y;https://c.example/z\n",
    )
    .unwrap();
    let settings = read(&format!("--report-hooks-file {}", path.display())).unwrap();
    let hosts: Vec<String> = settings.hooks.iter().map(ToString::to_string).collect();
    assert_eq!(hosts, ["a.example", "b.example", "c.example"]);
}

#[test]
fn heartbeats_are_taken_as_the_flags_say() {
    let line = "--heartbeat 127.0.0.1:1 --heartbeat-token-file /t --heartbeat-tls-cert-file /c \
                --heartbeat-tls-key-file /k --heartbeat-client-ca-file /a";
    let heartbeats = read(line).unwrap().heartbeats.unwrap();
    let expected = Heartbeats {
        address: "127.0.0.1:1".parse().unwrap(),
        tokens: Some("/t".into()),
        tls: Some(HeartbeatTls {
            files: Files {
                certificate: "/c".into(),
                key: "/k".into(),
            },
            clients: Some("/a".into()),
        }),
    };
    assert_eq!(heartbeats, expected);
    assert_eq!(read("").unwrap().heartbeats.unwrap().tls, None);
}

#[test]
fn a_user_of_the_broker_needs_no_password() {
    let broker = read("--mqtt-broker b --mqtt-username me")
        .unwrap()
        .broker
        .unwrap();
    let credentials = broker.credentials.unwrap();
    assert_eq!(credentials.username, "me");
    assert!(credentials.password.is_none());
}
