//! Endpoints and EndpointSlices of Services with a selector, by upstream's rules for what is ready.

use super::{
    deployment::seconds,
    owned::{as_json, delete, identity, is_finished, is_ready, node_of, patch, ready_since, replacement},
};
use crate::cluster::{
    action::{Action, Kind},
    view::Snapshot,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Endpoints, Pod, Service, ServicePort},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const ENDPOINTS_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const ENDPOINTS_MANAGER: &str = "endpoint-controller";
const HEADLESS: &str = "service.kubernetes.io/headless";
/// When what led to the present endpoints happened.
const TRIGGERED: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Upstream's `--max-endpoints-per-slice`.
const SLICE_CAPACITY: usize = 100;

/// A pod as an address of a Service.
struct Address<'a> {
    pod: &'a Pod,
    ip: &'a str,
    ready: bool,
    serving: bool,
    terminating: bool,
}

/// EndpointSlices of all Services.
pub fn slices(view: &Snapshot, _now: Timestamp) -> Vec<Action> {
    let mut actions: Vec<Action> = selecting(view)
        .flat_map(|service| slices_of(service, view))
        .collect();
    // Slices of a Service that is gone or selects nobody any more.
    actions.extend(
        view.endpoint_slices
            .iter()
            .filter(|slice| is_managed(slice))
            .filter_map(|slice| {
                let (namespace, _, _) = identity(&slice.metadata);
                let owner = label(slice, SERVICE_LABEL)?;
                let alive = selecting(view).any(|service| {
                    service.metadata.namespace.as_deref() == Some(namespace)
                        && service.metadata.name.as_deref() == Some(owner)
                });
                (!alive && slice.metadata.deletion_timestamp.is_none())
                    .then(|| delete(Kind::EndpointSlice, &slice.metadata, None))
            }),
    );
    actions
}

fn selecting(view: &Snapshot) -> impl Iterator<Item = &Arc<Service>> {
    view.services.iter().filter(|service| {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        service.metadata.deletion_timestamp.is_none() && selector.is_some_and(|selector| !selector.is_empty())
    })
}

fn addresses<'a>(service: &Service, view: &'a Snapshot) -> Vec<Address<'a>> {
    let none = BTreeMap::new();
    let spec = service.spec.as_ref();
    let selector = spec.and_then(|spec| spec.selector.as_ref()).unwrap_or(&none);
    let publish = spec.and_then(|spec| spec.publish_not_ready_addresses) == Some(true);
    view.pods
        .iter()
        .filter(|pod| pod.metadata.namespace == service.metadata.namespace && !is_finished(pod))
        .filter(|pod| {
            let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
            selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        })
        .filter_map(|pod| {
            let ip = pod
                .status
                .as_ref()?
                .pod_ip
                .as_deref()
                .filter(|ip| !ip.is_empty())?;
            let serving = is_ready(pod);
            let terminating = pod.metadata.deletion_timestamp.is_some();
            Some(Address {
                pod,
                ip,
                ready: publish || serving && !terminating,
                serving,
                terminating,
            })
        })
        .collect()
}

