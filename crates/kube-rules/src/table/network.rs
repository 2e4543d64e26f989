//! Services, their endpoints, and what leads to them.

use super::cells::{NONE, int, items, labels, or, selector, size, text, three};
use super::column::{AGE, Cell, NAME, Printer, string};
use crate::gvk::qualified;
use serde_json::{Value, json};

pub(super) const SERVICE: &[Printer] = &[
    NAME,
    string("Type", Cell::Member("/spec/type")),
    string("Cluster-IP", Cell::Text("/spec/clusterIP", NONE)),
    string("External-IP", Cell::Made(|object, _| json!(external_ip(object)))),
    string(
        "Port(s)",
        Cell::Made(|object, _| json!(service_ports(&object["spec"]))),
    ),
    AGE,
    string(
        "Selector",
        Cell::Made(|object, _| json!(labels(&object["spec"]["selector"]))),
    )
    .wide(),
];

pub(super) const ENDPOINTS: &[Printer] = &[
    NAME,
    string("Endpoints", Cell::Made(|object, _| json!(endpoints(object)))),
    AGE,
];

pub(super) const ENDPOINT_SLICE: &[Printer] = &[
    NAME,
    string("AddressType", Cell::Member("/addressType")),
    string("Ports", Cell::Made(|object, _| json!(slice_ports(object)))),
    string(
        "Endpoints",
        Cell::Made(|object, _| json!(slice_addresses(object))),
    ),
    AGE,
];

pub(super) const INGRESS: &[Printer] = &[
    NAME,
    string("Class", Cell::Text("/spec/ingressClassName", NONE)),
    string("Hosts", Cell::Made(|object, _| json!(hosts(object)))),
    string(
        "Address",
        Cell::Made(|object, _| json!(balancer_addresses(object).join(","))),
    ),
    string("Ports", Cell::Made(|object, _| json!(ingress_ports(object)))),
    AGE,
];

pub(super) const INGRESS_CLASS: &[Printer] = &[
    NAME,
    string("Controller", Cell::Text("/spec/controller", "")),
    string("Parameters", Cell::Made(|object, _| json!(parameters(object)))),
    AGE,
];

pub(super) const NETWORK_POLICY: &[Printer] = &[
    NAME,
    string(
        "Pod-Selector",
        Cell::Made(|object, _| selector(&object["spec"]["podSelector"])),
    ),
    AGE,
];

/// Addresses of the load balancer in front of a Service or an Ingress.
fn balancer_addresses(object: &Value) -> Vec<&str> {
    items(object, "/status/loadBalancer/ingress")
        .iter()
        .map(|one| or(text(one, "/ip"), text(one, "/hostname")))
        .collect()
}

fn external_ip(object: &Value) -> String {
    let spec = &object["spec"];
    let external: Vec<&str> = items(spec, "/externalIPs")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    match text(spec, "/type") {
        "ExternalName" => text(spec, "/externalName").to_owned(),
        "LoadBalancer" => {
            let mut addresses = balancer_addresses(object);
            addresses.extend(external);
            or(&addresses.join(","), "<pending>").to_owned()
        }
        _ => or(&external.join(","), NONE).to_owned(),
    }
}

fn service_ports(spec: &Value) -> String {
    let ports: Vec<String> = items(spec, "/ports")
        .iter()
        .map(|port| {
            let (number, protocol) = (int(port, "/port"), text(port, "/protocol"));
            match int(port, "/nodePort") {
                0 => format!("{number}/{protocol}"),
                node => format!("{number}:{node}/{protocol}"),
            }
        })
        .collect();
    or(&ports.join(","), NONE).to_owned()
}

fn endpoints(object: &Value) -> String {
    let mut all = Vec::new();
    for subset in items(object, "/subsets") {
        let ports = items(subset, "/ports");
        for address in items(subset, "/addresses") {
            let ip = text(address, "/ip");
            let host = if ip.contains(':') {
                format!("[{ip}]")
            } else {
                ip.to_owned()
            };
            if ports.is_empty() {
                all.push(ip.to_owned());
            }
            all.extend(ports.iter().map(|port| format!("{host}:{}", int(port, "/port"))));
        }
    }
    three(&all, NONE)
}

fn slice_ports(object: &Value) -> String {
    let ports: Vec<String> = items(object, "/ports")
        .iter()
        .map(|port| {
            port["port"]
                .as_i64()
                .map_or_else(|| "*".to_owned(), |number| number.to_string())
        })
        .collect();
    three(&ports, "<unset>")
}

fn slice_addresses(object: &Value) -> String {
    let addresses: Vec<String> = items(object, "/endpoints")
        .iter()
        .flat_map(|endpoint| items(endpoint, "/addresses"))
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    three(&addresses, "<unset>")
}

fn hosts(object: &Value) -> String {
    let hosts: Vec<String> = items(object, "/spec/rules")
        .iter()
        .map(|rule| or(text(rule, "/host"), "*").to_owned())
        .collect();
    three(&hosts, "*")
}

fn ingress_ports(object: &Value) -> &'static str {
    if size(object, "/spec/tls") > 0 {
        "80, 443"
    } else {
        "80"
    }
}

fn parameters(object: &Value) -> String {
    let parameters = &object["spec"]["parameters"];
    if !parameters.is_object() {
        return NONE.to_owned();
    }
    let kind = qualified(text(parameters, "/apiGroup"), text(parameters, "/kind"));
    format!("{kind}/{}", text(parameters, "/name"))
}
