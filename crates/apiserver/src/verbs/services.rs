//! Addresses and node ports of the Service that a request writes.

use super::context::Context;
use crate::allocator::{Claim, needs_health_port};
use evenkeel_kube_rules::status::ApiResult;
use serde_json::{Value, json};

fn is_service(context: &Context) -> bool {
    context.resource.gvr.group.is_empty() && context.resource.gvr.resource == "services"
}

/// Fills in a new Service.
pub(crate) fn claim_for_create<'a>(context: &'a Context, object: &mut Value) -> ApiResult<Claim<'a>> {
    claim(context, &Value::Null, object)
}

/// Fills in a changed Service.
pub(crate) fn claim_for_update<'a>(
    context: &'a Context,
    old: &Value,
    new: &mut Value,
) -> ApiResult<Claim<'a>> {
    claim(context, old, new)
}

fn claim<'a>(context: &'a Context, old: &Value, new: &mut Value) -> ApiResult<Claim<'a>> {
    let allocator = &context.server.services;
    if is_service(context) {
        allocator.claim(old, new)
    } else {
        Ok(allocator.nothing())
    }
}

/// A replacement that does not name what the Service holds keeps it, where its type still has use for it.
pub(crate) fn carry_over(context: &Context, old: &Value, new: &mut Value) {
    if !is_service(context) {
        return;
    }
    let (before, spec) = (&old["spec"], &mut new["spec"]);
    let (was, is) = (before["type"].as_str(), spec["type"].as_str().map(str::to_owned));
    let external = |kind: Option<&str>| kind == Some("ExternalName");
    if external(was) || external(is.as_deref()) || !spec.is_object() {
        return;
    }
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let absent =
            spec[field].is_null() || spec[field] == "" || spec[field].as_array().is_some_and(Vec::is_empty);
        // Who names another address has to name them all.
        let fits = field != "clusterIPs" || spec["clusterIP"] == before["clusterIP"];
        if absent && fits && !before[field].is_null() {
            spec[field] = before[field].clone();
        }
    }
    // A client that knows the older field alone changes both.
    if spec["clusterIP"] != before["clusterIP"] && spec["clusterIPs"] == before["clusterIPs"] {
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
    }
    if !matches!(is.as_deref(), Some("NodePort" | "LoadBalancer")) {
        return;
    }
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if port["nodePort"].as_u64().unwrap_or(0) != 0 {
            continue;
        }
        let same = before["ports"].as_array().into_iter().flatten().find(|old| {
            old["port"] == port["port"] && old["protocol"] == port["protocol"] && !old["nodePort"].is_null()
        });
        if let Some(same) = same {
            port["nodePort"] = same["nodePort"].clone();
        }
    }
    let health = before["healthCheckNodePort"].clone();
    if spec["healthCheckNodePort"].is_null() && needs_health_port(spec) && !health.is_null() {
        spec["healthCheckNodePort"] = health;
    }
}
