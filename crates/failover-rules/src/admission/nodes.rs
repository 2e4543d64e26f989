//! Writes of the stock node controller to `nodes`.

use super::{Correction, PassReason, Request, View};
use evenkeel_api::names::taints;
use serde_json::Value;

/// Takes the NoExecute taint `unreachable` out, also one that was there before (it slipped through while the
/// webhook was down), so that the clock of tolerationSeconds never starts. NoSchedule stays: a protected node
/// gets no new pods. So does `not-ready`, and `unreachable` in its place once the node is silent: that it is
/// not ready is the kubelet's own word, which no neighbour can take back.
pub(super) fn strip_no_execute(request: &Request, view: &View) -> Result<Correction, PassReason> {
    let node = &request.object;
    let name = node["metadata"]["name"].as_str().unwrap_or(&request.name);
    let guarded = view.guarded(name)?;
    if !guarded.if_stale.evictions
        || guarded.says_not_ready
        || node["metadata"]["uid"] != guarded.uid.as_str()
    {
        return Err(PassReason::NotProtected);
    }
    let taints = node["spec"]["taints"].as_array().ok_or(PassReason::Nothing)?;
    let kept: Vec<Value> = taints.iter().filter(|taint| !evicts(taint)).cloned().collect();
    if kept.len() == taints.len() {
        return Err(PassReason::Nothing);
    }
    Ok(Correction::of_list(
        &["spec", "taints"],
        node["spec"]["taints"].clone(),
        kept.into(),
        vec![name.to_owned()],
        format!("node {name} without NoExecute taints"),
    ))
}

fn evicts(taint: &Value) -> bool {
    taint["effect"] == "NoExecute" && taint["key"] == taints::UNREACHABLE
}
