//! The stock controllers: the shipping rules of `evenkeel-stock`, in a model of their shell.
//!
//! They run beside the API server, so that their writes take no time. Their watches are as late as
//! everybody's.

use crate::api::admission::admit;
use crate::api::objects::{
    Object, cluster_key, node_of, pod_condition, renew_time, set_node_condition, set_pod_condition, stamp,
    time,
};
use crate::api::{Writer, build};
use crate::event::{Delivery, Event, StockDue};
use crate::sim::Sim;
use crate::watch::Client;
use evenkeel_api::names::conditions;
use evenkeel_failover_rules::world::Kind;
use evenkeel_stock_rules::eviction::{Action as Evict, PodFacts, PodKey, TaintEviction};
use evenkeel_stock_rules::health::{Check, Grace};
use evenkeel_stock_rules::lifecycle::{Action, NodeLifecycle, name};
use evenkeel_stock_rules::taints;
use evenkeel_stock_rules::zones::Rates;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// `--node-monitor-period`, and how often the queues of taints are served.
const PASS: u64 = 5_000;
const TAINT_PASS: u64 = 100;
const TRIES: usize = 5;

#[derive(Default)]
pub(crate) struct Stock {
    pub(crate) life: u64,
    running: bool,
    lifecycle: NodeLifecycle,
    eviction: TaintEviction,
    nodes: BTreeMap<String, Arc<Node>>,
    leases: BTreeMap<String, Option<Timestamp>>,
    pods: BTreeMap<PodKey, Pod>,
    listed: BTreeSet<&'static str>,
    evictions_at: u64,
}

impl Stock {
    fn is_complete(&self) -> bool {
        self.running && self.listed.len() == 3
    }

    fn pods_on(&self, node: &str) -> Vec<Pod> {
        self.pods
            .values()
            .filter(|pod| node_of(pod) == node)
            .cloned()
            .collect()
    }

    fn put_node(&mut self, node: &Node) {
        let version = |node: &Node| {
            node.metadata
                .resource_version
                .as_deref()
                .and_then(|text| text.parse::<u64>().ok())
        };
        let known = self.nodes.get(name(node));
        if known.is_some_and(|known| version(node) > version(known)) {
            self.nodes.insert(name(node).to_owned(), Arc::new(node.clone()));
        }
    }
}

impl Sim {
    pub(crate) fn begin_stock(&mut self) {
        let life = self.stock.life + 1;
        self.stock = Stock {
            life,
            running: true,
            lifecycle: NodeLifecycle::new(Grace::default(), Rates::default()),
            evictions_at: u64::MAX,
            ..Stock::default()
        };
        self.open_watches(Client::Stock, &[Kind::Node, Kind::NodeLease, Kind::Pod]);
        self.after(
            2_000,
            Event::Stock {
                life,
                due: StockDue::Pass,
            },
        );
        self.after(
            2_050,
            Event::Stock {
                life,
                due: StockDue::Taints,
            },
        );
    }

    pub(crate) fn stop_stock(&mut self) {
        let life = self.stock.life + 1;
        self.stock = Stock {
            life,
            ..Stock::default()
        };
        self.close_watches(Client::Stock);
    }

    pub(crate) fn stock_due(&mut self, life: u64, due: StockDue) {
        if self.stock.life != life {
            return;
        }
        match due {
            StockDue::Start => self.begin_stock(),
            StockDue::Pass => {
                self.after(PASS, Event::Stock { life, due });
                if self.stock.is_complete() {
                    self.stock_pass();
                }
            }
            StockDue::Taints => {
                self.after(TAINT_PASS, Event::Stock { life, due });
                self.stock_taints();
            }
            StockDue::Evictions => {
                self.stock.evictions_at = u64::MAX;
                let actions = self.stock.eviction.due(stamp(self.now));
                self.stock_evicts(actions);
            }
        }
    }

    fn stock_pass(&mut self) {
        let now = stamp(self.now);
        let nodes: Vec<Arc<Node>> = self.stock.nodes.values().cloned().collect();
        let actions = self.stock.lifecycle.classify(&nodes, now);
        self.stock_acts(actions);
        let mut found = BTreeMap::new();
        for node in &nodes {
            if let Some((node, check)) = self.stock_checks(node) {
                let actions = self.stock.lifecycle.react(&node, &check, now);
                self.stock_acts(actions);
                found.insert(name(&node).to_owned(), check.current_status().map(str::to_owned));
            }
        }
        let (actions, _) = self.stock.lifecycle.disrupt(&nodes, &found, now);
        self.stock_acts(actions);
    }

