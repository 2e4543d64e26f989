//! Which nodes are served: those that are wanted, in slots that are ours.

use super::common::Common;
use super::directory::Handle;
use crate::node::NodeWriter;
use crate::ownership::{self, Change, Ownership, Term};
use crate::pods::{Actor, Duty, panic_text};
use evenkeel_election::Gate;
use evenkeel_kubelet_api::NodeListeners;
use evenkeel_net::log::causes;
use futures::FutureExt as _;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What the fleet's owner wants.
#[derive(Debug)]
pub(crate) enum Order {
    /// Serve a node.
    Add(Arc<str>),
    /// Serve it no more; `delete` its objects, too.
    Remove(Arc<str>, bool),
}

/// Between two tries to delete the objects of a node that is removed, and before a node whose actor had a
/// defect is served again: doubled each time, up to [`AGAIN_MOST`].
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(60);
/// One try to delete.
const REQUESTS: Duration = Duration::from_secs(20);
/// An actor that has served for so long before its defect is served again as if it were the first.
const GOOD: Duration = Duration::from_secs(600);

pub(crate) struct Supervisor {
    pub(crate) common: Arc<Common>,
    pub(crate) ownership: Ownership,
    /// To be told when nodes have come or gone.
    pub(crate) came: Arc<Notify>,
    listeners: Option<Arc<dyn NodeListeners>>,
    wanted: BTreeSet<Arc<str>>,
    /// Nodes whose objects are to be deleted, by whoever owns their slot; where it is under way here, what
    /// ends it. They are forgotten once a try has succeeded here: another replica's success is found out by
    /// the next owner.
    doomed: HashMap<Arc<str>, Option<CancellationToken>>,
    deleted: mpsc::UnboundedSender<Deleted>,
    deletions: mpsc::UnboundedReceiver<Deleted>,
    /// Slots that are ours.
    slots: HashMap<u16, NodeWriter>,
    actors: HashMap<Arc<str>, Serving>,
    next: Arc<AtomicU64>,
}

/// A node's objects are gone; and what would have ended the attempt.
struct Deleted(Arc<str>, CancellationToken);

/// A node's actor, which may have been told to end.
struct Serving {
    stop: CancellationToken,
    /// Cancelled once the actor has ended, with all that it had begun, even by a panic.
    ended: CancellationToken,
}

impl Supervisor {
    pub(crate) fn new(
        common: Arc<Common>,
        ownership: Ownership,
        came: Arc<Notify>,
        listeners: Option<Arc<dyn NodeListeners>>,
    ) -> Self {
        let (deleted, deletions) = mpsc::unbounded_channel();
        Self {
            common,
            ownership,
            came,
            listeners,
            wanted: BTreeSet::new(),
            doomed: HashMap::new(),
            deleted,
            deletions,
            slots: HashMap::new(),
            actors: HashMap::new(),
            next: Arc::default(),
        }
    }

