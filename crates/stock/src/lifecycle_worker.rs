//! Carries out the node lifecycle: the pass over all nodes, the queue of taints, and what follows node and
//! pod events.

use crate::cache::{Cache, Notice};
use crate::metrics::Metrics;
use crate::process::SteadyClock;
use crate::writes::{About, NODE_CONTROLLER, Writes, condition};
use evenkeel_stock_rules::health::Check;
use evenkeel_stock_rules::lifecycle::{Action, NodeLifecycle, name};
use evenkeel_stock_rules::taints;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Tries to write a node's status, and the time between them.
const STATUS_TRIES: usize = 5;
const STATUS_PAUSE: Duration = Duration::from_millis(20);
/// Tries to write taints, and the time between them.
const TAINT_TRIES: usize = 5;
const TAINT_PAUSE: Duration = Duration::from_millis(100);
/// How many nodes are looked at, and how many nodes and pods are worked on, at the same time.
const NODE_WORKERS: usize = 8;
const POD_WORKERS: usize = 4;
/// How often the queues of taints are served.
const TAINT_PASS: Duration = Duration::from_millis(100);

/// What the workers share.
#[derive(Clone)]
pub(super) struct Lifecycle {
    pub(super) core: Arc<Mutex<NodeLifecycle>>,
    pub(super) cache: Cache,
    pub(super) writes: Writes,
    pub(super) clock: SteadyClock,
    pub(super) metrics: Arc<Metrics>,
}

