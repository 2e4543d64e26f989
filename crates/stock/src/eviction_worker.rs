//! Carries out the taint eviction: events in, deletions out, timers between.

use crate::cache::{Cache, Notice, pod_facts};
use crate::metrics::Metrics;
use crate::process::SteadyClock;
use crate::writes::{About, TAINT_EVICTION, Writes};
use evenkeel_stock_rules::eviction::{Action, PodFacts, PodKey, TaintEviction};
use evenkeel_stock_rules::lifecycle::name;
use evenkeel_stock_rules::taints::no_execute;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

const WORKERS: usize = 8;
/// Tries to delete a pod, and the time between them.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(10);
/// Timers are looked at at least this often, so that one that was set meanwhile is not missed.
const IDLE: Duration = Duration::from_secs(60);

/// What the worker needs.
pub(super) struct Eviction {
    pub(super) cache: Cache,
    pub(super) writes: Writes,
    pub(super) clock: SteadyClock,
    pub(super) metrics: Arc<Metrics>,
}

impl Eviction {
    /// Follows `notices` until `shutdown`.
    pub(super) async fn run(self, mut notices: mpsc::UnboundedReceiver<Notice>, shutdown: CancellationToken) {
        let mut core = TaintEviction::new();
        let turns = Arc::new(Semaphore::new(WORKERS));
        let mut running: FuturesUnordered<BoxFuture<'_, Option<(PodKey, bool)>>> = FuturesUnordered::new();
        loop {
            let wait = core.next_due().map_or(IDLE, |due| {
                let wait = due.duration_since(self.clock.now());
                Duration::try_from(wait).unwrap_or(Duration::ZERO).min(IDLE)
            });
            let actions = tokio::select! {
                () = shutdown.cancelled() => return,
                notice = notices.recv() => match notice {
                    Some(notice) => self.take(&mut core, notice),
                    None => return,
                },
                Some(outcome) = running.next() => {
                    if let Some((key, ok)) = outcome {
                        core.deleted(&key, ok);
                    }
                    Vec::new()
                }
                () = tokio::time::sleep(wait) => core.due(self.clock.now()),
            };
            for action in actions {
                let turns = Arc::clone(&turns);
                running.push(self.carry_out(action, turns).boxed());
            }
        }
    }

    fn take(&self, core: &mut TaintEviction, notice: Notice) -> Vec<Action> {
        let now = self.clock.now();
        match notice {
            Notice::Node(node) => {
                let pods: Vec<PodFacts> = self
                    .cache
                    .pods_on(name(&node))
                    .iter()
                    .map(|pod| pod_facts(pod))
                    .collect();
                core.node_changed(name(&node), no_execute(&node), &pods, now)
            }
            Notice::NodeGone(node) => {
                core.node_gone(&node);
                Vec::new()
            }
            Notice::Pod { pod, .. } => core.pod_changed(&pod_facts(&pod), now),
            Notice::PodGone(key) => core.pod_gone(&key).into_iter().collect(),
        }
    }

    async fn carry_out(&self, action: Action, turns: Arc<Semaphore>) -> Option<(PodKey, bool)> {
        let _turn = turns.acquire().await;
        match action {
            Action::Cancelled(key) => {
                let text = format!("Cancelling deletion of Pod {}/{}", key.namespace, key.name);
                self.event(&key, &text).await;
                None
            }
            Action::Delete(key) => {
                let text = format!("Marking for deletion Pod {}/{}", key.namespace, key.name);
                self.event(&key, &text).await;
                let ok = self.delete(&key).await;
                Some((key, ok))
            }
        }
    }

    async fn delete(&self, key: &PodKey) -> bool {
        for attempt in 0..TRIES {
            if attempt > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            match self.writes.evict(key, self.clock.now()).await {
                Ok(()) => {
                    tracing::info!(pod = key.name, namespace = key.namespace, "pod evicted by taint");
                    self.metrics.deleted();
                    return true;
                }
                Err(error) => {
                    tracing::warn!(pod = key.name, namespace = key.namespace, %error, "pod cannot be deleted");
                }
            }
        }
        false
    }

    async fn event(&self, key: &PodKey, text: &str) {
        let about = About {
            kind: "Pod",
            namespace: &key.namespace,
            name: &key.name,
            uid: "",
        };
        let now = self.clock.now();
        self.writes
            .event(
                TAINT_EVICTION,
                &about,
                "Normal",
                "TaintManagerEviction",
                text,
                now,
            )
            .await;
    }
}
