//! Endpoints and EndpointSlices.

use super::errors::{Errors, has, items, text};
use super::service::{PROTOCOLS, app_protocol};
use super::{address, selector};
use crate::names;
use serde_json::{Value, json};

/// Endpoints that did not change are not looked at again.
pub(super) fn endpoints(old: Option<&Value>, object: &Value, errors: &mut Errors) {
    if old.is_some_and(|old| old["subsets"] == object["subsets"]) {
        return;
    }
    for (index, subset) in items(object, "subsets") {
        let path = format!("subsets[{index}]");
        let empty = |name: &str| subset[name].as_array().is_none_or(Vec::is_empty);
        if empty("addresses") && empty("notReadyAddresses") {
            errors.required(&path, "must specify `addresses` or `notReadyAddresses`");
        }
        for list in ["addresses", "notReadyAddresses"] {
            for (number, address) in items(subset, list) {
                endpoint_address(address, &format!("{path}.{list}[{number}]"), errors);
            }
        }
        let several = subset["ports"].as_array().map_or(0, Vec::len) > 1;
        for (number, port) in items(subset, "ports") {
            let path = format!("{path}.ports[{number}]");
            let name = text(port, "name");
            if several && name.is_empty() {
                errors.required(&format!("{path}.name"), "");
            } else if !name.is_empty() {
                errors.invalid_text(&format!("{path}.name"), name, names::dns_label(name));
            }
            errors.port(&format!("{path}.port"), &port["port"]);
            errors.one_of(&format!("{path}.protocol"), &port["protocol"], &PROTOCOLS);
            app_protocol(port, &path, errors);
        }
    }
}

fn endpoint_address(address: &Value, path: &str, errors: &mut Errors) {
    let (field, ip) = (format!("{path}.ip"), text(address, "ip"));
    address::ip(ip, &field, errors);
    let host = text(address, "hostname");
    if !host.is_empty() {
        errors.invalid_text(&format!("{path}.hostname"), host, names::dns_label(host));
    }
    if has(address, "nodeName") {
        let node = text(address, "nodeName");
        errors.invalid_text(&format!("{path}.nodeName"), node, names::dns_subdomain(node));
    }
    address::of_endpoint(ip, &field, errors);
}

/// Bounds of a slice.
const ENDPOINTS: usize = 1_000;
const ADDRESSES: usize = 100;
const PORTS: usize = 20_000;
const TOPOLOGY: usize = 16;
const HINTS: usize = 8;

pub(super) fn slice(old: Option<&Value>, object: &Value, errors: &mut Errors) {
    errors.one_of("addressType", &object["addressType"], &["FQDN", "IPv4", "IPv6"]);
    slice_ports(object, errors);
    if old.is_some_and(|old| old["endpoints"] == object["endpoints"]) {
        return;
    }
    let count = items(object, "endpoints").count();
    if count > ENDPOINTS {
        errors.too_many("endpoints", count, ENDPOINTS);
        return;
    }
    for (index, endpoint) in items(object, "endpoints") {
        let path = format!("endpoints[{index}]");
        slice_addresses(
            endpoint,
            text(object, "addressType"),
            &format!("{path}.addresses"),
            errors,
        );
        if has(endpoint, "nodeName") {
            let node = text(endpoint, "nodeName");
            errors.invalid_text(&format!("{path}.nodeName"), node, names::dns_subdomain(node));
        }
        let (field, topology) = (
            format!("{path}.deprecatedTopology"),
            &endpoint["deprecatedTopology"],
        );
        let count = topology.as_object().map_or(0, serde_json::Map::len);
        if count > TOPOLOGY {
            errors.too_many(&field, count, TOPOLOGY);
        }
        selector::map(topology, &field, errors);
        if has(endpoint, "hostname") {
            let host = text(endpoint, "hostname");
            errors.invalid_text(&format!("{path}.hostname"), host, names::dns_label(host));
        }
        for (list, wrong) in [
            ("forZones", names::label_value as fn(&str) -> Vec<String>),
            ("forNodes", names::dns_subdomain),
        ] {
            let path = format!("{path}.hints.{list}");
            if !hints(&endpoint["hints"], list, &path, wrong, errors) {
                break;
            }
        }
    }
}

/// Whether there are not too many of them.
fn hints(hints: &Value, list: &str, path: &str, wrong: fn(&str) -> Vec<String>, errors: &mut Errors) -> bool {
    let count = items(hints, list).count();
    if count > HINTS {
        errors.too_many(path, count, HINTS);
        return false;
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, hint) in items(hints, list) {
        let (field, name) = (format!("{path}[{index}].name"), text(hint, "name"));
        if seen.contains(&name) {
            errors.duplicate(&field, &name.into());
        }
        seen.push(name);
        errors.invalid_text(&field, name, wrong(name));
    }
    true
}

fn slice_addresses(endpoint: &Value, kind: &str, path: &str, errors: &mut Errors) {
    let count = items(endpoint, "addresses").count();
    if count == 0 {
        errors.required(path, "must contain at least 1 address");
    } else if count > ADDRESSES {
        errors.too_many(path, count, ADDRESSES);
    }
    for (number, value) in items(endpoint, "addresses") {
        let (field, text) = (format!("{path}[{number}]"), value.as_str().unwrap_or_default());
        if kind == "FQDN" {
            domain(text, &field, errors);
            continue;
        }
        if !matches!(kind, "IPv4" | "IPv6") {
            continue;
        }
        let Some(ip) = address::ip(text, &field, errors) else {
            continue;
        };
        if kind == "IPv6" && ip.to_string() != text {
            errors.invalid(&field, value, &format!("must be in canonical form (\"{ip}\")"));
            continue;
        }
        if ip.is_ipv4() != (kind == "IPv4") {
            errors.invalid(path, value, &format!("must be an {kind} address"));
        }
        address::of_endpoint(text, &field, errors);
    }
}

/// A host name of two labels or more.
fn domain(name: &str, field: &str, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(field, "");
        return;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let wrong = names::dns_subdomain(name);
    let label = name.split('.').find(|label| !names::dns_label(label).is_empty());
    if !wrong.is_empty() {
        errors.invalid(field, &name.into(), &wrong.join(","));
    } else if !name.contains('.') {
        errors.invalid(
            field,
            &name.into(),
            "should be a domain with at least two segments separated by dots",
        );
    } else if let Some(label) = label {
        errors.invalid(field, &label.into(), &names::dns_label(label).join(","));
    }
}

fn slice_ports(object: &Value, errors: &mut Errors) {
    let count = items(object, "ports").count();
    if count > PORTS {
        errors.too_many("ports", count, PORTS);
        return;
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, port) in items(object, "ports") {
        let path = format!("ports[{index}]");
        let name = text(port, "name");
        if !name.is_empty() {
            errors.invalid_text(&format!("{path}.name"), name, names::dns_label(name));
        }
        if seen.contains(&name) {
            errors.duplicate(&format!("{path}.name"), &json!(name));
        }
        seen.push(name);
        if has(port, "protocol") {
            errors.one_of_given(&format!("{path}.protocol"), &port["protocol"], &PROTOCOLS);
        } else {
            errors.required(&format!("{path}.protocol"), "");
        }
        app_protocol(port, &path, errors);
    }
}

pub(super) fn slice_update(old: &Value, new: &Value, errors: &mut Errors) {
    errors.immutable("addressType", &old["addressType"], &new["addressType"]);
}
