//! Pods.

use super::probe::probe;
use super::problem::{ConvertError, Problems, present};
use crate::core::{Container, Kind, Pod, RestartAction, RestartPolicy, RestartRule, Role};
use k8s_openapi::api::core::v1 as corev1;
use serde_json::Value;
use std::sync::Arc;

/// The prober's view of a typed pod. Fields that the typed API does not know are lost; use [`pod`] where they
/// matter (`restartPolicyRules` of containers).
pub fn convert(pod: &corev1::Pod) -> Result<Pod, ConvertError> {
    self::pod(&serde_json::to_value(pod).expect("a Pod has string keys alone, and so is JSON"))
}

/// The prober's view of a pod, with Kubernetes' defaults applied (0 means the default for timeout, period and
/// thresholds). A pod without a UID is known by `NAMESPACE/NAME`, one without a namespace is in `default`.
///
/// Refused is what cannot be probed: a probe with no handler or two, negative numbers, probes of ordinary
/// init containers and the like. A port that leads nowhere is no error here, but at each attempt, as with the
/// kubelet.
pub fn pod(value: &Value) -> Result<Pod, ConvertError> {
    let mut problems = Problems::default();
    let (metadata, spec) = (&value["metadata"], &value["spec"]);
    let name = match problems.text(metadata, "name", "metadata") {
        "" => problems
            .text(metadata, "generateName", "metadata")
            .trim_end_matches('-'),
        name => name,
    };
    if name.is_empty() {
        problems.report(
            "metadata.name",
            "Required value: name or generateName is required",
        );
    }
    let namespace = match problems.text(metadata, "namespace", "metadata") {
        "" => "default",
        namespace => namespace,
    };
    let uid = match problems.text(metadata, "uid", "metadata") {
        "" => format!("{namespace}/{name}"),
        uid => uid.to_owned(),
    };
    let restart_policy = policy(spec, "spec", &mut problems).unwrap_or_default();
    let mut containers: Vec<Arc<Container>> = Vec::new();
    for list in ["containers", "initContainers"] {
        let items = problems.list(spec, list, "spec");
        if items.is_empty() && list == "containers" {
            problems.report("spec.containers", "Required value");
        }
        for (index, item) in items.iter().enumerate() {
            let path = format!("spec.{list}[{index}]");
            if problems.mapping(item, &path).is_none() {
                continue;
            }
            let container = container(item, list == "containers", &path, &mut problems);
            if containers.iter().any(|other| other.name == container.name) {
                problems.report(
                    format!("{path}.name"),
                    format!("Duplicate value: {:?}", container.name),
                );
            }
            containers.push(Arc::new(container));
        }
    }
    problems.or(Pod {
        uid: uid.into(),
        namespace: namespace.into(),
        name: name.into(),
        deleting: present(metadata, "deletionTimestamp").is_some(),
        restart_policy,
        containers,
    })
}

fn container(value: &Value, regular: bool, path: &str, problems: &mut Problems) -> Container {
    let name = problems.text(value, "name", path);
    if name.is_empty() {
        problems.report(format!("{path}.name"), "Required value");
    }
    let restart_policy = policy(value, path, problems);
    let role = match (regular, restart_policy) {
        (true, _) => Role::Regular,
        (false, Some(RestartPolicy::Always)) => Role::Sidecar,
        (false, _) => Role::Init,
    };
    let mut found = Container {
        name: name.into(),
        role,
        restart_policy,
        restart_rules: rules(value, path, problems),
        ports: ports(value, path, problems),
        env: env(value, path, problems),
        ..Container::default()
    };
    for kind in Kind::ALL {
        let Some(value) = present(value, kind.field()) else {
            continue;
        };
        let path = format!("{path}.{}", kind.field());
        if role == Role::Init {
            problems.report(
                path,
                "Forbidden: may not be set for init containers without restartPolicy=Always",
            );
            continue;
        }
        let slot = match kind {
            Kind::Startup => &mut found.startup,
            Kind::Readiness => &mut found.readiness,
            Kind::Liveness => &mut found.liveness,
        };
        *slot = probe(kind, value, &path, problems).map(Arc::new);
    }
    found
}

fn policy(value: &Value, path: &str, problems: &mut Problems) -> Option<RestartPolicy> {
    match problems.text(value, "restartPolicy", path) {
        "" => None,
        "Always" => Some(RestartPolicy::Always),
        "OnFailure" => Some(RestartPolicy::OnFailure),
        "Never" => Some(RestartPolicy::Never),
        other => {
            problems.report(
                format!("{path}.restartPolicy"),
                format!(
                    "Unsupported value: {other:?}: supported values: \"Always\", \"Never\", \"OnFailure\""
                ),
            );
            None
        }
    }
}

/// `restartPolicyRules` (KEP-5307).
fn rules(container: &Value, path: &str, problems: &mut Problems) -> Vec<RestartRule> {
    let mut rules = Vec::new();
    let list = problems.list(container, "restartPolicyRules", path);
    for (index, rule) in list.iter().enumerate() {
        let path = format!("{path}.restartPolicyRules[{index}]");
        let action = match problems.text(rule, "action", &path) {
            "Restart" => RestartAction::Restart,
            "RestartAllContainers" => RestartAction::RestartAllContainers,
            other => {
                problems.report(
                    format!("{path}.action"),
                    format!(
                        "Unsupported value: {other:?}: supported values: \"Restart\", \"RestartAllContainers\""
                    ),
                );
                continue;
            }
        };
        let Some(codes) = present(rule, "exitCodes") else {
            problems.report(format!("{path}.exitCodes"), "Required value: must be specified");
            continue;
        };
        let path = format!("{path}.exitCodes");
        let among = match problems.text(codes, "operator", &path) {
            "In" => true,
            "NotIn" => false,
            other => {
                problems.report(
                    format!("{path}.operator"),
                    format!("Unsupported value: {other:?}: supported values: \"In\", \"NotIn\""),
                );
                continue;
            }
        };
        let mut values = Vec::new();
        for (index, code) in problems.list(codes, "values", &path).iter().enumerate() {
            match code.as_i64().and_then(|code| i32::try_from(code).ok()) {
                Some(code) => values.push(code),
                None => problems.report(format!("{path}.values[{index}]"), "must be a whole number"),
            }
        }
        rules.push(RestartRule {
            action,
            among,
            values,
        });
    }
    rules
}

/// Named ports. A number that is no port is left out: a probe that names it then fails to find it.
fn ports(container: &Value, path: &str, problems: &mut Problems) -> Vec<(String, u16)> {
    let mut ports = Vec::new();
    for (index, port) in problems.list(container, "ports", path).iter().enumerate() {
        let name = problems.text(port, "name", &format!("{path}.ports[{index}]"));
        let number = port.get("containerPort").and_then(Value::as_u64);
        match number.and_then(|number| u16::try_from(number).ok()) {
            Some(number) if number > 0 && !name.is_empty() => ports.push((name.to_owned(), number)),
            _ => {}
        }
    }
    ports
}

/// Literal environment. A variable with another source is known as an empty one, as the kubelet expands it
/// for probes (upstream's `V1EnvVarsToMap`).
fn env(container: &Value, path: &str, problems: &mut Problems) -> Vec<(String, String)> {
    let mut env = Vec::new();
    for (index, variable) in problems.list(container, "env", path).iter().enumerate() {
        let path = format!("{path}.env[{index}]");
        let name = problems.text(variable, "name", &path).to_owned();
        let value = problems.text(variable, "value", &path).to_owned();
        env.push((name, value));
    }
    env
}
