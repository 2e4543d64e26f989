//! Deployments whose replicas follow the number of bases: one module pod on each.
//!
//! The replicas are the number of nodes with the Deployment's cluster and environment that are Ready, or were
//! and have been unknown for less than a grace time: a short silence must not shrink a Deployment, since the
//! pod that goes may be a healthy one. A node whose provider does not hear of its base is not Ready with a
//! reason of its own, and is as unknown as one whose Lease has run out.

use evenkeel_api::names::koupleless::peer::{
    DELETION_COST, FORMER_COST, MODULE_DEPLOYMENT, OPT_OUT_LABEL, STRATEGY, STRATEGY_LABEL,
};
use evenkeel_api::names::koupleless::{CLUSTER_LABEL, COMPONENT_LABEL, ENV_LABEL, VNODE};
use evenkeel_api::names::vnode::REASON_PROVIDER_UNWELL;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, Node, Pod, PodSpec};
use kube::ResourceExt as _;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The cost that a pod on a lost base gets: less than anybody sets by hand, so that it goes first.
pub(crate) const LOST_COST: &str = "-2147483647";

/// Whether a Deployment's replicas are set here: a peer Deployment of this environment that has not opted
/// out.
pub(crate) fn is_peer(deployment: &Deployment, env: &str) -> bool {
    let label = |key: &str| deployment.labels().get(key).map(String::as_str);
    is_of_modules(deployment, env)
        && label(STRATEGY_LABEL) == Some(STRATEGY)
        && label(OPT_OUT_LABEL) != Some("true")
        && deployment.metadata.deletion_timestamp.is_none()
}

/// Whether a Deployment is one of modules in this environment.
pub(crate) fn is_of_modules(deployment: &Deployment, env: &str) -> bool {
    let label = |key: &str| deployment.labels().get(key).map(String::as_str);
    label(COMPONENT_LABEL) == Some(MODULE_DEPLOYMENT) && label(ENV_LABEL) == Some(env)
}

/// The cluster of bases that a Deployment is for: its own label; else the node selector of its pods; else the
/// first requirement of their required node affinity that allows exactly one value.
pub(crate) fn cluster_of(deployment: &Deployment) -> Option<&str> {
    if let Some(cluster) = deployment.labels().get(CLUSTER_LABEL) {
        return Some(cluster);
    }
    let spec = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let selected = spec
        .node_selector
        .as_ref()
        .and_then(|selector| selector.get(CLUSTER_LABEL));
    selected.map(String::as_str).or_else(|| by_affinity(spec))
}

fn by_affinity(spec: &PodSpec) -> Option<&str> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let mut requirements = required
        .node_selector_terms
        .iter()
        .flat_map(|term| term.match_expressions.iter().flatten())
        .filter(|requirement| requirement.key == CLUSTER_LABEL && requirement.operator == "In");
    requirements.find_map(|requirement| match requirement.values.as_deref() {
        Some([only]) => Some(only.as_str()),
        _ => None,
    })
}

/// A node's condition `Ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// The condition is `True`.
    Yes,
    /// The condition is `False`, or there is none.
    No,
    /// The condition is `Unknown`, or `False` because the base is silent. Since when we have known it: the
    /// condition's own time is of another clock, and Kubernetes writes `Unknown` when the providers of all
    /// nodes are away, too.
    Unknown(Timestamp),
}

#[derive(Clone, Debug)]
struct Base {
    cluster: Option<String>,
    ready: Ready,
}

/// The nodes of bases in one environment.
#[derive(Debug)]
pub(crate) struct Bases {
    env: String,
    grace: SignedDuration,
    nodes: BTreeMap<String, Base>,
}

