//! The last endpoints of Services (hazards 18 and 25).
//!
//! While a zone is silent as a whole, or many nodes seem dead at once, nobody can tell for sure which of their pods
//! still serve. Where a Service has ready endpoints elsewhere, clients lose nothing if these go. Where it has none,
//! they would lose the last that may serve, and gain nothing: those endpoints stay, until stock Kubernetes would take
//! them, or for as long as the zone is Dark.
//!
//! A pod's endpoint follows the pod's Ready condition, so it is the pod that is kept ready. It stays so for all its
//! Services, also for those that have endpoints elsewhere.
//!
//! Nobody watches the endpoints of a whole cluster for this: they are read when it matters, in the namespaces that it
//! concerns.

use super::action::Plan;
use crate::world::facts::Cluster;
use crate::world::{Decisions, Judged};
use evenkeel_judge::{Dead, NodeState};
use evenkeel_zone::Millis;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::{BTreeMap, BTreeSet};

/// By this label a slice names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// What was read is read again after this long, and asked for again after this long if it did not come.
const READ_AGAIN_MS: u64 = 10_000;
const ASK_AGAIN_MS: u64 = 2_000;

/// The Services of some namespaces and their endpoints, as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Services(BTreeMap<(String, String), Vec<Endpoint>>);

/// An endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Endpoint {
    /// Empty where the slice does not say.
    node: String,
    /// UID of the pod behind it; empty where it is no pod.
    pod: String,
    ready: bool,
}

impl Services {
    /// From all slices of some namespaces. A slice that names no Service is nobody's.
    pub fn of(slices: impl IntoIterator<Item = EndpointSlice>) -> Self {
        let mut services: BTreeMap<(String, String), Vec<Endpoint>> = BTreeMap::new();
        for slice in slices {
            let Some(name) = slice.metadata.labels.unwrap_or_default().remove(SERVICE_NAME) else {
                continue;
            };
            let namespace = slice.metadata.namespace.unwrap_or_default();
            let endpoints = slice.endpoints.into_iter().map(|endpoint| {
                let target = endpoint.target_ref.unwrap_or_default();
                let is_pod = target.kind.as_deref() == Some("Pod");
                Endpoint {
                    node: endpoint.node_name.unwrap_or_default(),
                    pod: target.uid.filter(|_| is_pod).unwrap_or_default(),
                    // Unset means ready (`discovery.k8s.io/v1`).
                    ready: endpoint.conditions.and_then(|given| given.ready).unwrap_or(true),
                }
            });
            services.entry((namespace, name)).or_default().extend(endpoints);
        }
        Self(services)
    }

    /// UIDs of the pods on `lost` nodes that back a Service of which no endpoint is ready elsewhere.
    fn last(&self, lost: &BTreeSet<&str>) -> BTreeSet<String> {
        let is_lost = |endpoint: &&Endpoint| lost.contains(endpoint.node.as_str());
        let serves = |endpoint: &Endpoint| endpoint.ready && !is_lost(&endpoint);
        self.0
            .values()
            .filter(|endpoints| !endpoints.iter().any(serves))
            .flat_map(|endpoints| endpoints.iter().filter(is_lost))
            .map(|endpoint| endpoint.pod.clone())
            .filter(|pod| !pod.is_empty())
            .collect()
    }
}

/// What is known of the last endpoints, as long as somebody asks. What cannot be read again stands as it was read: an
/// outage of the API server takes nothing.
#[derive(Debug, Default)]
pub(super) struct Last {
    wanted_since: Option<Millis>,
    asked: Option<Millis>,
    read: Option<(Services, Millis)>,
    pods: BTreeSet<String>,
}

impl Last {
    pub(super) fn take(&mut self, services: Services, now: Millis) {
        self.read = Some((services, now));
    }

