//! Pods of modules: made, and seen to become ready.

use super::bases;
use evenkeel_api::names::koupleless::READY;
use evenkeel_testkit::cluster::Objects as _;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// When pods became ready, by name.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<HashMap<String, Instant>>>);

impl Seen {
    /// Watches pods, for ever.
    pub(crate) async fn watch(self, client: Client) {
        let pods: Api<Pod> = Api::namespaced(client, "default");
        let mut events = pin!(watcher(pods, watcher::Config::default()));
        while let Some(event) = events.try_next().await.unwrap() {
            if let Event::Apply(pod) | Event::InitApply(pod) = event
                && is_ready(&pod)
            {
                let mut ready = self.0.lock().unwrap();
                ready.entry(pod.name_any()).or_insert_with(Instant::now);
            }
        }
    }

    /// When a pod became ready, if it has.
    pub(crate) fn at(&self, name: &str) -> Option<Instant> {
        self.0.lock().unwrap().get(name).copied()
    }

    /// How many have become ready.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Waits until all of these are ready.
    pub(crate) async fn all(&self, names: &[String], patience: Duration) {
        let end = Instant::now() + patience;
        while let Some(name) = names.iter().find(|name| self.at(name).is_none()) {
            assert!(
                Instant::now() < end,
                "not ready within {patience:?}: {name}, {} are",
                self.count()
            );
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let mut conditions = status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Makes a pod of modules, bound to a base's node.
pub(crate) async fn create(client: &Client, name: &str, base: u16, modules: &[String]) {
    let container = |module: &String| json!({"name": module, "image": bases::url(module), "env": [{"name": "BIZ_VERSION", "value": "1"}]});
    let containers: Vec<Value> = modules.iter().map(container).collect();
    // As `samples/koupleless/deployment.yaml` has them.
    let toleration = |key: &str, value: &str| json!({"key": key, "operator": "Equal", "value": value, "effect": "NoExecute"});
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": "bench", "virtual-kubelet.koupleless.io/component": "module"}},
        "spec": {
            "nodeName": bases::node_name(base),
            "containers": containers,
            "readinessGates": [{"conditionType": READY}],
            "tolerations": [
                toleration("schedule.koupleless.io/virtual-node", "True"),
                toleration("schedule.koupleless.io/node-env", "dev"),
            ],
        },
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    pods.add(&pod).await;
}
