//! What is wanted of a Node, built anew each time.

use super::Settings;
use crate::core::reported::{NodeHealth, NodeTemplate};
use evenkeel_api::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec, NodeStatus,
    NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::time::Duration;

/// Type, status, reason and message of the conditions of a kubelet that is well.
const WELL: [[&str; 4]; 5] = [
    [
        "NetworkUnavailable",
        "False",
        "RouteCreated",
        "RouteController created a route",
    ],
    [
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ],
    [
        "DiskPressure",
        "False",
        "KubeletHasNoDiskPressure",
        "kubelet has no disk pressure",
    ],
    [
        "PIDPressure",
        "False",
        "KubeletHasSufficientPID",
        "kubelet has sufficient PID available",
    ],
    ["Ready", "True", "KubeletReady", "kubelet is posting ready status"],
];

/// What a Node is made of.
pub(super) struct Parts<'a> {
    pub(super) name: &'a str,
    pub(super) settings: &'a Settings,
    pub(super) template: NodeTemplate,
    pub(super) health: NodeHealth,
    /// Why the provider does not answer pings as it should.
    pub(super) unwell: Option<&'a str>,
    /// Where the kubelet API listens.
    pub(super) address: Option<SocketAddr>,
    /// Since the epoch; heartbeats are of this time.
    pub(super) now: Duration,
}

impl Parts<'_> {
    /// The Node. Conditions have changed now; who knows better sets the time.
    pub(super) fn node(self) -> Node {
        let conditions = self.conditions();
        let addresses = self.addresses();
        let Self {
            name,
            settings,
            template,
            health,
            ..
        } = self;
        let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
        let system = or(template.operating_system, "linux");
        let architecture = or(template.architecture, architecture());
        let mut labels: BTreeMap<String, String> = [
            (names::vnode::VIRTUAL_NODE_LABEL.0, &*settings.type_label),
            ("kubernetes.io/role", "agent"),
            ("kubernetes.io/hostname", name),
            ("kubernetes.io/os", &system),
            ("kubernetes.io/arch", &architecture),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
        labels.extend(template.labels);
        labels.extend(settings.labels.clone());
        let taints: Vec<Taint> = template
            .taints
            .into_iter()
            .map(|(key, value, effect)| Taint {
                key,
                value: Some(value).filter(|value| !value.is_empty()),
                effect,
                time_added: None,
            })
            .collect();
        let capacity = health.capacity.unwrap_or(template.capacity);
        let allocatable = health.allocatable.unwrap_or(template.allocatable);
        let allocatable = if allocatable.is_empty() {
            capacity.clone()
        } else {
            allocatable
        };
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        Node {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels),
                annotations: Some(template.annotations).filter(|map| !map.is_empty()),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                pod_cidrs: some(template.pod_cidr.clone()).map(|cidr| vec![cidr]),
                pod_cidr: some(template.pod_cidr),
                provider_id: some(template.provider_id),
                taints: Some(taints).filter(|taints| !taints.is_empty()),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                conditions: Some(conditions),
                addresses: Some(addresses),
                capacity: Some(quantities(capacity)),
                allocatable: Some(quantities(allocatable)),
                daemon_endpoints: self.address.map(|address| NodeDaemonEndpoints {
                    kubelet_endpoint: Some(DaemonEndpoint {
                        port: i32::from(address.port()),
                    }),
                }),
                node_info: Some(NodeSystemInfo {
                    machine_id: id(name, "machine"),
                    system_uuid: id(name, "system"),
                    boot_id: or(template.boot_id, &id(name, "boot")),
                    container_runtime_version: settings.runtime.clone(),
                    kubelet_version: settings.version.clone(),
                    operating_system: system,
                    os_image: template.os_image,
                    kernel_version: template.kernel_version,
                    architecture,
                    ..NodeSystemInfo::default()
                }),
                ..NodeStatus::default()
            }),
        }
    }

    fn conditions(&self) -> Vec<NodeCondition> {
        let now = Some(Time(time(self.now)));
        let mut conditions: Vec<NodeCondition> = WELL
            .iter()
            .map(|[kind, status, reason, message]| NodeCondition {
                type_: (*kind).to_owned(),
                status: (*status).to_owned(),
                reason: Some((*reason).to_owned()),
                message: Some((*message).to_owned()),
                ..NodeCondition::default()
            })
            .collect();
        for theirs in &self.health.conditions {
            match conditions.iter_mut().find(|one| one.type_ == theirs.type_) {
                Some(one) => *one = theirs.clone(),
                None => conditions.push(theirs.clone()),
            }
        }
        if let Some(why) = self.unwell
            && let Some(ready) = conditions.iter_mut().find(|one| one.type_ == "Ready")
        {
            "False".clone_into(&mut ready.status);
            ready.reason = Some(names::vnode::REASON_PROVIDER_UNWELL.to_owned());
            ready.message = Some(why.to_owned());
        }
        for condition in &mut conditions {
            condition.last_heartbeat_time.clone_from(&now);
            condition.last_transition_time.clone_from(&now);
        }
        conditions
    }

    fn addresses(&self) -> Vec<NodeAddress> {
        let one = |kind: &str, address: String| NodeAddress {
            type_: kind.to_owned(),
            address,
        };
        let theirs = &self.template.addresses;
        if !theirs.is_empty() {
            return theirs
                .iter()
                .map(|(kind, address)| one(kind, address.clone()))
                .collect();
        }
        let ip = self.address.map(|address| address.ip());
        let ip = ip.filter(|ip| !ip.is_unspecified());
        // No `Hostname` beside it: an API server that prefers host names would look for this one, which
        // nobody resolves, and which stands in no certificate.
        match ip {
            Some(ip) => vec![one("InternalIP", ip.to_string())],
            None => vec![one("Hostname", self.name.to_owned())],
        }
    }
}

