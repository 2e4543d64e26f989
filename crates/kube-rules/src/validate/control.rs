//! Roles, their bindings, and webhook configurations.

use super::errors::{Errors, has, items, text};
use super::{policy, selector};
use crate::names;
use crate::selector::LabelSelector;
use serde_json::{Value, json};

pub(super) fn role_binding(object: &Value, errors: &mut Errors) {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let role = &object["roleRef"];
    if text(role, "apiGroup") != RBAC {
        errors.not_supported("roleRef.apiGroup", &json!(text(role, "apiGroup")), &[RBAC]);
    }
    let kinds: &[&str] = if object["kind"] == "RoleBinding" {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    if !kinds.contains(&text(role, "kind")) {
        errors.not_supported("roleRef.kind", &json!(text(role, "kind")), kinds);
    }
    errors.named("roleRef.name", &role["name"], names::path_segment);
    for (index, subject) in items(object, "subjects") {
        let path = format!("subjects[{index}]");
        if text(subject, "name").is_empty() {
            errors.required(&format!("{path}.name"), "");
        }
        match text(subject, "kind") {
            "ServiceAccount" => {
                let name = text(subject, "name");
                if !name.is_empty() {
                    errors.invalid_text(&format!("{path}.name"), name, names::dns_subdomain(name));
                }
                if !text(subject, "apiGroup").is_empty() {
                    errors.not_supported(&format!("{path}.apiGroup"), &subject["apiGroup"], &[""]);
                }
                if object["kind"] == "ClusterRoleBinding" && text(subject, "namespace").is_empty() {
                    errors.required(&format!("{path}.namespace"), "");
                }
            }
            "User" | "Group" => {
                if text(subject, "apiGroup") != RBAC {
                    errors.not_supported(
                        &format!("{path}.apiGroup"),
                        &json!(text(subject, "apiGroup")),
                        &[RBAC],
                    );
                }
            }
            kind => errors.not_supported(
                &format!("{path}.kind"),
                &json!(kind),
                &["ServiceAccount", "User", "Group"],
            ),
        }
    }
}

pub(super) fn role_binding_update(old: &Value, new: &Value, errors: &mut Errors) {
    if old["roleRef"] != new["roleRef"] {
        errors.invalid_dump(
            "roleRef",
            "io.k8s.api.rbac.v1.RoleRef",
            &new["roleRef"],
            "cannot change roleRef",
        );
    }
}

pub(super) fn role(object: &Value, errors: &mut Errors) {
    let namespaced = object["kind"] == "Role";
    for (index, rule) in items(object, "rules") {
        let path = format!("rules[{index}]");
        let empty = |name: &str| rule[name].as_array().is_none_or(Vec::is_empty);
        if empty("verbs") {
            errors.required(&format!("{path}.verbs"), "verbs must contain at least one value");
        }
        if !empty("nonResourceURLs") {
            if namespaced {
                errors.invalid(
                    &format!("{path}.nonResourceURLs"),
                    &rule["nonResourceURLs"],
                    "namespaced rules cannot apply to non-resource URLs",
                );
            }
            if ["apiGroups", "resources", "resourceNames"]
                .iter()
                .any(|name| !empty(name))
            {
                errors.invalid(
                    &format!("{path}.nonResourceURLs"),
                    &rule["nonResourceURLs"],
                    "rules cannot apply to both regular resources and non-resource URLs",
                );
            }
            continue;
        }
        if empty("apiGroups") {
            errors.required(
                &format!("{path}.apiGroups"),
                "resource rules must supply at least one api group",
            );
        }
        if empty("resources") {
            errors.required(
                &format!("{path}.resources"),
                "resource rules must supply at least one resource",
            );
        }
    }
    if has(object, "aggregationRule") {
        aggregation(&object["aggregationRule"], errors);
    }
}

fn aggregation(rule: &Value, errors: &mut Errors) {
    const PATH: &str = "aggregationRule.clusterRoleSelectors";
    if items(rule, "clusterRoleSelectors").next().is_none() {
        errors.required(
            PATH,
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        );
    }
    for (index, one) in items(rule, "clusterRoleSelectors") {
        let path = format!("{PATH}[{index}]");
        selector::selector(one, &path, errors);
        if LabelSelector::from_object(one).is_err() {
            errors.invalid(&path, &Value::Null, "invalid label selector.");
        }
    }
}

pub(super) fn webhooks(object: &Value, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, hook) in items(object, "webhooks") {
        let path = format!("webhooks[{index}]");
        webhook(hook, &path, errors);
        review_versions(hook, &format!("{path}.admissionReviewVersions"), errors);
        let name = text(hook, "name");
        if seen.contains(&name) {
            errors.duplicate(&format!("{path}.name"), &hook["name"]);
        }
        if !name.is_empty() {
            seen.push(name);
        }
    }
}

