//! The fleet as a process.

use super::child::serve_orders;
use evenkeel_net::client::ClientArgs;
use evenkeel_vnode::server::doors;
use evenkeel_vnode::server::kubelet::{Certificate, Clients, KubeletApi};
use evenkeel_vnode::server::tls::signed;
use evenkeel_vnode::simulated::{self, Simulated};
use evenkeel_vnode::{Fleet, Options, Provider};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// First word of its command line.
pub(crate) const ROLE: &str = "play-fleet";

/// Name of a node by number.
pub(crate) fn node_name(index: usize) -> String {
    format!("vnode-{index}")
}

/// Serves so many nodes until standard input ends; each order is answered with all metrics.
pub(crate) fn play(kubeconfig: &str, nodes: usize) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let shutdown = CancellationToken::new();
    let fleet = runtime.block_on(start(kubeconfig, nodes, &shutdown));
    let mut registry = Registry::default();
    fleet.register(&mut registry);
    serve_orders("ready", |_| {
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    });
    shutdown.cancel();
    runtime.block_on(fleet.stopped());
}

async fn start(kubeconfig: &str, nodes: usize, shutdown: &CancellationToken) -> Fleet {
    let flags = ClientArgs {
        kubeconfig: Some(kubeconfig.into()),
        ..ClientArgs::default()
    };
    doors::raise_file_limit().unwrap();
    let client = flags.client("vnode").await.unwrap();
    let address: IpAddr = Ipv4Addr::LOCALHOST.into();
    let provider: Arc<dyn Provider> = Arc::new(Simulated::new(simulated::Settings::default()));
    let mut options = Options::new("bench", &*provider, vec![address]);
    // As `evenkeel vnode` has it.
    let kubelet = KubeletApi {
        doors: doors::Settings {
            address,
            first_port: 0,
        },
        certificate: Certificate::Signed(signed::Settings::new("bench"), [address].into()),
        clients: Clients::Published,
    };
    options.kubelet = Some(kubelet.prepare().await.unwrap().begin(&client, shutdown));
    let fleet = Fleet::start(client, provider, options, shutdown.clone());
    for index in 0..nodes {
        fleet.add(&node_name(index));
    }
    fleet
}
