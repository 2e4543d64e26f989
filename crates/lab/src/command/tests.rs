use super::*;
use clap::Parser;
use rstest::rstest;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    lab: LabArgs,
}

fn parse(line: &str) -> Result<LabArgs, clap::Error> {
    Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.lab)
}

#[rstest]
#[case("lab")]
#[case("lab --nodes 3 --port 6443 --dir /x --without-agents")]
#[case("lab run tour --without-agents --report r.json --dir /x")]
#[case("lab --without-agents run tour")]
#[case("lab cut shore-2")]
#[case("lab cut shore-2 --from --link shore-1")]
#[case("lab cut shore-2 --delay 200 --drop 30")]
#[case("lab crash agent shore-1 --dir /x")]
#[case("lab --zones north=3,south=5")]
#[case("lab --controllers 2 --profile builtin")]
#[case("lab run power-off --repeat 30")]
#[case("lab crash controller")]
#[case("lab crash controller 2")]
#[case("lab crash controller leader")]
#[case("lab crash apiserver --for 6s --stock")]
#[case("lab stall shore-2 --for 3s")]
#[case("lab restart-kubelet shore-2 --for 1m30s --dir /x")]
#[case("lab restart-agent shore-2 --for 2m")]
#[case("lab clean --join /x/kubeconfig --yes")]
#[case("lab --join /x/kubeconfig --address fd00::7")]
#[case("lab run tour --join /x/kubeconfig --control-plane ctl")]
#[case("lab heal")]
#[case("lab heal shore-1")]
#[case("lab watch")]
#[case("lab status")]
#[case("lab status -o yaml --dir /x")]
fn accepts(#[case] line: &str) {
    assert!(
        parse(line).is_ok(),
        "{:?}",
        parse(line).err().map(|error| error.to_string())
    );
}

#[rstest]
#[case("lab --nodes 0", "--nodes")]
#[case("lab --nodes 51", "--nodes")]
#[case("lab cut", "<NODE>")]
#[case("lab cut shore-1 --from --to", "--to")]
#[case("lab cut shore-1 --drop 101", "--drop")]
#[case("lab crash agent", "<NODE>")]
#[case("lab explode", "explode")]
#[case("lab --zones north", "ZONE=NODES")]
#[case("lab --zones north=3 --nodes 3", "--nodes")]
#[case("lab --zones north=30,south=30", "60 nodes")]
#[case("lab --controllers 4", "--controllers")]
#[case("lab --profile sea", "--profile")]
#[case("lab run tour --repeat 0", "--repeat")]
#[case("lab crash controller 4", "leader")]
#[case("lab crash apiserver", "--for")]
#[case("lab stall shore-2", "--for")]
#[case("lab stall shore-2 --for soon", "1m30s")]
#[case("lab restart-kubelet --for 3s", "<NODE>")]
#[case("lab --yes", "--join")]
#[case("lab run tour --address 10.0.0.7", "--join")]
#[case("lab --join x --address host", "--address")]
#[case("lab run tour --control-plane ctl", "--join")]
#[case("lab --join x --port 6443", "--port")]
#[case("lab --join x --address 10.0.0.7 --installed", "--address")]
#[case("lab --installable --installed", "--installed")]
#[case("lab --installable --without-agents", "--without-agents")]
#[case("lab --installed --without-agents", "--without-agents")]
fn rejects(#[case] line: &str, #[case] named: &str) {
    let Err(error) = parse(line) else {
        panic!("accepted: {line}")
    };
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains(named), "{error}");
}

#[rstest]
#[case("lab --nodes 3 run tour", "--nodes")]
#[case("lab --zones a=3 run tour", "`zones:")]
#[case("lab --controllers 2 status", "--controllers")]
#[case("lab --profile edge run tour", "`profile:")]
#[case("lab cut shore-1 --join x", "--join")]
#[case("lab clean", "--join")]
#[case("lab status --installed", "--installed")]
#[case("lab --installed --controllers 3", "--controllers")]
#[case("lab --installable --controllers 3", "--controllers")]
#[case("lab --installable --profile edge", "--profile")]
#[case("lab --installable status", "--installable")]
#[case("lab --installed --zones control-plane=3", "control-plane-1")]
#[case("lab run tour --join /nowhere/kubeconfig", "/nowhere/kubeconfig")]
#[tokio::test]
async fn what_does_not_go_with_a_command_is_refused(#[case] line: &str, #[case] named: &str) {
    let error = run(parse(line).unwrap(), CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!(error.code(), 2);
    assert!(error.to_string().contains(named), "{error}");
}

#[rstest]
#[case(Outcome::Success, 0)]
#[case(Outcome::Failed, 1)]
#[case(Outcome::Interrupted, 130)]
fn exit_codes(#[case] outcome: Outcome, #[case] code: u8) {
    assert_eq!(outcome.code(), code);
}