fn slices_of(service: &Arc<Service>, view: &Snapshot) -> Vec<Action> {
    let (namespace, name, _) = identity(&service.metadata);
    let addresses = addresses(service, view);
    // Pods whose named ports resolve to other numbers are listed in slices of their own.
    let mut groups: BTreeMap<String, (Value, Vec<&Address<'_>>)> = BTreeMap::new();
    for address in &addresses {
        let ports = json!(ports(service, Some(address.pod)));
        groups
            .entry(ports.to_string())
            .or_insert_with(|| (ports, Vec::new()))
            .1
            .push(address);
    }
    if groups.is_empty() {
        groups.insert(String::new(), (json!([]), Vec::new()));
    }
    let mut existing: Vec<&Arc<EndpointSlice>> = view
        .endpoint_slices
        .iter()
        .filter(|slice| {
            is_managed(slice)
                && slice.metadata.namespace.as_deref() == Some(namespace)
                && label(slice, SERVICE_LABEL) == Some(name)
                && slice.metadata.deletion_timestamp.is_none()
        })
        .collect();
    existing.sort_by_key(|slice| slice.metadata.creation_timestamp.as_ref().map(|time| time.0));

    let mut actions = Vec::new();
    let (mut made, mut spared) = (Vec::new(), Vec::new());
    for (ports, mut members) in groups.into_values() {
        let mut mine: Vec<&Arc<EndpointSlice>> = Vec::new();
        existing.retain(|slice| {
            let same = json!(slice.ports.as_deref().unwrap_or_default()) == ports;
            if same {
                mine.push(slice);
            }
            !same
        });
        // Keep every address where it is, fill up from the front, open new slices for the rest.
        let mut filled: Vec<(Option<&Arc<EndpointSlice>>, Vec<&Address<'_>>)> = Vec::new();
        for slice in mine {
            let (kept, rest) = members.into_iter().partition(|address| lists(slice, address));
            members = rest;
            filled.push((Some(slice), kept));
        }
        for address in members {
            let place = filled
                .iter_mut()
                .find(|(_, listed)| listed.len() < SLICE_CAPACITY);
            if let Some((_, listed)) = place {
                listed.push(address);
            } else {
                filled.push((None, vec![address]));
            }
        }
        if filled.is_empty() {
            filled.push((None, Vec::new()));
        }
        let occupied = filled.iter().filter(|(_, listed)| !listed.is_empty()).count();
        let mut placeholders = usize::from(occupied == 0);
        for (slice, listed) in filled {
            if listed.is_empty() && placeholders == 0 {
                spared.extend(slice);
                continue;
            }
            placeholders = placeholders.saturating_sub(usize::from(listed.is_empty()));
            match slice {
                Some(_) => actions.extend(write(service, slice, &ports, &listed, view)),
                None => made.push((ports.clone(), listed)),
            }
        }
    }
    spared.extend(existing);
    // A slice that is no longer needed becomes a new one, so that its watchers see one change.
    let mut spared = spared.into_iter();
    for (ports, listed) in made {
        actions.extend(write(service, spared.next(), &ports, &listed, view));
    }
    actions.extend(spared.map(|slice| delete(Kind::EndpointSlice, &slice.metadata, None)));
    actions
}

fn write(
    service: &Service,
    slice: Option<&Arc<EndpointSlice>>,
    ports: &Value,
    listed: &[&Address<'_>],
    view: &Snapshot,
) -> Option<Action> {
    let (namespace, name, uid) = identity(&service.metadata);
    let endpoints: Vec<Value> = listed
        .iter()
        .map(|address| {
            let (_, pod, pod_uid) = identity(&address.pod.metadata);
            let mut endpoint = json!({
                "addresses": [address.ip],
                "conditions": {"ready": address.ready, "serving": address.serving, "terminating": address.terminating},
                "nodeName": node_of(address.pod),
                "targetRef": {"kind": "Pod", "namespace": namespace, "name": pod, "uid": pod_uid},
            });
            if let Some(zone) = zone_of(node_of(address.pod), view) {
                endpoint["zone"] = json!(zone);
            }
            if let Some(hostname) = hostname(address.pod, service) {
                endpoint["hostname"] = json!(hostname);
            }
            endpoint
        })
        .collect();
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    labels.insert(SERVICE_LABEL.to_owned(), name.to_owned());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    if is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    let annotations = json!({TRIGGERED: triggered(service, listed.iter().copied())});
    let Some(slice) = slice else {
        return Some(Action::Create {
            kind: Kind::EndpointSlice,
            namespace: namespace.to_owned(),
            object: json!({
                "metadata": {
                    "generateName": format!("{name}-"),
                    "labels": labels,
                    "annotations": annotations,
                    "ownerReferences": [{
                        "apiVersion": "v1", "kind": "Service", "name": name, "uid": uid,
                        "controller": true, "blockOwnerDeletion": true,
                    }],
                },
                "addressType": "IPv4",
                "endpoints": endpoints,
                "ports": ports,
            }),
        });
    };
    let mut change = json!({});
    if as_json(&slice.endpoints) != json!(endpoints) {
        change["endpoints"] = json!(endpoints);
        change["metadata"]["annotations"] = annotations;
    }
    if json!(slice.ports.as_deref().unwrap_or_default()) != *ports {
        change["ports"] = ports.clone();
    }
    let known = slice.metadata.labels.as_ref();
    if let Some(labels) = replacement(&as_json(&known), json!(labels)) {
        change["metadata"]["labels"] = labels;
    }
    (change != json!({})).then(|| patch(Kind::EndpointSlice, &slice.metadata, change))
}

/// The newest of the times at which the Service was made and its pods became ready.
fn triggered<'a>(service: &Service, listed: impl Iterator<Item = &'a Address<'a>>) -> Option<String> {
    let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let newest = listed
        .filter_map(|address| ready_since(address.pod))
        .chain(created)
        .max();
    newest.map(seconds)
}

/// The name that the pod has in the Service's domain, if it has one there.
fn hostname<'a>(pod: &'a Pod, service: &Service) -> Option<&'a str> {
    let spec = pod.spec.as_ref()?;
    let hostname = spec.hostname.as_deref().filter(|name| !name.is_empty())?;
    (spec.subdomain == service.metadata.name).then_some(hostname)
}