    /// Looks which nodes may be lost, finds the last endpoints on them, and asks for the endpoints where it is time.
    pub(super) fn look(&mut self, cluster: &Cluster, decisions: &Decisions, now: Millis, plan: &mut Plan) {
        let lost = decisions.nodes.iter().filter(|(_, judged)| may_be_lost(judged));
        let lost: BTreeSet<&str> = lost.map(|(name, _)| name.as_str()).collect();
        if lost.is_empty() {
            *self = Self::default();
            return;
        }
        self.wanted_since.get_or_insert(now);
        self.pods = self
            .read
            .as_ref()
            .map(|(services, _)| services.last(&lost))
            .unwrap_or_default();
        let is_due = |at: Option<Millis>, again: u64| at.is_none_or(|at| now.since(at) >= again);
        let read = self.read.as_ref().map(|(_, read)| *read);
        if is_due(read, READ_AGAIN_MS) && is_due(self.asked, ASK_AGAIN_MS) {
            self.asked = Some(now);
            let pods = lost.iter().flat_map(|node| cluster.pods_of(node));
            plan.read_services = pods.map(|pod| pod.pod.namespace.clone()).collect();
        }
    }

    /// The pods that stay ready. `None`: they are still to be read, and nothing is taken before; whoever cannot read
    /// them within `patience` ms keeps nothing.
    pub(super) fn pods(&self, now: Millis, patience: u64) -> Option<&BTreeSet<String>> {
        let waits = |since: Millis| now.since(since) < patience;
        let unread = self.read.is_none() && self.wanted_since.is_some_and(waits);
        (!unread).then_some(&self.pods)
    }
}

/// Whether the pods of a node may serve although nobody sees them: its zone is Dark, or it is one of many that seem
/// dead and not confirmed to be.
fn may_be_lost(judged: &Judged) -> bool {
    match judged.decision.state() {
        NodeState::Dark => true,
        NodeState::Dead(Dead::Announced) => judged.evidence.zone.storm,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn slice(service: &str, endpoints: &[(&str, &str, Option<bool>)]) -> EndpointSlice {
        let endpoint = |(node, pod, ready): &(&str, &str, Option<bool>)| {
            json!({
                "addresses": ["10.0.0.1"],
                "nodeName": node,
                "targetRef": {"kind": "Pod", "uid": pod},
                "conditions": {"ready": ready},
            })
        };
        let endpoints: Vec<_> = endpoints.iter().map(endpoint).collect();
        serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "endpoints": endpoints,
        }))
        .expect("a slice")
    }

    fn last(slices: &[EndpointSlice], lost: &[&str]) -> Vec<String> {
        let lost = lost.iter().copied().collect();
        Services::of(slices.iter().cloned())
            .last(&lost)
            .into_iter()
            .collect()
    }

    #[test]
    fn a_service_keeps_its_endpoints_on_lost_nodes_where_none_is_ready_elsewhere() {
        let ready = Some(true);
        let all_lost = [
            slice("web", &[("n1", "a", ready)]),
            slice("web", &[("n2", "b", Some(false)), ("n3", "c", Some(false))]),
        ];
        assert_eq!(last(&all_lost, &["n1", "n2"]), ["a", "b"]);
        // One more, in another slice of the same Service, is ready elsewhere; unset means ready.
        for elsewhere in [("n3", "d", ready), ("n3", "d", None), ("", "", ready)] {
            let mut slices = all_lost.to_vec();
            slices.push(slice("web", &[elsewhere]));
            assert_eq!(last(&slices, &["n1", "n2"]), Vec::<String>::new());
        }
    }

    #[test]
    fn a_pod_is_kept_for_any_of_its_services_and_none_by_a_slice_of_nobody() {
        let both = ("n1", "a", Some(true));
        let served = slice("web", &[both, ("n2", "b", Some(true))]);
        assert_eq!(last(&[served.clone(), slice("admin", &[both])], &["n1"]), ["a"]);
        let mut nobodys = slice("admin", &[both]);
        nobodys.metadata.labels = None;
        assert_eq!(last(&[served, nobodys], &["n1"]), Vec::<String>::new());
    }
}
