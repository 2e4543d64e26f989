//! What kubelets and controllers report of a pod.

use super::checks::{count, integer, members};
use super::errors::{Errors, has, items, text};
use super::{address, pod_security};
use crate::names;
use serde_json::{Value, json};
use std::net::IpAddr;

const NOT_AGAIN: &str = "may not be transitioned to non-terminated state";
const NOT_NEGATIVE: &str = "must be a non-negative integer";
/// The status of each list of containers.
const STATUSES: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
];

pub(super) fn update(old: &Value, new: &Value, errors: &mut Errors) {
    let (metadata, spec) = (&new["metadata"], &new["spec"]);
    pod_security::annotations_stay(&old["metadata"], metadata, errors);
    pod_security::annotations(metadata, spec, "metadata.annotations", errors);
    let (before, after) = (&old["status"], &new["status"]);
    conditions(after, errors);
    nominated(old, new, errors);
    if integer(&after["observedGeneration"]) < 0 {
        errors.invalid(
            "status.observedGeneration",
            &after["observedGeneration"],
            NOT_NEGATIVE,
        );
    }
    errors.immutable("status.qosClass", &before["qosClass"], &after["qosClass"]);
    for (statuses, list) in STATUSES {
        stays_ended(before, after, spec, (statuses, list), errors);
    }
    claims(after, spec, errors);
    extended_claim(after, spec, errors);
    addresses(before, after, "podIPs", errors);
    if count(after, "hostIPs") > 0 && text(&after["hostIPs"][0], "ip") != text(after, "hostIP") {
        errors.invalid(
            "status.hostIPs[0].ip",
            &after["hostIPs"][0]["ip"],
            "must be equal to `hostIP`",
        );
    }
    addresses(before, after, "hostIPs", errors);
    for (statuses, _) in STATUSES {
        for (index, status) in items(after, statuses).filter(|(_, status)| has(&status["user"], "linux")) {
            let path = format!("status.{statuses}[{index}].user.linux");
            user(&status["user"]["linux"], &path, text(&spec["os"], "name"), errors);
        }
    }
    for (statuses, list) in STATUSES {
        for (index, status) in items(after, statuses) {
            let path = format!("status.{statuses}[{index}].allocatedResourcesStatus");
            if list == "ephemeralContainers" {
                if count(status, "allocatedResourcesStatus") > 0 {
                    errors.forbidden(&path, "must not be specified in container status");
                }
                continue;
            }
            let container = items(spec, list).find(|(_, one)| one["name"] == status["name"]);
            health(status, container.map(|(_, one)| one), &path, errors);
        }
    }
}

fn conditions(status: &Value, errors: &mut Errors) {
    for (index, condition) in items(status, "conditions") {
        let path = format!("status.conditions[{index}]");
        if integer(&condition["observedGeneration"]) < 0 {
            let path = format!("{path}.observedGeneration");
            errors.invalid(&path, &condition["observedGeneration"], NOT_NEGATIVE);
        }
        let kind = text(condition, "type");
        if !["PodScheduled", "Ready", "Initialized"].contains(&kind) {
            errors.invalid_text(&format!("{path}.Type"), kind, names::qualified(kind));
        }
    }
}

fn nominated(old: &Value, new: &Value, errors: &mut Errors) {
    let name = text(&new["status"], "nominatedNodeName");
    if name.is_empty() || name == text(&old["status"], "nominatedNodeName") {
        return;
    }
    let path = "status.nominatedNodeName";
    errors.invalid_text(path, name, names::dns_subdomain(name));
    if !text(&old["spec"], "nodeName").is_empty() {
        errors.forbidden(path, "may not be set on pods that are already bound to a node");
    }
}

