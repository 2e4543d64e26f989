//! Writes of the stock endpoint controllers to `endpointslices`.
//!
//! This rule is needed for pods that were marked before there was a verdict, or while the webhook was down,
//! until the planner has given them back their readiness. Slices are corrected only here, at admission, and
//! never written by us, so that two controllers never fight over one (hazard 23).

use super::{Correction, PassReason, Request, View};
use serde_json::{Value, json};

/// Endpoints that were ready in the old object, on a node whose readiness is kept as the evidence stands, and
/// whose pod is known to carry the stock controller's mark, stay ready.
///
/// The mark has to be seen. When a link is back, a kubelet may write that a pod is not ready before it renews
/// its Lease. An endpoint that was kept then would stay: its controller writes it once for each change of the
/// pod, and nobody else corrects slices. An endpoint whose pod's mark is not seen yet goes, and is back when
/// the planner has given the pod its readiness: within about a second, or, where no replica leads, an
/// election later. Pods that failed or ended are not in a slice at all, and a terminating endpoint says so.
pub(super) fn keep_ready(request: &Request, view: &View) -> Result<Correction, PassReason> {
    let mut kept_here = Kept::new(view);
    let current = &request.object["endpoints"];
    let corrected: Vec<Value> = current
        .as_array()
        .into_iter()
        .flatten()
        .map(|endpoint| {
            let may_be_kept = !is_ready(endpoint)
                && !is_true(&endpoint["conditions"]["terminating"])
                && was_ready(endpoint, &request.old_object);
            if may_be_kept && kept_here.keeps(endpoint) {
                kept(endpoint)
            } else {
                endpoint.clone()
            }
        })
        .collect();
    kept_here.correction(request, "endpoints", corrected, "endpoints of slice")
}

/// The endpoints of one object that are kept.
pub(super) struct Kept<'a> {
    view: &'a View,
    nodes: Vec<String>,
    /// Why the last one that is not kept is not.
    reason: PassReason,
}

impl<'a> Kept<'a> {
    pub(super) fn new(view: &'a View) -> Self {
        Self {
            view,
            nodes: Vec::new(),
            reason: PassReason::Nothing,
        }
    }

    /// Whether an endpoint, or an address, may be kept ready against a stock endpoint controller.
    pub(super) fn keeps(&mut self, endpoint: &Value) -> bool {
        let node = endpoint["nodeName"].as_str().unwrap_or_default();
        let pod = endpoint["targetRef"]["uid"].as_str().unwrap_or_default();
        let guarded = self.view.guarded(node);
        let kept = guarded.and_then(|guarded| {
            guarded.keeps_readiness(guarded.now, pod, false)?;
            let is_marked = guarded.marked.contains(pod);
            is_marked.then_some(()).ok_or(PassReason::OwnAccount)
        });
        match kept {
            Ok(()) => self.nodes.push(node.to_owned()),
            Err(why) => self.reason = why,
        }
        kept.is_ok()
    }

    /// The correction of the list `list` of the object, if an endpoint in it was kept.
    pub(super) fn correction(
        mut self,
        request: &Request,
        list: &str,
        corrected: Vec<Value>,
        of: &str,
    ) -> Result<Correction, PassReason> {
        if self.nodes.is_empty() {
            return Err(self.reason);
        }
        let what = format!("{} {of} {}/{}", self.nodes.len(), request.namespace, request.name);
        self.nodes.sort();
        self.nodes.dedup();
        let current = request.object[list].clone();
        Ok(Correction::of_list(
            &[list],
            current,
            corrected.into(),
            self.nodes,
            what,
        ))
    }
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
