//! The whole process: flags, election, admin endpoints, webhook.

use super::cluster::Cluster;
use super::zone::roster_key;
use clap::Parser as _;
use evenkeel_failover::{ControllerArgs, run};
use evenkeel_net::file::write_secret;
use evenkeel_settings::Configured;
use evenkeel_testkit::until;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    controller: Configured<ControllerArgs>,
}

fn args(line: &[&str]) -> Configured<ControllerArgs> {
    Cli::try_parse_from(std::iter::once(&"controller").chain(line))
        .unwrap()
        .controller
}

/// An address that was free a moment ago.
async fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
}

async fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_gets_ready_leads_and_stops_when_told() {
    let cluster = Cluster::start().await;
    let kubeconfig = cluster.kubeconfig().await;
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("roster.key");
    write_secret(&key, roster_key().to_pem().unwrap().as_bytes()).unwrap();
    let (admin, webhook) = (free().await, free().await);
    let line = [
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
        "--admin",
        &admin.to_string(),
        "--webhook-listen",
        &webhook.to_string(),
        "--webhook-url",
        &format!("https://{webhook}"),
        "--zone-default",
        "default",
        "--roster-key",
        key.to_str().unwrap(),
    ];
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(args(&line), stop.clone()));
    until("it is ready", async || {
        let answer = get(admin, "/readyz").await;
        answer.is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    })
    .await;
    cluster.reports().await;
    until("it leads, by its metrics", async || {
        let metrics = get(admin, "/metrics").await.unwrap_or_default();
        metrics.contains("evenkeel_failover_leading 1")
            && metrics.contains("evenkeel_failover_nodes{state=\"Healthy\"} 3")
    })
    .await;
    stop.cancel();
    task.await.unwrap().unwrap();
    assert_eq!(cluster.leader().await, "", "the Lease was given back");
    assert_eq!(
        cluster.replicas().await,
        Vec::<String>::new(),
        "nobody works any more"
    );
}

#[tokio::test]
async fn what_the_user_has_to_change_is_named() {
    evenkeel_net::init_crypto();
    let stop = CancellationToken::new;
    let error = run(args(&["--stale-after", "1s"]), stop()).await.unwrap_err();
    assert!(
        error.is_config() && error.to_string().contains("--stale-after"),
        "{error}"
    );

    let error = run(args(&["--kubeconfig", "nowhere.yaml"]), stop())
        .await
        .unwrap_err();
    assert!(
        error.is_config() && error.to_string().contains("nowhere.yaml"),
        "{error}"
    );

    let error = run(args(&["--roster-key", "nowhere.key"]), stop())
        .await
        .unwrap_err();
    assert!(
        error.is_config() && error.to_string().contains("--roster-key nowhere.key"),
        "{error}"
    );
    let other = Cli::try_parse_from(["controller", "--roster-key", "a", "--roster-public-key", "b"]);
    let error = other.map(|_| ()).unwrap_err().to_string();
    assert!(
        error.contains("--roster-public-key") && error.contains("not the base64"),
        "{error}"
    );

    let cluster = Cluster::start().await;
    let kubeconfig = cluster.kubeconfig().await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let line = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--admin", &address];
    let error = run(args(&line), stop()).await.unwrap_err();
    assert!(
        error.is_config() && error.to_string().contains(&format!("--admin {address}")),
        "{error}"
    );
}
