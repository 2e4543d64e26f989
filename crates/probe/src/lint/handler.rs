//! Rules about what a probe asks.

use super::{Hit, Seen, hit};
use crate::core::{Handler, Kind, Port, Probe, Scheme};
use serde_json::Value;
use std::net::IpAddr;

/// The port of a probe, the field that holds it, and the host that it overrides.
fn target(probe: &Probe) -> Option<(Port, Option<&str>)> {
    match &probe.handler {
        Handler::HttpGet(get) => Some((get.port.clone(), get.host.as_deref())),
        Handler::TcpSocket { host, port } => Some((port.clone(), host.as_deref())),
        Handler::Grpc { port, .. } => Some((Port::Number(i64::from(*port)), None)),
        Handler::Exec { .. } => None,
    }
}

pub(super) fn unknown_port(seen: &Seen, _: Kind, probe: &Probe) -> Option<Hit> {
    let (port, _) = target(probe)?;
    let ports = &seen.container.ports;
    let field = format!("{}.port", probe.handler.field());
    match port {
        Port::Name(name) if ports.iter().all(|(known, _)| *known != name) => {
            // A number in quotes is a number to the kubelet.
            if name.parse::<u16>().is_ok_and(|number| number > 0) {
                return None;
            }
            let known: Vec<&str> = ports.iter().map(|(name, _)| name.as_str()).collect();
            let known = if known.is_empty() {
                "it has no named ports".to_owned()
            } else {
                format!("it has {}", known.join(", "))
            };
            hit(
                &field,
                format!("container {} has no port {name:?}; {known}", seen.container.name),
            )
        }
        Port::Number(number) if !(1..=65_535).contains(&number) => {
            hit(&field, format!("{number} is no port"))
        }
        _ => None,
    }
}

pub(super) fn undeclared_port(seen: &Seen, _: Kind, probe: &Probe) -> Option<Hit> {
    let (port, host) = target(probe)?;
    let number = match port {
        Port::Number(number) if (1..=65_535).contains(&number) => number,
        _ => return None,
    };
    let declared = seen.raw["ports"].as_array().map_or(&[][..], Vec::as_slice);
    // Ports of another container of the pod are good targets, too: all share one address.
    let spec = &seen.of.workload.pod["spec"];
    let everywhere = ["containers", "initContainers"]
        .iter()
        .filter_map(|list| spec[*list].as_array())
        .flatten()
        .filter_map(|container| container["ports"].as_array())
        .flatten();
    let known = everywhere
        .filter_map(|port| port["containerPort"].as_i64())
        .any(|port| port == number);
    if known || host.is_some() {
        return None;
    }
    let what = if declared.is_empty() { "any port" } else { "it" };
    hit(
        &format!("{}.port", probe.handler.field()),
        format!(
            "port {number} is asked, but container {} does not declare {what}",
            seen.container.name
        ),
    )
}

fn is_local(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback() || address.is_unspecified())
}

pub(super) fn node_host(seen: &Seen, _: Kind, probe: &Probe) -> Option<Hit> {
    let (_, host) = target(probe)?;
    let host = host.filter(|host| is_local(host))?;
    if seen.of.workload.pod["spec"]["hostNetwork"] == Value::Bool(true) {
        return None;
    }
    hit(
        &format!("{}.host", probe.handler.field()),
        format!("{host} is the kubelet's own host, not the pod"),
    )
}

pub(super) fn other_host(_: &Seen, _: Kind, probe: &Probe) -> Option<Hit> {
    let (_, host) = target(probe)?;
    let host = host.filter(|host| !is_local(host))?;
    hit(
        &format!("{}.host", probe.handler.field()),
        format!("{host} is asked instead of the pod's address"),
    )
}

pub(super) fn unverified(_: &Seen, _: Kind, probe: &Probe) -> Option<Hit> {
    match &probe.handler {
        Handler::HttpGet(get) if get.scheme == Scheme::Https => hit(
            "httpGet.scheme",
            "HTTPS is asked without a look at the certificate",
        ),
        _ => None,
    }
}

