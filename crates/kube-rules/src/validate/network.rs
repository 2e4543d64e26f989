//! Ingresses, their classes, and network policies.

use super::errors::{Errors, has, items, text};
use super::{address, selector};
use crate::names;
use serde_json::Value;
use std::net::IpAddr;

/// Upstream's bound on the name of a controller.
const CONTROLLER_BYTES: usize = 250;

pub(super) fn ingress_class(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let controller = text(spec, "controller");
    if controller.len() > CONTROLLER_BYTES {
        errors.too_long("spec.controller", CONTROLLER_BYTES);
    }
    domain_prefixed(controller, "spec.controller", errors);
    if has(spec, "parameters") {
        parameters(&spec["parameters"], "spec.parameters", errors);
    }
}

/// A path below a domain, as in `example.com/controller`.
pub(super) fn domain_prefixed(text: &str, field: &str, errors: &mut Errors) {
    const PATH: &str = "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+";
    match text.split_once('/') {
        _ if text.is_empty() => errors.required(field, ""),
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            errors.invalid_text(field, domain, names::dns_subdomain(domain));
            let good = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
            if !path.bytes().all(good) {
                errors.invalid(
                    field,
                    &path.into(),
                    &format!("Invalid path (regex used for validation is '{PATH}')"),
                );
            }
        }
        _ => errors.invalid(
            field,
            &text.into(),
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
    }
}

fn reference(reference: &Value, path: &str, errors: &mut Errors) {
    if has(reference, "apiGroup") {
        let group = text(reference, "apiGroup");
        errors.invalid_text(&format!("{path}.apiGroup"), group, names::dns_subdomain(group));
    }
    for name in ["kind", "name"] {
        errors.named(&format!("{path}.{name}"), &reference[name], names::path_segment);
    }
}

fn parameters(parameters: &Value, path: &str, errors: &mut Errors) {
    reference(parameters, path, errors);
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
        let path = format!("spec.rules[{index}]");
        host(text(rule, "host"), &format!("{path}.host"), errors);
        if has(rule, "http") && items(&rule["http"], "paths").next().is_none() {
            errors.required(&format!("{path}.http.paths"), "");
        }
        for (number, one) in items(&rule["http"], "paths") {
            http_path(one, &format!("{path}.http.paths[{number}]"), errors);
        }
    }
    for (index, tls) in items(spec, "tls") {
        for (number, name) in items(tls, "hosts") {
            let field = format!("spec.tls[{index}].hosts[{number}]");
            host_name(name.as_str().unwrap_or_default(), &field, errors);
        }
        let secret = text(tls, "secretName");
        if !secret.is_empty() {
            let field = format!("spec.tls[{index}].secretName");
            errors.invalid_text(&field, secret, names::dns_subdomain(secret));
        }
    }
    if has(spec, "ingressClassName") {
        let class = text(spec, "ingressClassName");
        errors.invalid_text("spec.ingressClassName", class, names::dns_subdomain(class));
    }
}

/// A new Ingress does not name two classes.
pub(super) fn new_ingress(object: &Value, errors: &mut Errors) {
    const CLASS: &str = "kubernetes.io/ingress.class";
    let annotated = &object["metadata"]["annotations"][CLASS];
    let class = &object["spec"]["ingressClassName"];
    if annotated.is_string() && class.is_string() && annotated != class {
        errors.invalid(
            &format!("annotations.{CLASS}"),
            annotated,
            "must match `ingressClassName` when both are specified",
        );
    }
}

fn host(host: &str, field: &str, errors: &mut Errors) {
    if host.is_empty() {
        return;
    }
    if host.parse::<IpAddr>().is_ok() {
        errors.invalid(field, &host.into(), "must be a DNS name, not an IP address");
    }
    host_name(host, field, errors);
}

fn host_name(host: &str, field: &str, errors: &mut Errors) {
    let wrong = if host.contains('*') {
        names::wildcard_subdomain(host)
    } else {
        names::dns_subdomain(host)
    };
    errors.invalid_text(field, host, wrong);
}

/// Where an Ingress can be reached.
pub(super) fn ingress_status(object: &Value, errors: &mut Errors) {
    for (index, one) in items(&object["status"]["loadBalancer"], "ingress") {
        let path = format!("status.loadBalancer.ingress[{index}]");
        let ip = text(one, "ip");
        if !ip.is_empty() {
            address::ip(ip, &format!("{path}.ip"), errors);
        }
        host_of_balancer(one, &path, errors);
    }
}

/// The name of a point at which a balancer takes connections.
pub(super) fn host_of_balancer(point: &Value, path: &str, errors: &mut Errors) {
    let name = text(point, "hostname");
    if name.is_empty() {
        return;
    }
    let field = format!("{path}.hostname");
    errors.invalid_text(&field, name, names::dns_subdomain(name));
    if name.parse::<IpAddr>().is_ok() {
        errors.invalid(&field, &name.into(), "must be a DNS name, not an IP address");
    }
}

