//! Every name that crosses a crate border or reaches the API server.

use evenkeel_kube_values::names::is_label;
use std::collections::BTreeMap;

/// API group of our custom resources.
pub const GROUP: &str = "evenkeel.io";
/// Version of our custom resources.
pub const VERSION: &str = "v1alpha1";
/// Field manager of every patch the controller sends.
pub const FIELD_MANAGER: &str = "evenkeel";
/// Namespace of Evenkeel's own Leases and ServiceAccounts where no flag `--namespace` names another.
pub const NAMESPACE: &str = "evenkeel-system";
/// Parses the value of `--namespace`: the name of a Namespace is a DNS label (RFC 1123).
pub fn parse_namespace(text: &str) -> Result<String, &'static str> {
    if is_label(text) {
        Ok(text.to_owned())
    } else {
        Err(
            "a namespace's name has 1 to 63 lower case letters, digits and hyphens, with no hyphen at its ends",
        )
    }
}

/// Lease of the controller's leader, in Evenkeel's namespace.
pub const CONTROLLER_LEASE: &str = "evenkeel-controller";
/// Prefix of the Leases by which replicas of the controller show that they work, in Evenkeel's namespace; the
/// replica's name in the election follows. The last one that stops knows by them that it is the last (hazard
/// 52).
pub const REPLICA_LEASE_PREFIX: &str = "evenkeel-controller-replica-";
/// Prefix of [`zone_lease`].
pub const ZONE_LEASE_PREFIX: &str = "evenkeel-zone-";
/// Lease of a cell's reporters, in Evenkeel's namespace, by the name of the cell's ZoneHealth. It suppresses
/// duplicate publications and is the heartbeat of the cell; it renews no evidence.
pub fn zone_lease(cell: &str) -> String {
    format!("{ZONE_LEASE_PREFIX}{cell}")
}
/// Namespace of the kubelets' Leases.
pub const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";
/// Name of the MutatingWebhookConfiguration by which writes reach the controllers' webhook.
pub const WEBHOOK_CONFIGURATION: &str = "evenkeel";

/// Zone used for nodes without a zone label where the profile names one (the lab and the edge profile).
pub const DEFAULT_ZONE: &str = "default";
/// Labels that name a node's zone, in order of preference.
pub const ZONE_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "superedgehealth/topology-zone"];
/// The zone of a node by its labels: the first of [`ZONE_LABELS`] that has a value, else `default_zone`, else
/// none.
pub fn zone_of(labels: &BTreeMap<String, String>, default_zone: Option<&str>) -> Option<String> {
    ZONE_LABELS
        .iter()
        .find_map(|label| {
            labels
                .get(*label)
                .map(String::as_str)
                .filter(|zone| !zone.is_empty())
        })
        .or(default_zone)
        .map(str::to_owned)
}
/// Label that names the rack of a node: members of one rack are spread over the cells of their zone, because
/// they may lose power together.
pub const RACK_LABEL: &str = "evenkeel.io/rack";
/// Label of control-plane nodes: never in a roster.
pub const CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/control-plane";
/// Why a node with these labels can be in no roster, as the end of a sentence about it; `None`: it can be in
/// one.
pub fn kept_out_of_rosters(labels: &BTreeMap<String, String>) -> Option<String> {
    if labels.contains_key(CONTROL_PLANE_LABEL) {
        return Some(format!(
            "its label {CONTROL_PLANE_LABEL} makes it a control-plane node"
        ));
    }
    // A virtual node has no machine of its own to watch.
    vnode::virtual_label(labels)
        .map(|(key, value)| format!("its label {key}={value} makes it a virtual node, which has no machine"))
}
/// Label by which a node keeps out of zone disruption counts (upstream's).
pub const EXCLUDE_DISRUPTION_LABEL: &str = "node.kubernetes.io/exclude-disruption";

/// ServiceAccounts of our components, in Evenkeel's namespace.
pub mod service_accounts {
    /// The agents: may write ZoneHealth status, their own AgentStatus and Leases, nothing else.
    pub const AGENT: &str = "evenkeel-agent";
    /// The controller with its webhook.
    pub const CONTROLLER: &str = "evenkeel-controller";
    /// Virtual nodes.
    pub const VNODE: &str = "evenkeel-vnode";
}

