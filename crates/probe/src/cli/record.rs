//! Records of a run: each thing that happened, as a line for people or as JSON for programs.

use super::kubelet::Action;
use super::once::EventJson;
use crate::core::{Kind, Reading};
use evenkeel_kube_values::Go;
use evenkeel_kube_values::terminal::clean;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// Something that happened, and when. As JSON: one object with `time`, `type` and the fields of [`What`].
#[derive(Clone, Debug, Serialize)]
pub(super) struct Record {
    /// RFC 3339, UTC.
    pub(super) time: String,
    #[serde(flatten)]
    pub(super) what: What,
}

/// What happened. Field names are part of the interface; `docs/probe.md` lists them.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum What {
    /// The run begins.
    Start {
        namespace: Arc<str>,
        pod: Arc<str>,
        uid: Arc<str>,
        /// `kubelet` or `strict`.
        mode: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        address: Option<String>,
    },
    /// Something to know about this run.
    Note { message: String },
    /// An attempt has ended.
    Attempt {
        container: Arc<str>,
        probe: Kind,
        /// `success`, `warning`, `failure`, `unknown`, `error`, `starved`.
        verdict: &'static str,
        output: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        seconds: f64,
        lag_seconds: f64,
    },
    /// What is published about a container has changed.
    State {
        container: Arc<str>,
        probe: Kind,
        container_id: Arc<str>,
        state: Reading,
        why: String,
    },
    /// An event that a kubelet would record.
    Event {
        container: Arc<str>,
        probe: Kind,
        event: EventJson,
    },
    /// A kubelet would end the container.
    Kill {
        container: Arc<str>,
        probe: Kind,
        grace_seconds: f64,
        grace_from: &'static str,
        event: EventJson,
    },
    /// A kubelet would wait before it starts the container again.
    BackOff { container: Arc<str>, seconds: f64 },
    /// A new container is taken to run.
    Restart {
        container: Arc<str>,
        container_id: Arc<str>,
        restarts: u32,
    },
    /// The container stays ended.
    Ended {
        container: Arc<str>,
        restart_policy: &'static str,
    },
    /// The container's status has changed.
    Container {
        container: Arc<str>,
        #[serde(skip_serializing_if = "str::is_empty")]
        container_id: Arc<str>,
        running: bool,
        started: bool,
        ready: bool,
        restarts: u32,
    },
    /// Whether all containers are ready has changed.
    Pod { ready: bool },
    /// A worker has nothing more to do.
    Stopped { container: Arc<str>, probe: Kind },
    /// The reader was too slow.
    Lost { count: u64 },
    /// The run ends.
    End {
        /// `signal`, `time`, `ready`, `failed`.
        reason: &'static str,
        ready: bool,
        kills: u64,
        exit_code: u8,
    },
}

impl Record {
    /// One line: time, container, probe, text. `None` for what only programs want to know.
    pub(super) fn line(&self) -> Option<String> {
        let text = self.what.text()?;
        let (container, probe) = self.what.subject();
        let mut line = self.time.clone();
        for part in [container, probe.map(kind_name)].into_iter().flatten() {
            line.push(' ');
            line.push_str(&clean(part));
        }
        line.push_str(": ");
        line.push_str(&clean(&text));
        Some(line)
    }
}

impl What {
    /// The container and the probe that it is about; none where it is about the pod or the run.
    fn subject(&self) -> (Option<&str>, Option<Kind>) {
        match self {
            Self::Attempt { container, probe, .. }
            | Self::State { container, probe, .. }
            | Self::Event { container, probe, .. }
            | Self::Kill { container, probe, .. }
            | Self::Stopped { container, probe } => (Some(container), Some(*probe)),
            Self::BackOff { container, .. }
            | Self::Restart { container, .. }
            | Self::Ended { container, .. }
            | Self::Container { container, .. } => (Some(container), None),
            Self::Start { .. }
            | Self::Note { .. }
            | Self::Pod { .. }
            | Self::Lost { .. }
            | Self::End { .. } => (None, None),
        }
    }

    /// For people; `None` for what only programs want to know.
    fn text(&self) -> Option<String> {
        Some(match self {
            Self::Start {
                namespace,
                pod,
                mode,
                address,
                ..
            } => start_text(namespace, pod, mode, address.as_deref()),
            Self::Note { message } => message.clone(),
            Self::Attempt { .. } => return None,
            Self::State { state, why, .. } => format!("is {}: {why}", state.to_string().to_lowercase()),
            Self::Event { event, .. } => format!(
                "event {} {}: {}",
                event.kind,
                event.reason,
                event.message.trim_end()
            ),
            Self::Kill {
                grace_seconds,
                grace_from,
                event,
                ..
            } => format!(
                "a kubelet would kill it now, with {} from TERM to KILL ({grace_from}); event {} {}: {}",
                Go(duration(*grace_seconds)),
                event.kind,
                event.reason,
                event.message
            ),
            Self::BackOff { seconds, .. } => format!(
                "waits {} before it starts again (CrashLoopBackOff)",
                Go(duration(*seconds))
            ),
            Self::Restart {
                container_id,
                restarts,
                ..
            } => format!("is taken to run again as {container_id}, restart {restarts}"),
            Self::Ended { restart_policy, .. } => format!("stays ended (restartPolicy {restart_policy})"),
            Self::Container {
                running,
                started,
                ready,
                restarts,
                ..
            } => {
                let not = |yes: &bool| if *yes { "" } else { "not " };
                format!(
                    "{}running, {}started, {}ready, restarts {restarts}",
                    not(running),
                    not(started),
                    not(ready)
                )
            }
            Self::Pod { ready } => format!("the pod is {}", ready_text(*ready)),
            Self::Stopped { .. } => "has nothing more to probe".to_owned(),
            Self::Lost { count } => {
                format!("{count} messages were lost, since the output was read too slowly")
            }
            Self::End {
                reason, ready, kills, ..
            } => end_text(reason, *ready, *kills),
        })
    }
}

