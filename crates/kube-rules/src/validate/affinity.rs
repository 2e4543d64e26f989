//! Where pods run: affinity, spreading, tolerations.

use super::checks::{count, integer, members};
use super::errors::{Errors, has, items, text};
use super::selector;
use crate::names;
use crate::strict::json;
use serde_json::{Map, Value, json};

pub(super) const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
pub(super) const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NO_SELECTOR: &str = "must not be specified when labelSelector is not set";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";

/// Affinity to nodes and to other pods.
pub(super) fn affinity(spec: &Value, path: &str, errors: &mut Errors) {
    let affinity = &spec["affinity"];
    let path = format!("{path}.affinity");
    let nodes = &affinity["nodeAffinity"];
    let own = format!("{path}.nodeAffinity");
    if has(nodes, REQUIRED) {
        selector::node_selector(&nodes[REQUIRED], &format!("{own}.{REQUIRED}"), errors);
    }
    for (index, term) in items(nodes, PREFERRED) {
        let path = format!("{own}.{PREFERRED}[{index}]");
        weight(term, &path, errors);
        selector::node_term(&term["preference"], &format!("{path}.preference"), false, errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (pods, path) = (&affinity[kind], format!("{path}.{kind}"));
        for (index, term) in items(pods, REQUIRED) {
            pod_term(term, &format!("{path}.{REQUIRED}[{index}]"), errors);
        }
        for (index, term) in items(pods, PREFERRED) {
            let path = format!("{path}.{PREFERRED}[{index}]");
            weight(term, &path, errors);
            pod_term(
                &term["podAffinityTerm"],
                &format!("{path}.podAffinityTerm"),
                errors,
            );
        }
    }
}

fn weight(term: &Value, path: &str, errors: &mut Errors) {
    let weight = integer(&term["weight"]);
    if !(1..=100).contains(&weight) {
        errors.invalid(
            &format!("{path}.weight"),
            &json!(weight),
            "must be in the range 1-100",
        );
    }
}

fn pod_term(term: &Value, path: &str, errors: &mut Errors) {
    for name in ["labelSelector", "namespaceSelector"] {
        selector::selector(&term[name], &format!("{path}.{name}"), errors);
    }
    for (_, name) in items(term, "namespaces") {
        let name = name.as_str().unwrap_or_default();
        errors.invalid_text(&format!("{path}.namespace"), name, names::dns_label(name));
    }
    label_keys(term, path, errors);
    let (key, path) = (text(term, "topologyKey"), format!("{path}.topologyKey"));
    if key.is_empty() {
        errors.required(&path, "can not be empty");
    }
    errors.invalid_text(&path, key, names::qualified(key));
}

/// Keys whose values a new pod adds to its selector.
fn label_keys(term: &Value, path: &str, errors: &mut Errors) {
    let selector = &term["labelSelector"];
    for list in ["matchLabelKeys", "mismatchLabelKeys"] {
        let path = format!("{path}.{list}");
        if selector.is_null() && count(term, list) > 0 {
            errors.forbidden(&path, NO_SELECTOR);
            continue;
        }
        for (index, key) in items(term, list) {
            let key = key.as_str().unwrap_or_default();
            errors.invalid_text(&format!("{path}[{index}]"), key, names::qualified(key));
        }
    }
    let mut selected: Vec<&str> = members(&selector["matchLabels"])
        .map(|(key, _)| key.as_str())
        .collect();
    for (_, expression) in items(selector, "matchExpressions") {
        let key = text(expression, "key");
        let own = items(term, "matchLabelKeys")
            .filter(|(_, own)| *own == key)
            .last();
        if let Some((index, _)) = own.filter(|_| selected.contains(&key)) {
            // Upstream leaves the list's name out.
            errors.bad(
                &format!("{path}[{index}]"),
                key,
                "exists in both matchLabelKeys and labelSelector",
            );
        }
        selected.push(key);
    }
    for (index, key) in items(term, "matchLabelKeys") {
        if items(term, "mismatchLabelKeys").any(|(_, other)| other == key) {
            let why = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.invalid(&format!("{path}.matchLabelKeys[{index}]"), key, why);
        }
    }
}

/// How pods spread over nodes.
pub(super) fn spreading(spec: &Value, path: &str, errors: &mut Errors) {
    let all: Vec<&Value> = items(spec, "topologySpreadConstraints")
        .map(|(_, one)| one)
        .collect();
    for (index, one) in all.iter().enumerate() {
        let path = format!("{path}.topologySpreadConstraints[{index}]");
        let positive = |name: &str, errors: &mut Errors| {
            let number = integer(&one[name]);
            if number <= 0 {
                errors.invalid(
                    &format!("{path}.{name}"),
                    &json!(number),
                    "must be greater than zero",
                );
            }
        };
        positive("maxSkew", errors);
        let (key, action) = (text(one, "topologyKey"), text(one, "whenUnsatisfiable"));
        if key.is_empty() {
            errors.required(&format!("{path}.topologyKey"), "can not be empty");
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        if !actions.contains(&action) {
            errors.not_supported(&format!("{path}.whenUnsatisfiable"), &json!(action), &actions);
        }
        let repeated = all[index + 1..]
            .iter()
            .any(|other| text(other, "topologyKey") == key && text(other, "whenUnsatisfiable") == action);
        if repeated {
            let path = format!("{path}.{{topologyKey, whenUnsatisfiable}}");
            errors.duplicate(&path, &json!(format!("{{{key}, {action}}}")));
        }
        if has(one, "minDomains") {
            positive("minDomains", errors);
            if action != "DoNotSchedule" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.invalid(&format!("{path}.minDomains"), &one["minDomains"], &why);
            }
        }
        for name in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            errors.known(one, &path, name, &["Honor", "Ignore"]);
        }
        label_keys(one, &path, errors);
        selector::selector(&one["labelSelector"], &format!("{path}.labelSelector"), errors);
    }
}

