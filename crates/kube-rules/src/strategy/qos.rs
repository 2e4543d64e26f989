//! Quality of service of a pod.

use crate::quantity::Quantity;
use serde_json::Value;
use std::cmp::Ordering;

/// `Guaranteed` if every container has equal requests and limits of CPU and memory, `BestEffort` if none has any,
/// else `Burstable`.
pub(crate) fn qos_class(spec: &Value) -> &'static str {
    let pod_level = &spec["resources"];
    let containers: Vec<&Value> = if has_any(pod_level) {
        vec![pod_level]
    } else {
        ["containers", "initContainers"]
            .iter()
            .flat_map(|list| spec[*list].as_array().into_iter().flatten())
            .map(|container| &container["resources"])
            .collect()
    };
    if !containers.iter().any(|resources| has_any(resources)) {
        return "BestEffort";
    }
    if containers.iter().all(|resources| is_guaranteed(resources)) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

const COUNTED: [&str; 2] = ["cpu", "memory"];

fn quantity(resources: &Value, list: &str, name: &str) -> Option<Quantity> {
    let quantity = Quantity::parse(resources[list][name].as_str()?).ok()?;
    (!quantity.is_zero()).then_some(quantity)
}

fn has_any(resources: &Value) -> bool {
    COUNTED.iter().any(|name| {
        ["requests", "limits"]
            .iter()
            .any(|list| quantity(resources, list, name).is_some())
    })
}

fn is_guaranteed(resources: &Value) -> bool {
    COUNTED.iter().all(|name| {
        let limit = quantity(resources, "limits", name);
        let request = quantity(resources, "requests", name).or(limit);
        matches!((request, limit), (Some(request), Some(limit)) if request.compare(limit) == Ordering::Equal)
    })
}
