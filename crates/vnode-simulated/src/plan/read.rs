//! Annotations become plans.

use super::{End, Failing, Plan, Script, Serve, amount};
use evenkeel_api::names::simulated as names;
use evenkeel_vnode::core::pod::{Role, specs};
use evenkeel_vnode::provider::Refusal;
use k8s_openapi::api::core::v1::Pod;
use std::time::Duration;

/// Most bytes of an annotation of ours: a log of a few pages.
const LONGEST: usize = 64 << 10;

const KEYS: [&str; 19] = [
    names::START_DELAY,
    names::CRASH_AFTER,
    names::EXIT_AFTER,
    names::EXIT_CODE,
    names::EXIT_MESSAGE,
    names::STOP_DELAY,
    names::STOP_CODE,
    names::READINESS,
    names::LIVENESS,
    names::STARTUP,
    names::LOG,
    names::LOG_INTERVAL,
    names::PULL_ERROR,
    names::START_ERROR,
    names::RUN,
    names::SERVE,
    names::HEALTHY_FOR,
    names::CPU,
    names::MEMORY,
];

/// Refuses annotations of ours that mean nothing, with their name and value.
pub(crate) fn admit(pod: &Pod) -> Result<(), Refusal> {
    check(pod).map_err(|message| Refusal {
        reason: "InvalidSimulation".to_owned(),
        message,
    })
}

fn check(pod: &Pod) -> Result<(), String> {
    let Some(annotations) = &pod.metadata.annotations else {
        return Ok(());
    };
    let mut any = false;
    for (key, value) in annotations {
        let Some(rest) = key.strip_prefix(names::PREFIX) else {
            continue;
        };
        any = true;
        let (name, container) = rest.split_once('.').map_or((rest, None), |(a, b)| (a, Some(b)));
        if !KEYS.contains(&name) {
            return Err(format!(
                "annotation {key}={value:?}: there is no {name:?}; known are {}",
                KEYS.join(", ")
            ));
        }
        if value.len() > LONGEST {
            return Err(format!(
                "annotation {key}: {} bytes, at most {LONGEST} are taken",
                value.len()
            ));
        }
        if let Some(container) = container
            && !specs(pod).iter().any(|spec| spec.name == container)
        {
            return Err(format!(
                "annotation {key}={value:?}: the pod has no container {container:?}"
            ));
        }
    }
    if any {
        for spec in specs(pod) {
            plan(pod, spec.name, spec.role)?;
        }
        // A pod whose every container has a value of its own may still carry a bad one for all.
        plan(pod, "", Role::Regular)?;
    }
    Ok(())
}

/// How a container is played; an error names annotation and value.
pub(crate) fn plan(pod: &Pod, container: &str, part: Role) -> Result<Plan, String> {
    let annotations = Annotations { pod, container };
    let runs = annotations.read(names::RUN, |text| match text {
        "command" => Ok(true),
        "" | "false" => Ok(false),
        _ => Err("only `command` can be run".to_owned()),
    })?;
    let runs = runs.unwrap_or(false);
    let healthy_for = annotations.span(names::HEALTHY_FOR)?;
    let serve = annotations.read(names::SERVE, ports)?.flatten();
    let log = annotations.read(names::LOG, |text| Ok(text.lines().map(str::to_owned).collect()))?;
    let log_interval = annotations.read(names::LOG_INTERVAL, |text| {
        let least = Duration::from_millis(1);
        span(text).and_then(|span| {
            if span < least {
                Err("the least is `1ms`".to_owned())
            } else {
                Ok(span)
            }
        })
    })?;
    Ok(Plan {
        start_delay: annotations.span(names::START_DELAY)?,
        end: annotations.end(part, runs)?,
        stop_delay: annotations.span(names::STOP_DELAY)?,
        stop_code: annotations.read(names::STOP_CODE, code)?.unwrap_or(0),
        readiness: annotations.read(names::READINESS, Script::parse)?,
        liveness: annotations.read(names::LIVENESS, Script::parse)?,
        startup: annotations.read(names::STARTUP, Script::parse)?,
        log: log.unwrap_or_default(),
        log_interval: log_interval.unwrap_or_default(),
        pull_error: annotations.read(names::PULL_ERROR, failing)?.flatten(),
        start_error: annotations.read(names::START_ERROR, failing)?.flatten(),
        runs,
        serve: serve.map(|ports| Serve { ports, healthy_for }),
        cpu: annotations.read(names::CPU, |text| amount(text, 1e9))?,
        memory: annotations.read(names::MEMORY, |text| amount(text, 1.0))?,
    })
}

