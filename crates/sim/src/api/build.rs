//! The objects that a cluster begins with.

use super::objects::{Object, cluster_key, micro, stamp, time};
use super::{Refused, Store, Writer};
use crate::rng::Rng;
use evenkeel_api::crd::{
    AgentStatus, AgentStatusSpec, FencingOffer, ZoneChallenge, ZoneChallengeSpec, ZoneHealth, ZoneHealthSpec,
    ZoneReport, ZoneReportSpec,
};
use evenkeel_api::names::{NAMESPACE, NODE_LEASE_NAMESPACE, ZONE_LABELS, taints};
use evenkeel_api::zone::{IssuedChallenge, RosterMember, RosterSpec};
use evenkeel_failover_rules::world::Kind;
use evenkeel_zone::fixture::publish_as_next_version;
use evenkeel_zone::keys::Signer;
use evenkeel_zone::roster::{self, cell_object_name, report_object_name};
use evenkeel_zone::wire::Challenge;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    Namespace, Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodCondition, PodSpec, PodStatus, Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;

/// Namespace of all pods.
pub const PODS: &str = "default";

/// Name of node `i`.
pub fn node_name(node: usize) -> String {
    format!("node-{node}")
}

/// UID of node `i`; ordered as nodes are.
pub fn node_uid(node: usize) -> String {
    format!("uid-{node:05}")
}

/// Name of a zone, counted from 0.
pub fn zone_name(zone: usize) -> String {
    format!("zone-{}", zone + 1)
}

/// Number of the node of a UID.
pub fn node_of_uid(uid: &str) -> Option<usize> {
    uid.strip_prefix("uid-")?.parse().ok()
}

/// Number of the node of a name.
pub fn node_number(name: &str) -> Option<usize> {
    name.strip_prefix("node-")?.parse().ok()
}

/// A Lease as its holder writes it.
pub fn lease(namespace: &str, name: &str, holder: &str, now: u64) -> Object {
    Object::Lease(Box::new(Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            renew_time: Some(micro(now)),
            ..LeaseSpec::default()
        }),
    }))
}

/// Renews a Lease, or makes it.
pub fn renew(store: &mut Store, now: u64, writer: Writer, namespace: &str, name: &str, holder: &str) {
    renew_at(store, (now, now), writer, namespace, name, holder);
}

/// The same by a holder whose clock says something else: the true time, and that of the holder.
pub fn renew_at(
    store: &mut Store,
    (now, of_day): (u64, u64),
    writer: Writer,
    namespace: &str,
    name: &str,
    holder: &str,
) {
    let fresh = lease(namespace, name, holder, of_day);
    let renewed = store.change(now, writer, fresh.kind(), &fresh.key(), None, |object| {
        if let (Object::Lease(known), Object::Lease(fresh)) = (object, &fresh) {
            known.spec.clone_from(&fresh.spec);
        }
    });
    if renewed.is_err() {
        let _ = store.create(now, writer, fresh);
    }
}

/// A cell, as the controller of a former life left it. Agents of all but the first one of a zone are told.
pub fn cell(
    store: &mut Store,
    (zone, cell): (&str, u32),
    members: Vec<RosterMember>,
    key: Option<RosterSigner<'_>>,
) {
    let names: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
    let roster = RosterSpec {
        version: 1,
        members,
        ..RosterSpec::default()
    };
    let _ = publish(store, 0, (zone, cell), &roster, key);
    if cell > 0 {
        for name in names {
            let _ = tell_cell(store, 0, &name, &cell_object_name(zone, cell));
        }
    }
}

/// Tells an agent which cell it belongs to.
pub fn tell_cell(store: &mut Store, now: u64, node: &str, object: &str) -> Result<(), Refused> {
    let key = cluster_key(node);
    let written = store.change(now, Writer::Ours, Kind::Agent, &key, None, |agent| {
        if let Object::Agent(agent) = agent {
            object.clone_into(&mut agent.status.get_or_insert_default().cell);
        }
    });
    written.map(drop)
}

