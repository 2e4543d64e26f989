//! Objects of all kinds in one type, and what is read of them.

use evenkeel_api::crd::{AgentStatus, FailoverPolicy, NodeIncident, ZoneChallenge, ZoneHealth, ZoneReport};
use evenkeel_api::names;
use evenkeel_api::watch::{Delta, Key};
use evenkeel_failover_rules::world::facts::TaintRef;
use evenkeel_failover_rules::world::{Kind, Seen};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, NodeCondition, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use std::collections::BTreeSet;

/// The wall clock at the start of every run, in milliseconds since 1970.
pub const EPOCH: u64 = 1_700_000_000_000;

#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    Node(Box<Node>),
    /// Lease, of nodes or of Evenkeel.
    Lease(Box<Lease>),
    Pod(Box<Pod>),
    Zone(Box<ZoneHealth>),
    Challenge(Box<ZoneChallenge>),
    Report(Box<ZoneReport>),
    Agent(Box<AgentStatus>),
    Policy(Box<FailoverPolicy>),
    Incident(Box<NodeIncident>),
    /// Evenkeel's own Namespace.
    Home(Box<Namespace>),
}

impl Object {
    /// Which kind of watch shows it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Node(_) => Kind::Node,
            Self::Lease(lease) if lease.metadata.namespace.as_deref() == Some(names::NAMESPACE) => {
                Kind::OwnLease
            }
            Self::Lease(_) => Kind::NodeLease,
            Self::Pod(_) => Kind::Pod,
            Self::Zone(_) => Kind::Zone,
            Self::Challenge(_) => Kind::Challenge,
            Self::Report(_) => Kind::Report,
            Self::Agent(_) => Kind::Agent,
            Self::Policy(_) => Kind::Policy,
            Self::Incident(_) => Kind::Incident,
            Self::Home(_) => Kind::Home,
        }
    }

    pub fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Node(object) => &object.metadata,
            Self::Lease(object) => &object.metadata,
            Self::Pod(object) => &object.metadata,
            Self::Zone(object) => &object.metadata,
            Self::Challenge(object) => &object.metadata,
            Self::Report(object) => &object.metadata,
            Self::Agent(object) => &object.metadata,
            Self::Policy(object) => &object.metadata,
            Self::Incident(object) => &object.metadata,
            Self::Home(object) => &object.metadata,
        }
    }

    /// Metadata, to be changed.
    pub fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Node(object) => &mut object.metadata,
            Self::Lease(object) => &mut object.metadata,
            Self::Pod(object) => &mut object.metadata,
            Self::Zone(object) => &mut object.metadata,
            Self::Challenge(object) => &mut object.metadata,
            Self::Report(object) => &mut object.metadata,
            Self::Agent(object) => &mut object.metadata,
            Self::Policy(object) => &mut object.metadata,
            Self::Incident(object) => &mut object.metadata,
            Self::Home(object) => &mut object.metadata,
        }
    }

    /// Namespace and name.
    pub fn key(&self) -> Key {
        let meta = self.meta();
        (
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        )
    }

    /// As a watch of the controller delivers it.
    pub fn seen(&self) -> Seen {
        match self.clone() {
            Self::Node(object) => Seen::Node(Delta::Put(object)),
            Self::Lease(object) if self.kind() == Kind::OwnLease => Seen::OwnLease(Delta::Put(object)),
            Self::Lease(object) => Seen::NodeLease(Delta::Put(object)),
            Self::Pod(object) => Seen::Pod(Delta::Put(object)),
            Self::Zone(object) => Seen::Zone(Delta::Put(object)),
            Self::Challenge(object) => Seen::Challenge(Delta::Put(object)),
            Self::Report(object) => Seen::Report(Delta::Put(object)),
            Self::Agent(object) => Seen::Agent(Delta::Put(object)),
            Self::Policy(object) => Seen::Policy(Delta::Put(object)),
            Self::Incident(object) => Seen::Incident(Delta::Put(object)),
            Self::Home(object) => Seen::Home(Delta::Put(object)),
        }
    }
}

