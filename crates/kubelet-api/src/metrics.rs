//! `/metrics/resource`: what node, pods and containers use, for metrics-server and Prometheus.

use super::{Node, Server, call};
use crate::NodeStats;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header;
use std::fmt::{Display, Write as _};

/// Answers 200 even without statistics: `resource_scrape_error` tells.
pub(super) async fn resource(State(server): State<Server>, Extension(node): Extension<Node>) -> Response {
    let asking = server.backend.stats(&node.name);
    let stats = call::ask(&node, server.settings.call, "asking for statistics", asking).await;
    if let Err(fault) = &stats {
        tracing::debug!(node = %node.name, error = fault.message, "no statistics");
    }
    let text = exposition(stats.ok().as_ref());
    (
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        text,
    )
        .into_response()
}

/// Names, types and help as the kubelet has them; labels in the order in which virtual-kubelet's tests read
/// them. Families are sorted by name.
fn exposition(stats: Option<&NodeStats>) -> String {
    let mut text = String::new();
    if let Some(stats) = stats {
        let time = stats.at.as_millisecond();
        containers(&mut text, stats, time);
        family(
            &mut text,
            "node_cpu_usage_seconds_total",
            "counter",
            "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
            [(String::new(), core_seconds(stats.cpu_nanoseconds))],
            Some(time),
        );
        family(
            &mut text,
            "node_memory_working_set_bytes",
            "gauge",
            "[STABLE] Current working set of the node in bytes",
            [(String::new(), stats.memory_working_set)],
            Some(time),
        );
        pods(&mut text, stats, time);
    }
    let failed = u8::from(stats.is_none());
    for (name, help) in [
        (
            "resource_scrape_error",
            "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
        ),
        (
            "scrape_error",
            "[ALPHA] (Deprecated since 1.29.0) 1 if there was an error while getting container metrics, 0 otherwise",
        ),
    ] {
        family(&mut text, name, "gauge", help, [(String::new(), failed)], None);
    }
    text
}

fn containers(text: &mut String, stats: &NodeStats, time: i64) {
    let each = || {
        stats.pods.iter().flat_map(|pod| {
            let of = format!(
                "namespace=\"{}\",pod=\"{}\"",
                escaped(&pod.id.namespace),
                escaped(&pod.id.name)
            );
            pod.containers.iter().map(move |container| {
                (
                    format!("{{{of},container=\"{}\"}}", escaped(&container.name)),
                    container,
                )
            })
        })
    };
    family(
        text,
        "container_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        each().map(|(labels, container)| (labels, core_seconds(container.cpu_nanoseconds))),
        Some(time),
    );
    family(
        text,
        "container_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the container in bytes",
        each().map(|(labels, container)| (labels, container.memory_working_set)),
        Some(time),
    );
    family(
        text,
        "container_start_time_seconds",
        "gauge",
        "[STABLE] Start time of the container since unix epoch in seconds",
        each().map(|(labels, container)| (labels, container.since.as_millisecond() as f64 / 1e3)),
        None,
    );
}

fn pods(text: &mut String, stats: &NodeStats, time: i64) {
    let each = || {
        stats.pods.iter().map(|pod| {
            let labels = format!(
                "{{namespace=\"{}\",pod=\"{}\"}}",
                escaped(&pod.id.namespace),
                escaped(&pod.id.name)
            );
            (labels, pod)
        })
    };
    family(
        text,
        "pod_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        each().map(|(labels, pod)| (labels, core_seconds(pod.cpu_nanoseconds()))),
        Some(time),
    );
    family(
        text,
        "pod_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the pod in bytes",
        each().map(|(labels, pod)| (labels, pod.memory_working_set())),
        Some(time),
    );
}

/// One family; none of its lines where it has no samples.
fn family<V: Display>(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    samples: impl IntoIterator<Item = (String, V)>,
    time: Option<i64>,
) {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_none() {
        return;
    }
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in samples {
        let _ = match time {
            Some(time) => writeln!(text, "{name}{labels} {value} {time}"),
            None => writeln!(text, "{name}{labels} {value}"),
        };
    }
}

fn core_seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn escaped(label: &str) -> String {
    label
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
