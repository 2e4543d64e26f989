//! The addresses and node ports of Services: which are in use, and which a write takes.

use evenkeel_kube_rules::status::{ApiError, ApiResult, FieldError};
use evenkeel_kube_rules::strategy::{needs_health_port, needs_node_ports};
use rand::Rng;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// First address of the range, 10.96.0.0/12: kubeadm's default.
const FIRST: u32 = u32::from_be_bytes([10, 96, 0, 0]);
/// Addresses in it.
const ADDRESSES: u32 = 1 << 20;
/// Upstream's default range of node ports.
const PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;

/// What is in use.
#[derive(Debug, Default)]
pub(crate) struct Allocator {
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    addresses: BTreeSet<Ipv4Addr>,
    ports: BTreeSet<u16>,
}

/// What one write takes, and what it gives back once it has happened. Dropped without [`Claim::keep`],
/// nothing has changed.
#[must_use]
pub(crate) struct Claim<'a> {
    allocator: &'a Allocator,
    taken: Used,
    freed: Used,
}

impl Claim<'_> {
    /// The write has happened.
    pub(crate) fn keep(mut self) {
        self.taken = std::mem::take(&mut self.freed);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.allocator.free(&self.taken);
    }
}

impl Allocator {
    fn used(&self) -> MutexGuard<'_, Used> {
        // Sets have no half-made changes.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self, what: &Used) {
        let mut used = self.used();
        for address in &what.addresses {
            used.addresses.remove(address);
        }
        for port in &what.ports {
            used.ports.remove(port);
        }
    }

    /// Takes what a Service holds that was not made by a request.
    pub(crate) fn hold(&self, service: &Value) {
        let held = held(service);
        let mut used = self.used();
        used.addresses.extend(held.addresses);
        used.ports.extend(held.ports);
    }

    /// Claims what the new state `new` of a Service needs beside what its state `old` has, and fills it in.
    /// `old` is null for a Service that is created.
    pub(crate) fn claim(&self, old: &Value, new: &mut Value) -> ApiResult<Claim<'_>> {
        let mut claim = self.nothing();
        let before = held(old);
        let name = new["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut used = self.used();
        let result = fill(&mut used, &before, &mut new["spec"], &mut claim.taken, &name);
        drop(used);
        result?;
        let after = held(new);
        claim.freed = Used {
            addresses: before.addresses.difference(&after.addresses).copied().collect(),
            ports: before.ports.difference(&after.ports).copied().collect(),
        };
        Ok(claim)
    }

    /// A claim of nothing, for objects that are not Services.
    pub(crate) fn nothing(&self) -> Claim<'_> {
        Claim {
            allocator: self,
            taken: Used::default(),
            freed: Used::default(),
        }
    }

    /// Gives back everything that a Service holds.
    pub(crate) fn release(&self, service: &Value) {
        self.free(&held(service));
    }
}

fn invalid_service(name: &str, field: String, message: String) -> ApiError {
    let error = FieldError {
        reason: "FieldValueInvalid",
        field,
        message,
    };
    ApiError::invalid("", "Service", name, vec![error])
}

/// What a Service holds.
fn held(service: &Value) -> Used {
    let spec = &service["spec"];
    let port = |value: &Value| {
        value
            .as_u64()
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port > 0)
    };
    Used {
        addresses: spec["clusterIP"]
            .as_str()
            .and_then(|text| text.parse().ok())
            .into_iter()
            .collect(),
        ports: spec["ports"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|entry| port(&entry["nodePort"]))
            .chain(port(&spec["healthCheckNodePort"]))
            .collect(),
    }
}

