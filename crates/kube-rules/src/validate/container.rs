//! Containers.

use super::checks::{count, integer, is_true};
use super::errors::{Errors, has, items, text};
use super::resources::{self, Owner};
use super::{environment, pod_security, probe};
use crate::names;
use serde_json::{Value, json};

/// What the containers of a pod may refer to.
pub(super) struct Scope<'a> {
    /// Volumes of the pod that are valid.
    pub(super) volumes: Vec<&'a Value>,
    /// Names of the pod's claims.
    pub(super) claims: Vec<&'a str>,
    pub(super) spec: &'a Value,
}

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const UNCHANGED_START: &str = "must specify restartPolicy when restart rules are used";

/// All lists of containers.
pub(super) fn all(scope: &Scope, path: &str, errors: &mut Errors) {
    let spec = scope.spec;
    let grace = &spec["terminationGracePeriodSeconds"];
    regular(scope, &format!("{path}.containers"), grace, errors);
    starting(scope, &format!("{path}.initContainers"), grace, errors);
    ephemeral(scope, &format!("{path}.ephemeralContainers"), errors);
}

fn regular(scope: &Scope, list: &str, grace: &Value, errors: &mut Errors) {
    if count(scope.spec, "containers") == 0 {
        errors.required(list, "");
        return;
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, container) in items(scope.spec, "containers") {
        let path = format!("{list}[{index}]");
        common(container, &path, scope, errors);
        unique(container, &path, &mut seen, errors);
        probe::all(container, &path, grace, errors);
        restarts(container, &path, errors);
    }
    host_ports(items(scope.spec, "containers"), list, errors);
}

fn starting(scope: &Scope, list: &str, grace: &Value, errors: &mut Errors) {
    let regular = items(scope.spec, "containers");
    let mut seen: Vec<&str> = regular.map(|(_, container)| text(container, "name")).collect();
    for (index, container) in items(scope.spec, "initContainers") {
        let path = format!("{list}[{index}]");
        common(container, &path, scope, errors);
        restarts(container, &path, errors);
        if seen.contains(&"") || !text(container, "name").is_empty() {
            unique(container, &path, &mut seen, errors);
        }
        // Upstream looks at each alone, and reports all as the first.
        host_ports([(0, container)].into_iter(), list, errors);
        if text(container, "restartPolicy") == "Always" {
            probe::all(container, &path, grace, errors);
            continue;
        }
        for name in ["lifecycle"].iter().chain(&probe::PROBES) {
            if has(container, name) {
                let why = "may not be set for init containers without restartPolicy=Always";
                errors.forbidden(&format!("{path}.{name}"), why);
            }
        }
        for (number, policy) in items(container, "resizePolicy") {
            if text(policy, "restartPolicy") == "RestartContainer" {
                errors.invalid(
                    &format!("{path}.resizePolicy[{number}].restartPolicy"),
                    &policy["restartPolicy"],
                    "must not be set to 'RestartContainer' for non-sidecar initContainers",
                );
            }
        }
    }
}

fn ephemeral(scope: &Scope, list: &str, errors: &mut Errors) {
    const WHY: &str = "cannot be set for an Ephemeral Container";
    const NOT_ALLOWED: [&str; 9] = [
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ];
    let lists = ["containers", "initContainers"].into_iter();
    let others = lists.flat_map(|list| items(scope.spec, list));
    let others: Vec<&str> = others.map(|(_, container)| text(container, "name")).collect();
    let mut seen = others.clone();
    for (index, container) in items(scope.spec, "ephemeralContainers") {
        let path = format!("{list}[{index}]");
        common(container, &path, scope, errors);
        image(container, &path, errors);
        unique(container, &path, &mut seen, errors);
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !others.contains(&target) {
            errors.not_found(&format!("{path}.targetContainerName"), &json!(target));
        }
        for name in NOT_ALLOWED {
            if has(container, name) && container[name] != json!({}) {
                errors.forbidden(&format!("{path}.{name}"), WHY);
            }
        }
        for (number, mount) in items(container, "volumeMounts") {
            for name in ["subPath", "subPathExpr"] {
                if !text(mount, name).is_empty() {
                    errors.forbidden(&format!("{path}.volumeMounts[{number}].{name}"), WHY);
                }
            }
        }
    }
}

/// An image without blanks around it, which only pods are held to.
pub(super) fn image(container: &Value, path: &str, errors: &mut Errors) {
    let image = text(container, "image");
    if image.trim() != image {
        errors.bad(
            &format!("{path}.image"),
            image,
            "must not have leading or trailing whitespace",
        );
    }
}

fn unique<'a>(container: &'a Value, path: &str, seen: &mut Vec<&'a str>, errors: &mut Errors) {
    let name = text(container, "name");
    if seen.contains(&name) {
        errors.duplicate(&format!("{path}.name"), &json!(name));
    } else {
        seen.push(name);
    }
}

