use super::*;
use crate::cli::KouplelessArgs;
use crate::process::settings::Settings;
use clap::Parser;
use evenkeel_settings::layers::Layered;
use evenkeel_vnode::cli::ServeArgs;
use rstest::rstest;

#[derive(Clone, Debug, Args)]
struct All {
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    koupleless: KouplelessArgs,
}

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    all: Layered<All>,
}

struct Read {
    all: All,
    settings: Settings,
    /// Names of the variables that there is something to say about.
    noted: Vec<&'static str>,
    shown: String,
}

fn read(line: &str, environment: &[(&str, &str)]) -> Result<Read, String> {
    let words = std::iter::once("evenkeel").chain(line.split_whitespace());
    let flags = Cli::try_parse_from(words).unwrap().all;
    let variable = |name: &str| {
        let found = environment.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| OsString::from(value))
    };
    let variables =
        Variables::read::<All>(variable, |id| flags.gives(id)).map_err(|error| error.to_string())?;
    let shown = format!("{variables:?}");
    let noted = variables.notes.iter().map(|note| note.name).collect();
    let (all, origins) = flags
        .over(&[&variables.layer])
        .map_err(|error| error.to_string())?;
    let settings =
        Settings::new(&all.koupleless, variables.password, &origins).map_err(|error| error.to_string())?;
    let shown = format!("{shown} {settings:?}");
    Ok(Read {
        all,
        settings,
        noted,
        shown,
    })
}

#[rstest]
#[case("", &[], "dev")]
#[case("", &[("ENV", "prod")], "prod")]
#[case("", &[("ENV", "")], "dev")]
#[case("", &[("ENV", "/root/.ashrc")], "dev")]
#[case("--base-env test", &[("ENV", "prod")], "test")]
fn flags_win_over_variables_and_variables_over_defaults(
    #[case] line: &str,
    #[case] environment: &[(&str, &str)],
    #[case] expected: &str,
) {
    assert_eq!(read(line, environment).unwrap().settings.env, expected);
}

/// The environment of the released controller's own sample, filled in.
const SAMPLE: [(&str, &str); 12] = [
    ("ENABLE_MQTT_TUNNEL", "true"),
    ("MQTT_BROKER", "broker.example"),
    ("MQTT_PORT", "11883"),
    ("MQTT_USERNAME", "me"),
    ("MQTT_PASSWORD", "geheim"),
    ("MQTT_CLIENT_PREFIX", "mc"),
    ("ENABLE_HTTP_TUNNEL", "true"),
    ("HTTP_TUNNEL_LISTEN_PORT", "7070"),
    ("REPORT_HOOKS", "https://hooks.example/robot?access_token=geheim"),
    ("ENV", "prod"),
    ("CLIENT_ID", "replica-1"),
    ("ENABLE_MODULE_REPLICAS_SYNC_WITH_BASE", "true"),
];

#[test]
fn the_released_controllers_sample_means_here_what_it_meant_there() {
    let read = read("", &SAMPLE).unwrap();
    let settings = &read.settings;
    let heartbeats = settings.heartbeats.as_ref().unwrap();
    assert_eq!(heartbeats.address, "0.0.0.0:7070".parse().unwrap());
    let broker = settings.broker.as_ref().unwrap();
    assert_eq!((broker.host.as_str(), broker.port), ("broker.example", 11883));
    assert_eq!(broker.client_prefix, "mc");
    let credentials = broker.credentials.as_ref().unwrap();
    assert_eq!(credentials.username, "me");
    assert!(matches!(&credentials.password, Some(Password::Text(text)) if text == "geheim"));
    assert!(broker.tls.is_none() && settings.peers);
    assert_eq!((settings.env.as_str(), settings.hooks.len()), ("prod", 1));
    assert_eq!(read.all.serve.identity.as_deref(), Some("replica-1"));
    assert_eq!(read.noted, [""; 0]);
    assert!(!read.shown.contains("geheim"), "{}", read.shown);
}

#[test]
fn a_broker_has_the_released_controllers_defaults() {
    let read = read("", &[("ENABLE_MQTT_TUNNEL", "true"), ("MQTT_CA_PATH", "/ca.pem")]).unwrap();
    let broker = read.settings.broker.unwrap();
    // Also with TLS: the port of its variable has one default.
    assert_eq!((broker.host.as_str(), broker.port), ("test-broker", 1883));
    assert_eq!(broker.client_prefix, "koupleless");
    let credentials = broker.credentials.unwrap();
    assert_eq!(credentials.username, "test-username");
    assert!(credentials.password.is_none());
    assert_eq!(broker.tls.unwrap().ca.to_str(), Some("/ca.pem"));
    assert_eq!(read.noted, ["MQTT_BROKER"], "that it is a default is told");
}

#[rstest]
// Nothing is said: this process' own default.
#[case("", &[], Some(7777))]
#[case("", &[("ENABLE_HTTP_TUNNEL", "true")], Some(7777))]
#[case("", &[("HTTP_TUNNEL_LISTEN_PORT", "80")], Some(80))]
// One tunnel is asked for: the other is off, as there.
#[case("", &[("ENABLE_MQTT_TUNNEL", "true")], None)]
#[case("", &[("ENABLE_MQTT_TUNNEL", "true"), ("ENABLE_HTTP_TUNNEL", "true")], Some(7777))]
#[case("--base-pod-selector a=b", &[("ENABLE_HTTP_TUNNEL", "false")], None)]
#[case("--heartbeat 127.0.0.1:1", &[("ENABLE_MQTT_TUNNEL", "true")], Some(1))]
#[case("--heartbeat 127.0.0.1:1", &[("ENABLE_HTTP_TUNNEL", "false")], Some(1))]
#[case("--heartbeat-token-file /t", &[("ENABLE_MQTT_TUNNEL", "true")], Some(7777))]
#[case("--no-heartbeat=false", &[("ENABLE_MQTT_TUNNEL", "true")], Some(7777))]
#[case("--no-heartbeat --mqtt-broker b", &[("ENABLE_HTTP_TUNNEL", "true")], None)]
fn heartbeats_are_taken_where_the_released_controller_takes_them(
    #[case] line: &str,
    #[case] environment: &[(&str, &str)],
    #[case] port: Option<u16>,
) {
    let settings = read(line, environment).unwrap().settings;
    assert_eq!(
        settings.heartbeats.map(|heartbeats| heartbeats.address.port()),
        port
    );
}

