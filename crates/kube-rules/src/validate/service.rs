//! Services.

use super::errors::{Errors, has, items, text};
use super::{address, network, selector};
use crate::names;
use crate::strategy::needs_health_port;
use serde_json::{Value, json};

pub(super) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";

/// A service, new or changed. What it asks of the two families of addresses is [`families`].
pub(super) fn service(object: &Value, errors: &mut Errors) {
    let (annotations, spec) = (&object["metadata"]["annotations"], &object["spec"]);
    const MODE: &str = "service.kubernetes.io/topology-mode";
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    if has(annotations, MODE) && has(annotations, HINTS) && annotations[MODE] != annotations[HINTS] {
        errors.invalid(
            &format!("metadata.annotations[{MODE}]"),
            &annotations[MODE],
            &format!("must match annotations[{HINTS}] when both are specified"),
        );
    }
    let kind = text(spec, "type");
    let headless = spec["clusterIPs"] == json!(["None"]);
    let none = spec["ports"].as_array().is_none_or(Vec::is_empty);
    if none && !headless && kind != "ExternalName" {
        errors.required("spec.ports", "");
    }
    match kind {
        "ExternalName" => external_name(spec, errors),
        "LoadBalancer" | "NodePort" if headless => errors.invalid(
            "spec.clusterIPs[0]",
            &json!("None"),
            &format!("may not be set to 'None' for {kind} services"),
        ),
        _ => {}
    }
    ports(spec, errors);
    selector::map(&spec["selector"], "spec.selector", errors);
    errors.one_of(
        "spec.sessionAffinity",
        &spec["sessionAffinity"],
        &["ClientIP", "None"],
    );
    affinity(spec, errors);
    if kind != "ExternalName" {
        families(spec, errors);
    }
    for (index, ip) in items(spec, "externalIPs") {
        let (field, ip) = (
            format!("spec.externalIPs[{index}]"),
            ip.as_str().unwrap_or_default(),
        );
        if address::ip(ip, &field, errors).is_some() {
            address::of_endpoint(ip, &field, errors);
        }
    }
    errors.one_of(
        "spec.type",
        &spec["type"],
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    );
    taken_twice(spec, kind, errors);
    balancer(spec, kind, errors);
    traffic_policies(spec, kind, errors);
}

fn external_name(spec: &Value, errors: &mut Errors) {
    for name in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let empty = spec[name].as_array().is_some_and(Vec::is_empty);
        if has(spec, name) && !empty {
            errors.forbidden(
                &format!("spec.{name}"),
                "may not be set for ExternalName services",
            );
        }
    }
    let name = text(spec, "externalName");
    // A trailing dot denotes a name as fully qualified.
    let name = json!(name.strip_suffix('.').unwrap_or(name));
    errors.named("spec.externalName", &name, names::dns_subdomain);
}

