//! What nodes and pods use.

use super::PodId;
use jiff::Timestamp;

/// What a node uses.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStats {
    /// When it was measured.
    pub at: Timestamp,
    /// Since when the node is up.
    pub since: Timestamp,
    /// CPU time since then, in nanoseconds.
    pub cpu_nanoseconds: u64,
    /// CPU at the moment, in billionths of a core.
    pub cpu_nanocores: u64,
    /// Memory that cannot be taken back, in bytes.
    pub memory_working_set: u64,
    /// Memory in all, in bytes; 0 where it has no limit.
    pub memory_capacity: u64,
    /// Its pods.
    pub pods: Vec<PodStats>,
}

/// What a pod uses: the sum of its containers unless they are not told.
#[derive(Clone, Debug, PartialEq)]
pub struct PodStats {
    /// Which.
    pub id: PodId,
    /// Since when it runs.
    pub since: Timestamp,
    /// Its running containers.
    pub containers: Vec<ContainerStats>,
}

/// What a container uses.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerStats {
    /// Its name.
    pub name: String,
    /// Since when it runs.
    pub since: Timestamp,
    /// CPU time since then, in nanoseconds.
    pub cpu_nanoseconds: u64,
    /// CPU at the moment, in billionths of a core.
    pub cpu_nanocores: u64,
    /// Memory that cannot be taken back, in bytes.
    pub memory_working_set: u64,
}