    /// Serves until `stop`; then ends all actors, and after them the ownership by way of `disown`.
    pub(crate) async fn run(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Order>,
        stop: CancellationToken,
        disown: CancellationToken,
    ) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(order) = orders.recv() => self.order(order),
                Some(deleted) = self.deletions.recv() => self.is_deleted(&deleted),
                change = self.ownership.next() => {
                    let Some(change) = change else {
                        tracing::error!("the election of the nodes' slots has ended: no node is taken on any more");
                        stop.cancelled().await;
                        break;
                    };
                    self.change(change);
                }
            }
        }
        for serving in self.actors.values() {
            serving.stop.cancel();
        }
        for attempt in self.doomed.values().flatten() {
            attempt.cancel();
        }
        for serving in self.actors.values() {
            serving.ended.cancelled().await;
        }
        // Nobody serves the nodes any more: others may.
        disown.cancel();
        while self.ownership.next().await.is_some() {}
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Add(node) => {
                if let Some(Some(attempt)) = self.doomed.remove(&node) {
                    attempt.cancel();
                }
                if self.wanted.insert(node.clone())
                    && let Some(node_writer) = self.slots.get(&self.ownership.slot(&node)).cloned()
                {
                    self.serve(node, node_writer);
                }
            }
            Order::Remove(node, delete) => {
                if !self.wanted.remove(&node) {
                    return;
                }
                self.end(&node);
                if delete {
                    self.doomed.insert(node.clone(), None);
                    self.delete(&node);
                }
                self.prune();
            }
        }
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Gained { slot, client, .. } => {
                tracing::info!(slot, "nodes of a slot are ours");
                let node_writer = self.common.node_writer.with_client(client);
                self.slots.insert(slot, node_writer.clone());
                let ours = self
                    .wanted
                    .iter()
                    .filter(|node| self.ownership.slot(node) == slot);
                for node in ours.cloned().collect::<Vec<_>>() {
                    self.serve(node, node_writer.clone());
                }
                for node in self.doomed_of(slot) {
                    self.delete(&node);
                }
            }
            Change::Lost { slot, .. } => {
                tracing::info!(slot, "nodes of a slot are no longer ours");
                self.slots.remove(&slot);
                let ours = self
                    .wanted
                    .iter()
                    .filter(|node| self.ownership.slot(node) == slot);
                let mut ends: Vec<_> = ours.filter_map(|node| self.end(node)).collect();
                for node in self.doomed_of(slot) {
                    if let Some(Some(attempt)) = self.doomed.insert(node.clone(), None) {
                        attempt.cancel();
                    }
                    ends.extend(self.end(&node));
                }
                tokio::spawn(async move {
                    for end in ends {
                        end.cancelled().await;
                    }
                    // With it goes the word that nothing is done any more.
                    drop(change);
                });
            }
        }
        self.came.notify_one();
    }

    fn doomed_of(&self, slot: u16) -> Vec<Arc<str>> {
        let doomed = self.doomed.keys();
        doomed
            .filter(|node| self.ownership.slot(node) == slot)
            .cloned()
            .collect()
    }

    /// Deletes a doomed node's objects if its slot is ours, until that succeeds or somebody ends it. A node
    /// of this name that comes again is registered after that.
    fn delete(&mut self, node: &Arc<str>) {
        let Some(node_writer) = self.slots.get(&self.ownership.slot(node)).cloned() else {
            // Who owns the slot deletes, and so do we once we own it.
            return;
        };
        let attempt = CancellationToken::new();
        self.doomed.insert(node.clone(), Some(attempt.clone()));
        let served = self.end(node);
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        stop.cancel();
        let end = ended.clone().drop_guard();
        self.actors.insert(node.clone(), Serving { stop, ended });
        let (node, deleted) = (node.clone(), self.deleted.clone());
        tokio::spawn(async move {
            let _end = end;
            if let Some(served) = served {
                served.cancelled().await;
            }
            if delete_node(&node_writer, &node, &attempt).await {
                // The supervisor ends with the fleet, and with it whoever wants to know.
                let _ = deleted.send(Deleted(node, attempt));
            }
        });
    }

    fn is_deleted(&mut self, deleted: &Deleted) {
        let Deleted(node, attempt) = deleted;
        // One that was ended has no say: the node may have come again and gone since.
        if !attempt.is_cancelled() && matches!(self.doomed.get(node), Some(Some(_))) {
            self.doomed.remove(node);
        }
    }

    fn serve(&mut self, node: Arc<str>, node_writer: NodeWriter) {
        let former = self.actors.remove(&node);
        if former.as_ref().is_some_and(|former| !former.stop.is_cancelled()) {
            // Ours already, by a slot that came twice.
            self.actors.extend(former.map(|former| (node, former)));
            return;
        }
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        let stage = Stage {
            common: self.common.clone(),
            came: self.came.clone(),
            listeners: self.listeners.clone(),
            next: self.next.clone(),
            node_writer,
            gate: self.ownership.gate(self.ownership.slot(&node)),
            stop: stop.clone(),
        };
        let (end, name) = (ended.clone().drop_guard(), node.clone());
        tokio::spawn(async move {
            let _end = end;
            // Never two at a time.
            if let Some(former) = former {
                former.ended.cancelled().await;
            }
            stage.serve(&name).await;
        });
        self.actors.insert(node, Serving { stop, ended });
    }

    /// Asks an actor to end; what waits for its end.
    fn end(&self, node: &str) -> Option<CancellationToken> {
        let serving = self.actors.get(node)?;
        serving.stop.cancel();
        Some(serving.ended.clone())
    }

    /// Forgets actors that have ended, before they are more than those that are wanted.
    fn prune(&mut self) {
        if self.actors.len() > 2 * self.wanted.len() + 64 {
            self.actors.retain(|_, serving| !serving.ended.is_cancelled());
        }
    }
}

