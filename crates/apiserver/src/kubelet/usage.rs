//! `metrics.k8s.io`: what kubelets measure, asked for whenever somebody wants to know.
//!
//! In a cluster metrics-server keeps the newest measurements; here a request asks the kubelets for their summary, and
//! whoever asks within the next seconds gets the same one, so that a small request cannot keep kubelets busy. A kubelet
//! that does not answer is left out, as metrics-server leaves it out.

use super::address::{self, Place};
use super::{Endpoint, relay};
use crate::server::Shared;
use crate::verbs::context::{Answer, Content, Context, List, rfc3339};
use crate::verbs::read::Selector;
use evenkeel_kube_rules::status::ApiResult;
use evenkeel_kube_rules::table::usage::{cpu, memory};
use futures::StreamExt;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// API group.
pub(crate) const GROUP: &str = "metrics.k8s.io";
/// Kubelets that are asked at once, over all requests.
const AT_ONCE: usize = 32;
/// For how long a measurement, or that there is none, is shared: as long as kubelets average over.
const SHARED: Duration = Duration::from_secs(10);
/// For how long one may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest summary that is read.
const MOST_BYTES: usize = 8 * 1024 * 1024;
/// Over which time kubelets average.
const WINDOW: &str = "10s";

/// What is read of a summary (`k8s.io/kubelet/pkg/apis/stats/v1alpha1`).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Summary {
    node: Stats,
    pods: Vec<PodStats>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStats {
    pod_ref: PodRef,
    containers: Vec<Stats>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodRef {
    name: String,
    namespace: String,
    uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Stats {
    name: String,
    cpu: Option<Cpu>,
    memory: Option<Memory>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Cpu {
    time: Option<String>,
    usage_nano_cores: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Memory {
    working_set_bytes: Option<u64>,
}

impl Stats {
    /// Both measurements, or nothing.
    fn usage(&self) -> Option<Value> {
        let nanocores = self.cpu.as_ref()?.usage_nano_cores?;
        let bytes = self.memory.as_ref()?.working_set_bytes?;
        Some(json!({"cpu": cpu(nanocores), "memory": memory(bytes)}))
    }

    fn time(&self, now: Timestamp) -> String {
        let time = self.cpu.as_ref().and_then(|cpu| cpu.time.as_deref());
        let time = time.and_then(|text| text.parse().ok()).unwrap_or(now);
        rfc3339(time)
    }
}

/// One object.
pub(crate) async fn get(context: &Context) -> ApiResult<Answer> {
    let name = &context.info.name;
    let named = |object: &Value| object["metadata"]["name"] == **name;
    let found = measure(context, &named).await;
    match found.into_iter().next() {
        Some(object) => Ok(Answer::object(200, object)),
        None => Err(context.not_found(name)),
    }
}

/// All objects, or those of a namespace, that the selectors want.
pub(crate) async fn list(context: &Context) -> ApiResult<Answer> {
    let selector = Selector::parse(context)?;
    let items = measure(context, &|object| selector.matches(object)).await;
    Ok(Answer {
        status: 200,
        content: Content::List(List {
            items,
            resource_version: None,
            continue_token: None,
            remaining: None,
        }),
    })
}

/// Measurements of the nodes or pods that are wanted, in the order of their names.
async fn measure(context: &Context, wanted: &(dyn Fn(&Value) -> bool + Sync)) -> Vec<Arc<Value>> {
    let reader = context.reader();
    let now = Timestamp::now();
    if context.info.resource == "nodes" {
        let nodes: Vec<Arc<Value>> = reader
            .list("", "nodes", None)
            .into_iter()
            .filter(|node| wanted(node))
            .collect();
        let summaries = ask(context, nodes.clone()).await;
        return nodes
            .iter()
            .filter_map(|node| {
                let stats = &summaries.get(name_of(node))?.node;
                let mut object = describe(node, "NodeMetrics", stats.time(now), now);
                object["usage"] = stats.usage()?;
                Some(Arc::new(object))
            })
            .collect();
    }
    let pods: Vec<Arc<Value>> = reader
        .list("", "pods", context.list_namespace())
        .into_iter()
        .filter(|pod| wanted(pod) && pod["spec"]["nodeName"].is_string())
        .collect();
    let mut nodes = BTreeMap::new();
    for pod in &pods {
        let name = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if let Some(node) = reader.get("", "nodes", "", name) {
            nodes.insert(name, node);
        }
    }
    let summaries = ask(context, nodes.into_values().collect()).await;
    let mut measured = BTreeMap::new();
    for stats in summaries.values().flat_map(|summary| &summary.pods) {
        let place = &stats.pod_ref;
        measured.insert((place.namespace.as_str(), place.name.as_str()), stats);
    }
    pods.iter()
        .filter_map(|pod| {
            let metadata = &pod["metadata"];
            let stats = measured.get(&(metadata["namespace"].as_str()?, name_of(pod)))?;
            // A pod of the same name that is no more is another pod.
            let uid = stats.pod_ref.uid.as_str();
            if !uid.is_empty() && metadata["uid"] != *uid {
                return None;
            }
            let containers: Vec<Value> = stats
                .containers
                .iter()
                .filter_map(|stats| Some(json!({"name": stats.name, "usage": stats.usage()?})))
                .collect();
            let time = stats.containers.first()?.time(now);
            if containers.is_empty() {
                return None;
            }
            let mut object = describe(pod, "PodMetrics", time, now);
            object["containers"] = Value::Array(containers);
            Some(Arc::new(object))
        })
        .collect()
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Measurements of an object without the usage.
fn describe(of: &Value, kind: &str, time: String, now: Timestamp) -> Value {
    let mut metadata = json!({"name": of["metadata"]["name"], "creationTimestamp": rfc3339(now)});
    for member in ["namespace", "labels"] {
        if !of["metadata"][member].is_null() {
            metadata[member] = of["metadata"][member].clone();
        }
    }
    json!({
        "kind": kind, "apiVersion": format!("{GROUP}/v1beta1"), "metadata": metadata,
        "timestamp": time, "window": WINDOW,
    })
}

/// The summaries of those nodes whose kubelets answer, by name.
async fn ask(context: &Context, nodes: Vec<Arc<Value>>) -> BTreeMap<String, Arc<Summary>> {
    futures::stream::iter(nodes)
        .map(|node| async move {
            let name = name_of(&node).to_owned();
            match summary(context, &node).await {
                Ok(summary) => Some((name, summary)),
                Err(why) => {
                    tracing::debug!(node = name, why, "a kubelet's usage is left out");
                    None
                }
            }
        })
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await
}

async fn summary(context: &Context, node: &Value) -> Measured {
    let place = address::of_node(node, &context.server.kubelets.options).map_err(|error| error.message)?;
    shared(&context.server, place).await
}

/// A summary, or why there is none.
type Measured = Result<Arc<Summary>, String>;

/// Measurements that are being made or are still fresh, by the kubelet's place.
#[derive(Debug)]
pub(crate) struct Measurements {
    fresh: Mutex<HashMap<Place, watch::Receiver<Option<Measured>>>>,
    turns: Semaphore,
}

impl Default for Measurements {
    fn default() -> Self {
        Self {
            fresh: Mutex::default(),
            turns: Semaphore::new(AT_ONCE),
        }
    }
}

impl Measurements {
    fn lock(&self) -> MutexGuard<'_, HashMap<Place, watch::Receiver<Option<Measured>>>> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a measurement out however its task ends.
struct Forget {
    measurements: Arc<Measurements>,
    place: Place,
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.measurements.lock().remove(&self.place);
    }
}

/// The measurement of a kubelet that is fresh or under way, or else a new one. It is made to its end even where nobody
/// waits for it any more, so that giving up and asking again asks no kubelet twice.
async fn shared(server: &Arc<Shared>, place: Place) -> Measured {
    let mut measured = {
        let mut fresh = server.usage.lock();
        if let Some(measured) = fresh.get(&place) {
            measured.clone()
        } else {
            let (sender, receiver) = watch::channel(None);
            fresh.insert(place.clone(), receiver.clone());
            let forget = Forget {
                measurements: server.usage.clone(),
                place,
            };
            let server = server.clone();
            tokio::spawn(async move {
                let measured = in_turn(&server, &forget.place).await;
                // A server that nobody holds any more ends without waiting for this.
                drop(server);
                sender.send_replace(Some(measured));
                tokio::time::sleep(SHARED).await;
                drop(forget);
            });
            receiver
        }
    };
    let measured = measured
        .wait_for(Option::is_some)
        .await
        .map_err(|_| "the measurement was given up".to_owned())?;
    measured
        .clone()
        .unwrap_or_else(|| Err("there is no measurement".to_owned()))
}

async fn in_turn(server: &Shared, place: &Place) -> Measured {
    let _turn = server
        .usage
        .turns
        .acquire()
        .await
        .map_err(|error| error.to_string())?;
    match tokio::time::timeout(PATIENCE, fetch(server, place)).await {
        Ok(summary) => summary.map(Arc::new),
        Err(_elapsed) => Err(format!("no answer within {PATIENCE:?}")),
    }
}

async fn fetch(server: &Shared, place: &Place) -> Result<Summary, String> {
    let response = relay::get(&server.kubelets, &Endpoint::kubelet(place), "/stats/summary").await?;
    let status = response.status();
    if !status.is_success() {
        return Err(format!("the kubelet answered {status}"));
    }
    let body = relay::read(response, MOST_BYTES).await?;
    serde_json::from_slice(&body).map_err(|error| error.to_string())
}
