use super::*;
use clap::Parser;
use rstest::rstest;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
struct Settings {
    #[arg(long, default_value = "usual")]
    name: String,
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    #[arg(long, value_parser = ["low", "high"])]
    mark: Option<String>,
    #[arg(long)]
    switch: bool,
    #[arg(long, value_delimiter = ',')]
    several: Vec<String>,
    #[arg(long, overrides_with = "off")]
    place: Option<String>,
    #[arg(long)]
    off: bool,
    #[arg(long, requires = "port")]
    needy: bool,
}

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    settings: Layered<Settings>,
}

fn flags(line: &str) -> Layered<Settings> {
    let words = std::iter::once("evenkeel").chain(line.split_whitespace());
    Cli::try_parse_from(words).unwrap().settings
}

fn layer(by: &str, settings: &[(&str, &[&str])]) -> Layer {
    let mut layer = Layer::default();
    for (id, values) in settings {
        let values = values.iter().map(OsString::from).collect();
        layer.give::<Settings>(id, values, &format!("{by} {id}")).unwrap();
    }
    layer
}

#[test]
fn the_stronger_source_wins_setting_by_setting() {
    let strong = layer(
        "file",
        &[("name", &["b"]), ("port", &["2"]), ("several", &["x", "y"])],
    );
    let weak = layer(
        "variable",
        &[("port", &["3"]), ("mark", &["low"]), ("several", &["z"])],
    );
    let (settings, origins) = flags("--name a").over(&[&strong, &weak]).unwrap();
    assert_eq!((settings.name.as_str(), settings.port), ("a", Some(2)));
    assert_eq!(settings.mark.as_deref(), Some("low"));
    assert_eq!(settings.several, ["x", "y"], "lists are not joined");
    let by = ["name", "port", "mark", "place"].map(|id| origins.of(id));
    assert_eq!(by, ["--name", "file port", "variable mark", "--place"]);
}

#[test]
fn without_any_source_the_defaults_hold() {
    let (settings, _) = flags("").over(&[]).unwrap();
    assert_eq!(settings.name, "usual");
    assert_eq!((settings.port, settings.switch), (None, false));
}

#[test]
fn a_switch_may_be_off_in_a_stronger_source() {
    let on = layer("variable", &[("switch", &["true"])]);
    let off = layer("file", &[("switch", &["false"])]);
    let is_on = |line: &str, layers: &[&Layer]| flags(line).over(layers).unwrap().0.switch;
    assert!(is_on("", &[&on]) && !is_on("", &[&off, &on]) && is_on("--switch", &[&off]));
}

#[test]
fn what_overrides_another_setting_overrides_a_weaker_source() {
    let off = layer("variable", &[("off", &["true"])]);
    let (settings, _) = flags("--place here").over(&[&off]).unwrap();
    assert_eq!((settings.place.as_deref(), settings.off), (Some("here"), false));
    let place = layer("variable", &[("place", &["there"])]);
    let (settings, _) = flags("--off").over(&[&place]).unwrap();
    assert!(settings.off);
}

#[rstest]
#[case("port", "0", "\"0\": 0 is not in 1..=65535")]
#[case("port", "x", "\"x\": invalid digit found in string")]
#[case("mark", "mid", "\"mid\": possible are low, high")]
#[case("nothing", "1", "there is no setting \"nothing\"")]
fn a_value_that_is_refused_is_named_with_its_source(
    #[case] id: &str,
    #[case] value: &str,
    #[case] words: &str,
) {
    let mut layer = Layer::default();
    let error = layer
        .give::<Settings>(id, vec![value.into()], "$X")
        .unwrap_err()
        .to_string();
    assert_eq!(error, format!("$X: {words}"));
    assert!(!layer.gives(id));
}

#[test]
fn what_belongs_together_may_come_from_several_sources() {
    let needy = layer("file", &[("needy", &["true"])]);
    let error = flags("").over(&[&needy]).unwrap_err().to_string();
    assert!(error.contains("--port") && !error.contains('\n'), "{error}");
    assert!(flags("--port 1").over(&[&needy]).unwrap().0.needy);
}

#[test]
fn values_are_not_shown() {
    let layer = layer("file", &[("name", &["secret"])]);
    let flags = flags("--name secret");
    let shown = format!("{layer:?} {flags:?}");
    assert!(shown.contains("name") && !shown.contains("secret"), "{shown}");
}
