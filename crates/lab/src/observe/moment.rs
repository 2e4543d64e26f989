//! How things are at one moment, and what can be said of it. Pure.

use super::facts::{
    Change, EndpointFact, IncidentFact, Kind, NodeFact, PodFact, ServiceFact, SliceFact, Watched,
    WorkloadFact,
};
use evenkeel_api::names::taints;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// All that is known, by UID.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moment {
    pods: BTreeMap<String, PodFact>,
    slices: BTreeMap<String, SliceFact>,
    nodes: BTreeMap<String, NodeFact>,
    workloads: BTreeMap<String, WorkloadFact>,
    services: BTreeMap<String, ServiceFact>,
    incidents: BTreeMap<String, IncidentFact>,
}

impl Moment {
    /// How things were at a time.
    pub fn at(changes: &[Change], time: Duration) -> Self {
        let mut moment = Self::default();
        for change in changes.iter().take_while(|change| change.at <= time) {
            moment.apply(&change.what);
        }
        moment
    }

    /// Takes a change in; `false` if it says nothing new.
    pub fn apply(&mut self, what: &Watched) -> bool {
        fn put<T: Clone + PartialEq>(map: &mut BTreeMap<String, T>, key: &str, value: &T) -> bool {
            map.insert(key.to_owned(), value.clone()).as_ref() != Some(value)
        }
        match what {
            Watched::Pod(fact) => put(&mut self.pods, &fact.uid, fact),
            Watched::Slice(fact) => put(&mut self.slices, &fact.uid, fact),
            Watched::Node(fact) => put(&mut self.nodes, &fact.uid, fact),
            Watched::Workload(fact) => put(&mut self.workloads, &fact.uid, fact),
            Watched::Service(fact) => put(&mut self.services, &fact.uid, fact),
            Watched::Incident(fact) => put(&mut self.incidents, &fact.uid, fact),
            Watched::Gone(kind, uid) => match kind {
                Kind::Pod => self.pods.remove(uid).is_some(),
                Kind::EndpointSlice => self.slices.remove(uid).is_some(),
                Kind::Node => self.nodes.remove(uid).is_some(),
                Kind::Deployment | Kind::StatefulSet => self.workloads.remove(uid).is_some(),
                Kind::Service => self.services.remove(uid).is_some(),
                Kind::NodeIncident => self.incidents.remove(uid).is_some(),
            },
        }
    }

    pub fn pods(&self) -> impl Iterator<Item = &PodFact> {
        self.pods.values()
    }

