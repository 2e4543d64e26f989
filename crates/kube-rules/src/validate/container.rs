//! Containers.

use super::errors::{Errors, has, items, text};
use crate::names;
use evenkeel_kube_values::Quantity;
use serde_json::{Value, json};

/// What the containers of a pod may refer to, and which names are taken.
pub(super) struct Scope<'a> {
    /// Names of the pod's volumes.
    pub(super) volumes: Vec<&'a str>,
    /// Names of containers seen so far, of all sorts.
    pub(super) names: Vec<String>,
}

/// One of the lists of containers.
pub(super) fn list(spec: &Value, list: &str, path: &str, scope: &mut Scope, errors: &mut Errors) {
    let mut host_ports: Vec<(Value, Value, Value)> = Vec::new();
    for (index, container) in items(spec, list) {
        let path = format!("{path}.{list}[{index}]");
        common(container, &path, scope, errors);
        let name = text(container, "name");
        if !name.is_empty() && scope.names.iter().any(|other| other == name) {
            errors.duplicate(&format!("{path}.name"), &container["name"]);
        }
        scope.names.push(name.to_owned());
        let sidecar = list == "initContainers" && text(container, "restartPolicy") == "Always";
        if list == "containers" || sidecar {
            for hook in ["postStart", "preStop"] {
                if has(&container["lifecycle"], hook) {
                    handler(
                        &container["lifecycle"][hook],
                        &format!("{path}.lifecycle.{hook}"),
                        true,
                        errors,
                    );
                }
            }
            for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
                if has(container, name) {
                    probe(&container[name], &format!("{path}.{name}"), name, errors);
                }
            }
        } else {
            let why = if list == "ephemeralContainers" {
                "cannot be set for an Ephemeral Container"
            } else {
                "may not be set for init containers without restartPolicy=Always"
            };
            for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if has(container, name) {
                    errors.forbidden(&format!("{path}.{name}"), why);
                }
            }
        }
        for (number, port) in items(container, "ports") {
            if port["hostPort"].as_i64().unwrap_or(0) == 0 {
                continue;
            }
            let key = (
                port["protocol"].clone(),
                port["hostIP"].clone(),
                port["hostPort"].clone(),
            );
            if list == "containers" && host_ports.contains(&key) {
                let shown = format!(
                    "{}/{}/{}",
                    text(port, "protocol"),
                    text(port, "hostIP"),
                    port["hostPort"].as_i64().unwrap_or(0)
                );
                errors.duplicate(&format!("{path}.ports[{number}].hostPort"), &json!(shown));
            }
            host_ports.push(key);
        }
    }
}

fn common(container: &Value, path: &str, scope: &Scope, errors: &mut Errors) {
    let name = text(container, "name");
    if name.is_empty() {
        errors.required(&format!("{path}.name"), "");
    } else {
        errors.invalid_text(&format!("{path}.name"), name, names::dns_label(name));
    }
    if text(container, "image").is_empty() {
        errors.required(&format!("{path}.image"), "");
    }
    if has(container, "terminationMessagePolicy") {
        let policies = ["File", "FallbackToLogsOnError"];
        errors.one_of(
            &format!("{path}.terminationMessagePolicy"),
            &container["terminationMessagePolicy"],
            &policies,
        );
    }
    ports(container, path, errors);
    environment(container, path, errors);
    mounts(container, path, scope, errors);
    if has(container, "imagePullPolicy") {
        let policies = ["Always", "IfNotPresent", "Never"];
        errors.one_of(
            &format!("{path}.imagePullPolicy"),
            &container["imagePullPolicy"],
            &policies,
        );
    }
    resources(&container["resources"], &format!("{path}.resources"), errors);
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
            }
            seen.push(name);
        }
        if port["containerPort"].as_i64().unwrap_or(0) == 0 {
            errors.required(&format!("{path}.containerPort"), "");
        } else {
            errors.port(&format!("{path}.containerPort"), &port["containerPort"]);
        }
        if port["hostPort"].as_i64().unwrap_or(0) != 0 {
            errors.port(&format!("{path}.hostPort"), &port["hostPort"]);
        }
        errors.one_of(
            &format!("{path}.protocol"),
            &port["protocol"],
            &["SCTP", "TCP", "UDP"],
        );
    }
}

