//! What the pods of a fleet share.

use std::time::Duration;

/// What all pods of a fleet share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Scheme of container IDs.
    pub runtime: String,
    /// `status.hostIP` and `hostIPs`.
    pub host_addresses: Vec<std::net::IpAddr>,
    /// First delay before a container that ended starts again, doubled each time. Kubelet: 10 s.
    pub back_off: Duration,
    /// The most of it. Kubelet: 300 s (`CrashLoopBackOff`'s `maxContainerRestartPeriod`).
    pub back_off_max: Duration,
    /// How soon a status that somebody else has changed is put right. Kubelet: 10 s.
    pub reconcile: Duration,
    /// Conditions beside the kubelet's.
    pub conditions: Vec<Extra>,
    /// Whether a pod that cannot run here becomes Failed. Else it waits: a controller would replace a failed
    /// pod by one that fails likewise, for ever.
    pub fail_refused: bool,
}

/// A condition that a fleet's pods have beside the kubelet's: for readiness gates, or for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extra {
    /// Its type: `module.koupleless.io/ready`.
    pub kind: String,
    /// When it is True.
    pub holds: Holds,
}

/// When an extra condition is True.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// While all containers run that are neither init containers nor ephemeral.
    ContainersRunning,
    /// Follows the condition `ContainersReady`.
    ContainersReady,
}