/// Taints that a pod bears.
pub(super) fn tolerations(list: &Value, path: &str, errors: &mut Errors) {
    for (index, toleration) in list.as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}[{index}]");
        let [key, operator, value, effect] =
            ["key", "operator", "value", "effect"].map(|name| text(toleration, name));
        let (operator_path, effect_path) = (format!("{path}.operator"), format!("{path}.effect"));
        if !key.is_empty() {
            errors.invalid_text(&format!("{path}.key"), key, names::qualified(key));
        } else if operator != "Exists" {
            let why =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.bad(&operator_path, operator, why);
        }
        if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.bad(&effect_path, effect, why);
        }
        match operator {
            "Equal" | "" => {
                let wrong = names::label_value(value);
                if !wrong.is_empty() {
                    errors.bad(&operator_path, value, &wrong.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.bad(
                    &operator_path,
                    value,
                    "value must be empty when `operator` is 'Exists'",
                );
            }
            "Exists" => {}
            // Numbers are compared behind a closed gate; the message tells what the open one has.
            "Lt" | "Gt" => {
                errors.not_supported(&operator_path, &json!(operator), &["Equal", "Exists", "Lt", "Gt"]);
            }
            _ => errors.not_supported(&operator_path, &json!(operator), &["Equal", "Exists"]),
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if !effect.is_empty() && !effects.contains(&effect) {
            errors.not_supported(&effect_path, &json!(effect), &effects);
        }
    }
}

/// Tolerations as old clients write them.
pub(super) fn annotated_tolerations(annotations: &Value, path: &str, errors: &mut Errors) {
    let written = text(annotations, TOLERATIONS);
    if written.is_empty() {
        return;
    }
    let list: Vec<Value> = match json::parse(written.as_bytes()).map(json::Node::into_value) {
        Ok(Value::Array(list)) => list,
        Ok(_) => Vec::new(),
        Err(error) => return errors.bad(path, TOLERATIONS, &error),
    };
    // Go's structure has no names for JSON, so that case does not matter.
    let lowered = list.iter().map(|one| {
        let lower = |(name, value): (&String, &Value)| {
            let mut name = name.clone();
            name.get_mut(..1).map(str::make_ascii_lowercase);
            (name, value.clone())
        };
        Value::Object(members(one).map(lower).collect::<Map<_, _>>())
    });
    tolerations(
        &Value::Array(lowered.collect()),
        &format!("{path}.{TOLERATIONS}"),
        errors,
    );
}
