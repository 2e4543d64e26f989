//! `status.qosClass`, for API servers that do not set it.

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// `Guaranteed` where every container has CPU and memory limits and no other requests; `BestEffort` where there is nothing
/// of either; else `Burstable`. Resources of the pod as a whole go before its containers'.
pub(super) fn class(pod: &Pod) -> &'static str {
    let Some(spec) = &pod.spec else {
        return "BestEffort";
    };
    let whole = spec.resources.as_ref().filter(|resources| {
        let some =
            |list: &Option<BTreeMap<String, Quantity>>| list.as_ref().is_some_and(|list| !list.is_empty());
        some(&resources.requests) || some(&resources.limits)
    });
    let all: Vec<Option<&ResourceRequirements>> = if whole.is_some() {
        vec![whole]
    } else {
        let containers = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten());
        containers.map(|container| container.resources.as_ref()).collect()
    };
    let (mut any, mut guaranteed) = (false, true);
    for resources in all {
        for name in ["cpu", "memory"] {
            let request = amount(resources.and_then(|resources| resources.requests.as_ref()), name);
            let limit = amount(resources.and_then(|resources| resources.limits.as_ref()), name);
            any |= request.is_some() || limit.is_some();
            // The API server has filled in requests that were not given.
            guaranteed &= limit.is_some() && request.is_none_or(|request| Some(request) == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// As it is written, unless it is none.
fn amount<'a>(list: Option<&'a BTreeMap<String, Quantity>>, name: &str) -> Option<&'a str> {
    let quantity = list?.get(name)?;
    (!is_zero(&quantity.0)).then_some(&*quantity.0)
}

fn is_zero(quantity: &str) -> bool {
    let digits = |char: char| char.is_ascii_digit() && char != '0';
    !quantity.contains(digits)
}