/// Users of the stock controllers whose writes the webhook corrects. With and without per-controller
/// accounts.
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
    /// On Evenkeel's Namespace: Evenkeel decides, records and explains, and changes nothing, on any
    /// node. The value says why, for people.
    pub const PAUSE: &str = "evenkeel.io/pause";
    /// On the Lease by which a replica of the controller shows that it works: its `--mode`, `act` or
    /// `observe`.
    pub const MODE: &str = "evenkeel.io/mode";
    /// On a Node: comma-separated `key:effect` of the taints that Evenkeel added and will remove.
    pub const ADDED_TAINTS: &str = "evenkeel.io/added-taints";
    /// On whatever a leader writes: the fencing token `UID/TRANSITIONS` of the term that wrote it last.
    pub const FENCING_TOKEN: &str = "evenkeel.io/fencing-token";
    /// On a Pod or a pod template: settings of its probes for which Kubernetes has no fields, as YAML or
    /// JSON: container name, then probe name (`readinessProbe`), then settings. Read in strict mode only.
    pub const PROBES: &str = "evenkeel.io/probes";
    /// On a LeaseCandidate: a signed 64-bit integer; the strategy `evenkeel.io/HighestWeight` prefers the
    /// highest.
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
    /// No new pods on a node whose death is announced. The stock controllers take taints of their own keys
    /// off a node whose conditions do not ask for them, so that this key is ours.
    pub const DEAD: &str = "evenkeel.io/dead";
    /// Every taint that Evenkeel puts on nodes, key and effect. Anybody who may annotate a node could name
    /// others as added, and have them removed with our rights.
    pub const ADDED: [(&str, &str); 4] = [
        (UNREACHABLE, "NoExecute"),
        (OUT_OF_SERVICE, "NoExecute"),
        (ISOLATED, "NoSchedule"),
        (DEAD, "NoSchedule"),
    ];
    /// Keys of taints that are Evenkeel's whoever put them there, because nobody else uses them.
    pub const OWN: [&str; 2] = [DEAD, ISOLATED];
}

/// Condition types and reasons that we write.
pub mod conditions {
    /// Reason of `Ready=Unknown` on a Node whose death the neighbours confirmed. Differs from
    /// `NodeStatusUnknown` by the external-detector contract (KEP-6371).
    pub const REASON_CONFIRMED_DEAD: &str = "EvenkeelConfirmedDead";
    /// Reason of `Ready=False` on a Pod of such a node.
    pub const REASON_NODE_DEAD: &str = "EvenkeelNodeDead";
    /// Reason of `Ready=True` on a Pod to which Evenkeel gave readiness back. What a kubelet writes has no
    /// such reason.
    pub const REASON_GIVEN_BACK: &str = "EvenkeelGivenBack";
    /// Type of the condition put on a Pod before it is evicted.
    pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
    /// Reason of that condition.
    pub const REASON_EVICTED: &str = "EvictionByEvenkeel";
    /// Reason that the stock node lifecycle controller writes.
    pub const REASON_STOCK_UNKNOWN: &str = "NodeStatusUnknown";
}

/// What a virtual node says of its pods: a kubelet's own words.
pub mod pods {
    /// Event and refusal: the pod asks for what no virtual node has.
    pub const UNSUPPORTED: &str = "UnsupportedPodSpec";
    /// Event: a provider refused the pod (virtual-kubelet's word).
    pub const PROVIDER_CREATE_FAILED: &str = "ProviderCreateFailed";
    /// Event: a provider did not take new labels or annotations (virtual-kubelet's word).
    pub const PROVIDER_UPDATE_FAILED: &str = "ProviderUpdateFailed";
    /// Event: a provider did not remove a pod (virtual-kubelet's word).
    pub const PROVIDER_DELETE_FAILED: &str = "ProviderDeleteFailed";
    /// Event: a provider does not say what has become of a pod.
    pub const PROVIDER_STATUS_FAILED: &str = "ProviderStatusFailed";
    /// Event: a container exists.
    pub const CREATED: &str = "Created";
    /// Event: a container runs.
    pub const STARTED: &str = "Started";
    /// Event: a container could not be started.
    pub const FAILED: &str = "Failed";
    /// Event: a container waits before it starts again.
    pub const BACK_OFF: &str = "BackOff";
    /// Event: a container could not be ended.
    pub const FAILED_KILL: &str = "FailedKillPod";
    /// Event: the pod's sandbox could not be made.
    pub const FAILED_SANDBOX: &str = "FailedCreatePodSandBox";
    /// Event, and reason of the phase: `activeDeadlineSeconds` is over.
    pub const DEADLINE: &str = "DeadlineExceeded";
    /// Waiting: the pod is being made.
    pub const CONTAINER_CREATING: &str = "ContainerCreating";
    /// Waiting: init containers come first.
    pub const POD_INITIALIZING: &str = "PodInitializing";
    /// Waiting: what the environment refers to is not there.
    pub const CONFIG_ERROR: &str = "CreateContainerConfigError";
    /// Waiting: it ended, and starts again later.
    pub const CRASH_LOOP: &str = "CrashLoopBackOff";
    /// Terminated: nobody knows how.
    pub const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
}