fn environment(container: &Value, path: &str, errors: &mut Errors) {
    for (index, variable) in items(container, "env") {
        let path = format!("{path}.env[{index}]");
        let name = text(variable, "name");
        if name.is_empty() {
            errors.required(&format!("{path}.name"), "");
        } else {
            errors.invalid_text(&format!("{path}.name"), name, names::env_name(name));
        }
        if !has(variable, "valueFrom") {
            continue;
        }
        let path = format!("{path}.valueFrom");
        let source = &variable["valueFrom"];
        let kinds = [
            "fieldRef",
            "resourceFieldRef",
            "configMapKeyRef",
            "secretKeyRef",
            "fileKeyRef",
        ];
        let count = kinds.iter().filter(|kind| has(source, kind)).count();
        if count == 0 {
            errors.invalid(
                &path,
                &json!(""),
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
            );
        } else if !text(variable, "value").is_empty() {
            errors.invalid(
                &path,
                &json!(""),
                "may not be specified when `value` is not empty",
            );
        } else if count > 1 {
            errors.invalid(
                &path,
                &json!(""),
                "may not have more than one field specified at a time",
            );
        }
        if has(source, "fieldRef") {
            field_reference(&source["fieldRef"], &format!("{path}.fieldRef"), errors);
        }
        for kind in ["configMapKeyRef", "secretKeyRef"] {
            if has(source, kind) {
                let (path, key) = (format!("{path}.{kind}"), text(&source[kind], "key"));
                if text(&source[kind], "name").is_empty() {
                    errors.required(&format!("{path}.name"), "");
                }
                if key.is_empty() {
                    errors.required(&format!("{path}.key"), "");
                } else {
                    errors.invalid_text(&format!("{path}.key"), key, names::config_key(key));
                }
            }
        }
    }
    for (index, source) in items(container, "envFrom") {
        let path = format!("{path}.envFrom[{index}]");
        let kinds = ["configMapRef", "secretRef"];
        match kinds.iter().filter(|kind| has(source, kind)).count() {
            0 => errors.invalid(
                &path,
                &json!(""),
                "must specify one of: `configMapRef` or `secretRef`",
            ),
            1 => {}
            _ => errors.invalid(
                &path,
                &json!(""),
                "may not have more than one field specified at a time",
            ),
        }
        for kind in kinds {
            if has(source, kind) && text(&source[kind], "name").is_empty() {
                errors.required(&format!("{path}.{kind}.name"), "");
            }
        }
    }
}

fn field_reference(reference: &Value, path: &str, errors: &mut Errors) {
    const PLAIN: [&str; 9] = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    let field = text(reference, "fieldPath");
    if text(reference, "apiVersion").is_empty() {
        errors.required(&format!("{path}.apiVersion"), "");
    } else if field.is_empty() {
        errors.required(&format!("{path}.fieldPath"), "");
    } else if !PLAIN.contains(&field)
        && !field.starts_with("metadata.annotations[")
        && !field.starts_with("metadata.labels[")
    {
        if field.starts_with("metadata.") || field.starts_with("spec.") || field.starts_with("status.") {
            errors.not_supported(&format!("{path}.fieldPath"), &reference["fieldPath"], &PLAIN);
        } else {
            errors.invalid(
                &format!("{path}.fieldPath"),
                &reference["fieldPath"],
                &format!("error converting fieldPath: field label not supported: {field}"),
            );
        }
    }
}

fn mounts(container: &Value, path: &str, scope: &Scope, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, mount) in items(container, "volumeMounts") {
        let path = format!("{path}.volumeMounts[{index}]");
        let (name, at) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.required(&format!("{path}.name"), "");
        }
        if !name.is_empty() && !scope.volumes.contains(&name) {
            errors.not_found(&format!("{path}.name"), &mount["name"]);
        }
        if at.is_empty() {
            errors.required(&format!("{path}.mountPath"), "");
        }
        if seen.contains(&at) {
            errors.invalid(
                &format!("{path}.mountPath"),
                &mount["mountPath"],
                "must be unique",
            );
        }
        seen.push(at);
        let sub = text(mount, "subPath");
        if sub.starts_with('/') {
            errors.invalid(
                &format!("{path}.subPath"),
                &mount["subPath"],
                "must be a relative path",
            );
        } else if sub.split('/').any(|part| part == "..") {
            errors.invalid(
                &format!("{path}.subPath"),
                &mount["subPath"],
                "must not contain '..'",
            );
        }
    }
}