impl Bases {
    /// None yet. `grace`: for how long a node whose state is unknown counts.
    pub(crate) fn new(env: &str, grace: Duration) -> Self {
        Self {
            env: env.to_owned(),
            grace: SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX),
            nodes: BTreeMap::new(),
        }
    }

    /// Takes a node as it is. One of another environment, or that is no base, is forgotten.
    pub(crate) fn put(&mut self, node: &Node, now: Timestamp) {
        let name = node.name_any();
        let label = |key: &str| node.labels().get(key).map(String::as_str);
        if label(COMPONENT_LABEL) != Some(VNODE)
            || label(ENV_LABEL) != Some(&*self.env)
            || node.metadata.deletion_timestamp.is_some()
        {
            self.nodes.remove(&name);
            return;
        }
        let ready = match (ready(node, now), self.nodes.get(&name).map(|base| base.ready)) {
            // Silence does not make a base ready, and does not begin anew.
            (Ready::Unknown(_), Some(known)) if known != Ready::Yes => known,
            (ready, _) => ready,
        };
        let cluster = label(CLUSTER_LABEL).map(str::to_owned);
        self.nodes.insert(name, Base { cluster, ready });
    }

    /// A node is no more.
    pub(crate) fn gone(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// Only these are there.
    pub(crate) fn retain(&mut self, names: &BTreeSet<String>) {
        self.nodes.retain(|name, _| names.contains(name));
    }

    /// How many count in a cluster.
    pub(crate) fn count(&self, cluster: &str, now: Timestamp) -> usize {
        let of = |base: &&Base| base.cluster.as_deref() == Some(cluster) && self.counts(base, now);
        self.nodes.values().filter(of).count()
    }

    /// Whether a pod on this node is on a base that is lost, or may be.
    pub(crate) fn is_lost(&self, node: &str) -> bool {
        self.nodes.get(node).is_none_or(|base| base.ready != Ready::Yes)
    }

    /// When the next node that is unknown stops to count.
    pub(crate) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let ends = |base: &Base| match base.ready {
            Ready::Unknown(since) => since.checked_add(self.grace).ok().filter(|end| *end > now),
            Ready::Yes | Ready::No => None,
        };
        self.nodes.values().filter_map(ends).min()
    }

    fn counts(&self, base: &Base, now: Timestamp) -> bool {
        match base.ready {
            Ready::Yes => true,
            Ready::No => false,
            Ready::Unknown(since) => now.duration_since(since) < self.grace,
        }
    }
}

fn ready(node: &Node, now: Timestamp) -> Ready {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let mut conditions = conditions.filter(|condition| condition.type_ == "Ready");
    match conditions.next() {
        Some(condition) if condition.status == "True" => Ready::Yes,
        Some(condition)
            if condition.status == "Unknown"
                || condition.reason.as_deref() == Some(REASON_PROVIDER_UNWELL) =>
        {
            Ready::Unknown(now)
        }
        _ => Ready::No,
    }
}

/// What a Deployment's replicas should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// As they are.
    pub from: i32,
    /// As they should be.
    pub to: i32,
}

impl Change {
    /// What is to be changed, if anything is. A Deployment without cluster is for nobody, and left alone.
    pub(crate) fn of(deployment: &Deployment, bases: &Bases, now: Timestamp) -> Option<Self> {
        if !is_peer(deployment, &bases.env) {
            return None;
        }
        let count = bases.count(cluster_of(deployment)?, now);
        let to = i32::try_from(count).unwrap_or(i32::MAX);
        // Kubernetes' default.
        let from = deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or(1);
        (from != to).then_some(Self { from, to })
    }
}

/// The annotations that a pod of a Deployment needs so that the pods of lost bases go first; `None` for an
/// annotation to remove. Empty: nothing is to be changed.
pub(crate) fn costs(pod: &Pod, bases: &Bases) -> BTreeMap<&'static str, Option<String>> {
    let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) else {
        return BTreeMap::new();
    };
    let annotation = |key: &str| pod.annotations().get(key);
    let marked = annotation(FORMER_COST);
    match (bases.is_lost(node), marked) {
        (true, None) => {
            let former = annotation(DELETION_COST).cloned().unwrap_or_default();
            [
                (DELETION_COST, Some(LOST_COST.to_owned())),
                (FORMER_COST, Some(former)),
            ]
            .into()
        }
        (false, Some(former)) => {
            let former = Some(former.clone()).filter(|former| !former.is_empty());
            [(DELETION_COST, former), (FORMER_COST, None)].into()
        }
        _ => BTreeMap::new(),
    }
}

/// The containers of a Deployment's pods.
pub(super) fn containers(deployment: &Deployment) -> impl Iterator<Item = &Container> {
    let spec = deployment.spec.iter();
    spec.filter_map(|spec| spec.template.spec.as_ref())
        .flat_map(|spec| &spec.containers)
}

/// Selector of the nodes of an environment.
pub(crate) fn nodes_of(env: &str) -> String {
    format!("{COMPONENT_LABEL}={VNODE},{ENV_LABEL}={env}")
}

/// Selector of the Deployments of an environment that are peers.
pub(crate) fn peers_of(env: &str) -> String {
    format!("{COMPONENT_LABEL}={MODULE_DEPLOYMENT},{ENV_LABEL}={env},{STRATEGY_LABEL}={STRATEGY}")
}

#[cfg(test)]
mod tests;