/// What a node is served with.
struct Stage {
    common: Arc<Common>,
    came: Arc<Notify>,
    listeners: Option<Arc<dyn NodeListeners>>,
    /// Number of the next actor.
    next: Arc<AtomicU64>,
    node_writer: NodeWriter,
    gate: Option<Gate>,
    stop: CancellationToken,
}

impl Stage {
    /// Serves a node until it is stopped, by one actor after the other should they have defects.
    async fn serve(&self, node: &Arc<str>) {
        let mut pause = AGAIN;
        while !self.stop.is_cancelled() {
            let begun = Instant::now();
            if self.act(node).await {
                return;
            }
            if begun.elapsed() >= GOOD {
                pause = AGAIN;
            }
            tracing::error!(%node, ?pause, "a node is served again after a pause, there is a defect");
            let resting = tokio::time::sleep(pause);
            self.stop.run_until_cancelled(resting).await;
            pause = (pause * 2).min(AGAIN_MOST);
        }
    }

    /// Serves by one actor; returns whether it has ended as it should.
    async fn act(&self, node: &Arc<str>) -> bool {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        // What an actor that had a defect has begun ends with it.
        let term = ownership::term(self.stop.child_token(), self.gate.clone());
        let _stop = term.stop().clone().drop_guard();
        let address = self
            .listeners
            .as_ref()
            .and_then(|listeners| open(&**listeners, node, &term));
        let (handle, mailbox) = Handle::during(number, node.clone(), term);
        handle.set_client(self.node_writer.client());
        self.common.directory.add(&handle);
        self.came.notify_one();
        let duty = Duty {
            common: self.common.clone(),
            node_writer: self.node_writer.clone(),
            handle: handle.clone(),
            mailbox,
            address,
        };
        let serving = Box::pin(async move { Box::new(Actor::new(duty)).run().await });
        let serving = AssertUnwindSafe(serving);
        let served = serving.catch_unwind().await.unwrap_or_else(|panic| {
            let panic = panic_text(&*panic);
            tracing::error!(%node, panic, "a node's actor has panicked, there is a defect");
            false
        });
        // It has done so itself, unless it ended by a panic.
        self.common.directory.remove(&handle);
        self.common.wheel.clear_all(&handle);
        if let Some(listeners) = &self.listeners {
            listeners.close(node);
        }
        self.came.notify_one();
        served
    }
}

/// Where a node's kubelet API listens. A node without one is served all the same: its pods need it less than
/// they need to run.
fn open(listeners: &dyn NodeListeners, node: &str, term: &Term) -> Option<SocketAddr> {
    match listeners.open(node, term) {
        Ok(address) => Some(address),
        Err(error) => {
            tracing::error!(node, %error, "a node has no kubelet API: no logs, exec, attach, port-forward, metrics");
            None
        }
    }
}

/// Returns whether the objects are gone; they may not be when `stop` came first. A try that is under way is
/// waited for.
async fn delete_node(node_writer: &NodeWriter, node: &str, stop: &CancellationToken) -> bool {
    let mut pause = AGAIN;
    while !stop.is_cancelled() {
        let error = match tokio::time::timeout(REQUESTS, node_writer.delete(node)).await {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => causes(&error),
            Err(_) => format!("no answer within {REQUESTS:?}"),
        };
        tracing::warn!(
            node,
            error,
            ?pause,
            "cannot delete a node that is served no more, trying again"
        );
        stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        pause = (pause * 2).min(AGAIN_MOST);
    }
    false
}
