//! Admission policies and their bindings.

use super::errors::{Errors, has, items, text};
use super::{other, selector};
use crate::cel;
use crate::names;
use kube_cel::{ScopeContext, check_rule_scope};
use serde_json::{Value, json};

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
pub(super) const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
pub(super) const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

/// What a status says of the types of expressions, and its conditions.
pub(super) fn status(status: &Value, errors: &mut Errors) {
    for (index, warning) in items(&status["typeChecking"], "expressionWarnings") {
        let path = format!("status.typeChecking.expressionWarnings[{index}]");
        for name in ["fieldRef", "warning"] {
            if text(warning, name).is_empty() {
                errors.required(&format!("{path}.{name}"), "");
            }
        }
    }
    other::conditions(status, "status.conditions", errors);
}

pub(super) fn policy(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    if !FAILURE_POLICIES.contains(&text(spec, "failurePolicy")) {
        errors.not_supported("spec.failurePolicy", &spec["failurePolicy"], &FAILURE_POLICIES);
    }
    if has(spec, "paramKind") {
        param_kind(&spec["paramKind"], "spec.paramKind", errors);
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
    match_conditions(spec, "spec.matchConditions", errors);
    for (index, variable) in items(spec, "variables") {
        let path = format!("spec.variables[{index}]");
        let (field, name) = (format!("{path}.name"), text(variable, "name"));
        if name.trim().is_empty() {
            errors.required(&field, "name is not specified");
        } else if !is_identifier(name) {
            errors.invalid(&field, &name.into(), "must be a valid CEL identifier");
        }
        expression(variable, "expression", &path, errors);
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
        let path = format!("spec.validations[{index}]");
        expression(validation, "expression", &path, errors);
        messages(validation, &path, errors);
    }
    audit_annotations(object, errors);
}

fn is_identifier(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let mut bytes = name.bytes();
    bytes.next().is_some_and(letter) && bytes.all(|byte| letter(byte) || byte.is_ascii_digit())
}

fn param_kind(kind: &Value, path: &str, errors: &mut Errors) {
    let (field, api_version) = (format!("{path}.apiVersion"), text(kind, "apiVersion"));
    let parts: Vec<&str> = api_version.split('/').collect();
    let (group, version) = match parts[..] {
        [version] => ("", version),
        [group, version] => (group, version),
        _ => {
            let problem = format!("unexpected GroupVersion string: {api_version}");
            errors.invalid(&field, &api_version.into(), &problem);
            ("", "v1")
        }
    };
    let mut joined = |value: &str, wrong: Vec<String>, before: &str, field: &str| {
        if !wrong.is_empty() {
            errors.invalid(field, &value.into(), &format!("{before}{}", wrong.join(",")));
        }
    };
    if !group.is_empty() {
        joined(group, names::dns_subdomain(group), "", &field);
    }
    if !version.is_empty() {
        joined(version, names::dns_1035_label(version), "", &field);
    }
    let (kind_field, name) = (format!("{path}.kind"), text(kind, "kind"));
    if !name.is_empty() {
        let wrong = names::dns_1035_label(&name.to_lowercase());
        joined(
            name,
            wrong,
            "may have mixed case, but should otherwise match: ",
            &kind_field,
        );
    }
    if api_version.is_empty() {
        errors.required(&field, "");
    } else if version.is_empty() {
        errors.invalid(&field, &api_version.into(), "version must be specified");
    }
    if name.is_empty() {
        errors.required(&kind_field, "");
    }
}

/// Conditions under which a webhook is called, or a policy holds.
pub(super) fn match_conditions(object: &Value, path: &str, errors: &mut Errors) {
    const MOST: usize = 64;
    let mut seen: Vec<&str> = Vec::new();
    let count = items(object, "matchConditions").count();
    if count > MOST {
        errors.too_many(path, count, MOST);
    }
    for (index, condition) in items(object, "matchConditions") {
        let path = format!("{path}[{index}]");
        if text(condition, "expression").trim().is_empty() {
            errors.required(&format!("{path}.expression"), "");
        } else {
            expression(condition, "expression", &path, errors);
        }
        let (field, name) = (format!("{path}.name"), text(condition, "name"));
        errors.named(&field, &condition["name"], names::qualified);
        if seen.contains(&name) {
            errors.duplicate(&field, &name.into());
        } else if !name.is_empty() {
            seen.push(name);
        }
    }
}

fn audit_annotations(object: &Value, errors: &mut Errors) {
    const MOST: usize = 20;
    const BYTES: usize = 5 * 1024;
    let (spec, policy) = (&object["spec"], text(&object["metadata"], "name"));
    if items(spec, "auditAnnotations").count() > MOST {
        errors.invalid(
            "spec.auditAnnotations",
            &spec["auditAnnotations"],
            &format!("must not have more than {MOST} auditAnnotations"),
        );
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, annotation) in items(spec, "auditAnnotations") {
        let path = format!("spec.auditAnnotations[{index}]");
        let (field, key) = (format!("{path}.key"), text(annotation, "key"));
        if policy.is_empty() {
            errors.invalid(&field, &key.into(), "requires metadata.name be non-empty");
        } else {
            let whole = format!("{policy}/{key}");
            errors.invalid_text(&field, &whole, names::qualified(&whole));
        }
        let value = text(annotation, "valueExpression").trim();
        if value.is_empty() {
            errors.required(
                &format!("{path}.valueExpression"),
                "valueExpression is not specified",
            );
        } else if value.len() > BYTES {
            errors.required(
                &format!("{path}.valueExpression"),
                &format!("must not exceed {BYTES} bytes in length"),
            );
        } else {
            expression(annotation, "valueExpression", &path, errors);
        }
        if seen.contains(&key) {
            errors.duplicate(&field, &key.into());
        }
        seen.push(key);
    }
}

fn messages(validation: &Value, path: &str, errors: &mut Errors) {
    let (field, given) = (
        format!("{path}.messageExpression"),
        text(validation, "messageExpression"),
    );
    if !given.is_empty() && given.trim().is_empty() {
        errors.invalid(&field, &given.into(), "must be non-empty if specified");
    } else if !given.is_empty() {
        expression(validation, "messageExpression", path, errors);
    }
    let (field, message) = (format!("{path}.message"), text(validation, "message"));
    if !message.is_empty() && message.trim().is_empty() {
        errors.invalid(&field, &message.into(), "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        errors.invalid(&field, &message.into(), "must not contain line breaks");
    }
    errors.one_of_given(&format!("{path}.reason"), &validation["reason"], &REASONS);
}

/// It is there, it can be read, and it uses what there is.
fn expression(item: &Value, name: &str, path: &str, errors: &mut Errors) {
    let (field, expression) = (format!("{path}.{name}"), text(item, name));
    if expression.trim().is_empty() {
        errors.required(&field, "expression is not specified");
        return;
    }
    let unreadable = cel::compile(expression).err();
    let problem = unreadable.or_else(|| {
        let unknown = cel::compiling(|| check_rule_scope(expression, ScopeContext::AdmissionPolicy));
        let mut found: Vec<(usize, String)> = Vec::new();
        for warning in &unknown {
            let name = warning.message.split('\'').nth(1)?;
            let error = undeclared(expression, name);
            found.extend(error.filter(|error| !found.contains(error)));
        }
        found.sort();
        let texts: Vec<String> = found.into_iter().map(|(_, text)| text).collect();
        let unplaced = || unknown.first().map(|warning| warning.message.clone());
        Some(texts.join("\n"))
            .filter(|text| !text.is_empty())
            .or_else(unplaced)
    });
    if let Some(problem) = problem {
        errors.invalid(&field, &item[name], &format!("compilation failed: {problem}"));
    }
}

/// What upstream's compiler says of a name that it does not know: where it stands, with the line and a mark
/// below it.
fn undeclared(expression: &str, name: &str) -> Option<(usize, String)> {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let at = expression.match_indices(name).map(|(at, _)| at).find(|at| {
        let before = expression[..*at].chars().next_back();
        let after = expression[at + name.len()..].chars().next();
        !before.is_some_and(word) && !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })?;
    let line = expression[..at].matches('\n').count();
    let column = expression[..at].chars().rev().take_while(|c| *c != '\n').count();
    let shown = expression.lines().nth(line)?;
    let text = format!(
        "ERROR: <input>:{}:{}: undeclared reference to '{name}' (in container '')\n | {shown}\n | {}^",
        line + 1,
        column + 1,
        ".".repeat(column)
    );
    Some((at, text))
}

/// Which requests a policy or a binding is for.
fn match_resources(resources: &Value, path: &str, errors: &mut Errors) {
    errors.one_of_given(
        &format!("{path}.matchPolicy"),
        &resources["matchPolicy"],
        &MATCH_POLICIES,
    );
    for name in ["namespaceSelector", "objectSelector"] {
        selector::selector(&resources[name], &format!("{path}.{name}"), errors);
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for (index, one) in items(resources, list) {
            let path = format!("{path}.{list}[{index}]");
            let mut seen: Vec<&str> = Vec::new();
            for (number, name) in items(one, "resourceNames") {
                let (field, name) = (
                    format!("{path}.resourceNames[{number}]"),
                    name.as_str().unwrap_or_default(),
                );
                errors.invalid_text(&field, name, names::path_segment(name));
                if seen.contains(&name) {
                    errors.duplicate(&field, &name.into());
                }
                seen.push(name);
            }
            rule(one, &path, errors);
        }
    }
}

/// A rule of a webhook or a policy.
pub(super) fn rule(rule: &Value, path: &str, errors: &mut Errors) {
    for (name, what) in [
        ("operations", "operations"),
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
    ] {
        let field = format!("{path}.{name}");
        let count = items(rule, name).count();
        if count == 0 {
            errors.required(&field, "");
        }
        if count > 1 && items(rule, name).any(|(_, one)| one == "*") {
            errors.invalid(
                &field,
                &rule[name],
                &format!("if '*' is present, must not specify other {what}"),
            );
        }
        for (index, one) in items(rule, name) {
            let field = format!("{field}[{index}]");
            if name == "operations" {
                errors.one_of_given(&field, one, &OPERATIONS);
            } else if name == "apiVersions" && one == "" {
                errors.required(&field, "");
            }
        }
    }
    resources(rule, &format!("{path}.resources"), errors);
    errors.one_of_given(&format!("{path}.scope"), &rule["scope"], &SCOPES);
}

fn resources(rule: &Value, path: &str, errors: &mut Errors) {
    let listed: Vec<&str> = items(rule, "resources")
        .filter_map(|(_, resource)| resource.as_str())
        .collect();
    if listed.is_empty() {
        errors.required(path, "");
    }
    let (mut all_of, mut of_all): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    // Upstream remembers the last one alone.
    let mut plain = false;
    for (index, resource) in listed.iter().enumerate() {
        let field = format!("{path}[{index}]");
        if resource.is_empty() {
            errors.required(&field, "");
            continue;
        }
        let Some((of, sub)) = resource.split_once('/') else {
            plain = *resource != "*";
            continue;
        };
        let mut excluded = |by: &str| {
            errors.invalid(
                &field,
                &json!(resource),
                &format!("if '{by}' is present, must not specify {resource}"),
            );
        };
        if all_of.contains(&of) {
            excluded(&format!("{of}/*"));
        }
        if of_all.contains(&sub) {
            excluded(&format!("*/{sub}"));
        }
        if sub == "*" {
            all_of.push(of);
        }
        if of == "*" {
            of_all.push(sub);
        }
    }
    if listed.len() > 1 && listed.contains(&"*/*") {
        errors.invalid(
            path,
            &rule["resources"],
            "if '*/*' is present, must not specify other resources",
        );
    }
    if plain && listed.contains(&"*") {
        errors.invalid(
            path,
            &rule["resources"],
            "if '*' is present, must not specify other resources without subresources",
        );
    }
}

fn param_reference(reference: &Value, path: &str, errors: &mut Errors) {
    let (name, selects) = (text(reference, "name"), has(reference, "selector"));
    let both = "name and selector are mutually exclusive";
    if !name.is_empty() {
        let field = format!("{path}.name");
        errors.invalid_text(&field, name, names::path_segment(name));
        if selects {
            errors.forbidden(&field, both);
        }
    }
    if selects {
        let field = format!("{path}.selector");
        selector::selector(&reference["selector"], &field, errors);
        if !name.is_empty() {
            errors.forbidden(&field, both);
        }
    }
    if name.is_empty() && !selects {
        errors.required(path, "one of name or selector must be specified");
    }
    errors.one_of(
        &format!("{path}.parameterNotFoundAction"),
        &json!(text(reference, "parameterNotFoundAction")),
        &["Deny", "Allow"],
    );
}

pub(super) fn binding(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let policy = text(spec, "policyName");
    errors.named("spec.policyName", &json!(policy), names::dns_subdomain);
    if has(spec, "paramRef") {
        param_reference(&spec["paramRef"], "spec.paramRef", errors);
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