#[test]
fn a_broker_that_a_flag_names_may_have_its_credentials_in_variables() {
    let environment = [
        ("MQTT_BROKER", "other"),
        ("MQTT_USERNAME", "me"),
        ("MQTT_PASSWORD", "p"),
        ("MQTT_CA_PATH", "/ca.pem"),
    ];
    let read = read("--mqtt-broker b", &environment).unwrap();
    let broker = read.settings.broker.unwrap();
    assert_eq!((broker.host.as_str(), broker.port), ("b", 8883));
    assert_eq!(broker.credentials.unwrap().username, "me");
    assert_eq!(read.noted, ["MQTT_BROKER"]);
}

#[test]
fn a_file_with_the_password_wins_over_the_variable() {
    let environment = [
        ("ENABLE_MQTT_TUNNEL", "true"),
        ("MQTT_BROKER", "b"),
        ("MQTT_PASSWORD", "p"),
    ];
    let read = read("--mqtt-password-file /p", &environment).unwrap();
    let credentials = read.settings.broker.unwrap().credentials.unwrap();
    assert!(matches!(credentials.password, Some(Password::File(_))));
    assert_eq!(read.noted, ["MQTT_PASSWORD"]);
}

#[test]
fn what_has_no_meaning_here_is_told_once_each_with_a_reason() {
    let without: Vec<&str> = VARIABLES
        .iter()
        .filter(|variable| variable.here.is_err())
        .map(|variable| variable.name)
        .collect();
    let mut environment: Vec<_> = without.iter().map(|name| (*name, "nonsense")).collect();
    environment.extend([
        ("MQTT_BROKER", "b"),
        ("MQTT_PASSWORD", "geheim"),
        ("MQTT_USERNAME", "u"),
    ]);
    environment.extend([("HTTP_TUNNEL_LISTEN_PORT", "1"), ("ENABLE_HTTP_TUNNEL", "false")]);
    environment.push(("ENV", "/etc/profile"));
    let read = read("--base-pod-selector a=b", &environment).unwrap();
    let mut noted = read.noted.clone();
    noted.sort_unstable();
    let mut expected = without;
    expected.extend([
        "ENV",
        "HTTP_TUNNEL_LISTEN_PORT",
        "MQTT_BROKER",
        "MQTT_PASSWORD",
        "MQTT_USERNAME",
    ]);
    expected.sort_unstable();
    assert_eq!(noted, expected);
    assert!(!read.shown.contains("geheim"));
}

#[rstest]
#[case("ENABLE_MQTT_TUNNEL", "yes", "possible are true and false")]
#[case("ENABLE_HTTP_TUNNEL", "True", "possible are true and false")]
#[case("ENABLE_MODULE_REPLICAS_SYNC_WITH_BASE", "1", "possible are true and false")]
#[case("HTTP_TUNNEL_LISTEN_PORT", "0", "possible are the ports 1 to 65535")]
#[case("MQTT_PORT", "mqtt", "possible are the ports 1 to 65535")]
#[case("MQTT_BROKER", "tcp://b:1", "a name or an address alone")]
#[case("ENV", "a b", "letters, digits")]
fn a_malformed_variable_is_named_with_its_value_and_what_is_possible(
    #[case] name: &str,
    #[case] value: &str,
    #[case] words: &str,
) {
    let mut environment = vec![(name, value)];
    if name == "MQTT_BROKER" {
        environment.push(("ENABLE_MQTT_TUNNEL", "true"));
    }
    let error = read("", &environment).map(|_| ()).unwrap_err();
    assert!(
        error.starts_with(&format!("${name}: {value:?}: ")) && error.contains(words),
        "{error}"
    );
}

#[test]
fn hooks_that_are_wrong_are_not_shown() {
    let error = read("", &[("REPORT_HOOKS", "geheim")]).map(|_| ()).unwrap_err();
    assert!(
        error.starts_with("$REPORT_HOOKS: ") && !error.contains("geheim"),
        "{error}"
    );
}

#[test]
fn an_address_of_version_6_keeps_its_port() {
    let environment = [
        ("ENABLE_MQTT_TUNNEL", "true"),
        ("MQTT_BROKER", "fd00::1"),
        ("MQTT_PORT", "2"),
    ];
    let broker = read("", &environment).unwrap().settings.broker.unwrap();
    assert_eq!((broker.host.as_str(), broker.port), ("fd00::1", 2));
}

#[test]
fn each_variable_that_has_a_setting_names_one_that_there_is() {
    let ids = evenkeel_settings::layers::settings::<All>();
    for variable in VARIABLES {
        if let Ok(flag) = variable.here {
            let id = flag.trim_start_matches("--").replace('-', "_");
            assert!(ids.contains(&id), "{}: {flag}", variable.name);
        }
    }
}
