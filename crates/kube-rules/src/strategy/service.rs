//! Services: what a change of type drops, what was allocated and stays, and the families of addresses.

use super::{items, remove, restore};
use serde_json::{Value, json};

/// Whether a Service of this spec is given node ports that it does not ask for.
pub fn needs_node_ports(spec: &Value) -> bool {
    spec["type"] == "NodePort"
        || spec["type"] == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] != json!(false)
}

/// Whether it has a port at which load balancers check the health of nodes.
pub fn needs_health_port(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

/// Before an update is validated.
pub(super) fn prepare_update(old: &Value, new: &mut Value) {
    drop_of_other_type(&old["spec"], &mut new["spec"]);
    if old["spec"]["type"] == "LoadBalancer" && new["spec"]["type"] != "LoadBalancer" {
        new["status"]["loadBalancer"] = json!({});
    }
    keep_allocated(&old["spec"], &mut new["spec"]);
    prepare(new);
}

/// A change of type drops what the new type has no use for. What the update changes too is left, and refused.
fn drop_of_other_type(old: &Value, new: &mut Value) {
    let typed = |spec: &Value, types: &[&str]| types.contains(&spec["type"].as_str().unwrap_or_default());
    let ports = |spec: &Value| typed(spec, &["NodePort", "LoadBalancer"]);
    let balanced = |spec: &Value| typed(spec, &["LoadBalancer"]);
    let reached = |spec: &Value| {
        let addresses = spec["externalIPs"].as_array();
        ports(spec) || typed(spec, &["ClusterIP"]) && addresses.is_some_and(|list| !list.is_empty())
    };
    // Each is asked of what came in.
    let (lost_ports, lost_check) = (
        ports(old) && !ports(new),
        needs_health_port(old) && !needs_health_port(new),
    );
    let (lost_balancer, lost_reach) = (balanced(old) && !balanced(new), reached(old) && !reached(new));
    for (lost, name) in [
        (lost_check, "healthCheckNodePort"),
        (lost_balancer, "allocateLoadBalancerNodePorts"),
        (lost_balancer, "loadBalancerClass"),
        (lost_reach, "externalTrafficPolicy"),
    ] {
        if lost && new[name] == old[name] {
            remove(new, name);
        }
    }
    let numbers = |spec: &Value| -> Vec<i64> {
        let list = spec["ports"].as_array().into_iter().flatten();
        list.filter_map(|port| port["nodePort"].as_i64()).collect()
    };
    let held = numbers(old);
    if lost_ports && numbers(new).iter().all(|number| held.contains(number)) {
        for port in items(new, "ports") {
            remove(port, "nodePort");
        }
    }
}

/// An update that leaves out what was allocated keeps it, as long as the type still has it.
fn keep_allocated(old: &Value, new: &mut Value) {
    if old["type"] != "ExternalName" && new["type"] != "ExternalName" {
        for name in ["clusterIP", "clusterIPs"] {
            let value = &new[name];
            if value.is_null() || *value == json!("") || *value == json!([]) {
                restore(old, new, name);
            }
        }
    }
    // A client that knows the older field alone changes both.
    if new["clusterIP"] != old["clusterIP"] && new["clusterIPs"] == old["clusterIPs"] {
        new["clusterIPs"] = json!([new["clusterIP"]]);
    }
    if new["ipFamilyPolicy"].is_null() {
        restore(old, new, "ipFamilyPolicy");
    }
    if needs_node_ports(old) && needs_node_ports(new) {
        keep_node_ports(old, new);
    }
    let asked = new["healthCheckNodePort"].as_i64().is_some_and(|port| port != 0);
    if needs_health_port(old) && needs_health_port(new) && !asked {
        restore(old, new, "healthCheckNodePort");
    }
}

/// A port keeps its node port by its name, whatever else of it changes.
fn keep_node_ports(old: &Value, new: &mut Value) {
    let name = |port: &Value| port["name"].as_str().unwrap_or_default().to_owned();
    let ports = |spec: &Value| spec["ports"].as_array().cloned().unwrap_or_default();
    let number = |port: &Value| port["nodePort"].as_i64().filter(|number| *number != 0);
    let asked: Vec<i64> = ports(new).iter().filter_map(number).collect();
    let held = ports(old);
    for port in items(new, "ports") {
        // Of two old ports of one name, the later counts.
        let kept = held
            .iter()
            .rfind(|other| name(other) == name(port))
            .and_then(number);
        if let Some(kept) = kept.filter(|kept| number(port).is_none() && !asked.contains(kept)) {
            port["nodePort"] = json!(kept);
        }
    }
}

/// `clusterIPs` mirrors `clusterIP`; families are those of a cluster with IPv4 alone. Addresses and node
/// ports are allocated by the caller, which knows those in use.
pub(super) fn prepare(object: &mut Value) {
    let spec = &mut object["spec"];
    if spec["type"] == json!("ExternalName") {
        for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            remove(spec, name);
        }
        // Upstream drops this on reading. What is not one of its values is left, and refused.
        if matches!(spec["internalTrafficPolicy"].as_str(), Some("Cluster" | "Local")) {
            remove(spec, "internalTrafficPolicy");
        }
        return;
    }
    let ips = spec["clusterIPs"].as_array().cloned().unwrap_or_default();
    let ip = spec["clusterIP"].as_str().unwrap_or_default().to_owned();
    let headless = ip == "None";
    if !ip.is_empty() && ips.is_empty() {
        spec["clusterIPs"] = json!([ip]);
    }
    let selects = spec["selector"]
        .as_object()
        .is_some_and(|selector| !selector.is_empty());
    let free = headless && !selects;
    if spec.get("ipFamilyPolicy").is_none_or(Value::is_null) {
        spec["ipFamilyPolicy"] = json!(if free { "RequireDualStack" } else { "SingleStack" });
    }
    if spec["ipFamilies"].as_array().is_none_or(Vec::is_empty) {
        // Those of the addresses that were asked for, or else that of the cluster.
        let mut families: Vec<&str> = spec["clusterIPs"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .filter(|ip| *ip != "None")
            .map(|ip| if ip.contains(':') { "IPv6" } else { "IPv4" })
            .collect();
        families.dedup();
        spec["ipFamilies"] = if families.is_empty() {
            json!(["IPv4"])
        } else {
            json!(families)
        };
    }
    // Nothing is allocated for these, so that they may have a family that the cluster lacks.
    if free && spec["ipFamilyPolicy"] != "SingleStack" {
        let families = spec["ipFamilies"].as_array_mut();
        if let Some(families) = families.filter(|families| families.len() == 1) {
            let other = if families[0] == "IPv4" { "IPv6" } else { "IPv4" };
            families.push(json!(other));
        }
    }
    if let Some(members) = spec.as_object_mut()
        && members.get("clusterIP").is_some_and(Value::is_null)
    {
        members.remove("clusterIP");
    }
}