/// Reasons of the Events we emit.
pub mod events {
    /// A node was cut off from the cloud and its neighbours vouch for it.
    pub const DISCONNECTED: &str = "NodeDisconnected";
    /// A majority of the neighbours found the node dead; whether that is confirmed, the incident says.
    pub const DEAD: &str = "NodeDead";
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
    /// Pods stay in endpoints: no other endpoint of a Service of theirs is ready.
    pub const ENDPOINTS_KEPT: &str = "EndpointsKept";
    /// Stock Kubernetes had marked pods of a living node, which the webhook did not see: given back.
    pub const MARKS_UNDONE: &str = "StockMarksUndone";
    /// A pod was evicted.
    pub const EVICTED: &str = "PodEvicted";
    /// A stateful pod stays: no fence proof.
    pub const NOT_MOVED: &str = "PodNotMoved";
}

/// Annotations by which a pod says how the simulated provider of virtual nodes is to play it. Each is
/// prefixed with [`PREFIX`](simulated::PREFIX), and may be followed by `.CONTAINER` to mean one container
/// alone.
pub mod simulated {
    /// What all of them begin with.
    pub const PREFIX: &str = "simulated.evenkeel.io/";
    /// Time that a container takes to start: `800ms`.
    pub const START_DELAY: &str = "start-delay";
    /// Ends with an error this long after the start: `30s`.
    pub const CRASH_AFTER: &str = "crash-after";
    /// Ends this long after the start, by itself.
    pub const EXIT_AFTER: &str = "exit-after";
    /// Code with which it ends by itself: 0 to 255.
    pub const EXIT_CODE: &str = "exit-code";
    /// What stands in the termination message then.
    pub const EXIT_MESSAGE: &str = "exit-message";
    /// Time that it takes to heed TERM; more than the grace period: it is killed.
    pub const STOP_DELAY: &str = "stop-delay";
    /// Code with which it ends when it heeds TERM: `0` or `143`.
    pub const STOP_CODE: &str = "stop-code";
    /// Answers of the readiness probe by time since the start: `not-ready 5s, ready 10s, not-ready`.
    pub const READINESS: &str = "readiness";
    /// Answers of the liveness probe: `ok 30s, fail`.
    pub const LIVENESS: &str = "liveness";
    /// Answers of the startup probe.
    pub const STARTUP: &str = "startup";
    /// Lines that it logs.
    pub const LOG: &str = "log";
    /// Time from one line to the next; without, all come at the start.
    pub const LOG_INTERVAL: &str = "log-interval";
    /// So many starts fail for the image: `2`, `always`, `always: no such image`.
    pub const PULL_ERROR: &str = "pull-error";
    /// So many starts fail otherwise.
    pub const START_ERROR: &str = "start-error";
    /// `command`: the container's own command is run, if it is one of the built-in programs.
    pub const RUN: &str = "run";
    /// `true`, or ports: real sockets on the pod's address.
    pub const SERVE: &str = "serve";
    /// With sockets: `/healthz` answers 500 this long after the start.
    pub const HEALTHY_FOR: &str = "healthy-for";
    /// CPU that it uses, as a quantity.
    pub const CPU: &str = "cpu";
    /// Memory that it uses, as a quantity.
    pub const MEMORY: &str = "memory";
}

/// Virtual nodes.
pub mod vnode {
    use std::collections::BTreeMap;

