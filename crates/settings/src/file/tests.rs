use super::*;
use crate::layers::Layered;
use clap::Parser;
use rstest::rstest;
use std::net::SocketAddr;

const KIND: &str = "VnodeConfiguration";

#[derive(Clone, Debug, Args)]
struct Serve {
    #[arg(long, default_value = "127.0.0.1:9860")]
    admin: SocketAddr,
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    slots: u16,
    #[arg(long, default_value_t = 0)]
    kubelet_port: u16,
    #[arg(long)]
    no_kubelet_api: bool,
    #[arg(long, value_name = "BOOL", default_value = "true", action = clap::ArgAction::Set)]
    leader_elect: bool,
    #[arg(long, value_delimiter = ',')]
    api_endpoint: Vec<String>,
    #[arg(long)]
    pod_selector: Option<String>,
    #[arg(long)]
    identity: Option<String>,
}

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    serve: Layered<Serve>,
}

const HEAD: &str = "apiVersion: evenkeel.io/v1alpha1\nkind: VnodeConfiguration\n";

fn read(body: &str) -> Result<Layer, String> {
    let refuses = |id: &str| (id == "identity").then(|| "not here".to_owned());
    parse::<Serve>("conf.yaml", &format!("{HEAD}{body}"), KIND, refuses).map_err(|error| error.to_string())
}

#[test]
fn fields_are_flags() {
    let layer = read(
        "admin: 0.0.0.0:80\nslots: 4 # few\nnoKubeletApi: true\nleaderElect: false\n\
         apiEndpoint: [a:1, 'b:2']\n\"podSelector\": app=x\n",
    );
    let cli = Cli::try_parse_from(["evenkeel", "--slots", "8"]).unwrap();
    let (serve, origins) = cli.serve.over(&[&layer.unwrap()]).unwrap();
    assert_eq!((serve.admin.port(), serve.slots), (80, 8));
    assert!(serve.no_kubelet_api && !serve.leader_elect);
    assert_eq!(serve.api_endpoint, ["a:1", "b:2"]);
    assert_eq!((serve.kubelet_port, serve.identity), (0, None));
    assert_eq!(serve.pod_selector.as_deref(), Some("app=x"));
    assert_eq!(origins.of("admin"), "conf.yaml:3:1: admin");
}

#[rstest]
#[case("admin: x", "conf.yaml:3:1: admin: \"x\": invalid socket address syntax")]
#[case("\nslots: 0", "conf.yaml:4:1: slots: \"0\": 0 is not in 1..=256")]
#[case("slots: 4.5", "put it into quotes")]
#[case(
    "kubeletport: 1",
    "conf.yaml:3:1: there is no field \"kubeletport\"; is it kubeletPort?"
)]
#[case("kubelet-port: 1", "is it kubeletPort?")]
#[case("colour: red", "conf.yaml:3:1: there is no field \"colour\"")]
#[case("kubeletPort: 1\nkubeletPort: 2", "conf.yaml:4:1: ")]
#[case(
    "podSelector: true",
    "conf.yaml:3:1: podSelector: it is a text: put it into quotes"
)]
#[case("podSelector: 1.10", "put it into quotes")]
#[case("podSelector:", "it has no value")]
#[case("podSelector: [a, b]", "not a list")]
#[case("podSelector: {a: b}", "no fields")]
#[case("noKubeletApi: 'true'", "write true or false")]
#[case("leaderElect: 1", "write true or false")]
#[case("identity: me", "conf.yaml:3:1: identity: not here")]
#[case("kind: VnodeConfiguration", "conf.yaml:3:1: ")]
#[case("a: [", "conf.yaml:")]
fn what_is_wrong_is_said_with_its_line(#[case] body: &str, #[case] words: &str) {
    let error = read(body).unwrap_err();
    assert!(
        error.starts_with("conf.yaml:") && error.contains(words),
        "{error}"
    );
    assert!(!error.contains('\n'), "{error}");
}

#[rstest]
#[case("", "conf.yaml:1:1: ")]
#[case("- a", "conf.yaml:1:1: ")]
#[case(
    "kind: VnodeConfiguration",
    "conf.yaml:1:1: apiVersion must be evenkeel.io/v1alpha1"
)]
#[case(
    "apiVersion: evenkeel.io/v1alpha1\nkind: Pod",
    "conf.yaml:2:1: kind must be VnodeConfiguration"
)]
#[case(
    "apiVersion: v1\nkind: VnodeConfiguration",
    "conf.yaml:1:1: apiVersion must be"
)]
fn another_document_is_refused(#[case] text: &str, #[case] words: &str) {
    let error = parse::<Serve>("conf.yaml", text, KIND, |_| None)
        .unwrap_err()
        .to_string();
    assert!(error.contains(words), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = super::read::<Serve>(Path::new("/nowhere/conf.yaml"), KIND, |_| None).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("--config /nowhere/conf.yaml: No such file"),
        "{error}"
    );
}
