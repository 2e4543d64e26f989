//! The downward API: fields of the pod, and resources of its containers. Texts of errors are upstream's.

use super::{Location, find};
use evenkeel_kube_values::names::is_label_key;
use evenkeel_kube_values::quantity::{Quantity, ceiling};
use evenkeel_probe::handler::quote;
use k8s_openapi::api::core::v1::{Container, ObjectFieldSelector, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::BTreeMap;
use std::net::IpAddr;

type Resources = BTreeMap<String, Text>;

/// A field for an environment variable.
pub(super) fn of_pod(
    pod: &Pod,
    selector: &ObjectFieldSelector,
    location: &Location,
) -> Result<String, String> {
    if let Some(version) = selector
        .api_version
        .as_deref()
        .filter(|version| !version.is_empty())
        && version != "v1"
    {
        return Err(format!("unsupported pod version: {version}"));
    }
    let path = selector.field_path.as_str();
    let spec = pod.spec.as_ref();
    let text = |value: Option<&String>| Ok(value.cloned().unwrap_or_default());
    match path {
        "spec.nodeName" | "spec.host" => text(spec.and_then(|spec| spec.node_name.as_ref())),
        "spec.serviceAccountName" => text(spec.and_then(|spec| spec.service_account_name.as_ref())),
        "status.hostIP" => known(&location.host_addresses, path).map(|addresses| joined(&addresses[..1])),
        "status.hostIPs" => known(&location.host_addresses, path).map(joined),
        "status.podIP" => Ok(joined(
            &location.pod_addresses[..location.pod_addresses.len().min(1)],
        )),
        "status.podIPs" => Ok(joined(&location.pod_addresses)),
        _ => of_metadata(pod, path),
    }
}

/// A field of the metadata, which is all that volumes may show.
pub(crate) fn of_metadata(pod: &Pod, path: &str) -> Result<String, String> {
    let metadata = &pod.metadata;
    let text = |value: &Option<String>| Ok(value.clone().unwrap_or_default());
    match path {
        "metadata.name" => return text(&metadata.name),
        "metadata.namespace" => return text(&metadata.namespace),
        "metadata.uid" => return text(&metadata.uid),
        "metadata.labels" => return Ok(listed(metadata.labels.as_ref())),
        "metadata.annotations" => return Ok(listed(metadata.annotations.as_ref())),
        _ => {}
    }
    let subscripted = path
        .strip_suffix("']")
        .and_then(|inside| inside.split_once("['"))
        .filter(|(map, _)| !map.is_empty());
    let Some((map, key)) = subscripted else {
        return Err(format!("unsupported fieldPath: {path}"));
    };
    let (map, valid) = match map {
        "metadata.labels" => (&metadata.labels, is_label_key(key)),
        "metadata.annotations" => (&metadata.annotations, is_label_key(&key.to_lowercase())),
        _ => {
            return Err(format!(
                "fieldPath {} does not support subscript",
                quote(path.as_bytes())
            ));
        }
    };
    if !valid {
        return Err(format!(
            "invalid key subscript in {path}: it is to be a name of letters, digits, '-', '_' and '.', of 63 characters \
             at most, after a DNS name and '/' if need be"
        ));
    }
    Ok(map
        .as_ref()
        .and_then(|map| map.get(key))
        .cloned()
        .unwrap_or_default())
}

/// A resource of the container, or of the one that is named; a limit that it does not have is the pod's, or
/// what the node has to give.
pub(crate) fn of_resources(
    pod: &Pod,
    container: Option<&Container>,
    selector: &ResourceFieldSelector,
    location: &Location,
) -> Result<String, String> {
    let named = selector.container_name.as_deref().filter(|name| !name.is_empty());
    let container = match named {
        Some(name) => find(pod, name).ok_or_else(|| format!("container {name} not found"))?,
        None => container.ok_or("resourceFieldRef of a volume names no container")?,
    };
    let resource = selector.resource.as_str();
    let unsupported = || format!("unsupported container resource : {resource}");
    let resources = container.resources.as_ref();
    let (amount, name) = if let Some(name) = resource.strip_prefix("limits.") {
        let limits = resources.and_then(|resources| resources.limits.as_ref());
        (limit(pod, limits, name, location)?, name)
    } else if let Some(name) = resource.strip_prefix("requests.") {
        let requests = resources.and_then(|resources| resources.requests.as_ref());
        (amount_of(requests, name)?, name)
    } else {
        return Err(unsupported());
    };
    let divisor = match &selector.divisor {
        Some(text) => Some(read(text)?).filter(|divisor| !divisor.is_zero()),
        None => None,
    };
    let result = match name {
        "cpu" => ceiling(
            amount.map_or(0, Quantity::milli),
            divisor.map_or(1000, Quantity::milli).max(1),
        ),
        "memory" | "ephemeral-storage" => whole(amount, divisor),
        name if name.starts_with("hugepages-") => whole(amount, divisor),
        _ => return Err(unsupported()),
    };
    Ok(result.to_string())
}

fn whole(amount: Option<Quantity>, divisor: Option<Quantity>) -> i128 {
    let divisor = divisor.map_or(1, Quantity::value).max(1);
    ceiling(amount.map_or(0, Quantity::value), divisor)
}

/// Huge pages are never overcommitted: a limit is always said.
fn limit(
    pod: &Pod,
    limits: Option<&Resources>,
    name: &str,
    location: &Location,
) -> Result<Option<Quantity>, String> {
    let own = amount_of(limits, name)?.filter(|limit| !limit.is_zero());
    if own.is_some() || !matches!(name, "cpu" | "memory" | "ephemeral-storage") {
        return Ok(own);
    }
    let Some(allocatable) = location.allocatable.get(name) else {
        return Ok(None);
    };
    if name != "ephemeral-storage" {
        let spec = pod.spec.as_ref();
        let resources = spec.and_then(|spec| spec.resources.as_ref());
        let limits = resources.and_then(|resources| resources.limits.as_ref());
        let pods = amount_of(limits, name)?.filter(|limit| !limit.is_zero());
        if pods.is_some() {
            return Ok(pods);
        }
    }
    read(&Text(allocatable.clone())).map(Some)
}

fn amount_of(resources: Option<&Resources>, name: &str) -> Result<Option<Quantity>, String> {
    resources
        .and_then(|resources| resources.get(name))
        .map(read)
        .transpose()
}

fn read(text: &Text) -> Result<Quantity, String> {
    Quantity::parse(&text.0).map_err(|_| format!("{} is no quantity", quote(text.0.as_bytes())))
}

fn known<'a>(addresses: &'a [IpAddr], path: &str) -> Result<&'a [IpAddr], String> {
    if addresses.is_empty() {
        return Err(format!("{path} is not known: the node has no address yet"));
    }
    Ok(addresses)
}

fn joined(addresses: &[IpAddr]) -> String {
    let texts: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    texts.join(",")
}

/// `key="value"` in lines, ordered by key.
fn listed(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> = map
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", quote(value.as_bytes())))
        .collect();
    lines.join("\n")
}
