//! Writes of the stock node controller to `pods/status`.
//!
//! This is the rule that protects most: a pod that keeps its Ready condition never leaves a Service, a
//! gateway or a mesh, because no watcher ever sees a change.
//!
//! The stock controller marks a node's pods once, so what is kept here must be settled when the node is no
//! longer vouched for (hazard 22). No record is needed for that, so none can be lost: the planner marks every
//! pod that is Ready on a node that carries the stock controller's mark, whoever kept it ready.

use super::{Correction, PassReason, Request, View};
use serde_json::Value;
use std::collections::BTreeMap;

/// Keeps the old Ready condition where the write does nothing but turn it from True to False, and the pod's
/// own containers and readiness gates say ready (hazard 22). The write itself proves that the node's Lease is
/// stale: the stock controller marks pods only after its grace period (hazard 20).
pub(super) fn keep_readiness(request: &Request, view: &View) -> Result<Correction, PassReason> {
    let (new, old) = (&request.object, &request.old_object);
    let node = new["spec"]["nodeName"].as_str().unwrap_or_default();
    let guarded = view.guarded(node)?;
    let uid = new["metadata"]["uid"].as_str().unwrap_or_default();
    let is_last = view.last.contains(&(request.namespace.clone(), uid.to_owned()));
    guarded.keeps_readiness(guarded.if_stale, uid, is_last)?;
    let kept = old_ready(new, old).ok_or(PassReason::OwnAccount)?;
    let conditions = &new["status"]["conditions"];
    let corrected = conditions
        .as_array()
        .into_iter()
        .flatten()
        .map(|condition| {
            if condition["type"] == "Ready" {
                kept.clone()
            } else {
                condition.clone()
            }
        })
        .collect();
    Ok(Correction::of_list(
        &["status", "conditions"],
        conditions.clone(),
        corrected,
        vec![node.to_owned()],
        format!("Ready=True of pod {}/{}", request.namespace, request.name),
    ))
}

/// The old Ready condition, if the write is the stock controller's mark and nothing else.
fn old_ready<'a>(new: &Value, old: &'a Value) -> Option<&'a Value> {
    let ready = condition(old, "Ready")?;
    let pure = ready["status"] == "True"
        && status_of(new, "Ready") == Some("False")
        && new["status"]["phase"] == "Running"
        && old["status"]["phase"] == "Running"
        && new["metadata"]["uid"] == old["metadata"]["uid"]
        && new["metadata"]["deletionTimestamp"].is_null()
        && statuses_beside_ready(new) == statuses_beside_ready(old);
    let own_account = status_of(new, "ContainersReady") == Some("True")
        && new["spec"]["readinessGates"]
            .as_array()
            .into_iter()
            .flatten()
            .all(|gate| {
                gate["conditionType"]
                    .as_str()
                    .is_some_and(|gate| status_of(new, gate) == Some("True"))
            });
    (pure && own_account).then_some(ready)
}

fn conditions(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["status"]["conditions"].as_array().into_iter().flatten()
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions(pod).find(|condition| condition["type"] == kind)
}

fn status_of<'a>(pod: &'a Value, kind: &str) -> Option<&'a str> {
    condition(pod, kind)?["status"].as_str()
}

/// Statuses only: a stock controller of another version may lose fields of conditions that it does not know.
fn statuses_beside_ready(pod: &Value) -> BTreeMap<&str, &str> {
    conditions(pod)
        .filter_map(|condition| Some((condition["type"].as_str()?, condition["status"].as_str()?)))
        .filter(|(kind, _)| *kind != "Ready")
        .collect()
}