/// The key that signs rosters, and whether its owner is of the next version.
pub type RosterSigner<'a> = (&'a dyn Signer, bool);

/// Publishes the roster of a cell, as the controller's shell does.
pub fn publish(
    store: &mut Store,
    now: u64,
    (zone, cell): (&str, u32),
    roster: &RosterSpec,
    signer: Option<RosterSigner<'_>>,
) -> Result<(), Refused> {
    let name = cell_object_name(zone, cell);
    let key = cluster_key(&name);
    if store.get(Kind::Zone, &key).is_none() {
        let spec = ZoneHealthSpec {
            zone: zone.to_owned(),
            cell,
            ..ZoneHealthSpec::default()
        };
        let object = Object::Zone(Box::new(ZoneHealth::new(&name, spec)));
        store.create(now, Writer::Ours, object)?;
    }
    let object = store.get(Kind::Zone, &key).ok_or(Refused::NotFound)?;
    let named = RosterSpec {
        cell_uid: object.meta().uid.clone().unwrap_or_default(),
        cell: name,
        ..roster.clone()
    };
    let published = match signer {
        Some((key, true)) => publish_as_next_version(&named, key),
        Some((key, false)) => roster::publish(&named, Some(key)),
        None => roster::publish(&named, None),
    };
    let written = store.change(now, Writer::Ours, Kind::Zone, &key, None, |object| {
        if let Object::Zone(zone) = object {
            zone.spec.signed_roster = Some(published);
        }
    });
    written.map(|_| ())
}

/// What a cell's object says of its roster.
pub fn roster_of(zone: &ZoneHealth) -> RosterSpec {
    zone.spec.read_roster().unwrap_or_default()
}

/// A challenge as `by` draws it at `now`.
pub fn drawn(rng: &mut Rng, now: u64, by: &str) -> IssuedChallenge {
    let value = (u128::from(rng.draw()) << 64) | u128::from(rng.draw());
    IssuedChallenge {
        value: Challenge(value.to_be_bytes()).to_base64(),
        created_at: stamp(now).to_string(),
        created_by: by.to_owned(),
    }
}

/// What is asked of a cell. A drawn challenge replaces the current one.
pub fn challenge(
    store: &mut Store,
    now: u64,
    (zone, cell): (&str, u32),
    drawn: Option<IssuedChallenge>,
    wanted: Vec<String>,
) -> Result<(), Refused> {
    let name = cell_object_name(zone, cell);
    let key = cluster_key(&name);
    if store.get(Kind::Challenge, &key).is_some() {
        let written = store.change(now, Writer::Ours, Kind::Challenge, &key, None, |object| {
            if let Object::Challenge(known) = object {
                if let Some(drawn) = drawn {
                    known.spec.previous = Some(std::mem::replace(&mut known.spec.current, drawn));
                }
                known.spec.wanted = wanted;
            }
        });
        return written.map(drop);
    }
    let spec = ZoneChallengeSpec {
        zone: zone.to_owned(),
        cell,
        current: drawn.unwrap_or_default(),
        previous: None,
        wanted,
    };
    let object = ZoneChallenge::new(&name, spec);
    store.create(now, Writer::Ours, Object::Challenge(Box::new(object)))
}

/// What a reporter writes to its own object, whatever stands there.
pub fn report(store: &mut Store, now: u64, spec: ZoneReportSpec) {
    let name = report_object_name(&spec.zone, spec.cell, &spec.reporter);
    let key = cluster_key(&name);
    let written = store.change(now, Writer::Agent, Kind::Report, &key, None, |object| {
        if let Object::Report(known) = object {
            known.spec.clone_from(&spec);
        }
    });
    if written.is_err() {
        let fresh = Object::Report(Box::new(ZoneReport::new(&name, spec)));
        let _ = store.create(now, Writer::Agent, fresh);
    }
}