/// What a watch delivers beside objects.
#[derive(Clone, Debug)]
pub enum Notice {
    /// An object is gone.
    Gone(Key),
    /// A complete list.
    Listed(BTreeSet<Key>),
    /// The watch failed.
    Broken,
}

/// As a watch of the controller delivers it.
pub fn seen(kind: Kind, notice: Notice) -> Seen {
    fn delta<K>(notice: Notice) -> Delta<K> {
        match notice {
            Notice::Gone(key) => Delta::Gone(key),
            Notice::Listed(keys) => Delta::Listed(keys),
            Notice::Broken => Delta::Broken,
        }
    }
    match kind {
        Kind::Node => Seen::Node(delta(notice)),
        Kind::NodeLease => Seen::NodeLease(delta(notice)),
        Kind::Pod => Seen::Pod(delta(notice)),
        Kind::Claim => Seen::Claim(delta(notice)),
        Kind::Zone => Seen::Zone(delta(notice)),
        Kind::Challenge => Seen::Challenge(delta(notice)),
        Kind::Report => Seen::Report(delta(notice)),
        Kind::OwnLease => Seen::OwnLease(delta(notice)),
        Kind::Agent => Seen::Agent(delta(notice)),
        Kind::Policy => Seen::Policy(delta(notice)),
        Kind::Incident => Seen::Incident(delta(notice)),
        Kind::Home => Seen::Home(delta(notice)),
    }
}

/// An instant of the run on the wall clock.
pub fn stamp(now: u64) -> Timestamp {
    let ms = i64::try_from(EPOCH + now).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
}

/// The taints that the node's annotation calls ours.
pub fn added(node: &Node) -> Vec<TaintRef> {
    let all = node.metadata.annotations.as_ref();
    all.and_then(|all| all.get(names::annotations::ADDED_TAINTS))
        .map(|text| TaintRef::parse_list(text))
        .unwrap_or_default()
}

/// An instant as most objects carry it: whole seconds.
pub fn time(now: u64) -> Time {
    Time(stamp(now / 1000 * 1000))
}

/// An instant as Leases carry it.
pub fn micro(now: u64) -> MicroTime {
    MicroTime(stamp(now))
}

/// `renewTime` of a Lease.
pub fn renew_time(object: &Object) -> Option<Timestamp> {
    let Object::Lease(lease) = object else {
        return None;
    };
    lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0)
}

/// Condition of a node.
pub fn node_condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Condition of a pod.
pub fn pod_condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Sets a condition of a pod, as a strategic merge patch does.
pub fn set_pod_condition(pod: &mut Pod, condition: PodCondition) {
    let list = pod
        .status
        .get_or_insert_default()
        .conditions
        .get_or_insert_default();
    match list.iter_mut().find(|known| known.type_ == condition.type_) {
        Some(known) => *known = condition,
        None => list.push(condition),
    }
}

/// Sets a condition of a node; what the new one does not name stays.
pub fn set_node_condition(node: &mut Node, condition: NodeCondition) {
    let list = node
        .status
        .get_or_insert_default()
        .conditions
        .get_or_insert_default();
    match list.iter_mut().find(|known| known.type_ == condition.type_) {
        Some(known) => {
            let heartbeat = condition
                .last_heartbeat_time
                .clone()
                .or(known.last_heartbeat_time.clone());
            *known = NodeCondition {
                last_heartbeat_time: heartbeat,
                ..condition
            };
        }
        None => list.push(condition),
    }
}

/// Whether a pod's address is a ready endpoint.
pub fn is_endpoint(object: &Object) -> bool {
    let Object::Pod(pod) = object else {
        return false;
    };
    pod.metadata.deletion_timestamp.is_none()
        && pod_condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Node that a pod is bound to.
pub fn node_of(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

/// Key of an object without a namespace.
pub fn cluster_key(name: &str) -> Key {
    (String::new(), name.to_owned())
}
