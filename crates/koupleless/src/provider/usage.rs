//! What bases use, by what they say of themselves.

use super::Inner;
use evenkeel_vnode::provider::{ContainerStats, Fault, FaultKind, NodeStats, PodStats};
use jiff::{SignedDuration, Timestamp};

const MIB: f64 = 1024.0 * 1024.0;

impl Inner {
    /// Of a base as a whole: its heap, and its processors. arklet has no figures of single modules.
    pub(super) fn stats(&self, node: &str) -> Result<NodeStats, Fault> {
        let bound = self.bound(node)?;
        let state = bound.memory.state();
        let health = state.health.as_ref().ok_or_else(|| {
            let message = format!("{} has told nothing of itself yet", bound.base);
            Fault::new(FaultKind::Later, "NoStatistics", message)
        })?;
        let at = Timestamp::now();
        let jvm = health.jvm.as_ref();
        let uptime = jvm.and_then(|jvm| jvm.uptime).unwrap_or_default();
        let uptime = SignedDuration::try_from(uptime).unwrap_or_default();
        let since = at.checked_sub(uptime).unwrap_or(at);
        // Of the whole machine, as the base sees it.
        let cores = health.cpu.as_ref().map_or(0.0, |cpu| {
            let busy = cpu.user.unwrap_or_default() + cpu.system.unwrap_or_default();
            f64::from(cpu.count.unwrap_or(1)) * busy.min(100.0) / 100.0
        });
        let bytes = |mib: Option<f64>| (mib.unwrap_or_default() * MIB) as u64;
        let mut pods: Vec<PodStats> = Vec::new();
        for ((id, _), running) in &state.running {
            let since = running.doing.since().unwrap_or(at);
            let container = ContainerStats {
                name: id.name.clone(),
                since,
                cpu_nanoseconds: 0,
                cpu_nanocores: 0,
                memory_working_set: 0,
            };
            match pods.iter_mut().find(|pod| pod.id == running.pod) {
                Some(pod) => pod.containers.push(container),
                None => pods.push(PodStats {
                    id: running.pod.clone(),
                    since,
                    containers: vec![container],
                }),
            }
        }
        Ok(NodeStats {
            at,
            since,
            cpu_nanoseconds: 0,
            cpu_nanocores: (cores * 1e9) as u64,
            memory_working_set: bytes(jvm.and_then(|jvm| jvm.heap_used_mib)),
            memory_capacity: bytes(jvm.and_then(|jvm| jvm.heap_max_mib)),
            pods,
        })
    }
}