/// A time as Kubernetes writes it in conditions: whole seconds.
pub(super) fn time(since_epoch: Duration) -> Timestamp {
    let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

/// Whether the condition `Ready` says so.
pub(super) fn says_ready(node: &Node) -> bool {
    conditions(node)
        .iter()
        .any(|one| one.type_ == "Ready" && one.status == "True")
}

pub(super) fn conditions(node: &Node) -> &[NodeCondition] {
    node.status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default()
}

/// Fingerprints of what is wanted: of all that a mere patch of the status cannot change, and of the rest.
/// Times are in neither.
pub(super) fn fingerprints(node: &Node) -> (u64, u64) {
    let (mut shape, mut values) = (DefaultHasher::new(), DefaultHasher::new());
    (&node.metadata.labels, &node.metadata.annotations).hash(&mut shape);
    if let Some(status) = &node.status {
        for address in status.addresses.iter().flatten() {
            (&address.type_, &address.address).hash(&mut shape);
        }
        if let Some(info) = &status.node_info {
            (&info.boot_id, &info.operating_system, &info.architecture).hash(&mut shape);
            (&info.os_image, &info.kernel_version).hash(&mut shape);
        }
        let endpoint = status
            .daemon_endpoints
            .as_ref()
            .and_then(|all| all.kubelet_endpoint.as_ref());
        endpoint.map(|endpoint| endpoint.port).hash(&mut shape);
        for resources in [&status.capacity, &status.allocatable] {
            for (name, amount) in resources.iter().flatten() {
                name.hash(&mut shape);
                (name, &amount.0).hash(&mut values);
            }
            // So that a name cannot move from one map to the other unseen.
            0_u8.hash(&mut shape);
            0_u8.hash(&mut values);
        }
    }
    for one in conditions(node) {
        one.type_.hash(&mut shape);
        (&one.type_, &one.status, &one.reason, &one.message).hash(&mut values);
    }
    (shape.finish(), values.finish())
}

/// A number for a text, within this process.
pub(super) fn number(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn quantities(map: BTreeMap<String, String>) -> BTreeMap<String, Quantity> {
    map.into_iter()
        .map(|(key, value)| (key, Quantity(value)))
        .collect()
}

/// An identifier that a restart does not change, in the form of a UUID.
fn id(name: &str, of: &str) -> String {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(format!("evenkeel/{of}/{name}"));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    // RFC 9562, version 8: custom.
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// This process' own, as Go spells it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}
