//! Admission policies and their bindings.

use super::errors::{Errors, has, items, text};
use super::selector;
use crate::names;
use kube_cel::{ScopeContext, check_rule_scope};
use serde_json::{Value, json};

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
pub(super) const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

pub(super) fn policy(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    if !FAILURE_POLICIES.contains(&text(spec, "failurePolicy")) {
        errors.not_supported("spec.failurePolicy", &spec["failurePolicy"], &FAILURE_POLICIES);
    }
    if has(spec, "matchConstraints") {
        let constraints = &spec["matchConstraints"];
        match_resources(constraints, "spec.matchConstraints", errors);
        if items(constraints, "resourceRules").next().is_none() {
            errors.required("spec.matchConstraints.resourceRules", "");
        }
    } else {
        errors.required("spec.matchConstraints", "");
    }
    for (list, needs_name) in [
        ("matchConditions", true),
        ("variables", true),
        ("validations", false),
    ] {
        for (index, item) in items(spec, list) {
            let path = format!("spec.{list}[{index}]");
            if needs_name && text(item, "name").is_empty() {
                errors.required(&format!("{path}.name"), "");
            }
            expression(item, "expression", &path, errors);
        }
    }
    let nothing = |list: &str| items(spec, list).next().is_none();
    if nothing("validations") && nothing("auditAnnotations") {
        for list in ["validations", "auditAnnotations"] {
            errors.required(
                &format!("spec.{list}"),
                "validations or auditAnnotations must contain at least one item",
            );
        }
    }
    for (index, validation) in items(spec, "validations") {
        messages(validation, &format!("spec.validations[{index}]"), errors);
    }
}

fn messages(validation: &Value, path: &str, errors: &mut Errors) {
    let blank = |name: &str| has(validation, name) && text(validation, name).trim().is_empty();
    let given = |name: &str| !text(validation, name).is_empty();
    if given("messageExpression") {
        if blank("messageExpression") {
            errors.invalid(
                &format!("{path}.messageExpression"),
                &validation["messageExpression"],
                "must be non-empty if specified",
            );
        } else {
            expression(validation, "messageExpression", path, errors);
        }
    }
    if given("message") {
        let field = format!("{path}.message");
        if blank("message") {
            errors.invalid(
                &field,
                &validation["message"],
                "message must be non-empty if specified",
            );
        } else if text(validation, "message").trim().contains(['\n', '\r']) {
            errors.invalid(
                &field,
                &validation["message"],
                "message must not contain line breaks",
            );
        }
    }
    if has(validation, "reason") && !REASONS.contains(&text(validation, "reason")) {
        errors.not_supported(&format!("{path}.reason"), &validation["reason"], &REASONS);
    }
}

/// It is there, it can be read, and it uses what there is.
fn expression(item: &Value, name: &str, path: &str, errors: &mut Errors) {
    let (field, expression) = (format!("{path}.{name}"), text(item, name));
    if expression.trim().is_empty() {
        errors.required(&field, "expression is not specified");
        return;
    }
    let unreadable = kube_cel::cel::Program::compile(expression).err();
    let problem = unreadable.map(|error| error.to_string()).or_else(|| {
        let unknown = check_rule_scope(expression, ScopeContext::AdmissionPolicy);
        unknown.into_iter().next().map(|warning| warning.message)
    });
    if let Some(problem) = problem {
        errors.invalid(&field, &item[name], &format!("compilation failed: {problem}"));
    }
}

/// Which requests a webhook, a policy or a binding is for.
pub(super) fn match_resources(resources: &Value, path: &str, errors: &mut Errors) {
    if has(resources, "matchPolicy") && !MATCH_POLICIES.contains(&text(resources, "matchPolicy")) {
        errors.not_supported(
            &format!("{path}.matchPolicy"),
            &resources["matchPolicy"],
            &MATCH_POLICIES,
        );
    }
    for name in ["namespaceSelector", "objectSelector"] {
        selector::selector(&resources[name], &format!("{path}.{name}"), errors);
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for (index, one) in items(resources, list) {
            rule(one, &format!("{path}.{list}[{index}]"), errors);
        }
    }
}

/// A rule of a webhook or a policy.
pub(super) fn rule(rule: &Value, path: &str, errors: &mut Errors) {
    for name in ["operations", "apiGroups", "apiVersions", "resources"] {
        if rule[name].as_array().is_none_or(Vec::is_empty) {
            errors.required(&format!("{path}.{name}"), "");
        }
    }
    for (index, operation) in items(rule, "operations") {
        let field = format!("{path}.operations[{index}]");
        errors.one_of(&field, operation, &OPERATIONS);
    }
    if has(rule, "scope") && !SCOPES.contains(&text(rule, "scope")) {
        errors.not_supported(&format!("{path}.scope"), &rule["scope"], &SCOPES);
    }
}

pub(super) fn binding(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let policy = text(spec, "policyName");
    if policy.is_empty() {
        errors.required("spec.policyName", "");
    } else {
        errors.invalid_text("spec.policyName", policy, names::path_segment(policy));
    }
    if has(spec, "matchResources") {
        match_resources(&spec["matchResources"], "spec.matchResources", errors);
    }
    let mut actions: Vec<&str> = Vec::new();
    for (index, action) in items(spec, "validationActions") {
        let (field, name) = (
            format!("spec.validationActions[{index}]"),
            action.as_str().unwrap_or_default(),
        );
        if !ACTIONS.contains(&name) {
            errors.not_supported(&field, action, &ACTIONS);
        }
        if actions.contains(&name) {
            errors.duplicate(&field, action);
        }
        actions.push(name);
    }
    if actions.is_empty() {
        errors.required(
            "spec.validationActions",
            "at least one validation action is required",
        );
    }
    if actions.contains(&"Deny") && actions.contains(&"Warn") {
        errors.invalid(
            "spec.validationActions",
            &json!(actions),
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)",
        );
    }
}