fn fill(used: &mut Used, before: &Used, spec: &mut Value, taken: &mut Used, name: &str) -> ApiResult<()> {
    if spec["type"] == "ExternalName" || !spec.is_object() {
        return Ok(());
    }
    let wanted = spec["clusterIP"]
        .as_str()
        .filter(|text| !text.is_empty())
        .or_else(|| spec["clusterIPs"][0].as_str())
        .unwrap_or_default()
        .to_owned();
    let address = match wanted.as_str() {
        "None" => "None".to_owned(),
        "" => used
            .any_address(taken)
            .map(|address| address.to_string())
            .ok_or_else(|| {
                let why = "failed to allocate a serviceIP: range is full";
                invalid_service(
                    name,
                    "spec.clusterIPs".to_owned(),
                    format!("Invalid value: []: {why}"),
                )
            })?,
        text => {
            used.this_address(text, before, taken).map_err(|why| {
                let message = format!("Invalid value: [{text:?}]: failed to allocate IP {text}: {why}");
                invalid_service(name, "spec.clusterIPs".to_owned(), message)
            })?;
            text.to_owned()
        }
    };
    spec["clusterIP"] = json!(address);
    spec["clusterIPs"] = json!([address]);
    if spec["ipFamilies"].is_null() {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    if spec["ipFamilyPolicy"].is_null() {
        spec["ipFamilyPolicy"] = json!("SingleStack");
    }
    let may_ask = matches!(spec["type"].as_str(), Some("NodePort" | "LoadBalancer"));
    let of_nodes = needs_node_ports(spec);
    for (index, port) in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .enumerate()
    {
        let wanted = port["nodePort"].as_u64().unwrap_or(0);
        // Of another type it is refused, or it is a choice of a balancer's user.
        if !(of_nodes || may_ask && wanted != 0) {
            continue;
        }
        let number = used.port(wanted, before, taken).map_err(|why| {
            invalid_service(
                name,
                format!("spec.ports[{index}].nodePort"),
                format!("Invalid value: {wanted}: {why}"),
            )
        })?;
        port["nodePort"] = json!(number);
    }
    if needs_health_port(spec) {
        let wanted = spec["healthCheckNodePort"].as_u64().unwrap_or(0);
        let number = used.port(wanted, before, taken).map_err(|why| {
            invalid_service(
                name,
                "spec.healthCheckNodePort".to_owned(),
                format!("Invalid value: {wanted}: {why}"),
            )
        })?;
        spec["healthCheckNodePort"] = json!(number);
    }
    Ok(())
}

impl Used {
    fn any_address(&mut self, taken: &mut Used) -> Option<Ipv4Addr> {
        // The first and the last address of the range are no hosts.
        let start = rand::rng().random_range(1..ADDRESSES - 1);
        let found = (0..ADDRESSES - 2)
            .map(|step| Ipv4Addr::from(FIRST + 1 + (start + step) % (ADDRESSES - 2)))
            .find(|address| !self.addresses.contains(address))?;
        self.addresses.insert(found);
        taken.addresses.insert(found);
        Some(found)
    }

    fn this_address(&mut self, text: &str, before: &Used, taken: &mut Used) -> Result<(), &'static str> {
        let outside = "the provided network does not match the current range";
        let address: Ipv4Addr = text.parse().map_err(|_| outside)?;
        if before.addresses.contains(&address) {
            return Ok(());
        }
        let number = u32::from(address);
        if !(FIRST + 1..FIRST + ADDRESSES - 1).contains(&number) {
            return Err(outside);
        }
        if !self.addresses.insert(address) {
            return Err("provided IP is already allocated");
        }
        taken.addresses.insert(address);
        Ok(())
    }

    /// A port by number, or any for 0. One Service may use a number for several protocols.
    fn port(&mut self, wanted: u64, before: &Used, taken: &mut Used) -> Result<u16, String> {
        if wanted == 0 {
            let (first, count) = (*PORTS.start(), PORTS.end() - PORTS.start() + 1);
            let start = rand::rng().random_range(0..count);
            let found = (0..count)
                .map(|step| first + (start + step) % count)
                .find(|port| !self.ports.contains(port))
                .ok_or_else(|| "range is full".to_owned())?;
            self.ports.insert(found);
            taken.ports.insert(found);
            return Ok(found);
        }
        let outside = || {
            let (first, last) = (PORTS.start(), PORTS.end());
            format!("provided port is not in the valid range. The range of valid ports is {first}-{last}")
        };
        let port = u16::try_from(wanted).map_err(|_| outside())?;
        if before.ports.contains(&port) || taken.ports.contains(&port) {
            return Ok(port);
        }
        if !PORTS.contains(&port) {
            return Err(outside());
        }
        if !self.ports.insert(port) {
            return Err("provided port is already allocated".to_owned());
        }
        taken.ports.insert(port);
        Ok(port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(used: &mut Used, spec: Value) -> Result<Value, String> {
        let mut spec = spec;
        let mut taken = Used::default();
        fill(used, &Used::default(), &mut spec, &mut taken, "s")
            .map(|()| spec)
            .map_err(|error| error.message)
    }

    #[test]
    fn an_address_is_given_and_not_given_twice() {
        let mut used = Used::default();
        let spec = filled(&mut used, json!({"type": "ClusterIP", "ports": [{"port": 80}]})).expect("room");
        let address = spec["clusterIP"].as_str().expect("an address").to_owned();
        assert!(address.starts_with("10."), "{address}");
        assert_eq!(
            used.this_address(&address, &Used::default(), &mut Used::default()),
            Err("provided IP is already allocated")
        );
        assert!(spec["ports"][0]["nodePort"].is_null());
    }

    #[test]
    fn headless_and_external_services_get_none() {
        let mut used = Used::default();
        let headless =
            filled(&mut used, json!({"type": "ClusterIP", "clusterIP": "None"})).expect("no room needed");
        assert_eq!(headless["clusterIPs"], json!(["None"]));
        assert_eq!(headless.get("ports"), None);
        let external = filled(&mut used, json!({"type": "ExternalName"})).expect("no room needed");
        assert!(external["clusterIP"].is_null());
        assert!(used.addresses.is_empty());
    }

    #[test]
    fn node_ports_come_from_their_range() {
        let mut used = Used::default();
        let spec = filled(
            &mut used,
            json!({"type": "NodePort", "ports": [{"port": 80}, {"port": 81, "nodePort": 30_001}]}),
        )
        .expect("room");
        let port = spec["ports"][0]["nodePort"].as_u64().expect("a port");
        assert!((30_000..=32_767).contains(&port));
        assert_eq!(
            used.port(30_001, &Used::default(), &mut Used::default()),
            Err("provided port is already allocated".to_owned())
        );
        assert!(used.port(80, &Used::default(), &mut Used::default()).is_err());
    }
}
