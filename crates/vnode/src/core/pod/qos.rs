//! `status.qosClass`, for API servers that do not set it.

use evenkeel_kube_values::qos::{self, Resources};
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// `Guaranteed`, `BestEffort` or `Burstable`, by the resources of a pod's specification.
pub(super) fn class(pod: &Pod) -> &'static str {
    let Some(spec) = &pod.spec else {
        return "BestEffort";
    };
    let containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    qos::class(
        read(spec.resources.as_ref()),
        containers.map(|container| read(container.resources.as_ref())),
    )
}

fn read(resources: Option<&ResourceRequirements>) -> Resources<'_> {
    Resources {
        requests: amounts(resources.and_then(|resources| resources.requests.as_ref())),
        limits: amounts(resources.and_then(|resources| resources.limits.as_ref())),
    }
}

fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> [Option<&str>; 2] {
    qos::COUNTED.map(|name| Some(&*list?.get(name)?.0))
}
