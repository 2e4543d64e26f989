//! HorizontalPodAutoscalers, in the form of `autoscaling/v2`.

use super::errors::{Errors, has, items, text};
use super::quota;
use crate::names;
use evenkeel_kube_values::Quantity;
use serde_json::Value;

/// Longest window in which advice is compared, in seconds.
const LONGEST_WINDOW: i64 = 3_600;
/// Longest period of a policy, in seconds.
const LONGEST_PERIOD: i64 = 1_800;
/// Sources of metrics with their members, in the order in which upstream looks at them.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const SOURCE_TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];

pub(super) fn autoscaler(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let least = spec["minReplicas"].as_i64();
    if least.is_some_and(|least| least < 1) {
        errors.invalid(
            "spec.minReplicas",
            &spec["minReplicas"],
            "must be greater than or equal to 1",
        );
    }
    let most = spec["maxReplicas"].as_i64().unwrap_or(0);
    if most == 0 {
        errors.required("spec.maxReplicas", "must be set and greater than 0");
    } else if most < 0 {
        errors.invalid(
            "spec.maxReplicas",
            &most.into(),
            "must be greater than or equal to 1",
        );
    }
    if least.is_some_and(|least| most < least) {
        errors.invalid(
            "spec.maxReplicas",
            &most.into(),
            "must be greater than or equal to `minReplicas`",
        );
    }
    // Of what scales, only these are of the core group.
    let may_be_core = spec["scaleTargetRef"]["kind"] == "ReplicationController";
    reference(
        &spec["scaleTargetRef"],
        "spec.scaleTargetRef",
        may_be_core,
        errors,
    );
    for (index, metric) in items(spec, "metrics") {
        self::metric(metric, &format!("spec.metrics[{index}]"), errors);
    }
    let counts_outside =
        items(spec, "metrics").any(|(_, one)| one["type"] == "Object" || one["type"] == "External");
    if least == Some(0) && !counts_outside {
        errors.forbidden(
            "spec.metrics",
            "must specify at least one Object or External metric to support scaling to zero replicas",
        );
    }
    for name in ["scaleUp", "scaleDown"] {
        if has(&spec["behavior"], name) {
            rules(&spec["behavior"][name], &format!("spec.behavior.{name}"), errors);
        }
    }
}

pub(super) fn status(object: &Value, errors: &mut Errors) {
    for name in ["currentReplicas", "desiredReplicas"] {
        errors.non_negative(&format!("status.{name}"), &object["status"][name]);
    }
}

fn reference(reference: &Value, path: &str, may_be_core: bool, errors: &mut Errors) {
    for name in ["kind", "name"] {
        errors.named(&format!("{path}.{name}"), &reference[name], names::path_segment);
    }
    let version = text(reference, "apiVersion");
    let problem = match version.split('/').count() {
        1 if may_be_core => None,
        1 => Some("apiVersion must specify API group".to_owned()),
        2 => None,
        _ => Some(format!("unexpected GroupVersion string: {version}")),
    };
    if let Some(problem) = problem {
        errors.invalid(&format!("{path}.apiVersion"), &version.into(), &problem);
    }
}

fn metric(metric: &Value, path: &str, errors: &mut Errors) {
    let kind = text(metric, "type");
    let field = format!("{path}.type");
    if kind.is_empty() {
        errors.required(&field, "must specify a metric source type");
    }
    if !SOURCE_TYPES.contains(&kind) {
        errors.not_supported(&field, &kind.into(), &SOURCE_TYPES);
    }
    let present = || SOURCES.iter().filter(|(_, member)| has(metric, member));
    if let Some((_, member)) = present().next() {
        source(member, &metric[*member], &format!("{path}.{member}"), errors);
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == kind);
    match expected {
        Some((_, member)) if !has(metric, member) => errors.required(
            &format!("{path}.{member}"),
            "must populate information for the given metric source",
        ),
        Some(_) => {}
        None => errors.not_supported(&field, &kind.into(), &SOURCE_TYPES),
    }
    if present().count() != 1 {
        for (_, member) in present().filter(|one| Some(*one) != expected) {
            errors.forbidden(
                &format!("{path}.{member}"),
                "must populate the given metric source only",
            );
        }
    }
}