/// Evenkeel's own namespace.
pub fn home(store: &mut Store) {
    let home = Namespace {
        metadata: ObjectMeta {
            name: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let _ = store.create(0, Writer::Ours, Object::Home(Box::new(home)));
}

/// A node with its Lease, its AgentStatus and its pods.
pub fn node(store: &mut Store, now: u64, zone: &str, member: &RosterMember) {
    let ready = NodeCondition {
        type_: "Ready".to_owned(),
        status: "True".to_owned(),
        reason: Some("KubeletReady".to_owned()),
        last_heartbeat_time: Some(time(now)),
        last_transition_time: Some(time(now)),
        ..NodeCondition::default()
    };
    let node = Node {
        metadata: ObjectMeta {
            name: Some(member.name.clone()),
            uid: Some(member.uid.clone()),
            labels: Some(BTreeMap::from([(ZONE_LABELS[0].to_owned(), zone.to_owned())])),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec::default()),
        status: Some(NodeStatus {
            conditions: Some(vec![ready]),
            ..NodeStatus::default()
        }),
    };
    let _ = store.create(now, Writer::Kubelet, Object::Node(Box::new(node)));
    let _ = store.create(
        now,
        Writer::Kubelet,
        lease(NODE_LEASE_NAMESPACE, &member.name, &member.name, now),
    );
    let agent = AgentStatusSpec {
        node_uid: member.uid.clone(),
        public_key: member.public_key.clone(),
        address: member.address.clone(),
        kubelet: member.kubelet.clone(),
        version: "1".to_owned(),
        fencing: FencingOffer::default(),
        ..AgentStatusSpec::default()
    };
    let agent = AgentStatus::new(&member.name, agent);
    let _ = store.create(now, Writer::Agent, Object::Agent(Box::new(agent)));
    let defaults = vec![
        default_toleration(taints::UNREACHABLE),
        default_toleration(taints::NOT_READY),
    ];
    for (name, owner, tolerations) in [
        ("web", "ReplicaSet", defaults.clone()),
        ("api", "ReplicaSet", defaults.clone()),
        ("db", "StatefulSet", defaults.clone()),
        (
            "log",
            "DaemonSet",
            vec![Toleration {
                operator: Some("Exists".to_owned()),
                ..Toleration::default()
            }],
        ),
    ] {
        let pod = pod(
            &format!("{name}-{}", member.name),
            &member.name,
            owner,
            tolerations,
        );
        let _ = store.create(now, Writer::Kubelet, Object::Pod(Box::new(pod)));
    }
}

fn default_toleration(key: &str) -> Toleration {
    Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        toleration_seconds: Some(300),
        ..Toleration::default()
    }
}

/// A condition of a pod.
pub fn pod_condition(kind: &str, status: &str, reason: Option<&str>, now: u64) -> PodCondition {
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.filter(|reason| !reason.is_empty()).map(str::to_owned),
        last_transition_time: Some(time(now)),
        ..PodCondition::default()
    }
}

fn pod(name: &str, node: &str, owner: &str, tolerations: Vec<Toleration>) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(PODS.to_owned()),
            uid: Some(format!("pod-{name}")),
            owner_references: Some(vec![OwnerReference {
                kind: owner.to_owned(),
                controller: Some(true),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: Some(node.to_owned()),
            tolerations: Some(tolerations),
            ..PodSpec::default()
        }),
        status: Some(PodStatus {
            phase: Some("Running".to_owned()),
            conditions: Some(vec![
                pod_condition("ContainersReady", "True", None, 0),
                pod_condition("Ready", "True", None, 0),
            ]),
            ..PodStatus::default()
        }),
    }
}

/// The node object of a name.
pub fn find_node<'a>(store: &'a Store, name: &str) -> Option<&'a Node> {
    match store
        .get(evenkeel_failover_rules::world::Kind::Node, &cluster_key(name))
        .map(|object| &**object)
    {
        Some(Object::Node(node)) => Some(node),
        _ => None,
    }
}