    fn stock_checks(&mut self, node: &Arc<Node>) -> Option<(Arc<Node>, Check)> {
        let now = stamp(self.now);
        let mut node = Arc::clone(node);
        for _ in 0..TRIES {
            let lease = self.stock.leases.get(name(&node)).copied().flatten();
            let check = self.stock.lifecycle.check(&node, lease, now);
            if check.write.is_empty() {
                return Some((node, check));
            }
            let conditions = check.write.clone();
            let version = node.metadata.resource_version.clone();
            let written = self.stock_writes_node(name(&node), version.as_deref(), false, |node| {
                for condition in conditions {
                    set_node_condition(node, condition);
                }
            });
            if let Some(written) = written {
                self.stock.lifecycle.written(name(&written), &check, now);
                self.stock.put_node(&written);
                return Some((Arc::new(written), check));
            }
            node = Arc::new(self.stock_reads(name(&node))?);
        }
        None
    }

    fn stock_reads(&self, node: &str) -> Option<Node> {
        build::find_node(&self.store, node)
            .filter(|_| self.api_down == 0)
            .cloned()
    }

    /// Writes a node; `None`: refused, or no API server. `admitted`: a write of the main resource, which
    /// admission sees.
    fn stock_writes_node(
        &mut self,
        node: &str,
        version: Option<&str>,
        admitted: bool,
        change: impl FnOnce(&mut Node),
    ) -> Option<Node> {
        let key = cluster_key(node);
        let before = self
            .store
            .get(Kind::Node, &key)
            .filter(|_| self.api_down == 0)
            .cloned()?;
        if before.meta().resource_version.as_deref() != version {
            return None;
        }
        let mut after = (*before).clone();
        if let Object::Node(node) = &mut after {
            change(node);
        }
        if admitted {
            after = self.admitted(&before, after);
        }
        let written = self
            .store
            .change(self.now, Writer::Stock, Kind::Node, &key, None, |object| {
                *object = after;
            });
        match &*written.ok()? {
            Object::Node(node) => Some((**node).clone()),
            _ => None,
        }
    }

    /// A write after admission. Where no replica is ready, it passes as it is.
    fn admitted(&mut self, before: &Rc<Object>, after: Object) -> Object {
        match self.any_view() {
            Some((view, wall)) => admit(&view, wall, before, after),
            None => after,
        }
    }

    fn stock_acts(&mut self, actions: Vec<Action>) {
        let now = stamp(self.now);
        for action in actions {
            match action {
                Action::Event { .. } => {}
                Action::MarkReachable { node } => {
                    self.retaint(&node, taints::reachable);
                }
                Action::Swap { node, add, remove } => {
                    self.retaint(&node, |node| taints::swapped(node, add, remove, now));
                }
                Action::MarkPods { node } => {
                    let pods = self.stock.pods_on(&node);
                    // Each is tried, whatever became of the others.
                    let failed = pods.iter().filter(|pod| !self.stock_marks_pod(pod)).count();
                    self.stock.lifecycle.pods_marked(&node, failed == 0);
                }
            }
        }
    }

    fn stock_marks_pod(&mut self, pod: &Pod) -> bool {
        let Some(ready) = pod_condition(pod, "Ready").filter(|ready| ready.status != "False") else {
            return true;
        };
        if self.api_down > 0 {
            return false;
        }
        let key = (
            pod.metadata.namespace.clone().unwrap_or_default(),
            pod.metadata.name.clone().unwrap_or_default(),
        );
        let Some(before) = self.store.get(Kind::Pod, &key).cloned() else {
            return true;
        };
        if before.meta().resource_version != pod.metadata.resource_version {
            return false;
        }
        let mut after = (*before).clone();
        if let Object::Pod(after) = &mut after {
            set_pod_condition(
                after,
                build::pod_condition("Ready", "False", ready.reason.as_deref(), self.now),
            );
        }
        let after = self.admitted(&before, after);
        self.store
            .change(self.now, Writer::Stock, Kind::Pod, &key, None, |object| {
                *object = after;
            })
            .is_ok()
    }

    fn retaint(&mut self, node: &str, wanted: impl Fn(&Node) -> Option<Vec<Taint>>) -> bool {
        let Some(mut current) = self.stock.nodes.get(node).cloned() else {
            return true;
        };
        for attempt in 0..TRIES {
            if attempt > 0 {
                match self.stock_reads(node) {
                    Some(live) => current = Arc::new(live),
                    None => return self.api_down == 0,
                }
            }
            let Some(taints) = wanted(&current) else {
                return true;
            };
            let version = current.metadata.resource_version.clone();
            let written = self.stock_writes_node(node, version.as_deref(), true, |node| {
                node.spec.get_or_insert_default().taints = Some(taints);
            });
            if let Some(written) = written {
                self.stock.put_node(&written);
                return true;
            }
        }
        false
    }