    /// Component of Events, and field manager of patches.
    pub const COMPONENT: &str = "evenkeel-vnode";
    /// Label of virtual nodes, key and value (virtual-kubelet's).
    pub const VIRTUAL_NODE_LABEL: (&str, &str) = ("type", "virtual-kubelet");
    /// Label that all nodes of a fleet have, with the fleet's name: by it their watch finds them.
    pub const FLEET_LABEL: &str = "vnode.evenkeel.io/fleet";
    /// Instead of [`VIRTUAL_NODE_LABEL`] on a fleet's node that stands for a machine with an agent, as those
    /// of the lab do.
    pub const MACHINE_LABEL: (&str, &str) = (VIRTUAL_NODE_LABEL.0, "machine");
    /// The label by which a node is a virtual one: virtual-kubelet's, or a fleet's where it does not stand
    /// for a machine.
    pub fn virtual_label(labels: &BTreeMap<String, String>) -> Option<(&str, &str)> {
        match labels.get(VIRTUAL_NODE_LABEL.0).map(String::as_str) {
            Some(value) if value == VIRTUAL_NODE_LABEL.1 => Some(VIRTUAL_NODE_LABEL),
            Some(value) if value == MACHINE_LABEL.1 => None,
            _ => labels.get(FLEET_LABEL).map(|fleet| (FLEET_LABEL, fleet.as_str())),
        }
    }
    /// Whether a node is a virtual one.
    pub fn is_virtual(labels: &BTreeMap<String, String>) -> bool {
        virtual_label(labels).is_some()
    }
    /// Annotation of a virtual Node: labels and annotations that were written last, as JSON of an ObjectMeta
    /// (virtual-kubelet's).
    pub const LAST_APPLIED_META: &str = "virtual-kubelet.io/last-applied-object-meta";
    /// Annotation of a virtual Node: what was written last of the status, as JSON of a NodeStatus
    /// (virtual-kubelet's).
    pub const LAST_APPLIED_STATUS: &str = "virtual-kubelet.io/last-applied-node-status";
    /// Reason of `Ready=False` on a virtual Node whose provider errs or is silent.
    pub const REASON_PROVIDER_UNWELL: &str = "ProviderUnwell";
    /// Label of the Leases by which replicas share virtual nodes; its value is the name of their group.
    pub const OWNERSHIP_LABEL: &str = "evenkeel.io/node-ownership";
    /// Annotation of the Lease by which a replica announces itself: among how many slots it shares nodes. It
    /// must be the same everywhere.
    pub const OWNERSHIP_SLOTS: &str = "evenkeel.io/node-ownership-slots";
    /// Key of the taint that virtual nodes get by default; its value is the provider's name.
    pub const PROVIDER_TAINT: &str = "virtual-kubelet.io/provider";
    /// Signer of kubelets' serving certificates (Kubernetes').
    pub const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
    /// Common name of such a certificate: this, and a name (Kubernetes').
    pub const SERVING_COMMON_NAME: &str = "system:node:";
    /// Its organisation (Kubernetes').
    pub const SERVING_ORGANISATION: &str = "system:nodes";
    /// Usages that are asked for with a key that is not RSA's, exactly these (Kubernetes').
    pub const SERVING_USAGES: [&str; 2] = ["digital signature", "server auth"];
    /// Namespace, name and key of the ConfigMap in which API servers publish the authority of their clients
    /// (Kubernetes').
    pub const CLIENT_CA: (&str, &str, &str) = (
        "kube-system",
        "extension-apiserver-authentication",
        "client-ca-file",
    );
    /// Prefix of the Leases by which replicas share nodes, in
    /// [`NODE_LEASE_NAMESPACE`](super::NODE_LEASE_NAMESPACE); the fleet's name follows.
    pub const SLOT_LEASE: &str = "evenkeel-vnode";

    /// Metrics.
    pub mod metrics {
        /// Nodes that this replica serves.
        pub const NODES: &str = "evenkeel_vnode_nodes";
        /// Those of them that are registered and well.
        pub const NODES_READY: &str = "evenkeel_vnode_nodes_ready";
        /// Pods by phase.
        pub const PODS: &str = "evenkeel_vnode_pods";
        /// Writes of statuses and removals by result.
        pub const WRITES: &str = "evenkeel_vnode_status_writes";
        /// From the decision for a status to its being written, in seconds.
        pub const WRITE_LATENCY: &str = "evenkeel_vnode_status_write_latency_seconds";
        /// Pods whose status waits to be written.
        pub const QUEUE: &str = "evenkeel_vnode_status_queue_length";
        /// Calls of the provider by call and result.
        pub const CALLS: &str = "evenkeel_vnode_provider_calls";
        /// How long they took, in seconds.
        pub const CALL_DURATION: &str = "evenkeel_vnode_provider_call_duration_seconds";
        /// Pods that only the provider knew, by what became of them.
        pub const STRAYS: &str = "evenkeel_vnode_stray_pods";
        /// Requests to the API server by method and status.
        pub const REQUESTS: &str = "evenkeel_vnode_api_requests";
    }
}

