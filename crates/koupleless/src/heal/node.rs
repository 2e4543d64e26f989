//! What healings read and write of nodes and pods.

use crate::core::PodRef;
use crate::core::heal::{Answer, must_leave};
use evenkeel_api::names::koupleless::healing::{COMPONENT, TAINT};
use evenkeel_net::log::causes;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::{Api, Client};
use serde_json::{Value, json};

/// How often a write is tried that met others'.
const ATTEMPTS: usize = 5;

/// Whether the node has the taint; `None`: there is no such node.
pub(super) async fn is_tainted(client: &Client, node: &str) -> Result<Option<bool>, kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    Ok(nodes.get_opt(node).await?.as_ref().map(has_taint))
}

/// Whether it has the taint as we set it: with another value it drives others away.
pub(super) fn has_taint(node: &Node) -> bool {
    let mut taints = taints(node).iter();
    taints.any(|taint| is_ours(taint) && taint.value.as_deref() == Some(TAINT.1))
}

/// Pods that must leave and have not, and whether the taint is there. The taint is read first: pods that are
/// seen then know of it.
pub(super) async fn inspect(client: &Client, node: &str) -> Result<(usize, bool), kube::Error> {
    let tainted = is_tainted(client, node).await?.unwrap_or(false);
    let pods: Api<Pod> = Api::all(client.clone());
    let pods = pods.list(&crate::pods::on(node)).await?;
    Ok((pods.iter().filter(|pod| must_leave(pod)).count(), tainted))
}

/// Sets the taint, or takes it off. Only the list that was read is changed: what others wrote meanwhile is
/// read first. A node that is gone has no taint.
pub(super) async fn set(client: &Client, name: &str, wanted: bool) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut attempt = 1;
    loop {
        let node = match nodes.get_opt(name).await? {
            Some(node) => node,
            None if wanted => nodes.get(name).await?,
            None => return Ok(()),
        };
        let Some(patch) = patch(&node, wanted) else {
            return Ok(());
        };
        let params = PatchParams::apply(COMPONENT);
        match nodes.patch(name, &params, &Patch::<Node>::Json(patch)).await {
            Ok(_) => return Ok(()),
            // A test of the patch failed, or the node was written in that moment.
            Err(kube::Error::Api(status)) if matches!(status.code, 409 | 422) && attempt < ATTEMPTS => {
                attempt += 1;
            }
            Err(kube::Error::Api(status)) if status.code == 404 && !wanted => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn patch(node: &Node, wanted: bool) -> Option<json_patch::Patch> {
    let old = taints(node);
    if has_taint(node) == wanted && (wanted || !old.iter().any(is_ours)) {
        return None;
    }
    let mut new: Vec<Value> = old
        .iter()
        .filter(|taint| !is_ours(taint))
        .map(|taint| json!(taint))
        .collect();
    if wanted {
        new.push(json!({"key": TAINT.0, "value": TAINT.1, "effect": TAINT.2}));
    }
    let operations = if old.is_empty() {
        // There is nothing in its place that could be tested.
        json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": node.metadata.resource_version},
            {"op": "add", "path": "/spec/taints", "value": new},
        ])
    } else {
        json!([
            {"op": "test", "path": "/spec/taints", "value": old},
            {"op": "replace", "path": "/spec/taints", "value": new},
        ])
    };
    serde_json::from_value(operations).ok()
}

fn taints(node: &Node) -> &[Taint] {
    let spec = node.spec.as_ref();
    spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Kubernetes tells taints of a node apart by key and effect.
fn is_ours(taint: &Taint) -> bool {
    taint.key == TAINT.0 && taint.effect == TAINT.2
}

/// Evicts a base's pod, if it is still that pod.
///
/// The request is our own: the client library writes `delete_options`, which the API server does not know, so
/// that the UID would not be looked at.
pub(super) async fn evict(client: Client, pod: &PodRef) -> Answer {
    let pods: Api<Pod> = Api::namespaced(client, &pod.namespace);
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    });
    let asked: Result<Status, _> = pods
        .create_subresource("eviction", &pod.name, &PostParams::default(), &eviction)
        .await;
    let error = match asked {
        Ok(_) => return Answer::Done,
        Err(kube::Error::Api(status)) if status.code == 429 => return Answer::Refused(refusal(&status)),
        Err(error) => error,
    };
    if !matches!(&error, kube::Error::Api(status) if matches!(status.code, 404 | 409)) {
        return Answer::Failed(causes(&error));
    }
    match pods.get_opt(&pod.name).await {
        Ok(Some(found)) if found.metadata.uid.as_deref() == Some(&*pod.uid) => Answer::Failed(causes(&error)),
        Ok(_) => Answer::NoPod,
        Err(error) => Answer::Failed(causes(&error)),
    }
}

fn refusal(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let causes: Vec<&str> = causes.map(|cause| cause.message.as_str()).collect();
    if causes.is_empty() {
        status.message.clone()
    } else {
        causes.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(taints: Value) -> Node {
        let node = json!({"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {"taints": taints}});
        serde_json::from_value(node).unwrap()
    }

    fn patched(node: &Node, wanted: bool) -> Option<Value> {
        patch(node, wanted).map(|patch| serde_json::to_value(patch).unwrap())
    }

    fn ours() -> Value {
        json!({"key": TAINT.0, "value": "True", "effect": "NoExecute"})
    }

    #[test]
    fn other_taints_stay_as_they_are_and_are_tested() {
        let other = json!({"key": "a", "effect": "NoSchedule"});
        assert_eq!(
            patched(&node(json!([other])), true).unwrap(),
            json!([
                {"op": "test", "path": "/spec/taints", "value": [other]},
                {"op": "replace", "path": "/spec/taints", "value": [other, ours()]},
            ])
        );
        assert_eq!(
            patched(&node(json!([ours(), other])), false).unwrap()[1]["value"],
            json!([other])
        );
    }

    #[test]
    fn without_taints_the_version_is_tested() {
        assert_eq!(
            patched(&node(Value::Null), true).unwrap(),
            json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
                {"op": "add", "path": "/spec/taints", "value": [ours()]},
            ])
        );
    }

    #[test]
    fn what_is_as_wanted_is_not_written() {
        assert_eq!(patched(&node(json!([ours()])), true), None);
        assert_eq!(patched(&node(Value::Null), false), None);
    }

    #[test]
    fn a_taint_of_another_value_is_corrected() {
        let other = json!({"key": TAINT.0, "value": "true", "effect": "NoExecute"});
        let node = node(json!([other]));
        assert!(!has_taint(&node));
        assert_eq!(patched(&node, true).unwrap()[1]["value"], json!([ours()]));
        assert_eq!(patched(&node, false).unwrap()[1]["value"], json!([]));
    }
}