fn http_path(one: &Value, path: &str, errors: &mut Errors) {
    let value = text(one, "path");
    match text(one, "pathType") {
        "" if !has(one, "pathType") => {
            errors.required(&format!("{path}.pathType"), "pathType must be specified");
            return;
        }
        kind @ ("Exact" | "Prefix" | "ImplementationSpecific") => {
            let may_be_absent = kind == "ImplementationSpecific";
            let absent = value.is_empty() && may_be_absent;
            let field = format!("{path}.path");
            if !absent && !value.starts_with('/') {
                errors.invalid(&field, &value.into(), "must be an absolute path");
            }
            if !may_be_absent {
                for part in ["//", "/./", "/../", "%2f", "%2F"] {
                    if value.contains(part) {
                        errors.invalid(&field, &value.into(), &format!("must not contain '{part}'"));
                    }
                }
                for end in ["/..", "/."] {
                    if value.ends_with(end) {
                        errors.invalid(&field, &value.into(), &format!("cannot end with '{end}'"));
                    }
                }
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
        (false, false) => errors.invalid(path, &"".into(), "resource or service backend is required"),
        (true, false) => reference(&backend["resource"], &format!("{path}.resource"), errors),
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
                policy_port(port, &format!("{path}.ports[{number}]"), errors);
            }
            for (number, peer) in items(rule, peers) {
                policy_peer(peer, &format!("{path}.{peers}[{number}]"), errors);
            }
        }
    }
    let known = ["Ingress", "Egress"];
    if items(spec, "policyTypes").count() > known.len() {
        errors.invalid(
            "spec.policyTypes",
            &spec["policyTypes"],
            "may not specify more than two policyTypes",
        );
        return;
    }
    for (index, kind) in items(spec, "policyTypes") {
        errors.one_of_given(&format!("spec.policyTypes[{index}]"), kind, &known);
    }
}

fn policy_port(port: &Value, path: &str, errors: &mut Errors) {
    errors.one_of_given(
        &format!("{path}.protocol"),
        &port["protocol"],
        &["TCP", "UDP", "SCTP"],
    );
    let (number, last) = (&port["port"], &port["endPort"]);
    let last_field = format!("{path}.endPort");
    if let Some(first) = number.as_i64() {
        errors.port(&format!("{path}.port"), number);
        if let Some(end) = last.as_i64() {
            if end < first {
                errors.invalid(&last_field, number, "must be greater than or equal to `port`");
            }
            errors.port(&last_field, last);
        }
        return;
    }
    if !last.is_null() {
        let why = if number.is_null() {
            "not specified"
        } else {
            "non-numeric"
        };
        errors.invalid(
            &last_field,
            last,
            &format!("may not be specified when `port` is {why}"),
        );
    }
    if !number.is_null() {
        errors.port_or_name(&format!("{path}.port"), number);
    }
}

fn policy_peer(peer: &Value, path: &str, errors: &mut Errors) {
    let mut count = 0;
    for name in ["podSelector", "namespaceSelector", "ipBlock"] {
        if !has(peer, name) {
            continue;
        }
        count += 1;
        let path = format!("{path}.{name}");
        if name == "ipBlock" {
            ip_block(&peer[name], &path, errors);
        } else {
            selector::selector(&peer[name], &path, errors);
        }
    }
    if count == 0 {
        errors.required(path, "must specify a peer");
    } else if count > 1 && has(peer, "ipBlock") {
        errors.forbidden(path, "may not specify both ipBlock and another peer");
    }
}

fn ip_block(block: &Value, path: &str, errors: &mut Errors) {
    let (field, cidr) = (format!("{path}.cidr"), text(block, "cidr"));
    if cidr.is_empty() {
        errors.required(&field, "");
        return;
    }
    let Some(whole) = address::range(cidr, &field, errors) else {
        return;
    };
    for (index, except) in items(block, "except") {
        let field = format!("{path}.except[{index}]");
        let range = address::range(except.as_str().unwrap_or_default(), &field, errors);
        if range.is_some_and(|range| !whole.contains_strictly(range)) {
            errors.invalid(&field, except, "must be a strict subset of `cidr`");
        }
    }
}

/// Which object an address is for.
pub(super) fn ip_address(object: &Value, errors: &mut Errors) {
    let parent = &object["spec"]["parentRef"];
    const PATH: &str = "spec.parentRef";
    if parent.is_null() {
        errors.required(PATH, "");
        return;
    }
    let group = text(parent, "group");
    if !group.is_empty() {
        errors.invalid_text(&format!("{PATH}.group"), group, names::dns_subdomain(group));
    }
    for name in ["resource", "name"] {
        errors.named(&format!("{PATH}.{name}"), &parent[name], names::path_segment);
    }
    let namespace = text(parent, "namespace");
    errors.invalid_text(
        &format!("{PATH}.namespace"),
        namespace,
        names::path_segment(namespace),
    );
}

pub(super) fn service_cidr(object: &Value, errors: &mut Errors) {
    const FIELD: &str = "spec.cidrs";
    let cidrs = &object["spec"]["cidrs"];
    let count = cidrs.as_array().map_or(0, Vec::len);
    if count == 0 {
        errors.required(FIELD, "at least one CIDR required");
        return;
    }
    if count > 2 {
        errors.invalid(FIELD, &object["spec"], "may only hold up to 2 values");
        return;
    }
    let ranges: Vec<_> = items(&object["spec"], "cidrs")
        .filter_map(|(index, cidr)| address::range(cidr.as_str()?, &format!("{FIELD}[{index}]"), errors))
        .collect();
    if let [first, second] = ranges[..]
        && first.is_ipv4() == second.is_ipv4()
    {
        errors.invalid(
            FIELD,
            cidrs,
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
        );
    }
}

/// A second family may be added; nothing else changes.
pub(super) fn service_cidr_update(old: &Value, new: &Value, errors: &mut Errors) {
    let list = |object: &Value| object["spec"]["cidrs"].as_array().cloned().unwrap_or_default();
    let (before, after) = (list(old), list(new));
    if before.len() != after.len() && (before.len(), after.len()) != (1, 2) {
        errors.invalid("spec.cidrs", &after.into(), "field is immutable");
        return;
    }
    for (index, (old, new)) in before.iter().zip(&after).enumerate() {
        errors.immutable(&format!("spec.cidrs[{index}]"), old, new);
    }
    if after.len() > before.len() {
        service_cidr(new, errors);
    }
}
