//! The last endpoints of Services (hazards 18 and 25).
//!
//! While a zone is silent as a whole, or many nodes seem dead at once, nobody can tell for sure which of
//! their pods still serve. Where a Service has ready endpoints elsewhere, clients lose nothing if these go.
//! Where it has none, they would lose the last that may serve, and gain nothing: those endpoints stay, in a
//! storm until the death is confirmed or stock Kubernetes takes them, and in a Dark zone for as long as it is
//! Dark.
//!
//! A pod's endpoint follows the pod's Ready condition, so it is the pod that is kept ready. It stays so for
//! all its Services, also for those that have endpoints elsewhere.
//!
//! Endpoints are not watched for this, because a whole cluster has too many. They are read when they matter,
//! in the namespaces of the pods in question.

use super::facts::{Cluster, PodRef};
use super::{Decisions, Judged};
use evenkeel_api::policy::ModePolicy;
use evenkeel_judge::{Dead, NodeState};
use evenkeel_zone::Millis;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::{BTreeMap, BTreeSet};

/// By this label a slice names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// What was read of a namespace is read again after this long.
const READ_AGAIN_MS: u64 = 10_000;
/// It is asked for again after this long if it did not come: as long as a read may take.
const ASK_AGAIN_MS: u64 = 5_000;

/// Endpoints by Service.
type Endpoints = BTreeMap<String, Vec<Endpoint>>;

/// The Services of some namespaces and their endpoints, as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Services(BTreeMap<String, Endpoints>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Endpoint {
    /// Empty where the slice does not say.
    node: String,
    /// UID of the pod behind it; empty where it is no pod.
    pod: String,
    ready: bool,
}

impl Services {
    /// From all slices of these namespaces; others are left out. A slice that names no Service is nobody's.
    pub fn of(namespaces: &BTreeSet<String>, slices: impl IntoIterator<Item = EndpointSlice>) -> Self {
        let asked = namespaces.iter().map(|name| (name.clone(), Endpoints::new()));
        let mut services: BTreeMap<String, Endpoints> = asked.collect();
        for slice in slices {
            let namespace = slice.metadata.namespace.unwrap_or_default();
            let label = slice.metadata.labels.unwrap_or_default().remove(SERVICE_NAME);
            let (Some(of), Some(name)) = (services.get_mut(&namespace), label) else {
                continue;
            };
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
            of.entry(name).or_default().extend(endpoints);
        }
        Self(services)
    }
}

/// UIDs of the pods on nodes of `may_be_lost` that back a Service whose every ready endpoint is on a node of
/// `down`.
fn last_of(endpoints: &Endpoints, may_be_lost: &BTreeSet<&str>, down: &BTreeSet<&str>) -> BTreeSet<String> {
    let serves = |endpoint: &Endpoint| endpoint.ready && !down.contains(endpoint.node.as_str());
    endpoints
        .values()
        .filter(|endpoints| !endpoints.iter().any(serves))
        .flatten()
        .filter(|endpoint| may_be_lost.contains(endpoint.node.as_str()) && !endpoint.pod.is_empty())
        .map(|endpoint| endpoint.pod.clone())
        .collect()
}

/// What is known of the endpoints, as long as nodes may be lost. What cannot be read again stands as it was
/// read: an outage of the API server takes nothing.
#[derive(Debug, Default)]
pub struct Reader(BTreeMap<String, Namespace>);

#[derive(Debug)]
struct Namespace {
    wanted_since: Millis,
    asked: Option<Millis>,
    read: Option<(Endpoints, Millis)>,
}

/// The pods that stay ready because they are the last of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Last {
    /// Namespace and UID: a slice speaks of pods of its own namespace.
    pub pods: BTreeSet<(String, String)>,
    /// Namespaces that were not read yet, and since when that is wanted.
    unread: BTreeMap<String, Millis>,
}

impl Reader {
    /// Takes what was read. Namespaces that nobody asks about any more are left out.
    pub fn take(&mut self, services: Services, now: Millis) {
        for (name, endpoints) in services.0 {
            if let Some(namespace) = self.0.get_mut(&name) {
                namespace.read = Some((endpoints, now));
            }
        }
    }

