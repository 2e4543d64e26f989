//! What must not be left over when a run is over.

use crate::api::Store;
use crate::api::build::roster_of;
use crate::api::objects::{Object, is_endpoint};
use evenkeel_api::names::annotations;
use evenkeel_failover_rules::world::Kind;

/// Who of a cell has no vote yet, or does not know who has one.
pub(crate) fn unsettled(object: &Object) -> Option<String> {
    let Object::Zone(zone) = object else {
        return None;
    };
    let roster = roster_of(zone);
    let members = roster.members.iter().filter(|member| member.learner);
    let learners: Vec<&str> = members.map(|member| member.name.as_str()).collect();
    let stuck = !learners.is_empty() || !roster.settled_voters.is_empty();
    stuck.then(|| {
        format!(
            "{:?}: learners {learners:?}, not settled since the voters were {:?}",
            zone.metadata.name, roster.settled_voters
        )
    })
}

/// What of ours, or of stock, is left on nodes and in incidents.
pub(crate) fn leftovers(store: &Store) -> Vec<String> {
    let mut left = Vec::new();
    for (_, object) in store.list(Kind::Node) {
        if let Object::Node(node) = &**object {
            let name = node.metadata.name.clone().unwrap_or_default();
            let added = node
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(annotations::ADDED_TAINTS));
            for taint in node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()) {
                left.push(format!("{name} has {}:{}", taint.key, taint.effect));
            }
            if let Some(added) = added {
                left.push(format!("{name} says added taints {added}"));
            }
        }
    }
    for (key, object) in store.list(Kind::Incident) {
        if let Object::Incident(incident) = &**object {
            let status = incident.status.clone().unwrap_or_default();
            if status.closed_at.is_none() {
                left.push(format!("incident {} is open: {}", key.1, status.state));
            }
        }
    }
    for (key, object) in store.list(Kind::Pod) {
        if !is_endpoint(object) {
            left.push(format!("pod {} is not ready", key.1));
        }
    }
    left
}