    /// A pod by UID.
    pub fn pod(&self, uid: &str) -> Option<&PodFact> {
        self.pods.get(uid)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &NodeFact> {
        self.nodes.values()
    }

    /// Incidents that are not over.
    pub fn open_incidents(&self) -> impl Iterator<Item = &IncidentFact> {
        self.incidents.values().filter(|incident| !incident.closed)
    }

    /// Endpoints with the Service they are of.
    pub fn endpoints(&self) -> impl Iterator<Item = (&str, &EndpointFact)> {
        self.slices.values().flat_map(|slice| {
            slice
                .endpoints
                .iter()
                .map(|endpoint| (slice.service.as_str(), endpoint))
        })
    }

    /// Ready endpoints: Service and target.
    pub fn ready_endpoints(&self) -> BTreeSet<(&str, &str)> {
        self.endpoints()
            .filter(|(_, endpoint)| endpoint.ready)
            .map(|(service, endpoint)| (service, endpoint.target.as_str()))
            .collect()
    }

    /// Whether traffic can be sent to this node.
    pub fn has_ready_endpoint_on(&self, node: &str) -> bool {
        self.endpoints()
            .any(|(_, endpoint)| endpoint.ready && endpoint.node == node)
    }

    /// Ready pods of a workload that stay, anywhere but on `except`.
    pub fn ready_pods_of(&self, namespace: &str, workload: &str, except: Option<&str>) -> usize {
        self.pods()
            .filter(|pod| pod.namespace == namespace && pod.workload == workload)
            .filter(|pod| pod.ready && !pod.deleting && Some(pod.node.as_str()) != except)
            .count()
    }

    /// Names of the nodes on which each of these workloads has a ready pod.
    pub fn nodes_running(&self, workloads: &[String]) -> Vec<&str> {
        let runs = |node: &str, workload: &String| {
            self.pods()
                .any(|pod| pod.node == node && pod.workload == *workload && pod.ready && !pod.deleting)
        };
        let mut found: Vec<&str> = self
            .nodes()
            .map(|node| node.name.as_str())
            .filter(|node| workloads.iter().all(|workload| runs(node, workload)))
            .collect();
        found.sort_unstable();
        found
    }

    /// What is missing until everything that was asked for runs; empty if nothing is.
    pub fn unready(&self, expected_nodes: usize) -> Vec<String> {
        let mut missing = Vec::new();
        if self.nodes.len() < expected_nodes {
            missing.push(format!(
                "{} of {expected_nodes} nodes registered",
                self.nodes.len()
            ));
        }
        for node in self.nodes().filter(|node| node.ready != "True") {
            let ready = if node.ready.is_empty() {
                "nothing"
            } else {
                node.ready.as_str()
            };
            missing.push(format!("node {} says Ready={ready}", node.name));
        }
        for workload in self.workloads.values() {
            let ready = self.ready_pods_of(&workload.namespace, &workload.workload, None);
            if i64::try_from(ready).unwrap_or(i64::MAX) < workload.desired {
                missing.push(format!(
                    "{}: {ready} of {} pods ready",
                    workload.workload, workload.desired
                ));
            }
        }
        let ready_endpoints = self.ready_endpoints();
        for service in self
            .services
            .values()
            .filter(|service| !service.selector.is_empty())
        {
            for pod in self
                .pods()
                .filter(|pod| pod.ready && !pod.deleting && selects(service, pod))
            {
                if !ready_endpoints.contains(&(service.name.as_str(), pod.uid.as_str())) {
                    missing.push(format!("{} is no endpoint of {}", pod.name, service.name));
                }
            }
        }
        missing
    }

    /// What is left of an incident, or missing as in [`Moment::unready`]; empty if everything is clean.
    pub fn unclean(&self, expected_nodes: usize) -> Vec<String> {
        let mut left = self.unready(expected_nodes);
        for node in self.nodes() {
            let foreign = |taint: &&String| {
                [
                    taints::UNREACHABLE,
                    taints::NOT_READY,
                    taints::OUT_OF_SERVICE,
                    taints::ISOLATED,
                ]
                .iter()
                .any(|key| taint.split(':').next() == Some(key))
            };
            for taint in node.taints.iter().filter(foreign) {
                left.push(format!("node {} has taint {taint}", node.name));
            }
            if node.marked {
                left.push(format!("node {} is not settled", node.name));
            }
        }
        for pod in self.pods().filter(|pod| pod.deleting) {
            left.push(format!("pod {} on {} is on its way out", pod.name, pod.node));
        }
        for pod in self
            .pods()
            .filter(|pod| !pod.ready && !pod.deleting && !pod.finished)
        {
            left.push(format!("pod {} is not ready", pod.name));
        }
        for incident in self.open_incidents() {
            left.push(format!(
                "incident of {} is open ({})",
                incident.node, incident.state
            ));
        }
        for (service, endpoint) in self.endpoints().filter(|(_, endpoint)| endpoint.ready) {
            if !self.pods.is_empty() && self.pod(&endpoint.target).is_some_and(|pod| !pod.ready) {
                left.push(format!(
                    "{} is an endpoint of {service} and not ready",
                    endpoint.name
                ));
            }
        }
        left
    }
}

fn selects(service: &ServiceFact, pod: &PodFact) -> bool {
    service.selector.iter().all(|wanted| pod.labels.contains(wanted))
}

#[cfg(test)]
#[path = "moment_tests.rs"]
mod tests;
