//! RuntimeClass: pods of a class take its overhead, and run where it can.

use super::{is_core, unusable_name};
use crate::access::errors::refused;
use crate::request::{Attributes, Operation, Reader};
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use serde_json::{Value, json};
use std::sync::Arc;

const OTHER_OVERHEAD: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
const NO_OVERHEAD: &str =
    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";

/// The class of a new pod; `None` for a pod without one, and for all that is no new pod.
fn class_of(attributes: &Attributes, reader: &dyn Reader) -> ApiResult<Option<Arc<Value>>> {
    let name = attributes
        .object
        .as_ref()
        .map(|pod| &pod["spec"]["runtimeClassName"]);
    let Some(name) = name.and_then(Value::as_str) else {
        return Ok(None);
    };
    if let Some(why) = unusable_name(name) {
        return Err(ApiError::unforeseen(why));
    }
    let class = reader.get("node.k8s.io", "runtimeclasses", "", name);
    let missing = || {
        refused(
            attributes,
            &format!("pod rejected: RuntimeClass {name:?} not found"),
        )
    };
    class.ok_or_else(missing).map(Some)
}

fn is_new_pod(attributes: &Attributes) -> bool {
    attributes.operation == Operation::Create && is_core(attributes, "pods")
}

/// Gives a new pod what its class says.
pub(super) fn admit(attributes: &mut Attributes, reader: &dyn Reader) -> ApiResult<()> {
    if !is_new_pod(attributes) {
        return Ok(());
    }
    let Some(class) = class_of(attributes, reader)? else {
        return Ok(());
    };
    let refusal = |attributes: &Attributes, why: &str| Err(refused(attributes, why));
    let overhead = &class["overhead"]["podFixed"];
    let scheduling = &class["scheduling"];
    let Some(pod) = &mut attributes.object else {
        return Ok(());
    };
    let spec = &mut pod["spec"];
    if class["overhead"].is_object() {
        let has_own = spec["overhead"].as_object().is_some_and(|own| !own.is_empty());
        if has_own && spec["overhead"] != *overhead {
            return refusal(attributes, OTHER_OVERHEAD);
        }
        spec["overhead"] = overhead.clone();
    }
    for (key, value) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        match spec["nodeSelector"].get(key) {
            Some(own) if own != value => {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let why = format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                    text(value),
                    text(own)
                );
                return refusal(attributes, &why);
            }
            _ => spec["nodeSelector"][key] = value.clone(),
        }
    }
    if let Some(more) = scheduling["tolerations"].as_array() {
        let own = spec["tolerations"].as_array().cloned().unwrap_or_default();
        spec["tolerations"] = merged(own.into_iter().chain(more.iter().cloned()).collect());
    }
    Ok(())
}

/// Refuses a pod whose overhead is not that of its class, as a webhook may have left it.
pub(super) fn validate(attributes: &Attributes, reader: &dyn Reader) -> ApiResult<()> {
    if !is_new_pod(attributes) {
        return Ok(());
    }
    let class = class_of(attributes, reader)?;
    let overhead = attributes.object.as_ref().map(|pod| &pod["spec"]["overhead"]);
    let Some(overhead) = overhead else {
        return Ok(());
    };
    match class.filter(|class| class["overhead"].is_object()) {
        Some(class) if class["overhead"]["podFixed"] != *overhead => Err(refused(attributes, OTHER_OVERHEAD)),
        None if !overhead.is_null() => Err(refused(attributes, NO_OVERHEAD)),
        _ => Ok(()),
    }
}

/// Tolerations without those that another one covers. Of two that are equal the first stays.
fn merged(all: Vec<Value>) -> Value {
    let mut kept: Vec<Value> = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let later = all.get(index + 1..).unwrap_or_default();
        let is_covered = kept.iter().any(|other| covers(other, one))
            || later.iter().any(|other| other != one && covers(other, one));
        if !is_covered {
            kept.push(one.clone());
        }
    }
    json!(kept)
}

/// Whether `wide` tolerates all that `narrow` tolerates.
fn covers(wide: &Value, narrow: &Value) -> bool {
    let text = |toleration: &Value, name: &str| toleration[name].as_str().unwrap_or_default().to_owned();
    let exists = text(wide, "operator") == "Exists";
    let seconds = |toleration: &Value| toleration["tolerationSeconds"].as_i64();
    if wide == narrow {
        return true;
    }
    let same_key = text(wide, "key") == text(narrow, "key") || (text(wide, "key").is_empty() && exists);
    let same_effect = text(wide, "effect") == text(narrow, "effect") || text(wide, "effect").is_empty();
    let longer = match (seconds(wide), seconds(narrow)) {
        (Some(wide), Some(narrow)) => wide >= narrow,
        (Some(_), None) => false,
        (None, _) => true,
    };
    let longer = longer || text(wide, "effect") != "NoExecute";
    let same_value = match text(wide, "operator").as_str() {
        "Exists" => true,
        "Equal" | "" => text(narrow, "operator") != "Exists" && text(wide, "value") == text(narrow, "value"),
        _ => false,
    };
    same_key && same_effect && longer && same_value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_that_another_one_covers_go() {
        let any = json!({"operator": "Exists"});
        let (a, short) = (
            json!({"key": "a", "operator": "Exists", "effect": "NoExecute"}),
            json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}),
        );
        assert_eq!(merged(vec![short.clone(), a.clone()]), json!([a]));
        assert_eq!(merged(vec![a.clone(), short.clone()]), json!([a]));
        assert_eq!(merged(vec![a.clone(), a.clone()]), json!([a]));
        assert_eq!(merged(vec![a.clone(), any.clone()]), json!([any]));
        let other = json!({"key": "b", "operator": "Equal", "value": "1"});
        assert_eq!(merged(vec![short.clone(), other.clone()]), json!([short, other]));
    }
}
