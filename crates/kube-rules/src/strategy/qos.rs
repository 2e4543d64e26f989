//! Quality of service of a pod.

use evenkeel_kube_values::qos::{self, Resources};
use serde_json::Value;

/// `Guaranteed`, `BestEffort` or `Burstable`, by the resources of a pod's specification.
pub(crate) fn qos_class(spec: &Value) -> &'static str {
    let lists = ["containers", "initContainers"].iter();
    let containers = lists.flat_map(|list| spec[*list].as_array().into_iter().flatten());
    qos::class(
        read(&spec["resources"]),
        containers.map(|container| read(&container["resources"])),
    )
}

fn read(resources: &Value) -> Resources<'_> {
    Resources {
        requests: qos::COUNTED.map(|name| resources["requests"][name].as_str()),
        limits: qos::COUNTED.map(|name| resources["limits"][name].as_str()),
    }
}
