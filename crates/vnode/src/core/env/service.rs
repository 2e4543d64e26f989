//! Environment variables by which containers find Services.

use k8s_openapi::api::core::v1::{Pod, Service, ServiceSpec};
use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::Arc;

/// The one Service of namespace `default` that every pod is told of.
pub(crate) const KUBERNETES: (&str, &str) = ("default", "kubernetes");

/// Whether the pod is told of the Services of its own namespace.
pub(crate) fn wants_links(pod: &Pod) -> bool {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.enable_service_links)
        .unwrap_or(true)
}

/// All that the pod is told of `services`: host and ports, and the names that Docker's links had.
pub(super) fn variables(pod: &Pod, services: &[Arc<Service>]) -> BTreeMap<String, String> {
    let own = pod.metadata.namespace.as_deref().unwrap_or_default();
    let links = wants_links(pod);
    let mut told: BTreeMap<&str, (&ServiceSpec, &str)> = BTreeMap::new();
    for service in services {
        let (Some(name), Some(namespace), Some(spec)) = (
            service.metadata.name.as_deref(),
            service.metadata.namespace.as_deref(),
            service.spec.as_ref(),
        ) else {
            continue;
        };
        let address = match spec.cluster_ip.as_deref() {
            None | Some("" | "None") => continue,
            Some(address) => address,
        };
        if (namespace, name) == KUBERNETES {
            told.entry(name).or_insert((spec, address));
        } else if namespace == own && links {
            told.insert(name, (spec, address));
        }
    }
    let mut variables = BTreeMap::new();
    for (name, (spec, address)) in told {
        of_service(name, spec, address, &mut variables);
    }
    variables
}

fn of_service(service: &str, spec: &ServiceSpec, address: &str, variables: &mut BTreeMap<String, String>) {
    let prefix = in_capitals(service);
    variables.insert(format!("{prefix}_SERVICE_HOST"), address.to_owned());
    let ports = spec.ports.as_deref().unwrap_or_default();
    let host = match address.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{address}]"),
        Err(_) => address.to_owned(),
    };
    for (at, port) in ports.iter().enumerate() {
        let number = port.port;
        let protocol = port.protocol.as_deref().filter(|protocol| !protocol.is_empty());
        let protocol = protocol.unwrap_or("TCP");
        let lower = protocol.to_lowercase();
        let url = format!("{lower}://{host}:{number}");
        if at == 0 {
            variables.insert(format!("{prefix}_SERVICE_PORT"), number.to_string());
            variables.insert(format!("{prefix}_PORT"), url.clone());
        }
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            variables.insert(
                format!("{prefix}_SERVICE_PORT_{}", in_capitals(name)),
                number.to_string(),
            );
        }
        let link = format!("{prefix}_PORT_{number}_{}", protocol.to_uppercase());
        variables.insert(format!("{link}_PROTO"), lower);
        variables.insert(format!("{link}_PORT"), number.to_string());
        variables.insert(format!("{link}_ADDR"), address.to_owned());
        variables.insert(link, url);
    }
}

fn in_capitals(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}