/// A container that ended for good does not run again.
fn stays_ended(old: &Value, new: &Value, spec: &Value, (statuses, list): (&str, &str), errors: &mut Errors) {
    let is_ephemeral = list == "ephemeralContainers";
    let restarts_all = ["initContainers", "containers"]
        .iter()
        .flat_map(|list| items(spec, list))
        .flat_map(|(_, container)| items(container, "restartPolicyRules"))
        .any(|(_, rule)| text(rule, "action") == "RestartAllContainers");
    if restarts_all && !is_ephemeral {
        return;
    }
    for (index, before) in items(old, statuses) {
        let ended = &before["state"]["terminated"];
        if ended.is_null() {
            continue;
        }
        let container = items(spec, list).find(|(_, one)| one["name"] == before["name"]);
        let may = !is_ephemeral
            && container.is_some_and(|(_, one)| starts_again(one, spec, integer(&ended["exitCode"])));
        let runs =
            |status: &Value| status["name"] == before["name"] && status["state"]["terminated"].is_null();
        for _ in items(new, statuses).filter(|(_, status)| !may && runs(status)) {
            errors.forbidden(&format!("status.{statuses}[{index}].state"), NOT_AGAIN);
            if !is_ephemeral {
                break;
            }
        }
    }
}

/// Whether a container starts again after it ended with this code.
fn starts_again(container: &Value, spec: &Value, code: i64) -> bool {
    let matches = |rule: &Value| {
        let codes = &rule["exitCodes"];
        let listed = items(codes, "values").any(|(_, one)| one.as_i64() == Some(code));
        match text(codes, "operator") {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    };
    let by = |policy: &str| match policy {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => true,
    };
    if !has(container, "restartPolicy") {
        return by(text(spec, "restartPolicy"));
    }
    let rule = items(container, "restartPolicyRules").find(|(_, rule)| matches(rule));
    rule.is_some_and(|(_, rule)| text(rule, "action") == "Restart") || by(text(container, "restartPolicy"))
}

fn claims(status: &Value, spec: &Value, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, claim) in items(status, "resourceClaimStatuses") {
        let path = format!("status.resourceClaimStatuses[{index}]");
        let name = text(claim, "name");
        if !items(spec, "resourceClaims").any(|(_, own)| text(own, "name") == name) {
            let why = "must match the name of an entry in `spec.resourceClaims`";
            errors.bad(&format!("{path}.name"), name, why);
        }
        if seen.contains(&name) {
            errors.duplicate(&format!("{path}.name"), &json!(name));
        }
        seen.push(name);
        if has(claim, "resourceClaimName") {
            let name = text(claim, "resourceClaimName");
            errors.invalid_text(
                &format!("{path}.resourceClaimName"),
                name,
                names::dns_subdomain(name),
            );
        }
    }
}

fn extended_claim(status: &Value, spec: &Value, errors: &mut Errors) {
    let claim = &status["extendedResourceClaimStatus"];
    if claim.is_null() {
        return;
    }
    let path = "status.extendedResourceClaimStatus";
    if count(claim, "requestMappings") == 0 {
        errors.required(
            &format!("{path}.requestMappings"),
            "at least one request mapping is required",
        );
    }
    let mut seen: Vec<[&str; 3]> = Vec::new();
    for (index, mapping) in items(claim, "requestMappings") {
        let own = format!("{path}.requestMappings[{index}]");
        let names @ [container, resource, request] =
            ["containerName", "resourceName", "requestName"].map(|name| text(mapping, name));
        let lists = ["initContainers", "containers"].into_iter();
        let found = lists
            .flat_map(|list| items(spec, list))
            .filter(|(_, one)| text(one, "name") == container)
            .last();
        match found {
            Some((_, one)) if one["resources"]["requests"].get(resource).is_some() => {}
            Some(_) => errors.bad(
                &format!("{own}.resourceName"),
                resource,
                "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests",
            ),
            None => errors.bad(
                &format!("{own}.containerName"),
                container,
                "must match the name of an entry in spec.initContainers.name or spec.containers.name",
            ),
        }
        errors.invalid_text(&format!("{path}.requestName"), request, names::dns_label(request));
        if seen.contains(&names) {
            for (name, value) in ["containerName", "resourceName", "requestName"].iter().zip(names) {
                errors.duplicate(&format!("{own}.{name}"), &json!(value));
            }
        }
        seen.push(names);
    }
    let name = text(claim, "resourceClaimName");
    if name.is_empty() {
        errors.required(&format!("{path}.resourceClaimName"), "");
    } else {
        errors.invalid_text(
            &format!("{path}.resourceClaimName"),
            name,
            names::dns_subdomain(name),
        );
    }
}

