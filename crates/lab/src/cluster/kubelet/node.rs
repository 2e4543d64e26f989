//! The Node object and its Lease, by the kubelet's rules.

use super::{KubeletConfig, REQUEST_TIMEOUT, report};
use jiff::Timestamp;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use rand::Rng;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

/// A status that did not change is posted again after this long (upstream's `nodeStatusReportFrequency`).
const REPORT_EVERY_SECONDS: i64 = 300;
/// Renewals are spread by up to this share of the interval (upstream's jitter).
const LEASE_JITTER: f64 = 0.04;
/// Pause between attempts while the first registration or renewal fails.
const RETRY: Duration = Duration::from_millis(500);
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// The conditions a healthy kubelet posts: type, status, reason, message.
const CONDITIONS: [(&str, &str, &str, &str); 4] = [
    (
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    (
        "DiskPressure",
        "False",
        "KubeletHasNoDiskPressure",
        "kubelet has no disk pressure",
    ),
    (
        "PIDPressure",
        "False",
        "KubeletHasSufficientPID",
        "kubelet has sufficient PID available",
    ),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];

/// Renews the Lease for ever, sliding by the interval with jitter.
pub async fn heartbeat(config: &KubeletConfig, client: &Client) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    loop {
        let renewed = renew(config, client, &leases).await;
        let pause = if renewed {
            let jitter = rand::rng().random_range(0.0..LEASE_JITTER);
            config.lease_interval.mul_f64(1.0 + jitter)
        } else {
            RETRY
        };
        tokio::time::sleep(pause).await;
    }
}

async fn renew(config: &KubeletConfig, client: &Client, leases: &Api<Lease>) -> bool {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let patch = json!({"spec": {"holderIdentity": config.name, "renewTime": now}});
    let (params, merge) = (PatchParams::default(), Patch::Merge(&patch));
    match timeout(REQUEST_TIMEOUT, leases.patch(&config.name, &params, &merge)).await {
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => {}
        outcome => return report("renew the node's lease", &config.name, outcome),
    }
    // Upstream makes the Lease belong to its Node, so the Node must be there first.
    let nodes: Api<Node> = Api::all(client.clone());
    let Ok(Ok(node)) = timeout(REQUEST_TIMEOUT, nodes.get(&config.name)).await else {
        return false;
    };
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": config.name, "namespace": LEASE_NAMESPACE,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": config.name, "uid": node.metadata.uid}],
        },
        "spec": {
            "holderIdentity": config.name, "renewTime": now,
            "leaseDurationSeconds": (config.lease_interval * 4).as_secs().max(1),
        },
    });
    match serde_json::from_value::<Lease>(lease) {
        Ok(lease) => {
            let params = PostParams::default();
            report(
                "create the node's lease",
                &config.name,
                timeout(REQUEST_TIMEOUT, leases.create(&params, &lease)).await,
            )
        }
        Err(error) => {
            tracing::error!(%error, node = %config.name, "the lease cannot be built");
            false
        }
    }
}

/// Registers the Node, then keeps its status for ever: posted when it differs, and every five minutes.
pub async fn keep_status(config: &KubeletConfig, client: &Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut posted: Option<Timestamp> = None;
    loop {
        let kept = match timeout(REQUEST_TIMEOUT, nodes.get_opt(&config.name)).await {
            Ok(Ok(Some(node))) => {
                let now = Timestamp::now();
                let due = posted.is_none_or(|at| now.duration_since(at).as_secs() >= REPORT_EVERY_SECONDS);
                if due || differs(&node, config) {
                    let patch = json!({"status": status(config, Some(&node), now)});
                    let (params, strategic) = (PatchParams::default(), Patch::Strategic(&patch));
                    let write = nodes.patch_status(&config.name, &params, &strategic);
                    let written = report(
                        "post node status",
                        &config.name,
                        timeout(REQUEST_TIMEOUT, write).await,
                    );
                    if written {
                        posted = Some(now);
                    }
                    written
                } else {
                    true
                }
            }
            Ok(Ok(None)) => {
                register(config, &nodes).await;
                posted = None;
                // Look again at once: the status is posted by the next round.
                false
            }
            other => report("read the own node", &config.name, other),
        };
        tokio::time::sleep(if kept { config.status_interval } else { RETRY }).await;
    }
}

async fn register(config: &KubeletConfig, nodes: &Api<Node>) {
    let mut labels = json!({
        "kubernetes.io/hostname": config.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64",
    });
    for (key, value) in &config.labels {
        labels[key] = json!(value);
    }
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": config.name, "labels": labels},
        "spec": {"podCIDR": format!("10.244.{}.0/24", config.index)},
        "status": status(config, None, Timestamp::now()),
    });
    match serde_json::from_value::<Node>(node) {
        Ok(node) => {
            let params = PostParams::default();
            report(
                "register the node",
                &config.name,
                timeout(REQUEST_TIMEOUT, nodes.create(&params, &node)).await,
            );
        }
        Err(error) => tracing::error!(%error, node = %config.name, "the node cannot be built"),
    }
}

/// Whether the API server shows something else than a healthy node of this boot.
fn differs(node: &Node, config: &KubeletConfig) -> bool {
    let status = node.status.as_ref();
    let conditions = status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let healthy = CONDITIONS.iter().all(|(kind, value, ..)| {
        conditions
            .iter()
            .any(|found| found.type_ == *kind && found.status == *value)
    });
    let boot = status
        .and_then(|status| status.node_info.as_ref())
        .map(|info| info.boot_id.as_str());
    !healthy || boot != Some(config.boot_id.as_str())
}

fn status(config: &KubeletConfig, node: Option<&Node>, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let old = node
        .and_then(|node| node.status.as_ref()?.conditions.as_deref())
        .unwrap_or_default();
    let conditions: Vec<Value> = CONDITIONS
        .iter()
        .map(|(kind, value, reason, message)| {
            let same = old
                .iter()
                .find(|found| found.type_ == *kind && found.status == *value);
            let since = same.and_then(|found| found.last_transition_time.as_ref());
            json!({
                "type": kind, "status": value, "reason": reason, "message": message, "lastHeartbeatTime": now,
                "lastTransitionTime": since.map_or_else(|| json!(now), |time| json!(time)),
            })
        })
        .collect();
    let capacity = json!({
        "cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "64Gi", "hugepages-1Gi": "0", "hugepages-2Mi": "0",
    });
    json!({
        "capacity": capacity, "allocatable": capacity, "conditions": conditions,
        "addresses": [
            {"type": "InternalIP", "address": config.address.to_string()},
            {"type": "Hostname", "address": config.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": config.port}},
        "nodeInfo": {
            "machineID": format!("simulated-{}", config.name), "systemUUID": format!("simulated-{}", config.name),
            "bootID": config.boot_id, "kernelVersion": "simulated", "osImage": "Evenkeel lab",
            "containerRuntimeVersion": "simulated://1.0", "kubeletVersion": "v1.36.2", "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": "amd64",
        },
    })
}
