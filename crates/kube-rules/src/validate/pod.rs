//! Pods and pod templates.

use super::checks::{count, integer, is_true, pattern};
use super::container::{self, Scope};
use super::errors::{Errors, has, items, text};
use super::pod_security::Tolerance;
use super::{address, affinity, environment, meta, pod_security, resources, volume};
use crate::names;
use regex::Regex;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// A name of several labels, of which each may hold underscores.
const UNDERSCORED: &str = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
static SEARCH: LazyLock<Regex> = LazyLock::new(|| pattern(&format!("^{UNDERSCORED}$")));

/// A pod, but for its metadata.
pub(super) fn pod(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (metadata, spec) = (&object["metadata"], &object["spec"]);
    pod_security::annotations(metadata, spec, "metadata.annotations", errors);
    let tolerance = Tolerance::of(old.map(|old| &old["spec"]));
    self::spec(spec, "spec", Some(metadata), tolerance, errors);
    if text(spec, "serviceAccountName").is_empty() {
        for (index, volume) in items(spec, "volumes") {
            for (number, source) in items(&volume["projected"], "sources") {
                if has(source, "serviceAccountToken") {
                    let path =
                        format!("spec.volumes[{index}].projected.sources[{number}].serviceAccountToken");
                    errors.forbidden(&path, "must not be specified when serviceAccountName is not set");
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        for (index, container) in items(spec, list) {
            container::image(container, &format!("spec.{list}[{index}]"), errors);
        }
    }
}

/// What is asked of new pods alone.
pub(super) fn create(object: &Value, errors: &mut Errors) {
    let (metadata, spec) = (&object["metadata"], &object["spec"]);
    if count(spec, "ephemeralContainers") > 0 {
        errors.forbidden("spec.ephemeralContainers", "cannot be set on create");
    }
    if !text(spec, "nodeName").is_empty() && count(spec, "schedulingGates") > 0 {
        errors.forbidden(
            "spec.nodeName",
            "cannot be set until all schedulingGates have been cleared",
        );
    }
    pod_security::profiles_agree(metadata, spec, "spec", errors);
}

/// A template: labels, annotations and spec.
pub(super) fn template(template: &Value, path: &str, errors: &mut Errors) {
    template_after(template, None, path, errors);
}

/// A template that takes the place of an old one.
pub(super) fn template_after(template: &Value, old: Option<&Value>, path: &str, errors: &mut Errors) {
    let (metadata, spec) = (&template["metadata"], &template["spec"]);
    template_metadata(template, path, errors);
    let own = format!("{path}.spec");
    self::spec(
        spec,
        &own,
        None,
        Tolerance::of(old.map(|old| &old["spec"])),
        errors,
    );
    pod_security::profiles_agree(metadata, spec, &own, errors);
    if count(spec, "ephemeralContainers") > 0 {
        let why = "ephemeral containers not allowed in pod template";
        errors.forbidden(&format!("{own}.ephemeralContainers"), why);
    }
}

/// Labels and annotations of a template, which upstream has without the metadata around them.
pub(super) fn template_metadata(template: &Value, path: &str, errors: &mut Errors) {
    let metadata = &template["metadata"];
    let annotations = format!("{path}.annotations");
    meta::labels(&metadata["labels"], &format!("{path}.labels"), errors);
    meta::annotations(&metadata["annotations"], &annotations, errors);
    pod_security::annotations(metadata, &template["spec"], &annotations, errors);
}

/// The spec of a pod or of a template; templates come without metadata.
fn spec(spec: &Value, path: &str, metadata: Option<&Value>, tolerance: Tolerance, errors: &mut Errors) {
    if !has(spec, "terminationGracePeriodSeconds") {
        errors.required(&format!("{path}.terminationGracePeriodSeconds"), "");
    }
    let volumes = volume::list(
        spec,
        path,
        metadata.map(|metadata| text(metadata, "name")),
        errors,
    );
    let is_static = metadata.is_some_and(pod_security::is_mirror);
    let claims = resources::claims(spec, path, is_static, errors);
    let scope = Scope {
        volumes,
        claims,
        spec,
    };
    container::all(&scope, path, errors);
    resources::of_pod(spec, path, &scope.claims, errors);
    ports_of_host(spec, path, metadata.is_some(), errors);
    let policies = ["Always", "OnFailure", "Never"];
    errors.one_of(
        &format!("{path}.restartPolicy"),
        &spec["restartPolicy"],
        &policies,
    );
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    errors.one_of(&format!("{path}.dnsPolicy"), &spec["dnsPolicy"], &policies);
    environment::node_selector(spec, path, errors);
    pod_security::pod(spec, path, tolerance, errors);
    affinity::affinity(spec, path, errors);
    resolver(spec, &format!("{path}.dnsConfig"), errors);
    gates(spec, path, errors);
    affinity::spreading(spec, path, errors);
    pod_security::host_processes(spec, path, errors);
    pod_security::host_users(spec, path, errors);
    host_name(spec, &format!("{path}.hostnameOverride"), errors);
    let subdomain = |name: &str, errors: &mut Errors| {
        let value = text(spec, name);
        if !value.is_empty() {
            errors.invalid_text(&format!("{path}.{name}"), value, names::dns_subdomain(value));
        }
    };
    subdomain("serviceAccountName", errors);
    subdomain("nodeName", errors);
    errors.range(spec, path, "activeDeadlineSeconds", (1, i32::MAX.into()));
    for name in ["hostname", "subdomain"] {
        let value = text(spec, name);
        if !value.is_empty() {
            errors.invalid_text(&format!("{path}.{name}"), value, names::dns_label(value));
        }
    }
    affinity::tolerations(&spec["tolerations"], &format!("{path}.tolerations"), errors);
    for (index, alias) in items(spec, "hostAliases") {
        let path = format!("{path}.hostAliases[{index}]");
        address::ip(text(alias, "ip"), &format!("{path}.ip"), errors);
        for (number, name) in items(alias, "hostnames") {
            let name = name.as_str().unwrap_or_default();
            errors.invalid_text(
                &format!("{path}.hostnames[{number}]"),
                name,
                names::dns_subdomain(name),
            );
        }
    }
    subdomain("priorityClassName", errors);
    if has(spec, "runtimeClassName") {
        let name = text(spec, "runtimeClassName");
        errors.invalid_text(
            &format!("{path}.runtimeClassName"),
            name,
            names::dns_subdomain(name),
        );
    }
    if has(spec, "preemptionPolicy") {
        let path = format!("{path}.preemptionPolicy");
        errors.one_of(
            &path,
            &spec["preemptionPolicy"],
            &["PreemptLowerPriority", "Never"],
        );
    }
    let overhead = json!({"limits": spec["overhead"]});
    let owner = resources::Owner::Container;
    resources::requirements(&overhead, &format!("{path}.overhead"), owner, &[], errors);
    pod_security::system(spec, path, errors);
    environment::files(spec, path, errors);
}

/// Ports in the host's network are the container's own.
fn ports_of_host(spec: &Value, path: &str, is_pod: bool, errors: &mut Errors) {
    if !is_true(spec, "hostNetwork") {
        return;
    }
    for (index, container) in items(spec, "containers") {
        for (number, port) in items(container, "ports") {
            let (host, own) = (integer(&port["hostPort"]), integer(&port["containerPort"]));
            if (is_pod || host != 0) && host != own {
                let path = format!("{path}.containers[{index}].ports[{number}].hostPort");
                let why = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&path, &json!(host), why);
            }
        }
    }
}

/// Name servers, search list and options.
fn resolver(spec: &Value, path: &str, errors: &mut Errors) {
    let config = &spec["dnsConfig"];
    let servers = format!("{path}.nameservers");
    if text(spec, "dnsPolicy") == "None" {
        if config.is_null() {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if count(config, "nameservers") == 0 {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(&servers, why);
            return;
        }
    }
    if count(config, "nameservers") > 3 {
        errors.invalid(
            &servers,
            &config["nameservers"],
            "must not have more than 3 nameservers",
        );
    }
    for (index, server) in items(config, "nameservers") {
        let server = server.as_str().unwrap_or_default();
        address::ip(server, &format!("{servers}[{index}]"), errors);
    }
    let searches = format!("{path}.searches");
    let texts = || items(config, "searches").map(|(_, search)| search.as_str().unwrap_or_default());
    if texts().count() > 32 {
        errors.invalid(
            &searches,
            &config["searches"],
            "must not have more than 32 search paths",
        );
    }
    if texts().map(|search| search.len() + 1).sum::<usize>() > 2049 {
        let why = "must not have more than 2048 characters (including spaces) in the search list";
        errors.invalid(&searches, &config["searches"], why);
    }
    for (index, search) in texts().enumerate().filter(|(_, search)| *search != ".") {
        let (path, search) = (
            format!("{searches}[{index}]"),
            search.strip_suffix('.').unwrap_or(search),
        );
        if search.len() > 253 {
            errors.bad(&path, search, "must be no more than 253 characters");
        }
        if !SEARCH.is_match(search) {
            let why = format!(
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{UNDERSCORED}')"
            );
            errors.bad(&path, search, &why);
        }
    }
    for (index, option) in items(config, "options") {
        if text(option, "name").is_empty() {
            errors.required(&format!("{path}.options[{index}]"), "must not be empty");
        }
    }
}

/// What a pod waits for, to be scheduled and to be ready.
fn gates(spec: &Value, path: &str, errors: &mut Errors) {
    for (index, gate) in items(spec, "readinessGates") {
        let kind = text(gate, "conditionType");
        let path = format!("{path}.readinessGates[{index}].conditionType");
        errors.invalid_text(&path, kind, names::qualified(kind));
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, gate) in items(spec, "schedulingGates") {
        let (path, name) = (format!("{path}.schedulingGates[{index}]"), text(gate, "name"));
        errors.invalid_text(&path, name, names::qualified(name));
        if seen.contains(&name) {
            errors.duplicate(&path, &json!(name));
        }
        seen.push(name);
    }
}

fn host_name(spec: &Value, path: &str, errors: &mut Errors) {
    if !has(spec, "hostnameOverride") {
        return;
    }
    for name in ["setHostnameAsFQDN", "hostNetwork"] {
        if is_true(spec, name) {
            errors.forbidden(path, &format!("may not be specified when {name} is true"));
        }
    }
    let name = text(spec, "hostnameOverride");
    if name.len() > 64 {
        errors.too_long(path, 64);
    }
    errors.invalid_text(path, name, names::dns_subdomain(name));
}