/// One address of each family at most. Those that were there before are not looked at again.
fn addresses(old: &Value, new: &Value, list: &str, errors: &mut Errors) {
    let path = format!("status.{list}");
    let addresses: Vec<&str> = items(new, list).map(|(_, one)| text(one, "ip")).collect();
    for (index, address) in addresses.iter().enumerate() {
        if !items(old, list).any(|(_, one)| text(one, "ip") == *address) {
            address::ip(address, &format!("{path}[{index}]"), errors);
        }
    }
    if addresses.len() < 2 {
        return;
    }
    let parsed: Vec<IpAddr> = addresses.iter().filter_map(|one| one.parse().ok()).collect();
    if let Some(index) = addresses.iter().position(|one| one.parse::<IpAddr>().is_err()) {
        let why = format!(
            "failed to check for dual stack with error:invalid IP[{index}]: {}",
            addresses[index]
        );
        errors.internal(&path, &why);
    }
    let four = parsed.iter().filter(|one| one.is_ipv4()).count();
    let is_dual = parsed.len() == addresses.len() && four > 0 && four < parsed.len();
    if !is_dual || addresses.len() > 2 {
        errors.invalid(
            &path,
            &new[list],
            "may specify no more than one IP for each IP family",
        );
    }
}

fn user(user: &Value, path: &str, system: &str, errors: &mut Errors) {
    const IDS: (i64, i64) = (0, i32::MAX as i64);
    match system {
        "windows" => errors.forbidden(path, "cannot be set for a windows pod"),
        "" | "linux" => {
            for name in ["uid", "gid"] {
                errors.range(user, path, name, IDS);
            }
            for (index, group) in items(user, "supplementalGroups") {
                let name = format!("supplementalGroups[{index}]");
                errors.range(&json!({name.as_str(): group}), path, &name, IDS);
            }
        }
        _ => {}
    }
}

/// Devices of a container, and how they are.
fn health(status: &Value, container: Option<&Value>, path: &str, errors: &mut Errors) {
    for (index, resource) in items(status, "allocatedResourcesStatus") {
        let (path, name) = (format!("{path}[{index}]"), text(resource, "name"));
        if let Some(container) = container {
            let own = &container["resources"];
            let claimed = |(_, claim): (usize, &Value)| {
                let request = text(claim, "request");
                let slash = if request.is_empty() { "" } else { "/" };
                format!("claim:{}{slash}{request}", text(claim, "name")) == name
            };
            let (found, why) = if name.starts_with("claim:") {
                (
                    items(own, "claims").any(claimed),
                    "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty",
                )
            } else {
                (
                    members(&own["requests"]).any(|(other, _)| other == name),
                    "must match one of the container's resource requests",
                )
            };
            if !found {
                errors.bad(&format!("{path}.name"), name, why);
            }
        }
        let mut seen: Vec<&str> = Vec::new();
        for (number, device) in items(resource, "resources") {
            let (path, id) = (format!("{path}.resources[{number}]"), text(device, "resourceID"));
            let known = ["Healthy", "Unhealthy", "Unknown"];
            if !known.contains(&text(device, "health")) {
                errors.not_supported(&format!("{path}.health"), &json!(text(device, "health")), &known);
            }
            if has(device, "message") {
                match text(device, "message").len() {
                    0 => errors.required(&format!("{path}.message"), "must be non-empty if specified"),
                    1..=1024 => {}
                    _ => errors.too_long(&format!("{path}.message"), 1024),
                }
            }
            if seen.contains(&id) {
                errors.duplicate(&format!("{path}.resourceID"), &json!(id));
            }
            seen.push(id);
        }
    }
}