    /// Looks which nodes may be lost, and finds the last endpoints on them. Returns the namespaces that are
    /// to be read.
    pub fn look(&mut self, cluster: &Cluster, decisions: &mut Decisions, now: Millis) -> BTreeSet<String> {
        let nodes = |which: fn(&Judged) -> bool| {
            let nodes = decisions.nodes.iter().filter(move |(_, judged)| which(judged));
            nodes.map(|(name, _)| name.as_str()).collect::<BTreeSet<&str>>()
        };
        let lost = nodes(keeps_last);
        // Also where nobody acts, and where a death is confirmed meanwhile: what slices say of those is old.
        let down = nodes(|judged| matches!(judged.decision.state(), NodeState::Dead(_) | NodeState::Dark));
        let pods = lost.iter().flat_map(|node| cluster.pods_of(node));
        let wanted: BTreeSet<&str> = pods.map(|pod| pod.pod.namespace.as_str()).collect();
        self.0.retain(|name, _| wanted.contains(name.as_str()));
        let mut last = Last::default();
        let mut due = BTreeSet::new();
        for name in wanted {
            let namespace = self.0.entry(name.to_owned()).or_insert(Namespace {
                wanted_since: now,
                asked: None,
                read: None,
            });
            let is_due = |at: Option<Millis>, again: u64| at.is_none_or(|at| now.since(at) >= again);
            let read = namespace.read.as_ref().map(|(_, at)| *at);
            if is_due(read, READ_AGAIN_MS) && is_due(namespace.asked, ASK_AGAIN_MS) {
                namespace.asked = Some(now);
                due.insert(name.to_owned());
            }
            match &namespace.read {
                None => {
                    last.unread.insert(name.to_owned(), namespace.wanted_since);
                }
                Some((endpoints, _)) => {
                    let pods = last_of(endpoints, &lost, &down).into_iter();
                    last.pods.extend(pods.map(|pod| (name.to_owned(), pod)));
                }
            }
        }
        decisions.last = last;
        due
    }
}

impl Last {
    /// Whether the pod is the last of a Service.
    pub fn has(&self, pod: &PodRef) -> bool {
        self.pods.contains(&(pod.namespace.clone(), pod.uid.clone()))
    }

    /// Whether the pod stays ready at `now`: it is the last of a Service, or that is still to be read.
    /// Whoever cannot read it within `patience` ms keeps nothing.
    pub fn keeps(&self, pod: &PodRef, now: Millis, patience: u64) -> bool {
        let unread = self.unread.get(&pod.namespace);
        self.has(pod) || unread.is_some_and(|since| now.since(*since) < patience)
    }
}

/// Whether the last endpoints of Services stay on a node: its pods may serve although nobody sees them, and
/// somebody acts on it.
fn keeps_last(judged: &Judged) -> bool {
    let suspect = judged.decision.state() == NodeState::Dead(Dead::Announced) && judged.evidence.zone.storm;
    judged.keeps_last() || suspect && judged.settings.mode == ModePolicy::Act
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

    fn last(slices: &[EndpointSlice], lost: &[&str], dead: &[&str]) -> Vec<String> {
        let services = Services::of(&["ns".to_owned()].into(), slices.iter().cloned());
        let down = lost.iter().chain(dead).copied().collect();
        let pods = last_of(&services.0["ns"], &lost.iter().copied().collect(), &down);
        pods.into_iter().collect()
    }

    #[test]
    fn a_service_keeps_its_endpoints_on_lost_nodes_where_none_is_ready_elsewhere() {
        let ready = Some(true);
        let all_lost = [
            slice("web", &[("n1", "a", ready)]),
            slice("web", &[("n2", "b", Some(false)), ("n3", "c", Some(false))]),
        ];
        assert_eq!(last(&all_lost, &["n1", "n2"], &[]), ["a", "b"]);
        // What the slices say of a node that is dead for sure is old.
        let mut slices = all_lost.to_vec();
        slices.push(slice("web", &[("n3", "d", ready)]));
        assert_eq!(last(&slices, &["n1", "n2"], &["n3"]), ["a", "b"]);
        // One more, in another slice of the same Service, is ready elsewhere; unset means ready.
        for elsewhere in [("n3", "d", ready), ("n3", "d", None), ("", "", ready)] {
            let mut slices = all_lost.to_vec();
            slices.push(slice("web", &[elsewhere]));
            assert_eq!(last(&slices, &["n1", "n2"], &[]), Vec::<String>::new());
        }
    }

    #[test]
    fn a_pod_is_kept_for_any_of_its_services_and_none_by_a_slice_of_nobody() {
        let both = ("n1", "a", Some(true));
        let served = slice("web", &[both, ("n2", "b", Some(true))]);
        assert_eq!(
            last(&[served.clone(), slice("admin", &[both])], &["n1"], &[]),
            ["a"]
        );
        let mut nobodys = slice("admin", &[both]);
        nobodys.metadata.labels = None;
        assert_eq!(last(&[served, nobodys], &["n1"], &[]), Vec::<String>::new());
    }
}
