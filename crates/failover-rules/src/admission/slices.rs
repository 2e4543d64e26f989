//! Writes of the stock endpoint controllers to `endpointslices`.
//!
//! This rule is needed for pods that were marked before there was a verdict, or while the webhook was down.
//! Slices are corrected only here, at admission, and never written by us, so that two controllers never fight
//! over one (hazard 23).

use super::{Correction, PassReason, Request, View};
use serde_json::{Value, json};

/// Endpoints that were ready in the old object, on a node whose readiness is kept as the evidence stands, and
/// that do not terminate, stay ready.
///
/// That the pod is not unready on its own account needs no look at the pod: while the Lease is stale its
/// kubelet cannot report anything, so an endpoint that loses readiness then lost it to the stock controller's
/// mark. Pods that failed or ended are not in a slice at all, and a terminating endpoint says so.
pub(super) fn keep_ready(request: &Request, view: &View) -> Result<Correction, PassReason> {
    let mut nodes = Vec::new();
    let mut reason = PassReason::Nothing;
    let current = &request.object["endpoints"];
    let corrected: Vec<Value> = current
        .as_array()
        .into_iter()
        .flatten()
        .map(|endpoint| {
            let node = endpoint["nodeName"].as_str().unwrap_or_default();
            if is_ready(endpoint) || is_true(&endpoint["conditions"]["terminating"]) {
                return endpoint.clone();
            }
            if !was_ready(endpoint, &request.old_object) {
                return endpoint.clone();
            }
            match may_keep(view, node) {
                Ok(()) => {
                    nodes.push(node.to_owned());
                    kept(endpoint)
                }
                Err(why) => {
                    reason = why;
                    endpoint.clone()
                }
            }
        })
        .collect();
    if nodes.is_empty() {
        return Err(reason);
    }
    let what = format!(
        "{} endpoints of slice {}/{}",
        nodes.len(),
        request.namespace,
        request.name
    );
    nodes.sort();
    nodes.dedup();
    Ok(Correction::of_list(
        &["endpoints"],
        current.clone(),
        corrected.into(),
        nodes,
        what,
    ))
}

/// Whether addresses on `node` may be kept ready against a stock endpoint controller.
pub(super) fn may_keep(view: &View, node: &str) -> Result<(), PassReason> {
    let guarded = view.guarded(node)?;
    guarded.keeps_readiness(guarded.now, false)
}

fn kept(endpoint: &Value) -> Value {
    let mut endpoint = endpoint.clone();
    if !endpoint["conditions"].is_object() {
        endpoint["conditions"] = json!({});
    }
    endpoint["conditions"]["ready"] = json!(true);
    endpoint["conditions"]["serving"] = json!(true);
    endpoint
}

/// `conditions.ready` unset means ready (`discovery.k8s.io/v1`).
fn is_ready(endpoint: &Value) -> bool {
    endpoint["conditions"]["ready"].as_bool().unwrap_or(true)
}

fn is_true(value: &Value) -> bool {
    value.as_bool().unwrap_or(false)
}

fn was_ready(endpoint: &Value, old: &Value) -> bool {
    old["endpoints"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|before| is_ready(before) && same_target(before, endpoint))
}

/// The same pod behind the same address; by UID, since a name can be another pod's by now.
fn same_target(a: &Value, b: &Value) -> bool {
    !a["targetRef"]["uid"].is_null()
        && a["targetRef"]["uid"] == b["targetRef"]["uid"]
        && a["addresses"] == b["addresses"]
        && a["nodeName"] == b["nodeName"]
}
