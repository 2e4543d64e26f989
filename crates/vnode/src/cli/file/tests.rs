use super::*;
use crate::cli::ServeArgs;
use crate::cli::layers::Layered;
use clap::Parser;
use rstest::rstest;
use std::time::Duration;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    serve: Layered<ServeArgs>,
}

const HEAD: &str = "apiVersion: evenkeel.io/v1alpha1\nkind: VnodeConfiguration\n";

fn read(body: &str) -> Result<Layer, String> {
    let refuses = |id: &str| (id == "identity").then(|| "not here".to_owned());
    parse::<ServeArgs>("conf.yaml", &format!("{HEAD}{body}"), refuses).map_err(|error| error.to_string())
}

#[test]
fn fields_are_flags() {
    let layer = read(
        "admin: 0.0.0.0:80\nslots: 4 # few\nleaseRenewInterval: 5s\nnoKubeletApi: true\nleaderElect: false\n\
         apiEndpoint: [a:1, 'b:2']\n\"podSelector\": app=x\n",
    );
    let cli = Cli::try_parse_from(["evenkeel", "--slots", "8"]).unwrap();
    let (serve, origins) = cli.serve.over(&[&layer.unwrap()]).unwrap();
    assert_eq!((serve.admin.port(), serve.slots), (80, 8));
    assert_eq!(serve.lease_renew_interval, Duration::from_secs(5));
    assert!(serve.no_kubelet_api && !serve.leader_elect.leader_elect);
    assert_eq!(serve.client.api_endpoint.len(), 2);
    assert_eq!(serve.pod_selector.as_deref(), Some("app=x"));
    assert_eq!(origins.of("admin"), "conf.yaml:3: admin");
}

#[rstest]
#[case("admin: x", "conf.yaml:3: admin: \"x\": invalid socket address syntax")]
#[case("\nslots: 0", "conf.yaml:4: slots: \"0\": 0 is not in 1..=256")]
#[case("leaseRenewInterval: 5", "\"5\" has no unit; give a duration")]
#[case(
    "kubeletport: 1",
    "conf.yaml:3: there is no field \"kubeletport\"; is it kubeletPort?"
)]
#[case("kubelet-port: 1", "is it kubeletPort?")]
#[case("colour: red", "conf.yaml:3: there is no field \"colour\"")]
#[case("kubeletPort: 1\nkubeletPort: 2", "conf.yaml:4: ")]
#[case(
    "podSelector: true",
    "conf.yaml:3: podSelector: it is a text: put it into quotes"
)]
#[case("podSelector: 1.10", "put it into quotes")]
#[case("podSelector:", "it has no value")]
#[case("podSelector: [a, b]", "not a list")]
#[case("podSelector: {a: b}", "no fields")]
#[case("noKubeletApi: 'true'", "write true or false")]
#[case("leaderElect: 1", "write true or false")]
#[case("identity: me", "conf.yaml:3: identity: not here")]
#[case("kind: VnodeConfiguration", "conf.yaml:3: ")]
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
#[case("", "conf.yaml:1: ")]
#[case("- a", "conf.yaml:1: ")]
#[case(
    "kind: VnodeConfiguration",
    "conf.yaml:1: apiVersion must be evenkeel.io/v1alpha1"
)]
#[case(
    "apiVersion: evenkeel.io/v1alpha1\nkind: Pod",
    "conf.yaml:2: kind must be VnodeConfiguration"
)]
#[case("apiVersion: v1\nkind: VnodeConfiguration", "conf.yaml:1: apiVersion must be")]
fn another_document_is_refused(#[case] text: &str, #[case] words: &str) {
    let error = parse::<ServeArgs>("conf.yaml", text, |_| None)
        .unwrap_err()
        .to_string();
    assert!(error.contains(words), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = super::read::<ServeArgs>(Path::new("/nowhere/conf.yaml"), |_| None).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("--config /nowhere/conf.yaml: No such file"),
        "{error}"
    );
}
