//! What the last replica does before it stops.

use super::lead::{Changes, Controller, GATHER, role_changed};
use crate::clock::instant;
use evenkeel_election as election;
use futures::StreamExt as _;
use std::time::Duration;
use tokio::sync::watch as channel;

/// Replicas that stop together learn of each other within this time.
const ALSO_STOPPING: Duration = Duration::from_millis(100);
/// Others renew their Leases every 5 s. After an outage of the API server, of one that works nothing was
/// heard for so long.
const HEARD_AGAIN: Duration = Duration::from_secs(6);
/// The last replica that stops leads within this time, if nobody else does: as long as a crashed leader is
/// waited for.
const TAKE_OVER: Duration = Duration::from_secs(6);
/// The last replica that stops settles what it kept from stock within this time: the time that the stock
/// controller is given to mark pods itself, and some for the writes.
const SETTLE: Duration = Duration::from_secs(15);

impl Controller {
    /// The last replica settles before it stops: it removes our taints, and marks the pods that stock
    /// Kubernetes would have marked (hazard 52). Where another replica works, that one takes over and nothing
    /// is settled. Of replicas that stop together the last one settles; if it does not lead, it waits for the
    /// leadership first.
    pub(super) async fn settle(
        &mut self,
        seen: &mut Changes,
        mut role: Option<&mut channel::Receiver<election::State>>,
        election: Option<&election::Election>,
    ) {
        let others = instant() + ALSO_STOPPING;
        while self.world.other_replicas(self.source.clock.now()) > 0 {
            if instant() > others {
                return;
            }
            if let Ok(Some(changes)) = tokio::time::timeout_at(others, seen.next()).await {
                self.take(changes);
            }
        }
        if !self.leads() && !self.owes() {
            return;
        }
        let heard_by = instant() + HEARD_AGAIN;
        while self.world.knows_other_replicas(self.source.clock.now()) && instant() < heard_by {
            if let Ok(Some(changes)) = tokio::time::timeout_at(heard_by, seen.next()).await {
                self.take(changes);
            }
            if self.world.other_replicas(self.source.clock.now()) > 0 {
                return;
            }
        }
        self.world.stand_down();
        let (take_over, deadline) = (instant() + TAKE_OVER, instant() + SETTLE);
        loop {
            // While the API server was away, another replica was not seen.
            if self.world.other_replicas(self.source.clock.now()) > 0 {
                return;
            }
            if self.follow(role.as_deref_mut(), election).is_err() {
                return;
            }
            let wanted = self.look();
            if self.leads() && wanted == 0 {
                return;
            }
            if instant() > deadline || !self.leads() && instant() > take_over {
                tracing::warn!("stopped before everything that was kept from stock Kubernetes was settled");
                return;
            }
            tokio::select! {
                Some(ended) = self.tasks.join_next() => self.ended(ended),
                Some(changes) = seen.next() => self.take(changes),
                changed = role_changed(role.as_deref_mut()) => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = tokio::time::sleep(GATHER) => {}
            }
        }
    }

    /// Whether there may be something to settle.
    fn owes(&self) -> bool {
        let cluster = self.world.cluster();
        cluster.nodes.values().any(|node| !node.added.is_empty())
            || cluster
                .incidents
                .values()
                .any(|incident| incident.status.closed_at.is_none())
    }
}
