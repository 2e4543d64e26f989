//! Which nodes are Disconnected: the webhook's half of the decision table.

use super::lease::LeaseFacts;
use super::{Disconnected, View};
use evenkeel_api::crd::EndpointsPolicy;
use evenkeel_zone::Millis;
use evenkeel_zone::verdict::{Health, Link, Verdict};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// A kubelet or runtime that is said to be broken for this long makes the node KubeletDown: stock behaviour. Also
/// how long a kubelet may take to renew its Lease once the link is back: it notices a dead connection only after
/// 30 to 45 s.
pub const GRACE_MS: u64 = 60_000;

/// What counts of a Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// UID of the Node.
    pub uid: String,
    /// Labels, for policies.
    pub labels: BTreeMap<String, String>,
    /// The stock controller's own mark is on it: `Ready=Unknown`, reason `NodeStatusUnknown`.
    pub stock_unknown: bool,
    /// What its kubelet says of itself; `None` where somebody else says that nobody knows.
    pub ready: Option<bool>,
}

/// What counts of a FailoverPolicy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyFacts {
    /// Labels that select nodes; empty selects all.
    pub node_labels: BTreeMap<String, String>,
    /// Its word on endpoints, if it has one.
    pub endpoints: Option<EndpointsPolicy>,
}

/// Everything the webhook remembers beside the verdicts.
#[derive(Debug, Default)]
pub struct Facts {
    nodes: BTreeMap<String, KnownNode>,
    policies: BTreeMap<String, PolicyFacts>,
    leases: LeaseFacts,
}

#[derive(Debug)]
struct KnownNode {
    facts: NodeFacts,
    /// When the stock controller's mark was first seen.
    marked_at: Option<Millis>,
    /// The kubelet's last own word was Ready=False.
    says_not_ready: bool,
    cut: Cut,
}

impl Facts {
    /// A Node as it was received at `now`.
    pub fn node(&mut self, now: Millis, name: &str, facts: NodeFacts) {
        let known = self
            .nodes
            .remove(name)
            .filter(|known| known.facts.uid == facts.uid);
        let mut known = known.unwrap_or_else(|| KnownNode {
            facts: NodeFacts::default(),
            marked_at: None,
            says_not_ready: false,
            cut: Cut::default(),
        });
        known.marked_at = facts.stock_unknown.then(|| known.marked_at.unwrap_or(now));
        if let Some(ready) = facts.ready {
            known.says_not_ready = !ready;
        }
        known.facts = facts;
        self.nodes.insert(name.to_owned(), known);
    }

    /// The Node is gone.
    pub fn forget_node(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// Drops every Node that is not in `present`, after a new list.
    pub fn retain_nodes(&mut self, present: impl Fn(&str) -> bool) {
        self.nodes.retain(|name, _| present(name));
    }

    /// A kubelet's Lease as it was received at `now`.
    pub fn lease(&mut self, now: Millis, node: &str, renew_time: Option<Timestamp>) {
        self.leases.observe(now, node, renew_time);
    }

    /// What is known of Leases.
    pub fn leases(&mut self) -> &mut LeaseFacts {
        &mut self.leases
    }

    /// A FailoverPolicy.
    pub fn policy(&mut self, name: &str, facts: PolicyFacts) {
        self.policies.insert(name.to_owned(), facts);
    }

    /// The FailoverPolicy is gone.
    pub fn forget_policy(&mut self, name: &str) {
        self.policies.remove(name);
    }

    /// Drops every policy that is not in `present`, after a new list.
    pub fn retain_policies(&mut self, present: impl Fn(&str) -> bool) {
        self.policies.retain(|name, _| present(name));
    }

    /// The view at `now`. `verdict` answers by node UID (`evenkeel_zone::verdict::Book`).
    pub fn view(&mut self, now: Millis, verdict: impl Fn(&str) -> Verdict) -> View {
        let mut nodes = BTreeMap::new();
        for (name, known) in &mut self.nodes {
            if !known.cut.is_disconnected(verdict(&known.facts.uid), now) {
                continue;
            }
            nodes.insert(
                name.clone(),
                Disconnected {
                    uid: known.facts.uid.clone(),
                    lease_stale: is_stale(&self.leases, name, known.marked_at, now),
                    says_not_ready: known.says_not_ready,
                    endpoints: endpoints_policy(&known.facts.labels, self.policies.values()),
                },
            );
        }
        View {
            made_at: Some(now),
            nodes,
        }
    }
}

/// What is remembered of one node to tell Disconnected from KubeletDown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Whether the node was Disconnected at the last look.
    disconnected: bool,
    /// Since when a majority has said without a break that kubelet or runtime is broken.
    broken_since: Option<Millis>,
    /// Since when the agent has said without a break that its link is back.
    link_up_since: Option<Millis>,
}

impl Cut {
    /// The rule of the decision table for a node whose Lease is stale: it is Disconnected while a majority of its
    /// peers vouches for it and its own agent says that the cloud link is down, unless kubelet or runtime have been
    /// broken for [`GRACE_MS`]. A link that is just back leaves the kubelet the same time to renew its Lease.
    pub fn is_disconnected(&mut self, verdict: Verdict, now: Millis) -> bool {
        let waited = |since: Option<Millis>| since.is_some_and(|since| now.since(since) >= GRACE_MS);
        self.disconnected = if let Verdict::Alive {
            cloud,
            kubelet,
            runtime,
        } = verdict
        {
            let broken = kubelet == Health::Failing || runtime == Health::Failing;
            self.broken_since = broken.then(|| self.broken_since.unwrap_or(now));
            self.link_up_since = (cloud == Link::Up).then(|| self.link_up_since.unwrap_or(now));
            let link = match cloud {
                Link::Down => true,
                Link::Up => self.disconnected && !waited(self.link_up_since),
                Link::Unknown => false,
            };
            link && !waited(self.broken_since)
        } else {
            self.broken_since = None;
            self.link_up_since = None;
            false
        };
        self.disconnected
    }
}

/// A Lease is stale by our own observation, or by the stock controller's mark on the Node if that came after the
/// last renewal that we saw: the mark proves that stock Kubernetes is about to act, whatever its timers.
pub fn is_stale(leases: &LeaseFacts, node: &str, marked_at: Option<Millis>, now: Millis) -> bool {
    let marked =
        marked_at.is_some_and(|marked| leases.renewed_at(node).is_none_or(|renewed| renewed <= marked));
    marked || leases.is_stale(node, now)
}

/// The most cautious word of the policies that select a node with these labels; `keep` without any. The more an
/// answer departs from stock behaviour, the less cautious it is.
pub fn endpoints_policy<'a>(
    labels: &BTreeMap<String, String>,
    policies: impl IntoIterator<Item = &'a PolicyFacts>,
) -> EndpointsPolicy {
    policies
        .into_iter()
        .filter(|policy| {
            policy
                .node_labels
                .iter()
                .all(|(key, value)| labels.get(key) == Some(value))
        })
        .filter_map(|policy| policy.endpoints)
        .max()
        .unwrap_or_default()
}
