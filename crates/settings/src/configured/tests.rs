use super::*;
use clap::Parser;
use rstest::rstest;
use std::fs;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
struct Pump {
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    flow_rate: u16,
    #[arg(long, env = "PUMP_NAME")]
    name: Option<String>,
    #[arg(long, value_delimiter = ',')]
    valves: Vec<String>,
    #[arg(long)]
    command: Vec<String>,
}

impl Settings for Pump {
    const KIND: &str = "PumpConfiguration";

    fn refuses(id: &str, source: Source<'_>) -> Option<String> {
        let is_refused = id == "command" && !matches!(source, Source::File(_));
        is_refused.then(|| "it stands in the file alone".to_owned())
    }
}

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    pump: Configured<Pump>,
}

struct Around {
    directory: tempfile::TempDir,
}

impl Around {
    fn file(&self) -> PathBuf {
        self.directory.path().join("pump.yaml")
    }

    fn with(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let around = Self { directory };
        around.write(text);
        around
    }

    fn write(&self, text: &str) {
        let head = "apiVersion: evenkeel.io/v1alpha1\nkind: PumpConfiguration\n";
        fs::write(self.file(), format!("{head}{text}")).unwrap();
    }

    fn pump(&self, line: &str) -> Configured<Pump> {
        let file = self.file();
        let words = ["pump", "--config", file.to_str().unwrap()];
        let words = words.into_iter().chain(line.split_whitespace());
        Cli::try_parse_from(words).unwrap().pump
    }

    fn read(&self, line: &str, variables: &[(&str, &str)]) -> Result<(Pump, Origins), String> {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let read = self.pump(line).read_with(variables);
        read.map_err(|error| error.to_string())
    }
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
    let around = Around::with("flowRate: 7\nname: file\nvalves: [a, b]\ncommand: [run, it]\n");
    let variables = [
        ("EVENKEEL_FLOW_RATE", "8"),
        ("PUMP_NAME", "variable"),
        ("EVENKEEL_VALVES", ""),
        ("EVENKEEL_FLOW_PORT", "tcp://10.0.0.1:80"),
    ];
    let (pump, origins) = around.read("--flow-rate 9", &variables).unwrap();
    assert_eq!((pump.flow_rate, pump.name.as_deref()), (9, Some("variable")));
    assert_eq!(pump.valves, ["a", "b"], "an empty variable is none");
    assert_eq!(pump.command, ["run", "it"]);
    let by = ["flow_rate", "name", "valves"].map(|id| origins.of(id));
    let valves = format!("{}:5:1: valves", around.file().display());
    assert_eq!(by, ["--flow-rate", "$PUMP_NAME", &valves]);
    assert_eq!(around.read("", &variables).unwrap().0.flow_rate, 8);
    assert_eq!(around.read("", &[]).unwrap().0.flow_rate, 7);
}

#[rstest]
#[case("", &[("EVENKEEL_FLOW_RATE", "0")], "$EVENKEEL_FLOW_RATE: \"0\": 0 is not in 1..=100")]
#[case("", &[("EVENKEEL_COMMAND", "rm")], "$EVENKEEL_COMMAND: it stands in the file alone")]
#[case("--command rm", &[], "--command: it stands in the file alone")]
fn each_source_is_named_with_what_is_wrong(
    #[case] line: &str,
    #[case] variables: &[(&str, &str)],
    #[case] expected: &str,
) {
    let around = Around::with("");
    assert_eq!(around.read(line, variables).unwrap_err(), expected);
}

#[test]
fn a_field_that_there_is_not_is_named_with_line_and_column() {
    let around = Around::with("flowRate: 7\nflowrte: 8\n");
    let error = around.read("", &[]).unwrap_err();
    let expected = format!(
        "{}:4:1: there is no field \"flowrte\"; is it flowRate?",
        around.file().display()
    );
    assert_eq!(error, expected);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_changes_is_read_again_and_one_that_makes_no_sense_is_said() {
    let around = Around::with("flowRate: 7\nname: a\n");
    let mut changes = around.pump("--name b").follow().unwrap().1;
    let early = tokio::time::timeout(LOOK_EVERY * 3, changes.next()).await;
    assert!(early.is_err(), "nothing changed");
    around.write("flowRate: 8\nvalves: [a]\n");
    let change = changes.next().await.unwrap();
    assert_eq!(change.settings.flow_rate, 8);
    assert_eq!(change.fields, ["flowRate", "valves"], "a flag overrules the name");
    around.write("flowRate: 800\n");
    let error = changes.next().await.unwrap_err().to_string();
    assert!(error.contains("800 is not in 1..=100"), "{error}");
    fs::remove_file(around.file()).unwrap();
    let error = changes.next().await.unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
    around.write("flowRate: 9\nvalves: [a]\n");
    let change = changes.next().await.unwrap();
    assert_eq!(
        (change.settings.flow_rate, change.fields),
        (9, vec!["flowRate".to_owned()])
    );
}

#[test]
fn a_variable_names_the_file_and_an_empty_one_names_none() {
    let around = Around::with("flowRate: 7\n");
    let read = |variable: &str| {
        let pump = Cli::try_parse_from(["pump"]).unwrap().pump;
        let variables = [("EVENKEEL_CONFIG".into(), variable.into())].into_iter();
        pump.read_with(variables).unwrap().0.flow_rate
    };
    assert_eq!([read(around.file().to_str().unwrap()), read("")], [7, 5]);
}