fn host_ports<'a>(containers: impl Iterator<Item = (usize, &'a Value)>, list: &str, errors: &mut Errors) {
    let mut seen: Vec<String> = Vec::new();
    for (index, container) in containers {
        for (number, port) in items(container, "ports") {
            let host = integer(&port["hostPort"]);
            let key = format!("{}/{}/{host}", text(port, "protocol"), text(port, "hostIP"));
            if host == 0 {
                continue;
            }
            if seen.contains(&key) {
                errors.duplicate(&format!("{list}[{index}].ports[{number}].hostPort"), &json!(key));
            } else {
                seen.push(key);
            }
        }
    }
}

/// What is asked of containers of all sorts.
fn common(container: &Value, path: &str, scope: &Scope, errors: &mut Errors) {
    let name = text(container, "name");
    if name.is_empty() {
        errors.required(&format!("{path}.name"), "");
    } else {
        errors.invalid_text(&format!("{path}.name"), name, names::dns_label(name));
    }
    errors.need(container, path, &["image"]);
    errors.one_of(
        &format!("{path}.terminationMessagePolicy"),
        &container["terminationMessagePolicy"],
        &["File", "FallbackToLogsOnError"],
    );
    ports(container, path, errors);
    environment::environment(container, path, errors);
    mounts(container, path, scope, errors);
    devices(container, path, scope, errors);
    pull_policy(container, path, "imagePullPolicy", errors);
    let own = &container["resources"];
    resources::requirements(
        own,
        &format!("{path}.resources"),
        Owner::Container,
        &scope.claims,
        errors,
    );
    resize_policy(container, path, text(scope.spec, "restartPolicy"), errors);
    pod_security::container(container, path, scope.spec, errors);
}

/// When an image is pulled.
pub(super) fn pull_policy(object: &Value, path: &str, name: &str, errors: &mut Errors) {
    errors.one_of(&format!("{path}.{name}"), &object[name], &PULL_POLICIES);
}

fn ports(container: &Value, path: &str, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, port) in items(container, "ports") {
        let path = format!("{path}.ports[{index}]");
        let name = text(port, "name");
        if !name.is_empty() {
            let wrong = names::port_name(name);
            if !wrong.is_empty() {
                errors.invalid_text(&format!("{path}.name"), name, wrong);
            } else if seen.contains(&name) {
                errors.duplicate(&format!("{path}.name"), &port["name"]);
            } else {
                seen.push(name);
            }
        }
        if integer(&port["containerPort"]) == 0 {
            errors.required(&format!("{path}.containerPort"), "");
        } else {
            errors.port(&format!("{path}.containerPort"), &port["containerPort"]);
        }
        if integer(&port["hostPort"]) != 0 {
            errors.port(&format!("{path}.hostPort"), &port["hostPort"]);
        }
        let protocol = format!("{path}.protocol");
        errors.one_of(&protocol, &port["protocol"], &["SCTP", "TCP", "UDP"]);
    }
}

/// The last of the mounts or devices with a name, as Go keeps them in maps by name.
fn by_name<'a>(container: &'a Value, list: &str, place: &str) -> Vec<(&'a str, &'a str)> {
    let mut all: Vec<(&str, &str)> = Vec::new();
    for (_, one) in items(container, list) {
        let (name, place) = (text(one, "name"), text(one, place));
        all.retain(|(other, _)| *other != name);
        all.push((name, place));
    }
    all
}