pub(super) fn secret_header(_: &Seen, _: Kind, probe: &Probe) -> Option<Hit> {
    const SECRET: [&str; 8] = [
        "authorization",
        "cookie",
        "token",
        "secret",
        "password",
        "api-key",
        "apikey",
        "credential",
    ];
    let Handler::HttpGet(get) = &probe.handler else {
        return None;
    };
    let found: Vec<&str> = get
        .headers
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, _)| name.as_str())
        .filter(|name| {
            let name = name.to_lowercase();
            SECRET.iter().any(|word| name.contains(word))
        })
        .collect();
    if found.is_empty() {
        return None;
    }
    hit(
        "httpGet.httpHeaders",
        format!("{} stands in the clear in the manifest", found.join(", ")),
    )
}

pub(super) fn plaintext_grpc(_: &Seen, _: Kind, probe: &Probe) -> Option<Hit> {
    match probe.handler {
        Handler::Grpc { port, .. } => hit(
            "grpc",
            format!("port {port} is asked in plaintext (h2c), never over TLS"),
        ),
        _ => None,
    }
}

pub(super) fn root_path(_: &Seen, _: Kind, probe: &Probe) -> Option<Hit> {
    match &probe.handler {
        Handler::HttpGet(get) if get.path == "/" => hit(
            "httpGet.path",
            "the path / is asked; whether it redirects cannot be told from here",
        ),
        _ => None,
    }
}

pub(super) fn tcp_liveness(_: &Seen, kind: Kind, probe: &Probe) -> Option<Hit> {
    match probe.handler {
        Handler::TcpSocket { .. } if kind == Kind::Liveness => hit(
            "tcpSocket",
            "liveness is content with an open port, which a hung process has, too",
        ),
        _ => None,
    }
}

pub(super) fn dependencies(_: &Seen, kind: Kind, probe: &Probe) -> Option<Hit> {
    const WORDS: [&str; 10] = [
        "db",
        "database",
        "ready",
        "readiness",
        "readyz",
        "dependencies",
        "dependency",
        "deps",
        "redis",
        "upstream",
    ];
    let Handler::HttpGet(get) = &probe.handler else {
        return None;
    };
    let path = get.path.to_lowercase();
    let word = path
        .split(|c: char| !c.is_ascii_alphanumeric())
        .find(|word| WORDS.contains(word))
        .filter(|_| kind == Kind::Liveness)?;
    hit(
        "httpGet.path",
        format!("the path says {word:?}, as if more than the process were checked"),
    )
}

/// The script, if a command is a shell's.
pub(super) fn script(command: &[String]) -> Option<&str> {
    let [shell, options, script, ..] = command else {
        return None;
    };
    let shell = shell.rsplit('/').next().unwrap_or_default();
    let shells = ["sh", "bash", "ash", "dash", "zsh"];
    (shells.contains(&shell) && options.starts_with('-') && options.ends_with('c')).then_some(script)
}

pub(super) fn shell_steps(_: &Seen, _: Kind, probe: &Probe) -> Option<Hit> {
    let Handler::Exec { command } = &probe.handler else {
        return None;
    };
    let script = script(command)?;
    let step = ["|", ";", "&", "\n"]
        .into_iter()
        .find(|step| script.trim().contains(step))?;
    // Chained by && alone, every step counts.
    if step == "&" && !script.replace("&&", "").contains('&') {
        return None;
    }
    hit(
        "exec.command",
        "the shell runs several steps, of which the last decides",
    )
}

pub(super) fn empty_variable(seen: &Seen, _: Kind, probe: &Probe) -> Option<Hit> {
    let Handler::Exec { command } = &probe.handler else {
        return None;
    };
    let env = seen.raw["env"].as_array()?;
    let name = env
        .iter()
        .filter(|variable| variable["valueFrom"].is_object())
        .filter_map(|variable| variable["name"].as_str())
        .find(|name| command.iter().any(|word| uses(word, name)))?;
    hit(
        "exec.command",
        format!("$({name}) is not a literal, and so is empty here"),
    )
}

/// Whether `$(name)` is in the text, and not escaped as `$$(name)`.
fn uses(text: &str, name: &str) -> bool {
    let reference = format!("$({name})");
    text.match_indices(&reference)
        .any(|(at, _)| text[..at].bytes().rev().take_while(|byte| *byte == b'$').count() % 2 == 0)
}
