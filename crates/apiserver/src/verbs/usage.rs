//! `get` and `list` of `metrics.k8s.io`. A kubelet that does not answer is left out, as metrics-server leaves
//! it out.

use super::context::{Answer, Content, Context, List};
use super::read;
use crate::kinds::METRICS_GROUP;
use crate::kubelet::address;
use crate::kubelet::measure::{CONCURRENT_REQUESTS, Measured, Summary};
use evenkeel_kube_rules::status::ApiResult;
use evenkeel_kube_rules::time::rfc3339;
use futures::StreamExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The time over which kubelets average.
const WINDOW: &str = "10s";

/// The measurement of one node or pod.
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
    let (_, selector) = read::options(context, false)?;
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
        let summaries = summaries(context, nodes.clone()).await;
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
    let summaries = summaries(context, nodes.into_values().collect()).await;
    let mut measured = BTreeMap::new();
    for stats in summaries.values().flat_map(|summary| &summary.pods) {
        let pod = &stats.pod_ref;
        measured.insert((pod.namespace.as_str(), pod.name.as_str()), stats);
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
        "kind": kind, "apiVersion": format!("{METRICS_GROUP}/v1beta1"), "metadata": metadata,
        "timestamp": time, "window": WINDOW,
    })
}

/// The summaries of those nodes whose kubelets answer, by name.
async fn summaries(context: &Context, nodes: Vec<Arc<Value>>) -> BTreeMap<String, Arc<Summary>> {
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
        .buffer_unordered(CONCURRENT_REQUESTS)
        .filter_map(std::future::ready)
        .collect()
        .await
}

async fn summary(context: &Context, node: &Value) -> Measured {
    let server = &context.server;
    let kubelet = address::of_node(node, &server.kubelets.options).map_err(|error| error.message)?;
    server.usage.of(&server.kubelets, kubelet).await
}