    fn stock_taints(&mut self) {
        let now = stamp(self.now);
        loop {
            let Stock { lifecycle, nodes, .. } = &mut self.stock;
            let Some(due) = lifecycle.next_taint(now, |node| nodes.get(node).cloned()) else {
                return;
            };
            let (add, remove) = (due.add, due.remove);
            let ok = self.retaint(&due.node, |node| taints::swapped(node, add, remove, now));
            self.stock.lifecycle.tainted(due, ok, now);
            if !ok {
                return;
            }
        }
    }

    pub(crate) fn stock_sees(&mut self, kind: Kind, delivery: Delivery) {
        let now = stamp(self.now);
        match (kind, delivery) {
            (Kind::Node, Delivery::Put(_, object)) => {
                if let Object::Node(node) = &*object {
                    self.stock
                        .nodes
                        .insert(name(node).to_owned(), Arc::new((**node).clone()));
                    let pods: Vec<PodFacts> = self.stock.pods_on(name(node)).iter().map(pod_facts).collect();
                    let actions =
                        self.stock
                            .eviction
                            .node_changed(name(node), taints::no_execute(node), &pods, now);
                    self.stock_evicts(actions);
                    self.retaint(name(node), |node| taints::by_condition(node, now));
                }
            }
            (Kind::NodeLease, Delivery::Put(_, object)) => {
                self.stock.leases.insert(object.key().1, renew_time(&object));
            }
            (Kind::Pod, Delivery::Put(_, object)) => {
                if let Object::Pod(pod) = &*object {
                    let facts = pod_facts(pod);
                    self.stock.pods.insert(facts.key.clone(), (**pod).clone());
                    let actions = self.stock.eviction.pod_changed(&facts, now);
                    self.stock_evicts(actions);
                }
            }
            (Kind::Pod, Delivery::Gone(_, (namespace, name))) => {
                let key = PodKey { namespace, name };
                self.stock.pods.remove(&key);
                self.stock.eviction.pod_gone(&key);
            }
            (Kind::Pod, Delivery::Listed(_, keys)) => {
                self.stock.listed.insert("Pod");
                let gone = |key: &PodKey| !keys.contains(&(key.namespace.clone(), key.name.clone()));
                let gone: Vec<PodKey> = self.stock.pods.keys().filter(|key| gone(key)).cloned().collect();
                for key in gone {
                    self.stock.pods.remove(&key);
                    self.stock.eviction.pod_gone(&key);
                }
            }
            (Kind::Node, Delivery::Listed(..)) => {
                self.stock.listed.insert("Node");
            }
            (Kind::NodeLease, Delivery::Listed(..)) => {
                self.stock.listed.insert("Lease");
            }
            _ => {}
        }
    }

    fn stock_evicts(&mut self, actions: Vec<Evict>) {
        for action in actions {
            let Evict::Delete(key) = action else {
                continue;
            };
            let ok = self.api_down == 0;
            if ok {
                self.stock_deletes((key.namespace.clone(), key.name.clone()));
            }
            self.stock.eviction.deleted(&key, ok);
        }
        let next = self.stock.eviction.next_due();
        let next = next.map(|at| u64::try_from(at.as_millisecond()).unwrap_or(0));
        let next = next.map(|at| Self::of_wall(evenkeel_zone::Millis(at)));
        if let Some(at) = next.filter(|at| *at < self.stock.evictions_at) {
            self.stock.evictions_at = at;
            let life = self.stock.life;
            self.at(
                at,
                Event::Stock {
                    life,
                    due: StockDue::Evictions,
                },
            );
        }
    }

    fn stock_deletes(&mut self, key: (String, String)) {
        let now = self.now;
        let condition = build::pod_condition(
            conditions::DISRUPTION_TARGET,
            "True",
            Some("DeletionByTaintManager"),
            now,
        );
        let _ = self
            .store
            .change(now, Writer::Stock, Kind::Pod, &key, None, |object| {
                if let Object::Pod(pod) = object {
                    set_pod_condition(pod, condition);
                    pod.metadata.deletion_timestamp.get_or_insert_with(|| time(now));
                }
            });
    }
}

fn pod_facts(pod: &Pod) -> PodFacts {
    PodFacts {
        key: PodKey {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
        },
        node: node_of(pod).to_owned(),
        tolerations: pod
            .spec
            .as_ref()
            .and_then(|spec| spec.tolerations.clone())
            .unwrap_or_default(),
    }
}
