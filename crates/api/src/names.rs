//! Every name that crosses a crate border or reaches the API server.

/// API group of our custom resources.
pub const GROUP: &str = "evenkeel.io";
/// Version of our custom resources.
pub const VERSION: &str = "v1alpha1";
/// Field manager of every patch the controller sends.
pub const FIELD_MANAGER: &str = "evenkeel";
/// Namespace of Evenkeel's own Leases, ServiceAccounts and Events about cluster-scoped objects.
pub const NAMESPACE: &str = "evenkeel-system";

/// Lease of the controller's leader, in [`NAMESPACE`].
pub const CONTROLLER_LEASE: &str = "evenkeel-controller";
/// Prefix of the Lease of a zone's reporters, in [`NAMESPACE`]; the zone name follows. It suppresses duplicate
/// publications and is the heartbeat of the zone; it renews no evidence.
pub const ZONE_LEASE_PREFIX: &str = "evenkeel-zone-";
/// Namespace of the kubelets' Leases.
pub const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";

/// Zone used for nodes without a zone label where the profile names one (the lab and the edge profile).
pub const DEFAULT_ZONE: &str = "default";
/// Labels that name a node's zone, in order of preference.
pub const ZONE_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "superedgehealth/topology-zone"];
/// Label of control-plane nodes: never in a roster.
pub const CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/control-plane";
/// Label by which a node keeps out of zone disruption counts (upstream's).
pub const EXCLUDE_DISRUPTION_LABEL: &str = "node.kubernetes.io/exclude-disruption";

/// ServiceAccounts of our components, in [`NAMESPACE`].
pub mod service_accounts {
    /// The agents: may write ZoneHealth status, their own AgentStatus and Leases, nothing else.
    pub const AGENT: &str = "evenkeel-agent";
    /// The controller with its webhook.
    pub const CONTROLLER: &str = "evenkeel-controller";
}

/// Users of the stock controllers whose writes the webhook corrects. With and without per-controller accounts.
pub const STOCK_NODE_CONTROLLER_USERS: [&str; 2] = [
    "system:serviceaccount:kube-system:node-controller",
    "system:kube-controller-manager",
];
/// Users of the stock endpoint controllers, likewise.
pub const STOCK_ENDPOINT_CONTROLLER_USERS: [&str; 4] = [
    "system:serviceaccount:kube-system:endpoint-controller",
    "system:serviceaccount:kube-system:endpointslice-controller",
    "system:serviceaccount:kube-system:endpointslicemirroring-controller",
    "system:kube-controller-manager",
];

/// Annotations.
pub mod annotations {
    /// Mirror of the verdict on the Node for readers of SuperEdge's annotation: `"true"` or `"false"`.
    pub const SUPEREDGE_NODE_HEALTH: &str = "superedgehealth/node-health";
    /// On a Node: comma-separated `key:effect` of the taints that Evenkeel added and will remove.
    pub const ADDED_TAINTS: &str = "evenkeel.io/added-taints";
    /// On whatever a leader writes: the fencing token `UID/TRANSITIONS` of the term that wrote it last.
    pub const FENCING_TOKEN: &str = "evenkeel.io/fencing-token";
    /// On a Pod or a pod template: settings of its probes for which Kubernetes has no fields, as YAML or JSON:
    /// container name, then probe name (`readinessProbe`), then settings. Read in strict mode only.
    pub const PROBES: &str = "evenkeel.io/probes";
    /// On a LeaseCandidate: a signed 64-bit integer; the strategy `evenkeel.io/HighestWeight` prefers the highest.
    pub const ELECTION_WEIGHT: &str = "evenkeel.io/election-weight";
    /// On a ConfigMap or Endpoints that serves as a lock: client-go's election record as JSON.
    pub const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
}

/// Taint keys.
pub mod taints {
    /// Ready is Unknown.
    pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
    /// Ready is False.
    pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
    /// The machine is known to be off: volumes may be detached by force.
    pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
    /// No new pods on a node that is Isolated, where the policy asks for it.
    pub const ISOLATED: &str = "evenkeel.io/isolated";
}

/// Condition types and reasons that we write.
pub mod conditions {
    /// Reason of `Ready=Unknown` on a Node whose death the neighbours confirmed. Differs from
    /// `NodeStatusUnknown` by the external-detector contract (KEP-6371).
    pub const REASON_CONFIRMED_DEAD: &str = "EvenkeelConfirmedDead";
    /// Reason of `Ready=False` on a Pod of such a node.
    pub const REASON_NODE_DEAD: &str = "EvenkeelNodeDead";
    /// Type of the condition put on a Pod before it is evicted.
    pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
    /// Reason of that condition.
    pub const REASON_EVICTED: &str = "EvictionByEvenkeel";
    /// Reason that the stock node lifecycle controller writes.
    pub const REASON_STOCK_UNKNOWN: &str = "NodeStatusUnknown";
}

/// Reasons of the Events we emit.
pub mod events {
    /// A node was cut off from the cloud and its neighbours vouch for it.
    pub const DISCONNECTED: &str = "NodeDisconnected";
    /// A majority of the neighbours confirmed a node's death.
    pub const DEAD: &str = "NodeConfirmedDead";
    /// The node's neighbours cannot reach it, the API server can.
    pub const ISOLATED: &str = "NodeIsolated";
    /// The whole zone is silent.
    pub const DARK: &str = "ZoneDark";
    /// The kubelet is down, the machine is up.
    pub const KUBELET_DOWN: &str = "KubeletDown";
    /// In mid-incident the evidence ran out: stock behaviour and timing.
    pub const UNKNOWN: &str = "NodeStateUnknown";
    /// A dead node got its NoExecute taint: eviction deadlines count from here.
    pub const EVICTION_BEGAN: &str = "EvictionBegan";
    /// Eviction waits for the storm guard.
    pub const EVICTION_HELD: &str = "EvictionHeld";
    /// Evidence of life ended an incident.
    pub const RECOVERED: &str = "NodeRecovered";
    /// A probe failed, or could not be made (the kubelet's reason).
    pub const UNHEALTHY: &str = "Unhealthy";
    /// A probe succeeded with a warning (the kubelet's reason).
    pub const PROBE_WARNING: &str = "ProbeWarning";
    /// A container is killed for a failed probe (the kubelet's reason).
    pub const KILLING: &str = "Killing";
    /// A pod was taken out of endpoints.
    pub const ENDPOINTS_OUT: &str = "EndpointsWithdrawn";
    /// A pod was evicted.
    pub const EVICTED: &str = "PodEvicted";
    /// A stateful pod stays: no fence proof.
    pub const NOT_MOVED: &str = "PodNotMoved";
}
