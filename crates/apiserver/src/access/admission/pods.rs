//! Plugins that give pods and nodes what the scheduler and the taint manager go by.

use super::{append, is_core};
use crate::access::errors::refused;
use crate::request::{Attributes, Operation, Reader};
use evenkeel_kube_rules::status::ApiResult;
use serde_json::{Value, json};
use std::sync::Arc;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const SCHEDULING: &str = "scheduling.k8s.io";

/// DefaultTolerationSeconds: how long pods stay on a node that is not ready or unreachable, unless they say
/// so.
pub(super) struct TolerationSeconds {
    pub(super) not_ready: i64,
    pub(super) unreachable: i64,
}

impl TolerationSeconds {
    pub(super) fn admit(&self, attributes: &mut Attributes) {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        if !writes || !is_core(attributes, "pods") {
            return;
        }
        let Some(pod) = &mut attributes.object else {
            return;
        };
        let missing: Vec<Value> = [(NOT_READY, self.not_ready), (UNREACHABLE, self.unreachable)]
            .into_iter()
            .filter(|(taint, _)| !tolerates(&pod["spec"]["tolerations"], taint))
            .map(|(taint, seconds)| {
                json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
            })
            .collect();
        if !missing.is_empty() {
            append(&mut pod["spec"], "tolerations", missing);
        }
    }
}

/// Whether some toleration is about this NoExecute taint, whatever it says of it.
fn tolerates(tolerations: &Value, taint: &str) -> bool {
    tolerations.as_array().into_iter().flatten().any(|toleration| {
        let text = |key: &str| toleration[key].as_str().unwrap_or_default();
        (text("key") == taint || text("key").is_empty()) && matches!(text("effect"), "NoExecute" | "")
    })
}

/// TaintNodesByCondition: a node that registers is not ready until its controller says so.
pub(super) fn taint_new_node(attributes: &mut Attributes) {
    if attributes.operation != Operation::Create || !is_core(attributes, "nodes") {
        return;
    }
    let Some(node) = &mut attributes.object else {
        return;
    };
    let has = node["spec"]["taints"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule");
    if !has {
        append(
            &mut node["spec"],
            "taints",
            [json!({"key": NOT_READY, "effect": "NoSchedule"})],
        );
    }
}

/// Priority: resolves `priorityClassName`; clients cannot choose the number themselves.
pub(super) fn priority(attributes: &mut Attributes, reader: &dyn Reader) -> ApiResult<()> {
    if !is_core(attributes, "pods") {
        return Ok(());
    }
    match attributes.operation {
        Operation::Create => {}
        Operation::Update => {
            keep_priority(attributes);
            return Ok(());
        }
        Operation::Delete | Operation::Connect => return Ok(()),
    }
    let Some(spec) = attributes.object.as_ref().map(|pod| &pod["spec"]) else {
        return Ok(());
    };
    let asked = spec["priorityClassName"].as_str().unwrap_or_default();
    let class = if asked.is_empty() {
        default_class(reader)
    } else {
        let class = reader.get(SCHEDULING, "priorityclasses", "", asked);
        Some(class.ok_or_else(|| {
            refused(
                attributes,
                &format!("no PriorityClass with name {asked} was found"),
            )
        })?)
    };
    let computed = class
        .as_ref()
        .and_then(|class| class["value"].as_i64())
        .unwrap_or(0);
    let policy = class
        .as_ref()
        .and_then(|class| class["preemptionPolicy"].as_str())
        .unwrap_or("PreemptLowerPriority")
        .to_owned();
    if let Some(given) = spec["priority"].as_i64().filter(|given| *given != computed) {
        return Err(refused(
            attributes,
            &format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"
            ),
        ));
    }
    if let Some(given) = spec["preemptionPolicy"].as_str().filter(|given| *given != policy) {
        return Err(refused(
            attributes,
            &format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            ),
        ));
    }
    let name = class.map(|class| class["metadata"]["name"].clone());
    if let Some(pod) = &mut attributes.object {
        if let Some(name) = name {
            pod["spec"]["priorityClassName"] = name;
        }
        pod["spec"]["priority"] = json!(computed);
        pod["spec"]["preemptionPolicy"] = json!(policy);
    }
    Ok(())
}

/// An update that leaves the priority out does not change it.
fn keep_priority(attributes: &mut Attributes) {
    let Some(old) = attributes
        .old_object
        .as_ref()
        .map(|pod| pod["spec"]["priority"].clone())
    else {
        return;
    };
    if let Some(pod) = &mut attributes.object
        && pod["spec"]["priority"].is_null()
        && !old.is_null()
    {
        pod["spec"]["priority"] = old;
    }
}

/// The global default with the lowest value, as upstream picks among several.
fn default_class(reader: &dyn Reader) -> Option<Arc<Value>> {
    reader
        .list(SCHEDULING, "priorityclasses", None)
        .into_iter()
        .filter(|class| class["globalDefault"] == true)
        .min_by_key(|class| class["value"].as_i64())
}

/// There is one global default at most.
pub(super) fn validate_priority_class(attributes: &Attributes, reader: &dyn Reader) -> ApiResult<()> {
    let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
    if !writes || attributes.gvr.group != SCHEDULING || attributes.gvr.resource != "priorityclasses" {
        return Ok(());
    }
    let Some(class) = attributes
        .object
        .as_ref()
        .filter(|class| class["globalDefault"] == true)
    else {
        return Ok(());
    };
    match default_class(reader) {
        Some(other) if other["metadata"]["name"] != class["metadata"]["name"] => {
            let name = other["metadata"]["name"].as_str().unwrap_or_default();
            Err(refused(
                attributes,
                &format!("PriorityClass {name} is already marked as default. Only one default can exist"),
            ))
        }
        _ => Ok(()),
    }
}