fn mounts(container: &Value, path: &str, scope: &Scope, errors: &mut Errors) {
    let list = format!("{path}.volumeMounts");
    let devices = by_name(container, "volumeDevices", "devicePath");
    let mut seen: Vec<&str> = Vec::new();
    for (index, mount) in items(container, "volumeMounts") {
        let path = format!("{list}[{index}]");
        let (name, at) = (text(mount, "name"), text(mount, "mountPath"));
        let (name_path, at_path) = (format!("{path}.name"), format!("{path}.mountPath"));
        errors.need(mount, &path, &["name"]);
        if !scope.volumes.iter().any(|volume| text(volume, "name") == name) {
            errors.not_found(&name_path, &json!(name));
        }
        errors.need(mount, &path, &["mountPath"]);
        if seen.contains(&at) {
            errors.bad(&at_path, at, "must be unique");
        }
        seen.push(at);
        if devices.iter().any(|(other, _)| *other == name) {
            errors.bad(&name_path, name, "must not already exist in volumeDevices");
        }
        if devices.iter().any(|(_, other)| *other == at) {
            errors.bad(&at_path, at, "must not already exist as a path in volumeDevices");
        }
        // Upstream names no index from here on.
        let (sub, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
        errors.descending(&format!("{list}.subPath"), sub);
        if !expression.is_empty() {
            if !sub.is_empty() {
                let why = "subPathExpr and subPath are mutually exclusive";
                errors.bad(&format!("{path}.subPathExpr"), expression, why);
            }
            errors.descending(&format!("{list}.subPathExpr"), expression);
        }
        let propagation = text(mount, "mountPropagation");
        errors.known(
            mount,
            &list,
            "mountPropagation",
            &["Bidirectional", "HostToContainer", "None"],
        );
        if propagation == "Bidirectional" && !is_true(&container["securityContext"], "privileged") {
            let why = "Bidirectional mount propagation is available only to privileged containers";
            errors.forbidden(&format!("{list}.mountPropagation"), why);
        }
        let recursive = format!("{list}.recursiveReadOnly");
        match text(mount, "recursiveReadOnly") {
            "Enabled" | "IfPossible" => {
                if !is_true(mount, "readOnly") {
                    errors.forbidden(&recursive, "may only be specified when readOnly is true");
                }
                if has(mount, "mountPropagation") && propagation != "None" {
                    let why = "may only be specified when mountPropagation is None or not specified";
                    errors.forbidden(&recursive, why);
                }
            }
            _ => errors.known(
                mount,
                &list,
                "recursiveReadOnly",
                &["Disabled", "Enabled", "IfPossible"],
            ),
        }
    }
}

fn devices(container: &Value, path: &str, scope: &Scope, errors: &mut Errors) {
    let mounts = by_name(container, "volumeMounts", "mountPath");
    let (mut names, mut places): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (index, device) in items(container, "volumeDevices") {
        let path = format!("{path}.volumeDevices[{index}]");
        let (name, at) = (text(device, "name"), text(device, "devicePath"));
        let (name_path, at_path) = (format!("{path}.name"), format!("{path}.devicePath"));
        errors.need(device, &path, &["name"]);
        if names.contains(&name) {
            errors.bad(&name_path, name, "must be unique");
        }
        match scope.volumes.iter().find(|volume| text(volume, "name") == name) {
            Some(volume) if !has(volume, "persistentVolumeClaim") && !has(volume, "ephemeral") => errors.bad(
                &name_path,
                name,
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            ),
            Some(_) => {}
            None => errors.not_found(&name_path, &json!(name)),
        }
        errors.need(device, &path, &["devicePath"]);
        if places.contains(&at) {
            errors.bad(&at_path, at, "must be unique");
        }
        if at.split('/').any(|part| part == "..") {
            errors.bad(&at_path, at, "can not contain backsteps ('..')");
        } else {
            places.push(at);
        }
        if mounts.iter().any(|(other, _)| *other == name) {
            errors.bad(&name_path, name, "must not already exist in volumeMounts");
        }
        if mounts.iter().any(|(_, other)| *other == at) {
            errors.bad(&at_path, at, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names.push(name);
        }
    }
}

fn resize_policy(container: &Value, path: &str, restart: &str, errors: &mut Errors) {
    let list = format!("{path}.resizePolicy");
    let mut seen: Vec<&str> = Vec::new();
    for (index, policy) in items(container, "resizePolicy") {
        let (resource, own) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if seen.contains(&resource) {
            errors.duplicate(&format!("{list}[{index}]"), &json!(resource));
        }
        seen.push(resource);
        errors.one_of(&list, &json!(resource), &["cpu", "memory"]);
        errors.one_of(&list, &json!(own), &["NotRequired", "RestartContainer"]);
        if restart == "Never" && own != "NotRequired" {
            errors.bad(
                &list,
                own,
                "must be 'NotRequired' when pod `restartPolicy` is 'Never'",
            );
        }
    }
}

/// When a container starts again.
fn restarts(container: &Value, path: &str, errors: &mut Errors) {
    if has(container, "restartPolicy") {
        errors.known(
            container,
            path,
            "restartPolicy",
            &["Always", "Never", "OnFailure"],
        );
    } else if count(container, "restartPolicyRules") > 0 {
        errors.required(&format!("{path}.restartPolicy"), UNCHANGED_START);
        // Of containers that start before the others, nothing more is looked at.
        if path.contains(".initContainers[") {
            return;
        }
    }
    let list = format!("{path}.restartPolicyRules");
    let rules = count(container, "restartPolicyRules");
    if rules > 20 {
        errors.too_many(&list, rules, 20);
    }
    for (index, rule) in items(container, "restartPolicyRules") {
        let path = format!("{list}[{index}]");
        let actions = ["Restart", "RestartAllContainers"];
        if !actions.contains(&text(rule, "action")) {
            errors.not_supported(&format!("{path}.action"), &json!(text(rule, "action")), &actions);
        }
        let codes = &rule["exitCodes"];
        let path = format!("{path}.exitCodes");
        if codes.is_null() {
            errors.required(&path, "must be specified");
            continue;
        }
        let operator = text(codes, "operator");
        if !["In", "NotIn"].contains(&operator) {
            errors.not_supported(&format!("{path}.operator"), &json!(operator), &["In", "NotIn"]);
        }
        let values = count(codes, "values");
        if values > 255 {
            errors.too_many(&format!("{path}.values"), values, 255);
        }
    }
}
