//! Flags and variables.

use super::*;
use clap::Parser;
use rstest::rstest;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    koupleless: KouplelessArgs,
}

fn read(line: &str, environment: &[(&str, &str)]) -> Result<KouplelessArgs, String> {
    let words = std::iter::once("evenkeel").chain(line.split_whitespace());
    let args = Cli::try_parse_from(words).unwrap().koupleless;
    let variable = |name: &str| {
        let found = environment.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    with_environment(&args, variable).map_err(|error| error.to_string())
}

#[rstest]
#[case("", &[], "dev")]
#[case("", &[("ENV", "prod")], "prod")]
#[case("", &[("ENV", "")], "dev")]
#[case("", &[("ENV", "/root/.ashrc")], "dev")]
#[case("--base-env test", &[("ENV", "prod")], "test")]
fn the_environment_is_the_flags_then_the_variables(
    #[case] line: &str,
    #[case] environment: &[(&str, &str)],
    #[case] expected: &str,
) {
    let args = read(line, environment).unwrap();
    assert_eq!(args.base_env.as_deref(), Some(expected));
}

#[test]
fn the_released_controllers_variables_are_read() {
    let environment = [
        ("MQTT_USERNAME", "me"),
        ("MQTT_CA_PATH", "/ca.pem"),
        ("REPORT_HOOKS", "https://h/"),
        ("ENABLE_MODULE_REPLICAS_SYNC_WITH_BASE", "true"),
    ];
    let args = read("--mqtt-broker b --mqtt-password-file /p", &environment).unwrap();
    assert_eq!(args.mqtt_username.as_deref(), Some("me"));
    assert_eq!(args.mqtt_ca_file, Some("/ca.pem".into()));
    assert_eq!(args.report_hooks.as_deref(), Some("https://h/"));
    assert!(args.peers);
    // Without a broker its variables are somebody else's.
    assert_eq!(read("", &environment).unwrap().mqtt_username, None);
}

#[rstest]
#[case("--mqtt-broker b --mqtt-username me", "--mqtt-password-file")]
#[case("--mqtt-broker b --mqtt-password-file /p", "--mqtt-username")]
#[case("--mqtt-broker b --mqtt-cert-file /c --mqtt-key-file /k", "--mqtt-ca-file")]
#[case("--mqtt-broker b --mqtt-ca-file /a --mqtt-key-file /k", "--mqtt-cert-file")]
fn what_goes_together_is_asked_for_together(#[case] line: &str, #[case] words: &str) {
    let error = read(line, &[]).unwrap_err();
    assert!(error.contains(words), "{error}");
}
