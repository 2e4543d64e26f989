//! Between the version in which an object is served and the one in which it is stored.
//!
//! Most kinds are stored as they are served. Custom resources convert by their apiVersion alone (strategy
//! `None`); events and autoscalers have two served forms each.

use crate::kinds::Resource;
use evenkeel_kube_rules::gvk::group_version;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// An object in the version in which it is stored.
pub(crate) fn to_stored(resource: &Resource, mut object: Value) -> Value {
    if is_identity(resource) {
        return object;
    }
    match (resource.gvr.group.as_str(), resource.kind.as_str()) {
        ("events.k8s.io", "Event") => rename(&mut object, false),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaler_to_v2(&mut object),
        _ => {}
    }
    object["apiVersion"] = json!(group_version(&resource.stored_group, &resource.stored_version));
    object
}

/// An object in the version in which it is served.
pub(crate) fn to_served(resource: &Resource, object: &Arc<Value>) -> Arc<Value> {
    if is_identity(resource) {
        return object.clone();
    }
    let mut object = (**object).clone();
    match (resource.gvr.group.as_str(), resource.kind.as_str()) {
        ("events.k8s.io", "Event") => rename(&mut object, true),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaler_to_v1(&mut object),
        _ => {}
    }
    object["apiVersion"] = json!(resource.api_version());
    Arc::new(object)
}

/// Whether objects are stored as they are served.
pub(crate) fn is_identity(resource: &Resource) -> bool {
    resource.gvr.version == resource.stored_version && resource.gvr.group == resource.stored_group
}

/// Names of an event's fields: in `v1`, and in `events.k8s.io/v1`.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename(event: &mut Value, forward: bool) {
    let Some(map) = event.as_object_mut() else { return };
    for (core, newer) in EVENT_FIELDS {
        let (from, to) = if forward { (core, newer) } else { (newer, core) };
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
    if forward {
        // The newer form leaves these out where they are empty, the older one writes them always.
        map.retain(|name, value| {
            let optional = matches!(
                name.as_str(),
                "reportingController" | "reportingInstance" | "deprecatedCount" | "note" | "reason" | "type"
            );
            !(optional && (value == "" || *value == 0))
        });
    } else {
        for name in ["involvedObject", "source"] {
            map.entry(name).or_insert_with(|| json!({}));
        }
        for name in ["firstTimestamp", "lastTimestamp", "eventTime"] {
            map.entry(name).or_insert(Value::Null);
        }
        for name in ["reportingComponent", "reportingInstance"] {
            map.entry(name).or_insert_with(|| json!(""));
        }
    }
}

fn cpu_utilization(source: &Value) -> bool {
    source["type"] == "Resource" && source["resource"]["name"] == "cpu"
}

fn autoscaler_to_v2(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        // The second form has a default, which the first one shows once an object is stored.
        let target = spec
            .remove("targetCPUUtilizationPercentage")
            .unwrap_or_else(|| json!(80));
        let target = json!({"type": "Utilization", "averageUtilization": target});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        spec.insert("metrics".to_owned(), json!([metric]));
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        // The first form writes it always.
        if status
            .get("currentReplicas")
            .is_some_and(|replicas| *replicas == 0)
        {
            status.remove("currentReplicas");
        }
        let current = status.remove("currentCPUUtilizationPercentage").map(|current| {
            let current = json!({"name": "cpu", "current": {"averageUtilization": current}});
            json!([{"type": "Resource", "resource": current}])
        });
        // The second form writes this always.
        status.insert("currentMetrics".to_owned(), current.unwrap_or_default());
    }
}

fn autoscaler_to_v1(object: &mut Value) {
    let take = |map: &mut Map<String, Value>, list: &str, to: &str, pointer: &str| {
        let Some(Value::Array(sources)) = map.remove(list) else {
            return;
        };
        let value = sources
            .iter()
            .find(|source| cpu_utilization(source))
            .and_then(|source| source.pointer(pointer));
        if let Some(value) = value {
            map.insert(to.to_owned(), value.clone());
        }
    };
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let pointer = "/resource/target/averageUtilization";
        take(spec, "metrics", "targetCPUUtilizationPercentage", pointer);
        spec.remove("behavior");
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let pointer = "/resource/current/averageUtilization";
        take(
            status,
            "currentMetrics",
            "currentCPUUtilizationPercentage",
            pointer,
        );
        status.remove("conditions");
        status.entry("currentReplicas").or_insert_with(|| json!(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Registry;

    #[test]
    fn both_forms_of_an_event_hold_the_same() {
        let snapshot = Registry::new().snapshot();
        let newer = snapshot.by_gvr("events.k8s.io", "v1", "events").expect("events");
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
            "eventTime": "2026-01-01T00:00:00.000000Z", "regarding": {"kind": "Pod", "name": "p"}, "note": "hello",
            "reportingController": "c", "reportingInstance": "i", "action": "A", "reason": "R", "type": "Normal",
        });
        let stored = to_stored(newer, event.clone());
        assert_eq!(
            (&stored["apiVersion"], &stored["message"]),
            (&json!("v1"), &json!("hello"))
        );
        assert_eq!(stored["involvedObject"]["name"], "p");
        let served = to_served(newer, &Arc::new(stored));
        assert_eq!(
            (&served["note"], &served["regarding"]),
            (&event["note"], &event["regarding"])
        );
    }

    #[test]
    fn the_first_form_of_an_autoscaler_shows_its_cpu_target() {
        let snapshot = Registry::new().snapshot();
        let first = snapshot
            .by_gvr("autoscaling", "v1", "horizontalpodautoscalers")
            .expect("autoscalers");
        let object = json!({
            "apiVersion": "autoscaling/v1", "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50},
            "status": {"currentReplicas": 0, "desiredReplicas": 0},
        });
        let stored = to_stored(first, object.clone());
        assert_eq!(stored["apiVersion"], "autoscaling/v2");
        assert_eq!(
            stored["status"],
            json!({"currentMetrics": null, "desiredReplicas": 0})
        );
        assert_eq!(*to_served(first, &Arc::new(stored)), object);
    }
}