fn start_text(namespace: &str, pod: &str, mode: &str, address: Option<&str>) -> String {
    let rules = if mode == "strict" {
        "strict rules"
    } else {
        "the kubelet's rules"
    };
    let at = address.map_or_else(String::new, |address| format!(" at {address}"));
    format!("probing {namespace}/{pod}{at} by {rules}")
}

fn end_text(reason: &str, ready: bool, kills: u64) -> String {
    let why = match reason {
        "signal" => "stopped by a signal",
        "time" => "the time is over",
        "ready" => "all containers are ready",
        _ => "the pod has failed: nothing of it runs any more",
    };
    let kills = match kills {
        0 => "no container had to be killed".to_owned(),
        1 => "1 container would have been killed".to_owned(),
        more => format!("containers would have been killed {more} times"),
    };
    format!("{why}; the pod is {}, {kills}", ready_text(ready))
}

fn ready_text(ready: bool) -> &'static str {
    if ready { "Ready" } else { "not Ready" }
}

impl From<Action> for What {
    fn from(action: Action) -> Self {
        match action {
            Action::Kill {
                container,
                kind,
                event,
                grace,
                grace_of,
            } => Self::Kill {
                container,
                probe: kind,
                grace_seconds: grace.as_secs_f64(),
                grace_from: grace_of,
                event: event.into(),
            },
            Action::BackOff { container, delay } => Self::BackOff {
                container,
                seconds: delay.as_secs_f64(),
            },
            Action::Restart {
                container,
                id,
                restarts,
            } => Self::Restart {
                container,
                container_id: id,
                restarts,
            },
            Action::End { container, policy } => Self::Ended {
                container,
                restart_policy: policy,
            },
            Action::Fail => Self::Note {
                message: "the pod has failed: no container runs any more, nor will".to_owned(),
            },
        }
    }
}

/// In lower case: `liveness`.
pub(super) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Startup => "startup",
        Kind::Readiness => "readiness",
        Kind::Liveness => "liveness",
    }
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Event, Outcome};

    fn record(what: What) -> Record {
        Record {
            time: "2026-01-02T03:04:05.678Z".to_owned(),
            what,
        }
    }

    #[test]
    fn a_line_holds_time_container_probe_and_a_harmless_text() {
        let state = record(What::State {
            container: "web".into(),
            probe: Kind::Liveness,
            container_id: "simulated://web/0".into(),
            state: Reading::Failure,
            why: "3 failures in a row: \x1b[2J".to_owned(),
        });
        assert_eq!(
            state.line().unwrap(),
            "2026-01-02T03:04:05.678Z web liveness: is failure: 3 failures in a row: \\u{1b}[2J"
        );
        let pod = record(What::Pod { ready: true });
        assert_eq!(pod.line().unwrap(), "2026-01-02T03:04:05.678Z: the pod is Ready");
    }

    #[test]
    fn programs_get_type_and_time_beside_the_fields() {
        let event = Event::of(Kind::Readiness, &Outcome::failure("x")).unwrap();
        for (what, wanted) in [
            (
                What::Pod { ready: false },
                serde_json::json!({"type": "pod", "ready": false}),
            ),
            (
                What::Event {
                    container: "web".into(),
                    probe: Kind::Readiness,
                    event: event.into(),
                },
                serde_json::json!({"type": "event", "container": "web", "probe": "readiness", "event":
                    {"type": "Warning", "reason": "Unhealthy", "message": "Readiness probe failed: x"}}),
            ),
            (
                What::BackOff {
                    container: "web".into(),
                    seconds: 10.0,
                },
                serde_json::json!({"type": "backOff", "container": "web", "seconds": 10.0}),
            ),
            (
                What::End {
                    reason: "time",
                    ready: true,
                    kills: 0,
                    exit_code: 0,
                },
                serde_json::json!({"type": "end", "reason": "time", "ready": true, "kills": 0, "exitCode": 0}),
            ),
        ] {
            let mut json = serde_json::to_value(record(what)).unwrap();
            let time = json.as_object_mut().unwrap().remove("time");
            assert_eq!(time, Some("2026-01-02T03:04:05.678Z".into()));
            assert_eq!(json, wanted);
        }
    }
}
