//! What a kubelet is to its neighbours and to the API server: a port with a certificate, and a Lease.

use super::{KUBELETS_SERVER, Shore, access, name};
use axum::Router;
use axum::routing::get;
use clap::Parser;
use evenkeel_net::client::ClientArgs;
use evenkeel_net::pki::{Ca, ServerNames, Validity};
use evenkeel_net::serve::{ServerTls, serve_https};
use evenkeel_testkit::netns::Namespace;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use std::io::Read as _;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const EVERY: Duration = Duration::from_secs(10);
const WITHIN: Duration = Duration::from_secs(5);
/// Address, node, and the flags of a client of the API server, a line each.
const FLAGS: &str = "EVENKEEL_TEST_KUBELET";

#[derive(Debug, Parser)]
struct Access {
    #[command(flatten)]
    client: ClientArgs,
}

/// This test binary, as the kubelet of a machine.
pub(super) fn command(namespace: &Namespace, shore: &Shore, number: u8) -> Command {
    let mut command = namespace.command(std::env::current_exe().expect("a test has a path"));
    let address = SocketAddr::new(shore.ip.of(number), 10_250);
    let access = access(KUBELETS_SERVER).replace('@', &format!("{}/", shore.home.path().display()));
    command
        .args([
            "--ignored",
            "--exact",
            "netns::shore::kubelet::process",
            "--nocapture",
        ])
        .env(FLAGS, format!("{address}\n{}\n{access}", name(number)));
    command
}

#[test]
#[ignore = "is started by the tests of this module as a process of its own"]
fn process() {
    let Ok(flags) = std::env::var(FLAGS) else {
        return;
    };
    let [address, node, access] = flags.lines().collect::<Vec<_>>()[..] else {
        panic!("{FLAGS} has three lines");
    };
    evenkeel_net::init_crypto();
    // Ends with its standard input, which ends with the test.
    let (closed, parent) = tokio::sync::oneshot::channel();
    std::thread::spawn(|| {
        while matches!(std::io::stdin().read(&mut [0; 64]), Ok(1..)) {}
        closed.send(())
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let address = address.parse().expect("an address");
        let words = std::iter::once("kubelet").chain(access.split_whitespace());
        tokio::select! {
            _ = parent => {}
            () = serve(address) => {}
            () = renew(node, Access::parse_from(words).client) => {}
        }
    });
}

async fn serve(address: SocketAddr) {
    let now = Timestamp::now().as_second();
    let validity = Validity {
        from: now - 60,
        until: now + 3_600,
    };
    let names = ServerNames {
        dns: vec![],
        ips: vec![address.ip()],
    };
    let ca = Ca::new("kubelets", validity).expect("a new authority");
    let identity = ca
        .issue_server("kubelet", &names, validity)
        .expect("a certificate");
    let tls = ServerTls::new(&identity, None).expect("a certificate that can be served");
    let listener = TcpListener::bind(address)
        .await
        .expect("the machine's own address");
    let app = Router::new().route("/healthz", get(|| async { "ok" }));
    serve_https(listener, tls, app, CancellationToken::new())
        .await
        .expect("it serves until it is killed");
}

/// With a connection of its own each time: none lasts for longer than its link.
async fn renew(node: &str, access: ClientArgs) {
    let mut timer = tokio::time::interval(EVERY);
    loop {
        timer.tick().await;
        match tokio::time::timeout(WITHIN, renew_once(node, &access)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => eprintln!("the Lease is not renewed: {error}"),
            Err(_) => eprintln!("the Lease is not renewed: no answer within {WITHIN:?}"),
        }
    }
}

async fn renew_once(node: &str, access: &ClientArgs) -> Result<(), String> {
    let client = access
        .client("kubelet")
        .await
        .map_err(|error| error.to_string())?;
    let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let spec = json!({ "spec": { "holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now } });
    let patched = leases
        .patch(node, &PatchParams::default(), &Patch::Merge(&spec))
        .await;
    match patched {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let mut fresh = spec;
            fresh["metadata"] = json!({ "name": node });
            let fresh = serde_json::from_value(fresh).expect("a Lease");
            let made = leases.create(&PostParams::default(), &fresh).await;
            made.map(drop).map_err(|error| error.to_string())
        }
        other => other.map(drop).map_err(|error| error.to_string()),
    }
}