/// Koupleless: bases as virtual nodes, modules as pods.
pub mod koupleless {
    /// Annotation of a Node: all that is known of its base, as JSON.
    pub const BASE: &str = "koupleless.evenkeel.io/base";
    /// Field manager of patches of Nodes by the discovery of bases.
    pub const DISCOVERY: &str = "evenkeel-koupleless-discovery";
    /// Annotation of a Node: which modules were installed, and for which pod, as JSON.
    pub const MODULES: &str = "koupleless.evenkeel.io/modules";
    /// Annotation of a Node: from which jar each module was installed, as a digest of its URL, as JSON.
    pub const JARS: &str = "koupleless.evenkeel.io/jars";
    /// Condition of a pod: all of its modules are installed.
    pub const INSTALLED: &str = "module.koupleless.io/installed";
    /// Condition of a pod, for readiness gates: all of its modules are ready.
    pub const READY: &str = "module.koupleless.io/ready";
    /// Label of what belongs to Koupleless: which part it is.
    pub const COMPONENT_LABEL: &str = "virtual-kubelet.koupleless.io/component";
    /// Value of [`COMPONENT_LABEL`] on pods of modules.
    pub const MODULE: &str = "module";
    /// Value of [`COMPONENT_LABEL`] on the nodes of bases.
    pub const VNODE: &str = "vnode";
    /// Label with the environment: processes of one environment leave the others' objects alone.
    pub const ENV_LABEL: &str = "virtual-kubelet.koupleless.io/env";
    /// Label with the cluster of bases that a node, or a Deployment of modules, belongs to.
    pub const CLUSTER_LABEL: &str = "base.koupleless.io/cluster-name";

    /// Names of metrics.
    pub mod metrics {
        /// Bases of nodes that a replica serves, by life.
        pub const BASES: &str = "evenkeel_koupleless_bases";
        /// Operations of bases by command and result.
        pub const CALLS: &str = "evenkeel_koupleless_base_calls";
        /// How long they took, in seconds.
        pub const CALL_DURATION: &str = "evenkeel_koupleless_base_call_duration_seconds";
    }

    /// Healing of bases that run out of metaspace.
    pub mod healing {
        /// Reporting component of Events, and field manager of patches.
        pub const COMPONENT: &str = "evenkeel-koupleless-healing";
        /// ConfigMap in the controller's namespace that holds who is being healed, across all replicas.
        pub const CONFIG_MAP: &str = "koupleless-healing";
        /// Its key; the value is JSON.
        pub const ENTRIES: &str = "entries";
        /// Taint of a base without metaspace: key, value, effect.
        pub const TAINT: (&str, &str, &str) =
            ("schedule.koupleless.io/metaspace-overload", "True", "NoExecute");
        /// Event: a base has used too much of its metaspace for several readings.
        pub const OVERLOAD: &str = "MetaspaceOverload";
        /// Event: healing waits for a place in the budget, or does not get on.
        pub const HELD: &str = "HealingHeld";
        /// Event: the node has its taint, pods leave.
        pub const BEGUN: &str = "HealingBegun";
        /// Event: no pod is left that does not tolerate the taint.
        pub const DRAINED: &str = "HealingDrained";
        /// Event: what was left of our modules is uninstalled.
        pub const UNINSTALLED: &str = "HealingUninstalled";
        /// Event: the base's pod is being evicted.
        pub const REPLACING: &str = "HealingReplacesBase";
        /// Event: the taint is gone.
        pub const ENDED: &str = "HealingEnded";
        /// Event: healing ended without having helped.
        pub const GAVE_UP: &str = "HealingGaveUp";
    }

    /// Deployments whose replicas follow the number of bases.
    pub mod peer {
        /// Reporting component of Events, and field manager of patches.
        pub const COMPONENT: &str = "evenkeel-koupleless-peers";
        /// Lease of the replica that sets replicas, in the controller's namespace.
        pub const LEASE: &str = "evenkeel-koupleless-peers";
        /// Value of [`COMPONENT_LABEL`](super::COMPONENT_LABEL) on Deployments of modules.
        pub const MODULE_DEPLOYMENT: &str = "module-deployment";
        /// Label with the strategy of a Deployment of modules.
        pub const STRATEGY_LABEL: &str = "virtual-kubelet.koupleless.io/strategy";
        /// Its value: one replica per base.
        pub const STRATEGY: &str = "peer";
        /// Label by which, with the value `true`, a Deployment keeps its own replicas.
        pub const OPT_OUT_LABEL: &str = "virtual-kubelet.koupleless.io/replicas-control";
        /// Annotation of pods: the lowest goes first when replicas are lowered (Kubernetes').
        pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
        /// Annotation of a pod on a lost base: the deletion cost that it had before; empty for none.
        pub const FORMER_COST: &str = "koupleless.evenkeel.io/former-deletion-cost";
        /// Event: the replicas of a Deployment were set to the number of bases.
        pub const SCALED: &str = "ReplicasFollowBases";
    }
}
