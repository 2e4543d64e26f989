//! From watched objects to facts. Without clock or client, so that the webhook and the planner read alike.

use crate::core::facts::{NodeFacts, PolicyFacts};
use evenkeel_api::crd::{FailoverPolicy, ZoneHealth};
use evenkeel_api::names;
use evenkeel_zone::Millis;
use evenkeel_zone::verdict::{Book, Refusal, Verdict};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use std::collections::BTreeMap;

/// The book of verdicts, fed with the objects that carry them.
#[derive(Debug, Default)]
pub struct Evidence {
    book: Book,
    /// By name of the ZoneHealth: names are derived from zones, not equal to them.
    zones: BTreeMap<String, Known>,
    /// What was last seen of each zone's Lease, by name of the ZoneHealth.
    heartbeats: BTreeMap<String, Heartbeat>,
}

#[derive(Debug)]
struct Known {
    zone: String,
    uid: Option<String>,
}

#[derive(Debug, PartialEq)]
struct Heartbeat {
    renew_time: Option<Timestamp>,
    holder: Option<String>,
}

impl Evidence {
    /// Knows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A ZoneHealth as a watch delivered it at `now`, at the start as well as on every change. Returns what was refused
    /// in it, node by node, for the log. An object that was deleted and made again begins anew.
    pub fn zone_health(&mut self, now: Millis, object: &ZoneHealth) -> Vec<(String, Refusal)> {
        let zone = &object.spec.zone;
        let name = object.metadata.name.clone().unwrap_or_default();
        let uid = &object.metadata.uid;
        if self
            .zones
            .get(&name)
            .is_some_and(|known| known.uid != *uid || known.zone != *zone)
        {
            self.zone_health_gone(&name);
        }
        let known = Known {
            zone: zone.clone(),
            uid: uid.clone(),
        };
        self.zones.insert(name, known);
        let status = object.status.clone().unwrap_or_default();
        self.book.observe(now, zone, &object.spec.roster, &status)
    }

    /// A ZoneHealth is gone, by object name.
    pub fn zone_health_gone(&mut self, name: &str) {
        if let Some(known) = self.zones.remove(name) {
            self.book.forget(&known.zone);
        }
    }

    /// Drops every ZoneHealth that is not in `present` (object names), after a new list.
    pub fn retain_zones(&mut self, present: impl Fn(&str) -> bool) {
        let gone: Vec<String> = self.zones.keys().filter(|name| !present(name)).cloned().collect();
        for name in gone {
            self.zone_health_gone(&name);
        }
    }

    /// A Lease of Evenkeel's namespace as a watch delivered it at `now`. Leases that are no zone's, and the same Lease
    /// again, are no heartbeat.
    pub fn lease(&mut self, now: Millis, lease: &Lease) {
        let Some(name) = lease.metadata.name.as_deref() else {
            return;
        };
        let Some(object) = name.strip_prefix(names::ZONE_LEASE_PREFIX) else {
            return;
        };
        let seen = Heartbeat {
            renew_time: renew_time(lease),
            holder: lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()),
        };
        if self.heartbeats.get(object) == Some(&seen) {
            return;
        }
        self.heartbeats.insert(object.to_owned(), seen);
        if let Some(known) = self.zones.get(object) {
            self.book.heartbeat(now, &known.zone);
        }
    }

    /// The verdict on a node as it stands at `now`.
    pub fn verdict(&self, node_uid: &str, now: Millis) -> Verdict {
        self.book.verdict(node_uid, now)
    }

    /// The book itself.
    pub fn book(&self) -> &Book {
        &self.book
    }
}

/// `spec.renewTime` of a Lease.
pub fn renew_time(lease: &Lease) -> Option<Timestamp> {
    lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0)
}

/// What counts of a Node.
pub fn node_facts(node: &Node) -> NodeFacts {
    NodeFacts {
        uid: node.metadata.uid.clone().unwrap_or_default(),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        stock_unknown: stock_marked(node),
        ready: ready(node).and_then(|condition| match condition.status.as_str() {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        }),
    }
}

/// What counts of a FailoverPolicy.
pub fn policy_facts(policy: &FailoverPolicy) -> PolicyFacts {
    PolicyFacts {
        node_labels: policy.spec.node_labels.clone(),
        endpoints: policy.spec.endpoints,
    }
}

/// Whether the stock controller's mark is on the node: `Ready=Unknown` with its reason, after its grace period.
fn stock_marked(node: &Node) -> bool {
    ready(node).is_some_and(|condition| {
        condition.status == "Unknown"
            && condition.reason.as_deref() == Some(names::conditions::REASON_STOCK_UNKNOWN)
    })
}

fn ready(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready")
}

#[cfg(test)]
#[path = "evidence_tests.rs"]
mod tests;
