//! More elections in one process than an API server takes requests on one connection: each of them has a
//! watch.

use crate::rivals::{leads, until};
use evenkeel_election::lock::LeaseLock;
use evenkeel_election::{Config, Election, Elector};
use evenkeel_net::client::Access;
use evenkeel_testkit::ServedApi;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const ELECTIONS: usize = 150;

#[tokio::test(flavor = "multi_thread")]
async fn elections_beyond_what_one_connection_takes_are_held_and_renewed() {
    let api = ServedApi::start().await;
    let kubeconfig = Kubeconfig::read_from(api.direct("many")).unwrap();
    let options = KubeConfigOptions::default();
    let server = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    let client = Access::new(server, &[]).unwrap().client("many").unwrap();
    let shutdown = CancellationToken::new();
    // 30 renewals per second of all together, so that the machine is not what is tested.
    let config = Config {
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(40),
        retry_period: Duration::from_secs(5),
        ..Config::new("many")
    };
    let mut elections = Vec::new();
    for number in 0..ELECTIONS {
        let lock = LeaseLock::new(client.clone(), "default", &format!("slot-{number}")).unwrap();
        let elector = Elector::new(lock, config.clone()).unwrap();
        elections.push(elector.run(shutdown.clone()));
    }
    for election in &mut elections {
        until(election, "leads", leads).await;
    }
    let first: Vec<_> = elections.iter().map(Election::expires_at).collect();
    evenkeel_testkit::until("all are renewed", async || {
        let renewed = |(election, first): (&Election, _)| election.expires_at() > first;
        elections.iter().zip(first.clone()).all(renewed)
    })
    .await;
    shutdown.cancel();
    for election in elections {
        election.stopped().await;
    }
}
