//! Resources of containers and pods.

use super::checks::{members, quantity};
use super::errors::{Errors, has, items, text};
use crate::names;
use evenkeel_kube_values::Quantity;
use serde_json::{Map, Value, json};

/// Resources without a domain that some object or other has. Huge pages are known by their prefix.
const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];
/// Of these, what can only be counted.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
/// Of these, what containers ask for.
const CONTAINER: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const PAGES: &str = "hugepages-";

/// Whose resources these are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Container,
    Pod,
}

/// Whether a resource is one of Kubernetes' own.
pub(super) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

pub(super) fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified(&format!("requests.{name}")).is_empty()
}

/// Whether more of it may be promised than there is.
pub(crate) fn is_shared(name: &str) -> bool {
    is_native(name) && !name.starts_with(PAGES)
}

/// What the whole pod may ask for.
pub(crate) fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with(PAGES)
}

/// Requests, limits and claims; `claims` are the names of the pod's claims.
pub(super) fn requirements(
    resources: &Value,
    path: &str,
    owner: Owner,
    claims: &[&str],
    errors: &mut Errors,
) {
    let (limits, requests) = (format!("{path}.limits"), format!("{path}.requests"));
    for (name, amount) in members(&resources["limits"]) {
        resource(name, amount, &format!("{limits}[{name}]"), owner, errors);
        pages(name, amount, &format!("{limits}[{name}]"), errors);
    }
    for (name, amount) in members(&resources["requests"]) {
        let path = format!("{requests}[{name}]");
        resource(name, amount, &path, owner, errors);
        let limit = &resources["limits"][name];
        match (quantity(amount), quantity(limit)) {
            (Some(asked), Some(most)) if asked != most && !is_shared(name) => {
                let detail = format!(
                    "must be equal to {name} limit of {}",
                    limit.as_str().unwrap_or_default()
                );
                errors.invalid(&requests, amount, &detail);
            }
            (Some(asked), Some(most)) if asked > most => {
                let limit = limit.as_str().unwrap_or_default();
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                errors.invalid(&requests, amount, &detail);
            }
            (_, None) if !is_shared(name) => {
                errors.required(&limits, "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
        pages(name, amount, &path, errors);
    }
    let asks = |wanted: fn(&str) -> bool| {
        let lists = ["limits", "requests"].into_iter();
        lists
            .flat_map(|list| members(&resources[list]))
            .any(|(name, _)| wanted(name))
    };
    if asks(|name| name.starts_with(PAGES)) && !asks(|name| matches!(name, "cpu" | "memory")) {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
    claimed(resources, &format!("{path}.claims"), claims, errors);
}

fn resource(name: &str, amount: &Value, path: &str, owner: Owner, errors: &mut Errors) {
    let before = errors.list.len();
    let plain = !name.contains('/');
    errors.invalid_text(path, name, names::qualified(name));
    let known =
        STANDARD.contains(&name) || name.starts_with(PAGES) || name.starts_with("requests.hugepages-");
    if errors.list.len() == before && plain && !known {
        errors.bad(path, name, "must be a standard resource type or fully qualified");
    }
    match owner {
        Owner::Container if plain && CONTAINER.contains(&name) => {}
        Owner::Container if plain && !name.starts_with(PAGES) => {
            errors.bad(path, name, "must be a standard resource for containers");
        }
        Owner::Container if !is_native(name) && !is_extended(name) => {
            errors.bad(path, name, "doesn't follow extended resource name standard");
        }
        Owner::Pod if errors.list.len() == before && !is_pod_level(name) => {
            errors.not_supported(path, &json!(name), &["cpu", PAGES, "memory"]);
        }
        _ => {}
    }
    let Some(amount) = quantity(amount) else { return };
    if amount.is_negative() {
        errors.bad(path, &amount.to_string(), "must be greater than or equal to 0");
    }
    if (COUNTED.contains(&name) || is_extended(name)) && amount.milli() % 1000 != 0 {
        errors.bad(path, &amount.to_string(), "must be an integer");
    }
}

/// Pages come in whole numbers.
fn pages(name: &str, amount: &Value, path: &str, errors: &mut Errors) {
    let (Some(size), Some(amount)) = (name.strip_prefix(PAGES), quantity(amount)) else {
        return;
    };
    let whole = Quantity::parse(size)
        .is_ok_and(|size| size.nanos() > 0 && !size.is_fractional() && amount.value() % size.value() == 0);
    if !whole {
        let detail = format!("{amount} is not positive integer multiple of {name}");
        errors.bad(path, &amount.to_string(), &detail);
    }
}

fn claimed(resources: &Value, path: &str, claims: &[&str], errors: &mut Errors) {
    let mut seen: Vec<String> = Vec::new();
    for (index, claim) in items(resources, "claims") {
        let path = format!("{path}[{index}]");
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            errors.required(&path, "");
            continue;
        }
        if seen.iter().any(|other| other == name) {
            errors.duplicate(&path, &json!(name));
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                errors.invalid_text(&format!("{path}.request"), request, names::dns_label(request));
                key = format!("{name}/{request}");
            }
            if seen.contains(&key) {
                errors.duplicate(&path, &json!(key));
            } else if request.is_empty() {
                let parts = seen
                    .iter()
                    .filter(|other| other.split_once('/').is_some_and(|(of, _)| of == name));
                parts.for_each(|_| errors.duplicate(&path, &json!(name)));
            }
            seen.push(key);
        }
        if !claims.contains(&name) {
            let mut sorted = claims.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            let rest = if sorted.is_empty() {
                " which is empty".to_owned()
            } else {
                format!(": {}", sorted.join(", "))
            };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{rest}");
            errors.not_found_among(&path, name, &detail);
        }
    }
}

/// Claims of a pod, whose names are given back.
pub(super) fn claims<'a>(spec: &'a Value, path: &str, is_static: bool, errors: &mut Errors) -> Vec<&'a str> {
    let mut seen: Vec<&str> = Vec::new();
    for (index, claim) in items(spec, "resourceClaims") {
        if is_static {
            errors.forbidden("[]", "static pods do not support resource claims");
            continue;
        }
        let path = format!("{path}.resourceClaims[{index}]");
        let name = text(claim, "name");
        if name.is_empty() {
            errors.required(&format!("{path}.name"), "");
        } else if seen.contains(&name) {
            errors.duplicate(&format!("{path}.name"), &claim["name"]);
        } else {
            errors.invalid_text(&format!("{path}.name"), name, names::dns_label(name));
            seen.push(name);
        }
        const SOURCES: [&str; 2] = ["resourceClaimName", "resourceClaimTemplateName"];
        match SOURCES.iter().filter(|source| has(claim, source)).count() {
            0 => errors.invalid(
                &path,
                claim,
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            1 => {}
            _ => errors.invalid(
                &path,
                claim,
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
        }
        for source in SOURCES.iter().filter(|source| has(claim, source)) {
            let name = text(claim, source);
            errors.invalid_text(&format!("{path}.{source}"), name, names::dns_subdomain(name));
        }
    }
    let all = items(spec, "resourceClaims").map(|(_, claim)| text(claim, "name"));
    all.filter(|name| !name.is_empty()).collect()
}

/// Resources of the whole pod, against those of its containers.
pub(super) fn of_pod(spec: &Value, path: &str, claims: &[&str], errors: &mut Errors) {
    let own = &spec["resources"];
    if own.is_null() {
        return;
    }
    let path = format!("{path}.resources");
    if text(&spec["os"], "name") == "windows" {
        errors.forbidden(&path, "may not be set for a windows pod");
        return;
    }
    if has(own, "claims") {
        errors.forbidden(
            &format!("{path}.claims"),
            "claims may not be set for Resources at pod-level",
        );
    }
    requirements(own, &path, Owner::Pod, claims, errors);
    for (list, is_compared) in [
        ("requests", (|_| true) as fn(&str) -> bool),
        ("limits", |name| name.starts_with(PAGES)),
    ] {
        for (name, sum) in members(&Value::Object(aggregate(spec, list))) {
            let of_pod = &own[list][name];
            if is_compared(name) && quantity(of_pod).is_some_and(|most| quantity(sum) > Some(most)) {
                let detail = format!(
                    "must be greater than or equal to aggregate container {list} of {}",
                    sum.as_str().unwrap_or_default()
                );
                errors.invalid(&format!("{path}.{list}[{name}]"), of_pod, &detail);
            }
        }
    }
    for (index, container) in items(spec, "containers") {
        for (name, limit) in members(&container["resources"]["limits"]) {
            let most = &own["limits"][name];
            if !most.is_null() && quantity(limit) > quantity(most) {
                let detail = format!(
                    "must be less than or equal to pod limits of {}",
                    most.as_str().unwrap_or_default()
                );
                errors.invalid(
                    &format!("{path}.containers[{index}][{name}].limits"),
                    limit,
                    &detail,
                );
            }
        }
    }
}

/// What all containers together have of `requests` or `limits`: those that run side by side, or what the
/// start needs, if that is more.
pub(crate) fn aggregate(spec: &Value, list: &str) -> Map<String, Value> {
    let add = |sum: &mut Map<String, Value>, more: &Value| {
        for (name, amount) in members(more) {
            let total = match (sum.get(name).and_then(quantity), quantity(amount)) {
                (Some(before), Some(amount)) => before.plus(amount).to_string(),
                _ => amount.as_str().unwrap_or_default().to_owned(),
            };
            sum.insert(name.clone(), json!(total));
        }
    };
    let raise = |most: &mut Map<String, Value>, other: &Value| {
        for (name, amount) in members(other) {
            if most.get(name).and_then(quantity) < quantity(amount) {
                most.insert(name.clone(), amount.clone());
            }
        }
    };
    let (mut sum, mut sidecars, mut start) = (Map::new(), Map::new(), Map::new());
    for (_, container) in items(spec, "containers") {
        add(&mut sum, &container["resources"][list]);
    }
    for (_, container) in items(spec, "initContainers") {
        let own = &container["resources"][list];
        if text(container, "restartPolicy") == "Always" {
            add(&mut sum, own);
            add(&mut sidecars, own);
            raise(&mut start, &Value::Object(sidecars.clone()));
        } else {
            let mut together = own.as_object().cloned().unwrap_or_default();
            add(&mut together, &Value::Object(sidecars.clone()));
            raise(&mut start, &Value::Object(together));
        }
    }
    raise(&mut sum, &Value::Object(start));
    sum
}