impl Lifecycle {
    fn core(&self) -> MutexGuard<'_, NodeLifecycle> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pass every `period`, until `shutdown`.
    pub(super) async fn monitor(&self, period: Duration, shutdown: CancellationToken) {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
            }
            self.pass().await;
        }
    }

    async fn pass(&self) {
        let started = self.clock.now();
        let nodes = self.cache.nodes();
        let actions = self.core().classify(&nodes, started);
        self.carry_out(actions).await;
        let looks: Vec<_> = nodes.iter().map(|node| self.look_at(node)).collect();
        let found: BTreeMap<String, Option<String>> = futures::stream::iter(looks)
            .buffer_unordered(NODE_WORKERS)
            .filter_map(std::future::ready)
            .collect()
            .await;
        let now = self.clock.now();
        let (actions, figures) = self.core().disrupt(&nodes, &found, now);
        self.carry_out(actions).await;
        let took = self.clock.now().duration_since(started);
        self.metrics.passed(&figures, took.unsigned_abs());
    }

    /// Looks at one node and does what follows; its name with its Ready status, or nothing if that could not
    /// be written.
    async fn look_at(&self, node: &Arc<Node>) -> Option<(String, Option<String>)> {
        let (node, check) = self.checked(node).await?;
        let now = self.clock.now();
        let actions = self.core().react(&node, &check, now);
        self.carry_out(actions).await;
        Some((name(&node).to_owned(), check.current_status().map(str::to_owned)))
    }

    async fn checked(&self, node: &Arc<Node>) -> Option<(Arc<Node>, Check)> {
        let mut node = Arc::clone(node);
        for _ in 0..STATUS_TRIES {
            let lease = self.cache.lease(name(&node));
            let now = self.clock.now();
            let check = self.core().check(&node, lease, now);
            if check.write.is_empty() {
                return Some((node, check));
            }
            match self.writes.conditions(&node, &check).await {
                Ok(written) => {
                    tracing::info!(node = name(&node), "node is silent: marked Unknown");
                    let now = self.clock.now();
                    self.core().written(name(&node), &check, now);
                    let written = Arc::new(written);
                    self.cache.put_node(Arc::clone(&written));
                    return Some((written, check));
                }
                Err(error) => tracing::warn!(node = name(&node), %error, "node status cannot be written"),
            }
            tokio::time::sleep(STATUS_PAUSE).await;
            match self.writes.node(name(&node)).await {
                Ok(Some(live)) => node = Arc::new(live),
                Ok(None) => return None,
                Err(error) => tracing::warn!(node = name(&node), %error, "node cannot be read"),
            }
        }
        None
    }

    async fn carry_out(&self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Event {
                    node,
                    uid,
                    reason,
                    message,
                } => {
                    let about = About {
                        kind: "Node",
                        namespace: "",
                        name: &node,
                        uid: &uid,
                    };
                    let now = self.clock.now();
                    self.writes
                        .event(NODE_CONTROLLER, &about, "Normal", reason, &message, now)
                        .await;
                }
                Action::MarkReachable { node } => {
                    self.retaint(&node, taints::reachable).await;
                }
                Action::Swap { node, add, remove } => {
                    let now = self.clock.now();
                    self.retaint(&node, |node| taints::swapped(node, add, remove, now))
                        .await;
                }
                Action::MarkPods { node } => {
                    let all = self.mark_pods(&node).await;
                    self.core().pods_marked(&node, all);
                }
            }
        }
    }

    /// Marks every pod of a node, one after the other; whether all went well.
    async fn mark_pods(&self, node: &str) -> bool {
        let mut all = true;
        for pod in self.cache.pods_on(node) {
            all &= self.mark_pod(&pod).await;
        }
        all
    }

    async fn mark_pod(&self, pod: &Pod) -> bool {
        let now = self.clock.now();
        match self.writes.mark_not_ready(pod, now).await {
            Ok(marked) => {
                if marked || condition(pod, "Ready").is_some() {
                    self.writes.pod_not_ready_event(pod, now).await;
                }
                true
            }
            Err(error) => {
                let pod = pod.metadata.name.as_deref().unwrap_or_default();
                tracing::warn!(pod, %error, "pod cannot be marked not ready");
                false
            }
        }
    }

    /// Writes the taints that `wanted` makes of the node's own, first as the cache has it, then as it is;
    /// whether the node has them now.
    async fn retaint(&self, node: &str, wanted: impl Fn(&Node) -> Option<Vec<Taint>>) -> bool {
        let Some(mut current) = self.cache.node(node) else {
            return true;
        };
        for attempt in 0..TAINT_TRIES {
            if attempt > 0 {
                tokio::time::sleep(TAINT_PAUSE).await;
                match self.writes.node(node).await {
                    Ok(Some(live)) => current = Arc::new(live),
                    Ok(None) => return true,
                    Err(error) => tracing::warn!(node, %error, "node cannot be read"),
                }
            }
            let Some(taints) = wanted(&current) else {
                return true;
            };
            match self.writes.taints(&current, &taints).await {
                Ok(written) => {
                    self.cache.put_node(Arc::new(written));
                    return true;
                }
                Err(error) => tracing::warn!(node, %error, "taints cannot be written"),
            }
        }
        false
    }

    /// Serves the queues of NoExecute taints until `shutdown`.
    pub(super) async fn taint(&self, shutdown: CancellationToken) {
        let mut ticks = tokio::time::interval(TAINT_PASS);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
            }
            loop {
                let now = self.clock.now();
                let Some(due) = self.core().next_taint(now, |node| self.cache.node(node)) else {
                    break;
                };
                let (add, remove) = (due.add, due.remove);
                let ok = self
                    .retaint(&due.node, |node| taints::swapped(node, add, remove, now))
                    .await;
                if ok {
                    tracing::info!(node = due.node, taint = add, "node tainted NoExecute");
                    self.metrics.tainted(&due.zone);
                }
                let now = self.clock.now();
                self.core().tainted(due, ok, now);
            }
        }
    }

    /// NoSchedule taints and mirrored labels after every change of a node; pods bound to a node that is not
    /// ready.
    pub(super) async fn follow(&self, notices: mpsc::UnboundedReceiver<Notice>, shutdown: CancellationToken) {
        let notices = futures::stream::unfold(notices, |mut notices| async move {
            let notice = notices.recv().await?;
            Some((notice, notices))
        });
        let (nodes, pods) = (
            tokio::sync::Semaphore::new(NODE_WORKERS),
            tokio::sync::Semaphore::new(POD_WORKERS),
        );
        let (nodes, pods) = (&nodes, &pods);
        notices
            .take_until(shutdown.cancelled())
            .for_each_concurrent(None, |notice| async move {
                match notice {
                    Notice::Node(node) => {
                        let _turn = nodes.acquire().await;
                        self.follow_node(&node).await;
                    }
                    Notice::Pod { pod, bound: true } => {
                        let _turn = pods.acquire().await;
                        let node = super::cache::node_of(&pod);
                        let marks = self.core().marks_bound_pod(node);
                        if marks {
                            self.mark_pod(&pod).await;
                        }
                    }
                    Notice::Pod { .. } | Notice::NodeGone(_) | Notice::PodGone(_) => {}
                }
            })
            .await;
    }

    async fn follow_node(&self, node: &Node) {
        let now = self.clock.now();
        if !self
            .retaint(name(node), |node| taints::by_condition(node, now))
            .await
        {
            tracing::warn!(
                node = name(node),
                "NoSchedule taints are not right; the next change of the node tries again"
            );
        }
        let labels = taints::labels_to_set(node);
        if !labels.is_empty()
            && let Err(error) = self.writes.labels(node, &labels).await
        {
            tracing::warn!(node = name(node), %error, "labels cannot be written");
        }
    }
}