/// Requests and limits.
pub(super) fn resources(resources: &Value, path: &str, errors: &mut Errors) {
    for list in ["limits", "requests"] {
        for (name, quantity) in resources[list].as_object().into_iter().flatten() {
            let path = format!("{path}.{list}");
            let native = !name.contains('/');
            let known = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage" | "storage")
                || name.starts_with("hugepages-")
                || name.starts_with("attachable-volumes-");
            if native && !known {
                errors.invalid(
                    &format!("{path}[{name}]"),
                    &json!(name),
                    "must be a standard resource type or fully qualified",
                );
                errors.invalid(
                    &format!("{path}[{name}]"),
                    &json!(name),
                    "must be a standard resource for containers",
                );
            }
            let parsed = quantity.as_str().and_then(|text| Quantity::parse(text).ok());
            let Some(parsed) = parsed else { continue };
            if parsed.is_negative() {
                errors.invalid(
                    &format!("{path}[{name}]"),
                    quantity,
                    "must be greater than or equal to 0",
                );
            } else if !native && parsed.is_fractional() {
                errors.invalid(&format!("{path}[{name}]"), quantity, "must be an integer");
            }
        }
    }
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        let Some(limit) = resources["limits"].get(name) else {
            continue;
        };
        let parse = |value: &Value| value.as_str().and_then(|text| Quantity::parse(text).ok());
        let (Some(asked), Some(most)) = (parse(request), parse(limit)) else {
            continue;
        };
        if asked > most {
            let most = limit.as_str().unwrap_or_default();
            errors.invalid(
                &format!("{path}.requests"),
                request,
                &format!("must be less than or equal to {name} limit of {most}"),
            );
        }
    }
}

fn probe(probe: &Value, path: &str, kind: &str, errors: &mut Errors) {
    handler(probe, path, false, errors);
    for name in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        errors.non_negative(&format!("{path}.{name}"), &probe[name]);
    }
    if has(probe, "terminationGracePeriodSeconds") {
        let grace = &probe["terminationGracePeriodSeconds"];
        let path = format!("{path}.terminationGracePeriodSeconds");
        if grace.as_i64().is_some_and(|seconds| seconds <= 0) {
            errors.invalid(&path, grace, "must be greater than 0");
        }
        if kind == "readinessProbe" {
            errors.invalid(&path, grace, "must not be set for readinessProbes");
        }
    }
    if kind != "readinessProbe"
        && probe["successThreshold"]
            .as_i64()
            .is_some_and(|threshold| threshold != 1)
    {
        errors.invalid(
            &format!("{path}.successThreshold"),
            &probe["successThreshold"],
            "must be 1",
        );
    }
}

/// The handler of a probe, or of a lifecycle hook.
fn handler(handler: &Value, path: &str, hook: bool, errors: &mut Errors) {
    let kinds: &[&str] = if hook {
        &["exec", "httpGet", "tcpSocket", "sleep"]
    } else {
        &["exec", "httpGet", "tcpSocket", "grpc"]
    };
    let mut first = true;
    for kind in kinds.iter().copied().filter(|kind| has(handler, kind)) {
        let path = format!("{path}.{kind}");
        if !std::mem::take(&mut first) {
            errors.forbidden(&path, "may not specify more than 1 handler type");
            continue;
        }
        let action = &handler[kind];
        match kind {
            "exec" if action["command"].as_array().is_none_or(Vec::is_empty) => {
                errors.required(&format!("{path}.command"), "");
            }
            "httpGet" => {
                if text(action, "path").is_empty() {
                    errors.required(&format!("{path}.path"), "");
                }
                errors.port_or_name(&format!("{path}.port"), &action["port"]);
                errors.one_of(&format!("{path}.scheme"), &action["scheme"], &["HTTP", "HTTPS"]);
                for (_, header) in items(action, "httpHeaders") {
                    let name = text(header, "name");
                    errors.invalid_text(&format!("{path}.httpHeaders"), name, names::header_name(name));
                }
            }
            "tcpSocket" => errors.port_or_name(&format!("{path}.port"), &action["port"]),
            "grpc" => errors.port(&format!("{path}.port"), &action["port"]),
            _ => {}
        }
    }
    if first {
        errors.required(path, "must specify a handler type");
    }
}
