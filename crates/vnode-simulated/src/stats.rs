//! Figures that look plausible and are the same each time: by annotation, else a share of what was requested.

use super::table::Instance;
use super::{Simulated, identity};
use evenkeel_vnode::provider::{ContainerStats, NodeStats, PodStats};
use jiff::Timestamp;
use std::time::Duration;

/// What an idle node itself uses: a tenth of a core.
const NODE_CPU: u64 = 100_000_000;
/// Likewise in bytes.
const NODE_MEMORY: u64 = 256 << 20;

impl Simulated {
    pub(super) fn measure(&self, node: &str) -> NodeStats {
        let now = self.0.now();
        let mut table = self.0.table();
        let known = table.node(node, &self.0.settings, now);
        let since = known.since;
        let uids = known.pods.clone();
        let mut pods = Vec::with_capacity(uids.len());
        for record in uids.iter().filter_map(|uid| table.pods.get(uid)) {
            let running = record
                .containers
                .iter()
                .filter(|instance| instance.ended.is_none());
            let containers: Vec<ContainerStats> = running
                .map(|instance| container(&record.id.uid, instance, now))
                .collect();
            pods.push(PodStats {
                id: record.id.clone(),
                since: containers.iter().map(|c| c.since).min().unwrap_or(now),
                containers,
            });
        }
        let sum = |of: fn(&ContainerStats) -> u64| -> u64 {
            pods.iter().flat_map(|pod| &pod.containers).map(of).sum()
        };
        let capacity = self.0.settings.template.capacity.get("memory");
        let capacity = capacity.and_then(|text| super::plan::amount::quantity(text));
        NodeStats {
            at: now,
            since,
            cpu_nanoseconds: spent(NODE_CPU, since, now) + sum(|c| c.cpu_nanoseconds),
            cpu_nanocores: NODE_CPU + sum(|c| c.cpu_nanocores),
            memory_working_set: NODE_MEMORY + sum(|c| c.memory_working_set),
            memory_capacity: capacity.map_or(128 << 30, |bytes| bytes as u64),
            pods,
        }
    }
}

fn container(uid: &str, instance: &Instance, now: Timestamp) -> ContainerStats {
    let shape = &instance.shape;
    // Between 80 and 120 per cent, so that replicas do not look like copies.
    let share = |salt: &str| 80 + identity::number(&format!("{salt}/{uid}/{}", shape.name)) % 41;
    let cpu = shape.plan.cpu.unwrap_or_else(|| match shape.cpu {
        0 => 2_000_000 * share("cpu") / 100,
        requested => requested / 10 * share("cpu") / 100,
    });
    let memory = shape.plan.memory.unwrap_or_else(|| match shape.memory {
        0 => (16 << 20) * share("memory") / 100,
        requested => requested / 2 / 100 * share("memory"),
    });
    ContainerStats {
        name: shape.name.to_string(),
        since: instance.started,
        cpu_nanoseconds: spent(cpu, instance.started, now),
        cpu_nanocores: cpu,
        memory_working_set: memory,
    }
}

fn spent(nanocores: u64, since: Timestamp, now: Timestamp) -> u64 {
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let spent = u128::from(nanocores) * passed.as_nanos() / 1_000_000_000;
    u64::try_from(spent).unwrap_or(u64::MAX)
}
