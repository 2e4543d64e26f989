//! Autoscalers.

use super::cells::{NONE, items, text};
use super::column::{AGE, Cell, NAME, Printer, string};
use serde_json::{Value, json};

/// Metrics that a row shows; of the others it shows the number.
const SHOWN: usize = 2;
const UNKNOWN: &str = "<unknown>";

pub(super) const HORIZONTAL_POD_AUTOSCALER: &[Printer] = &[
    NAME,
    string("Reference", Cell::Made(|object, _| json!(reference(object)))),
    string("Targets", Cell::Made(|object, _| json!(targets(object)))),
    string("MinPods", Cell::Made(|object, _| json!(least(object)))),
    string("MaxPods", Cell::Number("/spec/maxReplicas")),
    string("Replicas", Cell::Number("/status/currentReplicas")),
    AGE,
];

fn reference(object: &Value) -> String {
    let part = |name| text(&object["spec"]["scaleTargetRef"], name);
    format!("{}/{}", part("/kind"), part("/name"))
}

fn least(object: &Value) -> String {
    let least = object["spec"]["minReplicas"].as_i64();
    least.map_or_else(|| "<unset>".to_owned(), |least| least.to_string())
}

fn targets(object: &Value) -> String {
    // Version 1 has one metric at most, in fields of its own.
    let percent = |part: &str, name: &str| object[part][name].as_i64().map(|value| format!("{value}%"));
    if let Some(target) = percent("spec", "targetCPUUtilizationPercentage") {
        let current = percent("status", "currentCPUUtilizationPercentage");
        return format!("cpu: {}/{target}", current.as_deref().unwrap_or(UNKNOWN));
    }
    let specs = items(object, "/spec/metrics");
    let current = items(object, "/status/currentMetrics");
    let texts: Vec<String> = specs
        .iter()
        .take(SHOWN)
        .enumerate()
        .map(|(index, spec)| metric(spec, current.get(index).unwrap_or(&Value::Null)))
        .collect();
    match specs.len() {
        0 => NONE.to_owned(),
        1..=SHOWN => texts.join(", "),
        all => format!("{} + {} more...", texts.join(", "), all - SHOWN),
    }
}

/// One metric as `current/target`.
fn metric(spec: &Value, status: &Value) -> String {
    let (part, prefix) = match text(spec, "/type") {
        "External" => ("external", String::new()),
        "Object" => ("object", String::new()),
        "Pods" => ("pods", String::new()),
        "Resource" => ("resource", format!("{}: ", text(spec, "/resource/name"))),
        "ContainerResource" => (
            "containerResource",
            format!("{}: ", text(spec, "/containerResource/name")),
        ),
        _ => return "<unknown type>".to_owned(),
    };
    let (target, current) = (&spec[part]["target"], &status[part]["current"]);
    let amount = |of: &Value, name: &str| of[name].as_str().map(str::to_owned);
    let shown = |current: Option<String>| current.unwrap_or_else(|| UNKNOWN.to_owned());
    let is_resource = !prefix.is_empty();
    if let Some(average) = amount(target, "averageValue") {
        let suffix = if is_resource || part == "pods" {
            ""
        } else {
            " (avg)"
        };
        return format!(
            "{prefix}{}/{average}{suffix}",
            shown(amount(current, "averageValue"))
        );
    }
    if is_resource {
        let percent = |of: &Value| of["averageUtilization"].as_i64().map(|value| format!("{value}%"));
        let target = percent(target).unwrap_or_else(|| "<auto>".to_owned());
        return format!("{prefix}{}/{target}", shown(percent(current)));
    }
    let target = amount(target, "value").unwrap_or_default();
    format!("{}/{target}", shown(amount(current, "value")))
}