fn lists(slice: &EndpointSlice, address: &Address<'_>) -> bool {
    slice.endpoints.iter().any(|endpoint| {
        let target = endpoint
            .target_ref
            .as_ref()
            .and_then(|target| target.uid.as_ref());
        target == address.pod.metadata.uid.as_ref() && endpoint.addresses.iter().any(|ip| ip == address.ip)
    })
}

/// Legacy Endpoints of all Services; those of a Service that is gone are deleted.
pub fn endpoints(view: &Snapshot, _now: Timestamp) -> Vec<Action> {
    let mut actions: Vec<Action> = selecting(view)
        .filter_map(|service| endpoints_of(service, view))
        .collect();
    actions.extend(view.endpoints.iter().filter_map(|endpoints| {
        let (namespace, name, _) = identity(&endpoints.metadata);
        let labels = endpoints.metadata.labels.as_ref();
        let ours = labels
            .and_then(|labels| labels.get(ENDPOINTS_MANAGED_BY))
            .is_some_and(|by| by == ENDPOINTS_MANAGER);
        let alive = view.services.iter().any(|service| {
            service.metadata.namespace.as_deref() == Some(namespace)
                && service.metadata.name.as_deref() == Some(name)
        });
        (ours && !alive).then(|| delete(Kind::Endpoints, &endpoints.metadata, None))
    }));
    actions
}

