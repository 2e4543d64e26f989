//! One probe, with its handler.

use super::problem::{Problems, present};
use crate::core::{Extras, Handler, HttpGet, Kind, Port, Probe, Scheme};
use serde_json::Value;
use std::time::Duration;

/// What every handler after the first is told.
const SECOND: &str = "Forbidden: may not specify more than 1 handler type";
/// What every bad port number is told.
const PORT: &str = "must be between 1 and 65535, inclusive";

/// A probe at `path`. Zero means the default, as Kubernetes' defaulting has it. `None` if it has problems.
pub(super) fn probe(kind: Kind, value: &Value, path: &str, problems: &mut Problems) -> Option<Probe> {
    problems.mapping(value, path)?;
    let handler = handler(value, path, problems);
    let number = |name: &str, problems: &mut Problems| problems.number(value, name, path).unwrap_or(0);
    let or = |number: u32, default: u32| if number == 0 { default } else { number };
    let seconds = |number: u32| Duration::from_secs(u64::from(number));
    let initial_delay = number("initialDelaySeconds", problems);
    let timeout = or(number("timeoutSeconds", problems), 1);
    let period = or(number("periodSeconds", problems), 10);
    let success_threshold = or(number("successThreshold", problems), 1);
    let failure_threshold = or(number("failureThreshold", problems), 3);
    if kind != Kind::Readiness && success_threshold != 1 {
        problems.report(
            format!("{path}.successThreshold"),
            format!("Invalid value: {success_threshold}: must be 1"),
        );
    }
    let grace = grace(kind, value, path, problems);
    Some(Probe {
        handler: handler?,
        initial_delay: seconds(initial_delay),
        timeout: seconds(timeout),
        period: seconds(period),
        success_threshold,
        failure_threshold,
        termination_grace_period: grace,
        extras: Extras::default(),
    })
}

fn grace(kind: Kind, value: &Value, path: &str, problems: &mut Problems) -> Option<Duration> {
    let name = "terminationGracePeriodSeconds";
    let seconds = present(value, name)?;
    let path = format!("{path}.{name}");
    match seconds.as_i64().map(|number| (number, u64::try_from(number))) {
        Some((number, _)) if kind == Kind::Readiness => problems.report(
            path,
            format!("Invalid value: {number}: must not be set for readinessProbes"),
        ),
        Some((_, Ok(seconds))) if seconds > 0 => return Some(Duration::from_secs(seconds)),
        Some((number, _)) => {
            problems.report(path, format!("Invalid value: {number}: must be greater than 0"));
        }
        None => problems.report(path, "must be a whole number"),
    }
    None
}

/// The one handler of a probe.
fn handler(value: &Value, path: &str, problems: &mut Problems) -> Option<Handler> {
    let mut found = ["exec", "httpGet", "tcpSocket", "grpc"]
        .into_iter()
        .filter_map(|name| Some((name, present(value, name)?)));
    let Some((name, action)) = found.next() else {
        problems.report(path, "Required value: must specify a handler type");
        return None;
    };
    for (second, _) in found {
        problems.report(format!("{path}.{second}"), SECOND);
    }
    let path = format!("{path}.{name}");
    problems.mapping(action, &path)?;
    match name {
        "exec" => exec(action, &path, problems),
        "httpGet" => http(action, &path, problems),
        "tcpSocket" => {
            let host = host(action, &path, problems);
            let port = port(action, &path, problems)?;
            Some(Handler::TcpSocket { host, port })
        }
        _ => {
            let service = problems.text(action, "service", &path).to_owned();
            let port = grpc_port(action, &path, problems)?;
            Some(Handler::Grpc { port, service })
        }
    }
}

fn exec(action: &Value, path: &str, problems: &mut Problems) -> Option<Handler> {
    let list = problems.list(action, "command", path);
    if list.is_empty() {
        problems.report(format!("{path}.command"), "Required value");
        return None;
    }
    let mut command = Vec::with_capacity(list.len());
    for (index, word) in list.iter().enumerate() {
        match word {
            Value::String(word) => command.push(word.clone()),
            _ => problems.report(format!("{path}.command[{index}]"), "must be a string"),
        }
    }
    (command.len() == list.len()).then_some(Handler::Exec { command })
}

fn http(action: &Value, path: &str, problems: &mut Problems) -> Option<Handler> {
    let scheme = match problems.text(action, "scheme", path) {
        "" | "HTTP" => Scheme::Http,
        "HTTPS" => Scheme::Https,
        other => {
            problems.report(
                format!("{path}.scheme"),
                format!("Unsupported value: {other:?}: supported values: \"HTTP\", \"HTTPS\""),
            );
            Scheme::Http
        }
    };
    let mut headers = Vec::new();
    for (index, header) in problems.list(action, "httpHeaders", path).iter().enumerate() {
        let path = format!("{path}.httpHeaders[{index}]");
        if problems.mapping(header, &path).is_none() {
            continue;
        }
        let name = problems.text(header, "name", &path).to_owned();
        let value = problems.text(header, "value", &path).to_owned();
        headers.push((name, value));
    }
    let target = match problems.text(action, "path", path) {
        "" => "/",
        target => target,
    };
    let host = host(action, path, problems);
    let port = port(action, path, problems)?;
    Some(Handler::HttpGet(HttpGet {
        scheme,
        host,
        port,
        path: target.to_owned(),
        headers,
    }))
}

fn host(action: &Value, path: &str, problems: &mut Problems) -> Option<String> {
    let host = problems.text(action, "host", path);
    (!host.is_empty()).then(|| host.to_owned())
}

/// A port as it was written; whether it leads anywhere shows at the attempt, as with the kubelet.
fn port(action: &Value, path: &str, problems: &mut Problems) -> Option<Port> {
    match present(action, "port") {
        Some(Value::String(name)) => Some(Port::Name(name.clone())),
        Some(number) if number.is_i64() => number.as_i64().map(Port::Number),
        None => Some(Port::Number(0)),
        Some(_) => {
            problems.report(
                format!("{path}.port"),
                "must be a whole number or the name of a port",
            );
            None
        }
    }
}

fn grpc_port(action: &Value, path: &str, problems: &mut Problems) -> Option<u16> {
    let number = present(action, "port").map_or(Some(0), Value::as_i64);
    let path = format!("{path}.port");
    match number {
        Some(number) => match u16::try_from(number) {
            Ok(port) if port > 0 => return Some(port),
            _ => problems.report(path, format!("Invalid value: {number}: {PORT}")),
        },
        None => problems.report(path, "must be a whole number"),
    }
    None
}
