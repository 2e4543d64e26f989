//! Probes, and what happens when a container starts and stops.

use super::checks::{first_of, integer};
use super::errors::{Errors, has, items, text};
use crate::names;
use serde_json::Value;

const PROBE_ACTIONS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];
const HOOK_ACTIONS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "sleep"];
pub(super) const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];

/// Hooks and probes of a container that runs until the pod ends; `grace` is the pod's grace period.
pub(super) fn all(container: &Value, path: &str, grace: &Value, errors: &mut Errors) {
    for hook in ["postStart", "preStop"] {
        if has(&container["lifecycle"], hook) {
            let path = format!("{path}.lifecycle.{hook}");
            handler(&container["lifecycle"][hook], &path, &HOOK_ACTIONS, grace, errors);
        }
    }
    for name in PROBES {
        if has(container, name) {
            probe(&container[name], &format!("{path}.{name}"), name, grace, errors);
        }
    }
}

fn probe(probe: &Value, path: &str, kind: &str, grace: &Value, errors: &mut Errors) {
    handler(probe, path, &PROBE_ACTIONS, grace, errors);
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
        let own = &probe["terminationGracePeriodSeconds"];
        let path = format!("{path}.terminationGracePeriodSeconds");
        if integer(own) <= 0 {
            errors.invalid(&path, own, "must be greater than 0");
        }
        if kind == "readinessProbe" {
            errors.invalid(&path, own, "must not be set for readinessProbes");
        }
    }
    if kind != "readinessProbe" && integer(&probe["successThreshold"]) != 1 {
        let path = format!("{path}.successThreshold");
        errors.invalid(&path, &integer(&probe["successThreshold"]).into(), "must be 1");
    }
}

fn handler(handler: &Value, path: &str, kinds: &[&'static str], grace: &Value, errors: &mut Errors) {
    let check = |kind: &'static str, action: &Value, errors: &mut Errors| {
        let path = format!("{path}.{kind}");
        match kind {
            "exec" => errors.need(action, &path, &["command"]),
            "httpGet" => {
                errors.need(action, &path, &["path"]);
                errors.port_or_name(&format!("{path}.port"), &action["port"]);
                errors.known(action, &path, "scheme", &["HTTP", "HTTPS"]);
                for (_, header) in items(action, "httpHeaders") {
                    let name = text(header, "name");
                    errors.invalid_text(&format!("{path}.httpHeaders"), name, names::header_name(name));
                }
            }
            "sleep" => {
                let seconds = integer(&action["seconds"]);
                if let Some(grace) = grace.as_i64().filter(|grace| !(0..=*grace).contains(&seconds)) {
                    let detail =
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.invalid(&path, &seconds.into(), &detail);
                }
            }
            _ => errors.port_or_name(&format!("{path}.port"), &action["port"]),
        }
    };
    if !first_of(
        handler,
        path,
        kinds,
        "may not specify more than 1 handler type",
        errors,
        check,
    ) {
        errors.required(path, "must specify a handler type");
    }
}
