use super::*;
use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    vnode: VnodeArgs,
}

fn parse(line: &str) -> VnodeArgs {
    let words = ["evenkeel", "--provider", "koupleless"].into_iter();
    Cli::try_parse_from(words.chain(line.split_whitespace()))
        .unwrap()
        .vnode
}

fn file(provider: ProviderArg, body: &str) -> Result<Layer, String> {
    let text = format!(
        "apiVersion: {}\nkind: {}\n{body}\n",
        file::API_VERSION,
        super::KIND
    );
    file::parse::<SettingsArgs>("f.yaml", &text, KIND, |id| provider.refuses(id))
        .map_err(|error| error.to_string())
}

#[test]
fn flags_win_over_the_file_and_the_file_over_variables() {
    let file = file(
        ProviderArg::Koupleless,
        "baseEnv: from-file\nheartbeat: 127.0.0.1:2\npeers: false\nheal: true\n\
         basePodSelector: app=base\nlogMark: '[biz={module}]'",
    );
    let variable = |name: &str| match name {
        "ENV" => Some("from-variable".into()),
        "HTTP_TUNNEL_LISTEN_PORT" => Some("3".into()),
        "CLIENT_ID" => Some("me".into()),
        "ENABLE_MODULE_REPLICAS_SYNC_WITH_BASE" => Some("true".into()),
        _ => None,
    };
    let args = parse("--heartbeat 127.0.0.1:1 --admin 127.0.0.1:4");
    let (args, settings) = koupleless(&args.settings, &file.unwrap(), variable).unwrap();
    assert_eq!(settings.env, "from-file");
    assert_eq!(settings.heartbeats.unwrap().address.port(), 1);
    assert_eq!(settings.log_mark.as_deref(), Some("[biz={module}]"));
    assert!(!settings.peers && args.koupleless.heal);
    assert_eq!(args.serve.identity.as_deref(), Some("me"));
    assert_eq!(args.serve.admin.port(), 4);
}

#[test]
fn what_makes_no_sense_together_names_the_field_and_its_line() {
    let file = file(ProviderArg::Koupleless, "baseSilent: 2m").unwrap();
    let error = koupleless(&parse("").settings, &file, |_| None)
        .map(|_| ())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "f.yaml:3:1: baseSilent: it must be less than --base-gone"
    );
}

#[test]
fn some_settings_have_no_place_in_a_file() {
    let (koupleless, simulated) = (ProviderArg::Koupleless, ProviderArg::Simulated);
    for (provider, body, words) in [
        (koupleless, "nodes: 3", "nodes: it is the simulated provider's"),
        (
            simulated,
            "baseEnv: dev",
            "baseEnv: it is the koupleless provider's",
        ),
        (koupleless, "reportHooks: https://h/", "reportHooksFile"),
        (
            koupleless,
            "mqttPassword: p",
            "there is no field \"mqttPassword\"",
        ),
        (
            koupleless,
            "provider: simulated",
            "there is no field \"provider\"",
        ),
    ] {
        let error = file(provider, body).unwrap_err();
        assert!(
            error.starts_with("f.yaml:3:1: ") && error.contains(words),
            "{error}"
        );
    }
}

/// The settings of a process with this provider that may stand in a file: field, flag, value, default,
/// meaning.
fn rows() -> Vec<String> {
    let command = <SettingsArgs as clap::Args>::augment_args(clap::Command::new("settings"));
    let mut rows = Vec::new();
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        if ProviderArg::Koupleless.refuses(id).is_some() {
            continue;
        }
        let is_switch = matches!(arg.get_action(), clap::ArgAction::SetTrue);
        let names = arg.get_value_names().unwrap_or_default();
        let value = if is_switch {
            "BOOL"
        } else {
            names.first().map_or("TEXT", |name| name.as_str())
        };
        let defaults: Vec<_> = arg
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy())
            .collect();
        let default = match (is_switch, defaults.join(",")) {
            (true, _) => "`false`".to_owned(),
            (false, default) if default.is_empty() => String::new(),
            (false, default) => format!("`{default}`"),
        };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.trim_start_matches("koupleless: ").replace('|', "\\|");
        let mut letters = help.chars();
        let help: String = letters
            .next()
            .into_iter()
            .flat_map(char::to_uppercase)
            .chain(letters)
            .collect();
        let list = if matches!(arg.get_action(), clap::ArgAction::Append) {
            " (list)"
        } else {
            ""
        };
        rows.push(format!(
            "| `{}` | {value}{list} | {default} | {help} |",
            file::field_of(id)
        ));
    }
    rows
}

const REFERENCE: &str = include_str!("../../../../docs/koupleless/configuration.md");

#[test]
fn the_reference_has_a_row_for_each_setting_and_no_others() {
    let table = REFERENCE
        .split("<!-- fields -->")
        .nth(1)
        .expect("the markers are there");
    let written: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    let rows = rows();
    assert!(
        written == rows,
        "docs/koupleless/configuration.md is out of date; between the markers should stand:\n{}",
        rows.join("\n")
    );
}

#[test]
fn the_documentation_names_each_variable_of_the_released_controller() {
    let text = include_str!("../../../../docs/koupleless.md");
    let (_, table) = text
        .split_once("## The released controller's settings")
        .expect("the section is there");
    for variable in evenkeel_koupleless::cli::variables::VARIABLES {
        let row = table
            .lines()
            .find(|line| line.contains(&format!("`{}`", variable.name)));
        let row = row.unwrap_or_else(|| panic!("{} has no row", variable.name));
        if let Ok(flag) = variable.here {
            assert!(row.contains(&format!("`{flag}`")), "{}: {row}", variable.name);
        }
    }
}

#[test]
fn the_sample_file_is_one() {
    let sample = include_str!("../../../../samples/koupleless/vnode.yaml");
    let refuses = |id: &str| ProviderArg::Koupleless.refuses(id);
    let layer = file::parse::<SettingsArgs>("vnode.yaml", sample, KIND, refuses).unwrap();
    let (_, settings) = koupleless(&parse("").settings, &layer, |_| None).unwrap();
    assert!(
        settings
            .heartbeats
            .is_some_and(|heartbeats| heartbeats.tls.is_some())
    );
}