/// The annotations that count for a container.
struct Annotations<'a> {
    pod: &'a Pod,
    container: &'a str,
}

impl Annotations<'_> {
    /// The container's own value, else the pod's.
    fn read<T>(&self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
        let Some(annotations) = &self.pod.metadata.annotations else {
            return Ok(None);
        };
        let common = format!("{}{name}", names::PREFIX);
        let own = format!("{common}.{}", self.container);
        let found = [own, common].into_iter().find_map(|key| {
            let value = annotations.get(&key)?;
            Some((key, value))
        });
        let Some((key, value)) = found else {
            return Ok(None);
        };
        let text = if name == names::LOG {
            value.as_str()
        } else {
            value.trim()
        };
        parse(text)
            .map(Some)
            .map_err(|error| format!("annotation {key}={value:?}: {error}"))
    }

    fn span(&self, name: &str) -> Result<Option<Duration>, String> {
        self.read(name, span)
    }

    fn end(&self, part: Role, runs: bool) -> Result<Option<End>, String> {
        let crash = self.span(names::CRASH_AFTER)?;
        let exit = self.span(names::EXIT_AFTER)?;
        let wanted = self.read(names::EXIT_CODE, code)?;
        let message = self.read(names::EXIT_MESSAGE, |text| Ok(text.to_owned()))?;
        let message = message.unwrap_or_default();
        let end = |after, code, message| Some(End { after, code, message });
        Ok(match (crash, exit) {
            (Some(crash), exit) if exit.is_none_or(|exit| crash <= exit) => {
                end(crash, wanted.filter(|code| *code != 0).unwrap_or(1), message)
            }
            (_, Some(exit)) => end(exit, wanted.unwrap_or(0), message),
            _ if part == Role::Init && !runs => end(Plan::MOMENT, wanted.unwrap_or(0), message),
            _ => None,
        })
    }
}

fn span(text: &str) -> Result<Duration, String> {
    amount::span(text).ok_or_else(|| "no span of time such as `500ms`, `5s` or `1m30s`".to_owned())
}

fn code(text: &str) -> Result<i32, String> {
    text.parse::<u8>()
        .map(i32::from)
        .map_err(|_| "no exit code: 0 to 255".to_owned())
}

fn amount(text: &str, unit: f64) -> Result<u64, String> {
    amount::quantity(text)
        .map(|amount| (amount * unit) as u64)
        .ok_or_else(|| "no quantity such as `250m` or `64Mi`".to_owned())
}

fn failing(text: &str) -> Result<Option<Failing>, String> {
    let (times, message) = text.split_once(':').unwrap_or((text, ""));
    let times = match times.trim() {
        "always" => None,
        times => Some(
            times
                .parse()
                .map_err(|_| "how often does it fail? `2`, `always` or `always: MESSAGE`".to_owned())?,
        ),
    };
    if times == Some(0) {
        return Ok(None);
    }
    Ok(Some(Failing {
        times,
        message: message.trim().to_owned(),
    }))
}

fn ports(text: &str) -> Result<Option<Vec<u16>>, String> {
    match text {
        "true" => Ok(Some(Vec::new())),
        "false" => Ok(None),
        _ => text
            .split(',')
            .map(|port| match port.trim().parse() {
                Ok(port) if port != 0 => Ok(port),
                _ => Err(format!("{port:?} is no port: `true`, `false` or `8080,9090`")),
            })
            .collect::<Result<_, _>>()
            .map(Some),
    }
}

#[cfg(test)]
mod tests;
