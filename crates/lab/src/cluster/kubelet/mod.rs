//! A simulated kubelet: everything the API server and the neighbours see of one, and no containers.
//!
//! It registers its Node, renews its Lease, posts its status by the kubelet's rules, runs the pods bound to it
//! (they start after a moment and are ready), ends them gracefully, and answers `/healthz` and `/pods` over TLS
//! with a serving certificate of its own. It reaches the API server through its node's cloud link like any real
//! one, so that a cut link silences it. Aborting [`run`] is a power-off: nothing is said to anybody.

pub mod node;
pub mod pods;
pub mod server;

use evenkeel_net::serve::ServerTls;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// No request of a kubelet may hang longer (upstream's heartbeat client: min(10 s, lease duration)).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How often pods are looked at, so that delays of their start and end come due.
const POD_TICK: Duration = Duration::from_millis(200);
/// How often a status that differs from the kubelet's own is put right (upstream's status manager: 10 s).
const STATUS_SYNC: Duration = Duration::from_secs(10);

/// One simulated node.
#[derive(Clone, Debug)]
pub struct KubeletConfig {
    /// Node name.
    pub name: String,
    /// 1-based number of the node; pods get addresses `10.244.INDEX.x`.
    pub index: u8,
    /// Published address (InternalIP).
    pub address: IpAddr,
    /// Port of the published kubelet endpoint.
    pub port: u16,
    /// Labels of the Node beside the standard ones.
    pub labels: BTreeMap<String, String>,
    /// Time between Lease renewals; the Lease lasts four times as long. Kubernetes: 10 s.
    pub lease_interval: Duration,
    /// Time between looks at the own Node (`nodeStatusUpdateFrequency`). Kubernetes: 10 s.
    pub status_interval: Duration,
    /// Changes with every boot.
    pub boot_id: String,
}

/// Pods as the kubelet's own endpoint shows them.
type Shown = Arc<Mutex<Vec<Value>>>;

/// Runs a kubelet until `shutdown`, or until the future is dropped (a power-off).
///
/// # Errors
/// The listener failed.
pub async fn run(
    config: KubeletConfig,
    client: Client,
    listener: TcpListener,
    tls: ServerTls,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let shown = Shown::default();
    tokio::select! {
        served = server::serve(listener, tls, Arc::clone(&shown), shutdown.clone()) => served,
        () = node::heartbeat(&config, &client) => Ok(()),
        () = node::keep_status(&config, &client) => Ok(()),
        () = keep_pods(&config, &client, &shown) => Ok(()),
        () = shutdown.cancelled() => Ok(()),
    }
}

/// Follows the pods of this node and brings each to where it belongs.
async fn keep_pods(config: &KubeletConfig, client: &Client, shown: &Shown) {
    let all: Api<Pod> = Api::all(client.clone());
    let mine = watcher::Config::default().fields(&format!("spec.nodeName={}", config.name));
    let mut events = std::pin::pin!(watcher(all, mine).default_backoff());
    let mut runtime = pods::Runtime::new(config.index);
    let mut known: BTreeMap<String, Pod> = BTreeMap::new();
    let mut relisted: BTreeMap<String, Pod> = BTreeMap::new();
    let mut tick = tokio::time::interval(POD_TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut sync = tokio::time::interval(STATUS_SYNC);
    sync.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        let mut reconcile_all = false;
        tokio::select! {
            event = events.next() => match event {
                None => return,
                Some(Err(error)) => {
                    tracing::debug!(%error, node = %config.name, "pod watch failed, trying again");
                    continue;
                }
                Some(Ok(watcher::Event::Init)) => relisted.clear(),
                Some(Ok(watcher::Event::InitApply(pod))) => { relisted.insert(uid(&pod), pod); }
                Some(Ok(watcher::Event::InitDone)) => known = std::mem::take(&mut relisted),
                Some(Ok(watcher::Event::Apply(pod))) => { known.insert(uid(&pod), pod); }
                Some(Ok(watcher::Event::Delete(pod))) => { known.remove(&uid(&pod)); }
            },
            _ = tick.tick() => {}
            _ = sync.tick() => reconcile_all = true,
        }
        let now = Timestamp::now();
        runtime.retain(|uid| known.contains_key(uid));
        for pod in known.values() {
            match runtime.step(pod, now, reconcile_all) {
                pods::Step::Nothing => {}
                pods::Step::PostStatus(status) => post_status(client, pod, &status).await,
                pods::Step::Remove(status) => {
                    post_status(client, pod, &status).await;
                    remove(client, pod).await;
                }
            }
        }
        let list = known.values().map(|pod| serde_json::json!(pod)).collect();
        *shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = list;
    }
}

async fn post_status(client: &Client, pod: &Pod, status: &Value) {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    // The UID in the patch makes a write to a newer pod of the same name fail.
    let patch = serde_json::json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
    let (name, params, patch) = (pod.name_any(), PatchParams::default(), Patch::Strategic(&patch));
    let write = api.patch_status(&name, &params, &patch);
    report(
        "post pod status",
        &pod.name_any(),
        tokio::time::timeout(REQUEST_TIMEOUT, write).await,
    );
}

async fn remove(client: &Client, pod: &Pod) {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: pod.metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let name = pod.name_any();
    report(
        "confirm pod deletion",
        &name,
        tokio::time::timeout(REQUEST_TIMEOUT, api.delete(&name, &params)).await,
    );
}

/// A failed write is repeated by the next look; here it is only said.
pub(crate) fn report<T>(
    what: &str,
    name: &str,
    outcome: Result<kube::Result<T>, tokio::time::error::Elapsed>,
) -> bool {
    match outcome {
        Ok(Ok(_)) => return true,
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
            tracing::debug!(name, reason = %status.message, "overtaken: {what}");
        }
        Ok(Err(error)) => tracing::debug!(name, %error, "failed: {what}"),
        Err(_) => tracing::debug!(name, "no answer: {what}"),
    }
    false
}

fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}
