//! What nodes and pods use.

use crate::PodId;
use jiff::Timestamp;

/// Resources that a node uses.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStats {
    /// When it was measured.
    pub at: Timestamp,
    /// When the node was started.
    pub since: Timestamp,
    /// CPU time used since then, in nanoseconds.
    pub cpu_nanoseconds: u64,
    /// CPU used at present, in billionths of a core.
    pub cpu_nanocores: u64,
    /// Memory that cannot be reclaimed under pressure, in bytes.
    pub memory_working_set: u64,
    /// The node's memory in bytes; 0 if it is not limited.
    pub memory_capacity: u64,
    /// What each of its pods uses.
    pub pods: Vec<PodStats>,
}

/// Resources that a pod uses: the sum of its containers.
#[derive(Clone, Debug, PartialEq)]
pub struct PodStats {
    /// The pod that was measured.
    pub id: PodId,
    /// When it was started.
    pub since: Timestamp,
    /// Its running containers.
    pub containers: Vec<ContainerStats>,
}

/// Resources that a container uses.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerStats {
    /// The container's name.
    pub name: String,
    /// When it was started.
    pub since: Timestamp,
    /// CPU time used since then, in nanoseconds.
    pub cpu_nanoseconds: u64,
    /// CPU used at present, in billionths of a core.
    pub cpu_nanocores: u64,
    /// Memory that cannot be reclaimed under pressure, in bytes.
    pub memory_working_set: u64,
}
