//! `pods/eviction`: a deletion that disruption budgets may refuse.

use super::context::{ATTEMPTS, Answer, Context};
use super::delete::{DeleteOptions, remove};
use crate::request::Operation;
use crate::request::query::WriteOptions;
use crate::store::{StoreError, Table, key, resource_version};
use evenkeel_kube_rules::gvk::Gvk;
use evenkeel_kube_rules::selector::LabelSelector;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use evenkeel_kube_rules::time::rfc3339;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

/// Disrupted pods that a budget may list before it counts as stuck; upstream's number.
const DISRUPTED_PODS: usize = 2_000;

pub(crate) async fn create(context: &Context) -> ApiResult<Answer> {
    let options = WriteOptions::parse(&context.query, "CreateOptions", &context.user_agent)?;
    let gvk = Gvk {
        group: "policy".to_owned(),
        version: "v1".to_owned(),
        kind: "Eviction".to_owned(),
    };
    let eviction = context.read_body_as(&gvk, options.field_validation)?;
    let name = &context.info.name;
    if eviction["metadata"]["name"] != **name {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let pod = context.stored()?;
    let mut attributes = context.attributes(
        Operation::Create,
        name,
        (Some(eviction), None),
        &options,
        "CreateOptions",
    );
    context.admit(&mut attributes).await?;
    let eviction = attributes.object.take().unwrap_or_default();
    let mut deletion = DeleteOptions::from_value(&eviction["deleteOptions"])?;
    deletion.dry_run |= options.dry_run;
    if !needs_no_budget(&pod) {
        charge(context, &pod, deletion.dry_run)?;
    }
    if !deletion.dry_run {
        deletion.check("", &context.resource.kind, name, &pod)?;
        mark(context)?;
    }
    remove(context, name, &deletion, false).await?;
    Ok(Answer::created())
}

/// Notes on the pod why it goes, for the controllers that will replace it.
fn mark(context: &Context) -> ApiResult<()> {
    let (table, name) = (context.table(), context.info.name.as_str());
    for _ in 0..ATTEMPTS {
        let stored = context.stored()?;
        let mut pod = (*stored).clone();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": rfc3339(Timestamp::now()),
            "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
        });
        set_condition(&mut pod, condition);
        let key = context.key_of(name);
        match context
            .server
            .store
            .update(&table, &key, resource_version(&stored), pod)
        {
            Ok(_) => return Ok(()),
            Err(StoreError::Missing) => return Err(context.not_found(name)),
            Err(_) => {}
        }
    }
    Err(context.modified(name))
}

