//! Roles, their bindings, and webhook configurations.

use super::errors::{Errors, has, items, text};
use super::policy;
use crate::names;
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
    if text(role, "name").is_empty() {
        errors.required("roleRef.name", "");
    } else {
        errors.invalid_text(
            "roleRef.name",
            text(role, "name"),
            names::path_segment(text(role, "name")),
        );
    }
    for (index, subject) in items(object, "subjects") {
        let path = format!("subjects[{index}]");
        if text(subject, "name").is_empty() {
            errors.required(&format!("{path}.name"), "");
        }
        match text(subject, "kind") {
            "ServiceAccount" => {
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
        errors.invalid("roleRef", &new["roleRef"], "cannot change roleRef");
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
}

pub(super) fn webhooks(object: &Value, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, hook) in items(object, "webhooks") {
        let path = format!("webhooks[{index}]");
        let name = text(hook, "name");
        if name.is_empty() {
            errors.required(&format!("{path}.name"), "");
        } else {
            errors.invalid_text(&format!("{path}.name"), name, names::dns_subdomain(name));
            if name.split('.').count() < 3 {
                errors.invalid(
                    &format!("{path}.name"),
                    &hook["name"],
                    "should be a domain with at least three segments separated by dots",
                );
            }
        }
        if seen.contains(&name) {
            errors.duplicate(&format!("{path}.name"), &hook["name"]);
        }
        seen.push(name);
        if hook["admissionReviewVersions"]
            .as_array()
            .is_none_or(Vec::is_empty)
        {
            errors.required(
                &format!("{path}.admissionReviewVersions"),
                "must specify one of v1, v1beta1",
            );
        } else if !items(hook, "admissionReviewVersions").any(|(_, one)| one == "v1" || one == "v1beta1") {
            errors.invalid(
                &format!("{path}.admissionReviewVersions"),
                &hook["admissionReviewVersions"],
                "must include at least one of v1, v1beta1",
            );
        }
        let effects = ["None", "NoneOnDryRun"];
        if text(hook, "sideEffects").is_empty() {
            errors.required(
                &format!("{path}.sideEffects"),
                "must specify one of None, NoneOnDryRun",
            );
        } else if !effects.contains(&text(hook, "sideEffects")) {
            errors.not_supported(&format!("{path}.sideEffects"), &hook["sideEffects"], &effects);
        }
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
        if has(hook, "failurePolicy") && !policy::FAILURE_POLICIES.contains(&text(hook, "failurePolicy")) {
            errors.not_supported(
                &format!("{path}.failurePolicy"),
                &hook["failurePolicy"],
                &policy::FAILURE_POLICIES,
            );
        }
        policy::match_resources(hook, &path, errors);
        client_config(&hook["clientConfig"], &format!("{path}.clientConfig"), errors);
        for (number, rule) in items(hook, "rules") {
            policy::rule(rule, &format!("{path}.rules[{number}]"), errors);
        }
    }
}

fn client_config(config: &Value, path: &str, errors: &mut Errors) {
    match (has(config, "url"), has(config, "service")) {
        (true, false) => {
            let url = text(config, "url");
            if !url.starts_with("https://") {
                errors.invalid(
                    &format!("{path}.url"),
                    &config["url"],
                    &format!("'https' is the only allowed URL scheme; desired format: https://host[/path], got {url}"),
                );
            }
        }
        (false, true) => {
            for name in ["name", "namespace"] {
                if text(&config["service"], name).is_empty() {
                    errors.required(
                        &format!("{path}.service.{name}"),
                        &format!("service {name} is required"),
                    );
                }
            }
        }
        _ => errors.required(path, "exactly one of url or service is required"),
    }
}
