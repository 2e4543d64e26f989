//! The fleet as a process.

use super::witness::Witness;
use evenkeel_api::names::NODE_LEASE_NAMESPACE;
use evenkeel_kubelet_api::auth::Rules;
use evenkeel_kubelet_api::kubelet::{Certificate, Clients, KubeletApi};
use evenkeel_kubelet_api::listeners;
use evenkeel_kubelet_api::tls::signed;
use evenkeel_net::client::ClientArgs;
use evenkeel_testkit::bench::serve_metrics;
use evenkeel_vnode::ownership::Sharing;
use evenkeel_vnode::{Fleet, Options, Provider};
use evenkeel_vnode_simulated::{self as simulated, Simulated};
use prometheus_client::registry::Registry;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// First word of its command line.
pub(crate) const ROLE: &str = "play-fleet";

/// Prefix of the Leases of slots.
pub(crate) const GROUP: &str = "evenkeel-vnode-bench";

/// One of several that share the nodes.
pub(crate) struct Replica {
    pub(crate) identity: String,
    /// Where its provider writes down what it is asked.
    pub(crate) record: PathBuf,
}

/// Name of a node by number.
pub(crate) fn node_name(index: usize) -> String {
    format!("vnode-{index}")
}

/// Serves so many nodes until standard input ends; each order is answered with all metrics.
pub(crate) fn play(kubeconfig: &str, nodes: usize, replica: Option<Replica>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let shutdown = CancellationToken::new();
    let fleet = runtime.block_on(start(kubeconfig, nodes, replica, &shutdown));
    let mut registry = Registry::default();
    fleet.register(&mut registry);
    serve_metrics("ready", &registry);
    shutdown.cancel();
    runtime.block_on(fleet.stopped());
}

async fn start(
    kubeconfig: &str,
    nodes: usize,
    replica: Option<Replica>,
    shutdown: &CancellationToken,
) -> Fleet {
    let flags = ClientArgs {
        kubeconfig: Some(kubeconfig.into()),
        ..ClientArgs::default()
    };
    listeners::raise_file_limit().unwrap();
    let client = flags.client("vnode").await.unwrap();
    let address: IpAddr = Ipv4Addr::LOCALHOST.into();
    let simulated = Simulated::new(simulated::Settings::default());
    let provider: Arc<dyn Provider> = match &replica {
        None => Arc::new(simulated),
        Some(replica) => Arc::new(Witness::new(simulated, &replica.record)),
    };
    let mut options = Options::new("bench", &*provider, vec![address]);
    if let Some(replica) = replica {
        options.sharing = Sharing::slots(NODE_LEASE_NAMESPACE, GROUP, &replica.identity);
        // So that the record tells of every second.
        options.nodes.ping = Duration::from_secs(1);
    }
    // As `evenkeel vnode` has it.
    let kubelet = KubeletApi {
        listeners: listeners::Settings {
            address,
            first_port: 0,
        },
        certificate: Certificate::Signed(signed::Settings::new("bench"), [address].into()),
        clients: Clients::Published,
        rules: Rules::default(),
    };
    options.kubelet = Some(Arc::new(
        kubelet.prepare().await.unwrap().begin(&client, shutdown),
    ));
    let fleet = Fleet::start(client, provider, options, shutdown.clone());
    for index in 0..nodes {
        fleet.add(&node_name(index));
    }
    fleet
}