/// Sets the condition of that type.
fn set_condition(object: &mut Value, condition: Value) {
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = object["status"]["conditions"].as_array_mut() else {
        return;
    };
    match conditions.iter_mut().find(|old| old["type"] == condition["type"]) {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}

/// Pods that are no part of a workload's health.
fn needs_no_budget(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
        || matches!(
            pod["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed" | "Pending")
        )
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Takes one disruption from the pod's budget, if it has one.
fn charge(context: &Context, pod: &Arc<Value>, dry_run: bool) -> ApiResult<()> {
    let namespace = context.info.namespace.as_str();
    let table = Table::new("policy", "poddisruptionbudgets");
    for _ in 0..ATTEMPTS {
        let budgets = context.server.store.list(&table, Some(namespace)).items;
        let mut matching = budgets.iter().filter(|(_, budget)| {
            LabelSelector::from_object(&budget["spec"]["selector"])
                .is_ok_and(|selector| selector.matches_object(pod))
        });
        let Some((_, budget)) = matching.next() else {
            return Ok(());
        };
        if matching.next().is_some() {
            return Err(ApiError::unforeseen(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
        if !is_ready(pod) && unready_may_go(budget) {
            return Ok(());
        }
        let charged = charged(budget, pod, Timestamp::now())?;
        if dry_run {
            return Ok(());
        }
        let name = budget["metadata"]["name"].as_str().unwrap_or_default();
        let written =
            context
                .server
                .store
                .update(&table, &key(namespace, name), resource_version(budget), charged);
        match written {
            Ok(_) | Err(StoreError::Missing) => return Ok(()),
            Err(_) => {}
        }
    }
    Err(too_many(
        None,
        "The disruption budget is being written by others; try again.".to_owned(),
    ))
}

/// Pods that are not ready may go where the budget's policy or its health allows it.
fn unready_may_go(budget: &Value) -> bool {
    let status = |name: &str| budget["status"][name].as_i64().unwrap_or(0);
    match budget["spec"]["unhealthyPodEvictionPolicy"].as_str() {
        Some("AlwaysAllow") => true,
        _ => status("desiredHealthy") > 0 && status("currentHealthy") >= status("desiredHealthy"),
    }
}

fn too_many(retry_after: Option<u64>, cause: String) -> ApiError {
    let mut error = ApiError::new(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    error.details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
    if let Some(seconds) = retry_after {
        error.details["retryAfterSeconds"] = json!(seconds);
        error.retry_after = retry_after;
    }
    error
}

/// The budget with one disruption less, or why there is none to take.
fn charged(budget: &Value, pod: &Value, now: Timestamp) -> ApiResult<Value> {
    let name = budget["metadata"]["name"].as_str().unwrap_or_default();
    let generation = budget["metadata"]["generation"].as_i64().unwrap_or(0);
    let status = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    if status("observedGeneration") < generation {
        let cause = format!("The disruption budget {name} is still being processed by the server.");
        return Err(too_many(Some(10), cause));
    }
    let allowed = status("disruptionsAllowed");
    if allowed < 0 {
        let why = "pdb disruptions allowed is negative";
        return Err(ApiError::forbidden("policy", "poddisruptionbudgets", name, why));
    }
    let disrupted = budget["status"]["disruptedPods"]
        .as_object()
        .map_or(0, serde_json::Map::len);
    if disrupted > DISRUPTED_PODS {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(ApiError::forbidden("policy", "poddisruptionbudgets", name, why));
    }
    if allowed == 0 {
        let (desired, current) = (status("desiredHealthy"), status("currentHealthy"));
        let cause =
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently");
        return Err(too_many(None, cause));
    }
    let mut budget = budget.clone();
    budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
    let pod = pod["metadata"]["name"].as_str().unwrap_or_default();
    budget["status"]["disruptedPods"][pod] = json!(rfc3339(now));
    if allowed == 1 {
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "observedGeneration": generation,
            "lastTransitionTime": rfc3339(now), "reason": "InsufficientPods", "message": "",
        });
        set_condition(&mut budget, condition);
    }
    Ok(budget)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(observed: i64, allowed: i64) -> Value {
        json!({
            "metadata": {"name": "b", "generation": 1},
            "status": {"observedGeneration": observed, "disruptionsAllowed": allowed, "desiredHealthy": 1, "currentHealthy": 1},
        })
    }

    fn pod() -> Value {
        json!({"metadata": {"name": "p"}})
    }

    #[test]
    fn a_budget_that_was_not_looked_at_yet_asks_for_patience() {
        let error = charged(&budget(0, 5), &pod(), Timestamp::UNIX_EPOCH).expect_err("not observed");
        assert_eq!((error.code, error.retry_after), (429, Some(10)));
    }

    #[test]
    fn an_empty_budget_refuses() {
        let error = charged(&budget(1, 0), &pod(), Timestamp::UNIX_EPOCH).expect_err("nothing left");
        assert_eq!(
            error.details["causes"][0]["message"],
            "The disruption budget b needs 1 healthy pods and has 1 currently"
        );
    }

    #[test]
    fn the_last_disruption_is_noted() {
        let charged = charged(&budget(1, 1), &pod(), Timestamp::UNIX_EPOCH).expect("one left");
        assert_eq!(charged["status"]["disruptionsAllowed"], 0);
        assert_eq!(charged["status"]["disruptedPods"]["p"], "1970-01-01T00:00:00Z");
        assert_eq!(charged["status"]["conditions"][0]["reason"], "InsufficientPods");
    }

    #[test]
    fn pods_that_serve_nothing_need_no_budget() {
        assert!(needs_no_budget(&json!({"status": {"phase": "Pending"}})));
        assert!(!needs_no_budget(&json!({"status": {"phase": "Running"}})));
    }
}