fn source(kind: &str, source: &Value, path: &str, errors: &mut Errors) {
    match kind {
        "object" => reference(
            &source["describedObject"],
            &format!("{path}.describedObject"),
            true,
            errors,
        ),
        "resource" | "containerResource" => {
            let (field, name) = (format!("{path}.name"), text(source, "name"));
            if name.is_empty() {
                errors.required(&field, "must specify a resource name");
            } else if kind == "containerResource" {
                quota::container_resource(name, &field, errors);
            }
        }
        _ => {}
    }
    if kind == "containerResource" {
        let (field, name) = (format!("{path}.container"), text(source, "container"));
        if name.is_empty() {
            errors.required(&field, "must specify a container");
        } else {
            errors.invalid_text(&field, name, names::dns_label(name));
        }
    }
    if let "object" | "external" | "pods" = kind {
        let (field, name) = (format!("{path}.metric.name"), text(&source["metric"], "name"));
        if name.is_empty() {
            errors.required(&field, "must specify a metric name");
        } else {
            errors.invalid_text(&field, name, names::path_segment(name));
        }
    }
    let target = &source["target"];
    let path = format!("{path}.target");
    self::target(target, &path, errors);
    let (value, average, share) = (
        has(target, "value"),
        has(target, "averageValue"),
        has(target, "averageUtilization"),
    );
    let average_field = format!("{path}.averageValue");
    match kind {
        "object" if !value && !average => {
            errors.required(&average_field, "must set either a target value or averageValue");
        }
        "external" if !value && !average => errors.required(
            &average_field,
            "must set either a target value for metric or a per-pod target",
        ),
        "external" if value && average => errors.forbidden(
            &format!("{path}.value"),
            "may not set both a target value for metric and a per-pod target",
        ),
        "pods" if !average => {
            errors.required(&average_field, "must specify a positive target averageValue");
        }
        "resource" | "containerResource" if !share && !average => errors.required(
            &format!("{path}.averageUtilization"),
            "must set either a target raw value or a target utilization",
        ),
        "resource" | "containerResource" if share && average => errors.forbidden(
            &average_field,
            "may not set both a target raw value and a target utilization",
        ),
        _ => {}
    }
}

fn target(target: &Value, path: &str, errors: &mut Errors) {
    let (field, kind) = (format!("{path}.type"), text(target, "type"));
    if kind.is_empty() {
        errors.required(&field, "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        errors.invalid(
            &field,
            &kind.into(),
            "must be either Utilization, Value, or AverageValue",
        );
    }
    for name in ["value", "averageValue"] {
        let quantity = target[name].as_str().and_then(|text| Quantity::parse(text).ok());
        if quantity.is_some_and(|quantity| quantity.is_zero() || quantity.is_negative()) {
            errors.invalid(&format!("{path}.{name}"), &target[name], "must be positive");
        }
    }
    if target["averageUtilization"]
        .as_i64()
        .is_some_and(|share| share < 1)
    {
        errors.invalid(
            &format!("{path}.averageUtilization"),
            &target["averageUtilization"],
            "must be greater than 0",
        );
    }
}

fn rules(rules: &Value, path: &str, errors: &mut Errors) {
    let (field, window) = (
        format!("{path}.stabilizationWindowSeconds"),
        &rules["stabilizationWindowSeconds"],
    );
    if window.as_i64().is_some_and(|seconds| seconds < 0) {
        errors.invalid(&field, window, "must be greater than or equal to zero");
    }
    at_most(window, LONGEST_WINDOW, &field, errors);
    errors.one_of_given(
        &format!("{path}.selectPolicy"),
        &rules["selectPolicy"],
        &["Disabled", "Max", "Min"],
    );
    if items(rules, "policies").next().is_none() {
        errors.required(&format!("{path}.policies"), "must specify at least one Policy");
    }
    for (index, policy) in items(rules, "policies") {
        let path = format!("{path}.policies[{index}]");
        let (kind, known) = (text(policy, "type"), ["Percent", "Pods"]);
        if !known.contains(&kind) {
            errors.not_supported(&format!("{path}.type"), &kind.into(), &known);
        }
        for name in ["value", "periodSeconds"] {
            let number = policy[name].as_i64().unwrap_or(0);
            let field = format!("{path}.{name}");
            if number <= 0 {
                errors.invalid(&field, &number.into(), "must be greater than zero");
            }
            if name == "periodSeconds" {
                at_most(&policy[name], LONGEST_PERIOD, &field, errors);
            }
        }
    }
    quota::non_negative_quantity(&rules["tolerance"], &format!("{path}.tolerance"), errors);
}

fn at_most(value: &Value, most: i64, field: &str, errors: &mut Errors) {
    if value.as_i64().is_some_and(|number| number > most) {
        errors.invalid(field, value, &format!("must be less than or equal to {most}"));
    }
}
