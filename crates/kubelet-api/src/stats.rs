//! `/stats/summary`: what node, pods and containers use, as `stats/v1alpha1` has it.

use super::{Node, Server, call, json, text};
use crate::{ContainerStats, NodeStats, PodStats};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json as object};

/// `only_cpu_and_memory` may be asked for: there is nothing else.
pub(super) async fn summary(State(server): State<Server>, Extension(node): Extension<Node>) -> Response {
    let asking = server.backend.stats(&node.name);
    match call::ask(&node, server.settings.call, "asking for statistics", asking).await {
        Ok(stats) => json(summary_of(&node.name, &stats).to_string()),
        Err(fault) => {
            tracing::debug!(node = %node.name, error = fault.message, "no statistics");
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("Internal Error: {}", fault.message),
            )
        }
    }
}

fn summary_of(node: &str, stats: &NodeStats) -> Value {
    let pods: Vec<Value> = stats.pods.iter().map(|pod| pod_stats(pod, stats.at)).collect();
    let mut memory = memory(stats.at, stats.memory_working_set);
    if stats.memory_capacity > 0 {
        memory["availableBytes"] = stats
            .memory_capacity
            .saturating_sub(stats.memory_working_set)
            .into();
    }
    object!({
        "node": {
            "nodeName": node,
            "startTime": seconds(stats.since),
            "cpu": cpu(stats.at, stats.cpu_nanocores, stats.cpu_nanoseconds),
            "memory": memory,
        },
        "pods": pods,
    })
}

fn pod_stats(pod: &PodStats, at: Timestamp) -> Value {
    let containers: Vec<Value> = pod
        .containers
        .iter()
        .map(|container| container_stats(container, at))
        .collect();
    object!({
        "podRef": {"name": *pod.id.name, "namespace": *pod.id.namespace, "uid": *pod.id.uid},
        "startTime": seconds(pod.since),
        "containers": containers,
        "cpu": cpu(at, pod.cpu_nanocores(), pod.cpu_nanoseconds()),
        "memory": memory(at, pod.memory_working_set()),
    })
}

fn container_stats(container: &ContainerStats, at: Timestamp) -> Value {
    object!({
        "name": container.name,
        "startTime": seconds(container.since),
        "cpu": cpu(at, container.cpu_nanocores, container.cpu_nanoseconds),
        "memory": memory(at, container.memory_working_set),
    })
}

fn cpu(at: Timestamp, nanocores: u64, nanoseconds: u64) -> Value {
    object!({"time": seconds(at), "usageNanoCores": nanocores, "usageCoreNanoSeconds": nanoseconds})
}

fn memory(at: Timestamp, working_set: u64) -> Value {
    object!({"time": seconds(at), "workingSetBytes": working_set})
}

/// As `metav1.Time` is written: whole seconds, UTC.
fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl PodStats {
    /// CPU time of its containers, in nanoseconds.
    pub(super) fn cpu_nanoseconds(&self) -> u64 {
        self.sum(|container| container.cpu_nanoseconds)
    }

    fn cpu_nanocores(&self) -> u64 {
        self.sum(|container| container.cpu_nanocores)
    }

    /// Memory of its containers that cannot be taken back, in bytes.
    pub(super) fn memory_working_set(&self) -> u64 {
        self.sum(|container| container.memory_working_set)
    }

    fn sum(&self, of: impl Fn(&ContainerStats) -> u64) -> u64 {
        self.containers.iter().map(of).fold(0, u64::saturating_add)
    }
}
