//! Ingresses, their classes, and network policies.

use super::errors::{Errors, has, items, text};
use super::selector;
use crate::names;
use serde_json::Value;

/// Upstream's bound on the name of a controller.
const CONTROLLER_BYTES: usize = 250;

pub(super) fn ingress_class(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let controller = text(spec, "controller");
    if controller.len() > CONTROLLER_BYTES {
        errors.too_long("spec.controller", CONTROLLER_BYTES);
    }
    match controller.split_once('/') {
        _ if controller.is_empty() => errors.required("spec.controller", ""),
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            errors.invalid_text("spec.controller", domain, names::dns_subdomain(domain));
        }
        _ => errors.invalid(
            "spec.controller",
            &spec["controller"],
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
    }
    if has(spec, "parameters") {
        parameters(&spec["parameters"], "spec.parameters", errors);
    }
}

fn parameters(parameters: &Value, path: &str, errors: &mut Errors) {
    if has(parameters, "apiGroup") {
        let group = text(parameters, "apiGroup");
        errors.invalid_text(&format!("{path}.apiGroup"), group, names::dns_subdomain(group));
    }
    for name in ["kind", "name"] {
        let (field, value) = (format!("{path}.{name}"), text(parameters, name));
        if value.is_empty() {
            errors.required(&field, "");
        } else {
            errors.invalid_text(&field, value, names::path_segment(value));
        }
    }
    let namespace = format!("{path}.namespace");
    match text(parameters, "scope") {
        "" if !has(parameters, "scope") => errors.required(&format!("{path}.scope"), ""),
        "Cluster" if has(parameters, "namespace") => {
            errors.forbidden(&namespace, "`parameters.scope` is set to 'Cluster'");
        }
        "Cluster" => {}
        "Namespace" if has(parameters, "namespace") => {
            let value = text(parameters, "namespace");
            errors.invalid_text(&namespace, value, names::dns_label(value));
        }
        "Namespace" => errors.required(&namespace, "`parameters.scope` is set to 'Namespace'"),
        _ => errors.not_supported(
            &format!("{path}.scope"),
            &parameters["scope"],
            &["Cluster", "Namespace"],
        ),
    }
}

pub(super) fn ingress(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    if items(spec, "rules").next().is_none() && !has(spec, "defaultBackend") {
        errors.invalid(
            "spec",
            &spec["rules"],
            "either `defaultBackend` or `rules` must be specified",
        );
    }
    if has(spec, "defaultBackend") {
        backend(&spec["defaultBackend"], "spec.defaultBackend", errors);
    }
    for (index, rule) in items(spec, "rules") {
        if has(rule, "http") && items(&rule["http"], "paths").next().is_none() {
            errors.required(&format!("spec.rules[{index}].http.paths"), "");
        }
        for (number, one) in items(&rule["http"], "paths") {
            let path = format!("spec.rules[{index}].http.paths[{number}]");
            http_path(one, &path, errors);
        }
    }
}

fn http_path(one: &Value, path: &str, errors: &mut Errors) {
    let value = text(one, "path");
    match text(one, "pathType") {
        "" if !has(one, "pathType") => {
            errors.required(&format!("{path}.pathType"), "pathType must be specified");
        }
        kind @ ("Exact" | "Prefix" | "ImplementationSpecific") => {
            let may_be_absent = kind == "ImplementationSpecific";
            let absent = value.is_empty() && may_be_absent;
            if !absent && !value.starts_with('/') {
                errors.invalid(&format!("{path}.path"), &value.into(), "must be an absolute path");
            }
        }
        _ => errors.not_supported(
            &format!("{path}.pathType"),
            &one["pathType"],
            &["Exact", "ImplementationSpecific", "Prefix"],
        ),
    }
    backend(&one["backend"], &format!("{path}.backend"), errors);
}

fn backend(backend: &Value, path: &str, errors: &mut Errors) {
    match (has(backend, "resource"), has(backend, "service")) {
        (true, true) => {
            errors.invalid(path, &"".into(), "cannot set both resource and service backends");
        }
        (false, false) => errors.required(path, "resource or service backend is required"),
        (true, false) => {}
        (false, true) => {
            let service = &backend["service"];
            let name = text(service, "name");
            if name.is_empty() {
                errors.required(&format!("{path}.service.name"), "");
            } else {
                errors.invalid_text(&format!("{path}.service.name"), name, names::dns_label(name));
            }
            let (named, number) = (text(&service["port"], "name"), &service["port"]["number"]);
            let numbered = number.as_i64().is_some_and(|number| number != 0);
            match (named.is_empty(), numbered) {
                (false, true) => errors.invalid(path, &"".into(), "cannot set both port name & port number"),
                (false, false) => {
                    let field = format!("{path}.service.port.name");
                    errors.invalid_text(&field, named, names::port_name(named));
                }
                (true, true) => errors.port(&format!("{path}.service.port.number"), number),
                (true, false) => errors.required(path, "port name or number is required"),
            }
        }
    }
}

pub(super) fn policy(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    selector::selector(&spec["podSelector"], "spec.podSelector", errors);
    for (list, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in items(spec, list) {
            let path = format!("spec.{list}[{index}]");
            for (number, port) in items(rule, "ports") {
                let path = format!("{path}.ports[{number}]");
                if has(port, "protocol") {
                    let known = ["SCTP", "TCP", "UDP"];
                    if !known.contains(&text(port, "protocol")) {
                        errors.not_supported(&format!("{path}.protocol"), &port["protocol"], &known);
                    }
                }
                if has(port, "port") {
                    errors.port_or_name(&format!("{path}.port"), &port["port"]);
                }
            }
            for (number, peer) in items(rule, peers) {
                for name in ["podSelector", "namespaceSelector"] {
                    let field = format!("{path}.{peers}[{number}].{name}");
                    selector::selector(&peer[name], &field, errors);
                }
            }
        }
    }
    for (index, kind) in items(spec, "policyTypes") {
        let known = ["Egress", "Ingress"];
        if !known.contains(&kind.as_str().unwrap_or_default()) {
            errors.not_supported(&format!("spec.policyTypes[{index}]"), kind, &known);
        }
    }
}