fn affinity(spec: &Value, errors: &mut Errors) {
    const FIELD: &str = "spec.sessionAffinityConfig";
    let config = &spec["sessionAffinityConfig"];
    match text(spec, "sessionAffinity") {
        "ClientIP" => {
            let missing = if config.is_null() {
                Some(FIELD.to_owned())
            } else if !has(config, "clientIP") {
                Some(format!("{FIELD}.clientIP"))
            } else if !has(&config["clientIP"], "timeoutSeconds") {
                Some(format!("{FIELD}.clientIP.timeoutSeconds"))
            } else {
                None
            };
            if let Some(field) = missing {
                errors.required(&field, "when session affinity type is ClientIP");
                return;
            }
            let timeout = &config["clientIP"]["timeoutSeconds"];
            if !timeout
                .as_i64()
                .is_some_and(|seconds| (1..=86_400).contains(&seconds))
            {
                errors.invalid(
                    &format!("{FIELD}.clientIP.timeoutSeconds"),
                    timeout,
                    "must be greater than 0 and less than 86400",
                );
            }
        }
        "None" if !config.is_null() => {
            errors.forbidden(FIELD, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

/// What is wrong with the addresses and families that a service, changed from `old`, asks for.
pub(super) fn allocation(old: Option<&Value>, object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    if text(spec, "type") == "ExternalName" {
        return;
    }
    families(spec, errors);
    if !errors.list.is_empty() {
        return;
    }
    let single = text(spec, "ipFamilyPolicy") == "SingleStack";
    for (name, many, one) in [
        ("clusterIPs", "cluster IPs", "cluster IP"),
        ("ipFamilies", "IP families", "IP family"),
    ] {
        let count = |spec: &Value| spec[name].as_array().map_or(0, Vec::len);
        let fewer = old.is_some_and(|old| count(&old["spec"]) == 2 && count(spec) == 1);
        let problem = if single && count(spec) == 2 {
            format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {many} are specified")
        } else if !single && fewer {
            format!("must be 'SingleStack' to release the secondary {one}")
        } else {
            continue;
        };
        errors.invalid("spec.ipFamilyPolicy", &spec["ipFamilyPolicy"], &problem);
    }
    if !errors.list.is_empty() {
        return;
    }
    let selects = spec["selector"].as_object().is_some_and(|it| !it.is_empty());
    if selects || spec["clusterIPs"] != json!(["None"]) {
        configured(spec, errors);
    }
}

/// Whether the cluster has what a service asks for: its one range of addresses is of IPv4.
fn configured(spec: &Value, errors: &mut Errors) {
    let foreign = || items(spec, "ipFamilies").filter(|(_, family)| **family == json!("IPv6"));
    for (index, _) in foreign().filter(|(index, _)| spec["clusterIPs"].get(index).is_some()) {
        errors.invalid(
            &format!("spec.clusterIPs[{index}]"),
            &spec["clusterIPs"],
            "IPv6 is not configured on this cluster",
        );
    }
    if !errors.list.is_empty() {
        return;
    }
    if text(spec, "ipFamilyPolicy") == "RequireDualStack" {
        errors.invalid(
            "spec.ipFamilyPolicy",
            &spec["ipFamilyPolicy"],
            "this cluster is not configured for dual-stack services",
        );
    }
    for (index, family) in foreign() {
        errors.invalid(
            &format!("spec.ipFamilies[{index}]"),
            family,
            "not configured on this cluster",
        );
    }
}

/// Addresses, families, and the policy of families: whether they fit each other.
pub(super) fn families(spec: &Value, errors: &mut Errors) {
    const IPS: &str = "spec.clusterIPs";
    let (first, ips) = (text(spec, "clusterIP"), &spec["clusterIPs"]);
    let list: Vec<&str> = items(spec, "clusterIPs")
        .filter_map(|(_, ip)| ip.as_str())
        .collect();
    match (first.is_empty(), list.first()) {
        (false, None) => errors.required(IPS, ""),
        (false, Some(other)) if *other != first => {
            errors.invalid(IPS, ips, "first value must match `clusterIP`");
        }
        (true, Some(_)) => {
            errors.invalid(IPS, ips, "must be empty when `clusterIP` is not specified");
        }
        _ => {}
    }
    let mut seen: Vec<&Value> = Vec::new();
    for (index, family) in items(spec, "ipFamilies") {
        let field = format!("spec.ipFamilies[{index}]");
        errors.one_of_given(&field, family, &["IPv4", "IPv6"]);
        if seen.contains(&family) {
            errors.duplicate(&field, family);
        }
        seen.push(family);
    }
    errors.one_of_given(
        "spec.ipFamilyPolicy",
        &spec["ipFamilyPolicy"],
        &["PreferDualStack", "RequireDualStack", "SingleStack"],
    );
    let before = errors.list.len();
    for (index, ip) in list.iter().enumerate() {
        if index > 0 || *ip != "None" {
            address::ip(ip, &format!("{IPS}[{index}]"), errors);
        } else if list.len() > 1 {
            errors.invalid(IPS, ips, "'None' must be the first and only value");
        }
    }
    let unreadable = errors.list.len() > before;
    if list.len() > 2 {
        errors.invalid(IPS, ips, "may only hold up to 2 values");
    }
    if unreadable {
        return;
    }
    let is_v6 = |ip: &str| ip.contains(':');
    if list.len() > 1 && list.iter().all(|ip| is_v6(ip) == is_v6(list[0])) {
        errors.invalid(IPS, ips, "may specify no more than one IP for each IP family");
    }
    for (index, (ip, family)) in list.iter().zip(&seen).enumerate() {
        let expected = family.as_str().unwrap_or_default();
        if *ip != "None" && (expected == "IPv4") == is_v6(ip) && matches!(expected, "IPv4" | "IPv6") {
            errors.invalid(
                &format!("{IPS}[{index}]"),
                &json!(ip),
                &format!("expected an {expected} value as indicated by `ipFamilies[{index}]`"),
            );
        }
    }
}

/// Ports of nodes, and ports, that two ports of a service ask for.
fn taken_twice(spec: &Value, kind: &str, errors: &mut Errors) {
    let node_port = |port: &Value| port["nodePort"].as_i64().filter(|port| *port != 0);
    if kind == "ClusterIP" {
        for (index, _) in items(spec, "ports").filter(|(_, port)| node_port(port).is_some()) {
            errors.forbidden(
                &format!("spec.ports[{index}].nodePort"),
                "may not be used when `type` is 'ClusterIP'",
            );
        }
    }
    let mut seen: Vec<(&Value, i64)> = Vec::new();
    for (index, port) in items(spec, "ports") {
        let Some(number) = node_port(port) else { continue };
        let key = (&port["protocol"], number);
        if seen.contains(&key) {
            errors.duplicate(&format!("spec.ports[{index}].nodePort"), &json!(number));
        }
        seen.push(key);
    }
    let mut seen: Vec<(&Value, &Value)> = Vec::new();
    for (index, port) in items(spec, "ports") {
        let key = (&port["protocol"], &port["port"]);
        if seen.contains(&key) {
            errors.duplicate_dump(
                &format!("spec.ports[{index}]"),
                "io.k8s.api.core.v1.ServicePort",
                &json!({"protocol": key.0, "port": key.1}),
                "",
            );
        }
        seen.push(key);
    }
}

/// What only a balancer has.
fn balancer(spec: &Value, kind: &str, errors: &mut Errors) {
    const RANGES: &str = "spec.LoadBalancerSourceRanges";
    let balanced = kind == "LoadBalancer";
    let mut ranges = items(spec, "loadBalancerSourceRanges").peekable();
    if ranges.peek().is_some() && !balanced {
        errors.forbidden(RANGES, ONLY_BALANCED);
    }
    for (index, range) in ranges {
        let text = range.as_str().unwrap_or_default().trim();
        address::range(text, &format!("{RANGES}[{index}]"), errors);
    }
    if has(spec, "allocateLoadBalancerNodePorts") && !balanced {
        errors.forbidden("spec.allocateLoadBalancerNodePorts", ONLY_BALANCED);
    }
    if balanced && !has(spec, "allocateLoadBalancerNodePorts") {
        errors.required("allocateLoadBalancerNodePorts", "");
    }
    balancer_class(spec, balanced, errors);
}

fn balancer_class(spec: &Value, balanced: bool, errors: &mut Errors) {
    if has(spec, "loadBalancerClass") {
        let (field, class) = ("spec.loadBalancerClass", text(spec, "loadBalancerClass"));
        if balanced {
            errors.invalid_text(field, class, names::qualified(class));
        } else {
            errors.forbidden(field, ONLY_BALANCED);
        }
    }
}

fn traffic_policies(spec: &Value, kind: &str, errors: &mut Errors) {
    const POLICIES: [&str; 2] = ["Cluster", "Local"];
    let reachable =
        matches!(kind, "NodePort" | "LoadBalancer") || items(spec, "externalIPs").next().is_some();
    let outside = text(spec, "externalTrafficPolicy");
    if reachable {
        errors.one_of(
            "spec.externalTrafficPolicy",
            &spec["externalTrafficPolicy"],
            &POLICIES,
        );
    } else if !outside.is_empty() {
        errors.invalid(
            "spec.externalTrafficPolicy",
            &outside.into(),
            "may only be set for externally-accessible services",
        );
    }
    let checked = needs_health_port(spec);
    let port = spec["healthCheckNodePort"].as_i64().unwrap_or(0);
    if !checked && port != 0 {
        errors.invalid(
            "spec.healthCheckNodePort",
            &port.into(),
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        );
    } else if checked && port != 0 {
        errors.port("spec.healthCheckNodePort", &port.into());
    }
    let inside = &spec["internalTrafficPolicy"];
    if inside.is_null() && matches!(kind, "NodePort" | "LoadBalancer" | "ClusterIP") {
        errors.required("spec.internalTrafficPolicy", "");
    }
    errors.one_of_given("spec.internalTrafficPolicy", inside, &POLICIES);
    errors.one_of_given(
        "spec.trafficDistribution",
        &spec["trafficDistribution"],
        &["PreferClose", "PreferSameZone", "PreferSameNode"],
    );
}

fn ports(spec: &Value, errors: &mut Errors) {
    let several = spec["ports"].as_array().map_or(0, Vec::len) > 1;
    let mut seen: Vec<&str> = Vec::new();
    for (index, port) in items(spec, "ports") {
        let path = format!("spec.ports[{index}]");
        let name = text(port, "name");
        if name.is_empty() && several {
            errors.required(&format!("{path}.name"), "");
        } else if !name.is_empty() {
            errors.invalid_text(&format!("{path}.name"), name, names::dns_label(name));
            if seen.contains(&name) {
                errors.duplicate(&format!("{path}.name"), &port["name"]);
            }
            seen.push(name);
        }
        errors.port(&format!("{path}.port"), &port["port"]);
        errors.one_of(&format!("{path}.protocol"), &port["protocol"], &PROTOCOLS);
        errors.port_or_name(&format!("{path}.targetPort"), &port["targetPort"]);
        app_protocol(port, &path, errors);
    }
}

pub(super) fn app_protocol(port: &Value, path: &str, errors: &mut Errors) {
    if has(port, "appProtocol") {
        let protocol = text(port, "appProtocol");
        errors.invalid_text(
            &format!("{path}.appProtocol"),
            protocol,
            names::qualified(protocol),
        );
    }
}

/// What of a service that has an address may not change.
pub(super) fn update(old: &Value, new: &Value, errors: &mut Errors) {
    let (old, new) = (&old["spec"], &new["spec"]);
    let named = |spec: &Value| text(spec, "type") == "ExternalName";
    let headless = |spec: &Value| spec["clusterIPs"] == json!(["None"]);
    let without_address = headless(old) && headless(new);
    if !named(old) && !named(new) && !without_address {
        kept(old, new, "clusterIPs", "clusterIP", errors);
        if headless(old) == headless(new) {
            kept(old, new, "ipFamilies", "ipFamily", errors);
        }
    }
    let balanced = |spec: &Value| text(spec, "type") == "LoadBalancer";
    if balanced(old) && balanced(new) && old["loadBalancerClass"] != new["loadBalancerClass"] {
        errors.invalid(
            "spec.loadBalancerClass",
            &new["loadBalancerClass"],
            "may not change once set",
        );
    }
    // Upstream looks at the class on each update, and once more with the rest.
    balancer_class(new, balanced(new), errors);
    if needs_health_port(old)
        && needs_health_port(new)
        && old["healthCheckNodePort"] != new["healthCheckNodePort"]
    {
        errors.forbidden("spec.healthCheckNodePort", "field is immutable");
    }
}

/// The first address and the first family stay.
fn kept(old: &Value, new: &Value, list: &str, one: &str, errors: &mut Errors) {
    let values = |spec: &Value| spec[list].as_array().cloned().unwrap_or_default();
    let (before, after) = (values(old), values(new));
    let shown = Value::Array(after.clone());
    let field = |index: usize| format!("spec.{list}[{index}]");
    if before.len() == after.len() {
        for index in (0..before.len()).filter(|index| before[*index] != after[*index]) {
            let index = if list == "clusterIPs" { index } else { 0 };
            errors.invalid(&field(index), &shown, "may not change once set");
        }
        return;
    }
    if before.len() > after.len() && after.is_empty() {
        errors.invalid(&field(0), &shown, &format!("primary {one} can not be unset"));
    }
    if let (Some(before), Some(after)) = (before.first(), after.first())
        && before != after
    {
        errors.invalid(&field(0), &shown, "may not change once set");
    }
    if before.len() > after.len() && after.len() == 1 && new["ipFamilyPolicy"] != "SingleStack" {
        errors.invalid(
            "spec.ipFamilyPolicy",
            &new["ipFamilyPolicy"],
            &format!("must be set to 'SingleStack' when releasing the secondary {one}"),
        );
    }
}

/// Where a balancer can be reached.
pub(super) fn status(object: &Value, errors: &mut Errors) {
    const PATH: &str = "status.loadBalancer.ingress";
    let balancer = &object["status"]["loadBalancer"];
    let mut points = items(balancer, "ingress").peekable();
    if points.peek().is_some() && text(&object["spec"], "type") != "LoadBalancer" {
        errors.forbidden(PATH, "may only be used when `spec.type` is 'LoadBalancer'");
        return;
    }
    for (index, point) in points {
        let path = format!("{PATH}[{index}]");
        let ip = text(point, "ip");
        if !ip.is_empty() {
            address::ip(ip, &format!("{path}.ip"), errors);
        }
        let field = format!("{path}.ipMode");
        match (has(point, "ipMode"), ip.is_empty()) {
            (false, false) => errors.required(&field, "must be specified when `ip` is set"),
            (true, true) => errors.forbidden(&field, "may not be specified when `ip` is not set"),
            _ => errors.one_of_given(&field, &point["ipMode"], &["Proxy", "VIP"]),
        }
        network::host_of_balancer(point, &path, errors);
    }
}