fn webhook(hook: &Value, path: &str, errors: &mut Errors) {
    let (field, name) = (format!("{path}.name"), text(hook, "name"));
    let wrong = names::dns_subdomain(name);
    if name.is_empty() {
        errors.required(&field, "");
    } else if !wrong.is_empty() {
        errors.invalid(&field, &name.into(), &wrong.join(","));
    } else if name.split('.').count() < 3 {
        errors.invalid(
            &field,
            &name.into(),
            "should be a domain with at least three segments separated by dots",
        );
    }
    for (number, rule) in items(hook, "rules") {
        policy::rule(rule, &format!("{path}.rules[{number}]"), errors);
    }
    for (name, known) in [
        ("failurePolicy", policy::FAILURE_POLICIES),
        ("matchPolicy", policy::MATCH_POLICIES),
    ] {
        errors.one_of_given(&format!("{path}.{name}"), &hook[name], &known);
    }
    let (field, effects) = (format!("{path}.sideEffects"), ["None", "NoneOnDryRun"]);
    if !has(hook, "sideEffects") {
        errors.required(&field, "must specify one of None, NoneOnDryRun");
    }
    errors.one_of_given(&field, &hook["sideEffects"], &effects);
    if hook["timeoutSeconds"]
        .as_i64()
        .is_some_and(|seconds| !(1..=30).contains(&seconds))
    {
        errors.invalid(
            &format!("{path}.timeoutSeconds"),
            &hook["timeoutSeconds"],
            "the timeout value must be between 1 and 30 seconds",
        );
    }
    for name in ["namespaceSelector", "objectSelector"] {
        selector::selector(&hook[name], &format!("{path}.{name}"), errors);
    }
    errors.one_of_given(
        &format!("{path}.reinvocationPolicy"),
        &hook["reinvocationPolicy"],
        &["IfNeeded", "Never"],
    );
    client_config(&hook["clientConfig"], &format!("{path}.clientConfig"), errors);
    policy::match_conditions(hook, &format!("{path}.matchConditions"), errors);
}

fn review_versions(hook: &Value, path: &str, errors: &mut Errors) {
    const KNOWN: [&str; 2] = ["v1", "v1beta1"];
    let versions: Vec<&str> = items(hook, "admissionReviewVersions")
        .filter_map(|(_, version)| version.as_str())
        .collect();
    if versions.is_empty() {
        errors.required(path, "must specify one of v1, v1beta1");
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        let field = format!("{path}[{index}]");
        if versions[..index].contains(version) {
            errors.invalid(&field, &json!(version), "duplicate version");
        } else {
            errors.invalid_text(&field, version, names::dns_1035_label(version));
        }
    }
    if !versions.iter().any(|version| KNOWN.contains(version)) {
        errors.invalid(
            path,
            &hook["admissionReviewVersions"],
            "must include at least one of v1, v1beta1",
        );
    }
}

fn client_config(config: &Value, path: &str, errors: &mut Errors) {
    match (has(config, "url"), has(config, "service")) {
        (true, false) => url(text(config, "url"), &format!("{path}.url"), errors),
        (false, true) => service(&config["service"], &format!("{path}.service"), errors),
        _ => errors.required(path, "exactly one of url or service is required"),
    }
}

fn url(url: &str, field: &str, errors: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    let authority = if scheme.is_empty() {
        ""
    } else {
        rest.split('/').next().unwrap_or_default()
    };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if scheme != "https" {
        errors.invalid(
            field,
            &scheme.into(),
            &format!("'https' is the only allowed URL scheme{FORM}"),
        );
    }
    if host.is_empty() {
        errors.invalid(field, &json!(""), &format!("host must be specified{FORM}"));
    }
    for (part, what) in [
        (user, "user information is"),
        (fragment, "fragments are"),
        (query, "query parameters are"),
    ] {
        if !part.is_empty() {
            errors.invalid(field, &part.into(), &format!("{what} not permitted in the URL"));
        }
    }
}

fn service(service: &Value, path: &str, errors: &mut Errors) {
    // Upstream takes one for the other when it names what is missing.
    for (name, shown) in [("namespace", "name"), ("name", "namespace")] {
        if text(service, name).is_empty() {
            errors.required(&format!("{path}.{shown}"), "");
        }
    }
    let port = service["port"].as_i64().unwrap_or(0);
    if !(1..=65_535).contains(&port) {
        errors.invalid(
            &format!("{path}.port"),
            &port.into(),
            "port is not valid: must be between 1 and 65535, inclusive",
        );
    }
    let (field, at) = (format!("{path}.path"), text(service, "path"));
    let Some(steps) = at
        .strip_prefix('/')
        .or(Some(at))
        .filter(|steps| !steps.is_empty())
    else {
        return;
    };
    if at == "//" {
        errors.invalid(&field, &at.into(), "segment[0] may not be empty");
        return;
    }
    if !at.starts_with('/') {
        errors.invalid(&field, &at.into(), "must start with a '/'");
    }
    let steps = if at.starts_with('/') {
        steps
    } else {
        // Upstream skips the first byte all the same.
        steps.get(1..).unwrap_or_default()
    };
    for (index, step) in steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate() {
        if step.is_empty() {
            errors.invalid(&field, &at.into(), &format!("segment[{index}] may not be empty"));
        }
        for wrong in names::dns_subdomain(step)
            .into_iter()
            .filter(|_| !step.is_empty())
        {
            errors.invalid(&field, &at.into(), &format!("segment[{index}]: {wrong}"));
        }
    }
}