fn endpoints_of(service: &Service, view: &Snapshot) -> Option<Action> {
    let (namespace, name, _) = identity(&service.metadata);
    // Addresses that share a port list share a subset.
    let mut subsets: BTreeMap<String, (Value, Vec<Value>, Vec<Value>)> = BTreeMap::new();
    let publish = service
        .spec
        .as_ref()
        .and_then(|spec| spec.publish_not_ready_addresses)
        == Some(true);
    let listed = addresses(service, view);
    for address in listed.iter().filter(|address| publish || !address.terminating) {
        let (_, pod, pod_uid) = identity(&address.pod.metadata);
        let mut entry = json!({
            "ip": address.ip, "nodeName": node_of(address.pod),
            "targetRef": {"kind": "Pod", "namespace": namespace, "name": pod, "uid": pod_uid},
        });
        if let Some(hostname) = hostname(address.pod, service) {
            entry["hostname"] = json!(hostname);
        }
        let ports = json!(legacy(ports(service, Some(address.pod))));
        let (_, ready, not_ready) = subsets
            .entry(ports.to_string())
            .or_insert_with(|| (ports, Vec::new(), Vec::new()));
        if address.ready {
            ready.push(entry);
        } else {
            not_ready.push(entry);
        }
    }
    let by_ip = |entry: &Value| entry["ip"].as_str().unwrap_or_default().to_owned();
    let subsets: Vec<Value> = subsets
        .into_values()
        .map(|(ports, mut ready, mut not_ready)| {
            ready.sort_by_key(by_ip);
            not_ready.sort_by_key(by_ip);
            let mut subset = json!({});
            for (key, list) in [
                ("addresses", json!(ready)),
                ("notReadyAddresses", json!(not_ready)),
                ("ports", ports),
            ] {
                if list.as_array().is_some_and(|list| !list.is_empty()) {
                    subset[key] = list;
                }
            }
            subset
        })
        .collect();
    let current = view.endpoints.iter().find(|endpoints| {
        endpoints.metadata.namespace.as_deref() == Some(namespace)
            && endpoints.metadata.name.as_deref() == Some(name)
    });
    let wanted = if subsets.is_empty() {
        Value::Null
    } else {
        json!(subsets)
    };
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.insert(ENDPOINTS_MANAGED_BY.to_owned(), ENDPOINTS_MANAGER.to_owned());
    if is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    } else {
        labels.remove(HEADLESS);
    }
    let annotations = json!({TRIGGERED: triggered(service, listed.iter())});
    let Some(current) = current else {
        return Some(Action::Create {
            kind: Kind::Endpoints,
            namespace: namespace.to_owned(),
            object: json!({
                "metadata": {"name": name, "labels": labels, "annotations": annotations},
                "subsets": wanted,
            }),
        });
    };
    let mut change = json!({});
    if shown(current) != wanted {
        change["subsets"] = wanted;
        change["metadata"]["annotations"] = annotations;
    }
    if let Some(labels) = replacement(&as_json(&current.metadata.labels), json!(labels)) {
        change["metadata"]["labels"] = labels;
    }
    (change != json!({})).then(|| patch(Kind::Endpoints, &current.metadata, change))
}

/// Subsets as they are, with an empty list read as none.
fn shown(endpoints: &Endpoints) -> Value {
    match &endpoints.subsets {
        Some(subsets) if !subsets.is_empty() => as_json(subsets),
        _ => Value::Null,
    }
}

/// Ports of the Service as this pod serves them; a named target port that the pod lacks is left out.
fn ports(service: &Service, pod: Option<&Pod>) -> Vec<Value> {
    let ports = service
        .spec
        .as_ref()
        .and_then(|spec| spec.ports.as_deref())
        .unwrap_or_default();
    ports
        .iter()
        .filter_map(|port| {
            let number = target(port, pod)?;
            let mut entry = json!({
                "name": port.name.clone().unwrap_or_default(),
                "port": number,
                "protocol": port.protocol.as_deref().unwrap_or("TCP"),
            });
            if let Some(protocol) = &port.app_protocol {
                entry["appProtocol"] = json!(protocol);
            }
            Some(entry)
        })
        .collect()
}

/// Ports as Endpoints have them: a name that is empty is not there at all, where EndpointSlices say `""`.
fn legacy(mut ports: Vec<Value>) -> Vec<Value> {
    for port in ports.iter_mut().filter_map(Value::as_object_mut) {
        port.retain(|key, value| key != "name" || value != "");
    }
    ports
}

fn target(port: &ServicePort, pod: Option<&Pod>) -> Option<i32> {
    match &port.target_port {
        None | Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let containers = pod?.spec.as_ref()?.containers.iter();
            containers
                .flat_map(|container| container.ports.as_deref().unwrap_or_default())
                .find(|candidate| candidate.name.as_ref() == Some(name))
                .map(|candidate| candidate.container_port)
        }
    }
}

fn zone_of<'a>(node: Option<&str>, view: &'a Snapshot) -> Option<&'a str> {
    let node = view
        .nodes
        .iter()
        .find(|candidate| candidate.metadata.name.as_deref() == node)?;
    node.metadata
        .labels
        .as_ref()?
        .get("topology.kubernetes.io/zone")
        .map(String::as_str)
}

fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}

fn is_managed(slice: &EndpointSlice) -> bool {
    label(slice, MANAGED_BY) == Some(MANAGER)
}

fn label<'a>(slice: &'a EndpointSlice, key: &str) -> Option<&'a str> {
    slice.metadata.labels.as_ref()?.get(key).map(String::as_str)
}
