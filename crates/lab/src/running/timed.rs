//! Faults that end by themselves: each begins at once, and a task of the lab ends it after its time, unless
//! something else has ended it before.

use super::{
    Lab, SetupError,
    node::{LabNode, TroubleKind},
};
use crate::switch::{Switch, links::End};
use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

impl Lab {
    /// Freezes a whole machine. Like all faults of this module it needs the lock `one_at_a_time`.
    pub(super) async fn stall(&self, node: &Arc<LabNode>, time: Duration) -> Result<(), String> {
        self.check_is_well(node)?;
        let over = node.begin_trouble(TroubleKind::Frozen);
        // The network falls silent first, so that nobody sees the parts of the machine stop one after the
        // other.
        self.switch.change(|links| links.freeze(node.index()));
        node.freeze().await;
        let (switch, node) = (Arc::clone(&self.switch), Arc::clone(node));
        self.after(time, over, async move {
            node.end_trouble();
            go_on(&switch, &node);
        });
        Ok(())
    }

    /// Stops a kubelet for a time; containers and agent go on.
    pub(super) async fn restart_kubelet(&self, node: &Arc<LabNode>, time: Duration) -> Result<(), String> {
        self.check_is_well(node)?;
        let over = node.begin_trouble(TroubleKind::KubeletDown);
        node.stop_kubelet().await;
        let node = Arc::clone(node);
        self.after(time, over, async move {
            node.end_trouble();
            if let Err(error) = node.start_kubelet().await {
                tracing::error!(node = node.name(), %error, "the kubelet did not come back; heal the node to try again");
            }
        });
        Ok(())
    }

    /// Ends what was wrong with a node for a time, now.
    pub(super) async fn end_trouble(&self, node: &LabNode) -> Result<(), SetupError> {
        match node.end_trouble() {
            Some(TroubleKind::Frozen) => go_on(&self.switch, node),
            Some(TroubleKind::KubeletDown) => node.start_kubelet().await?,
            None => {}
        }
        Ok(())
    }

    /// Takes the API server down for a time, and with it the stand-in for the stock controllers if `stock`
    /// says so.
    pub(super) fn begin_outage(&self, time: Duration, stock: bool) -> Result<(), String> {
        if !self.api.crash() {
            return Err(
                "the API server is down already; wait until it is back, or heal everything".to_owned(),
            );
        }
        let stand_in = self.cloud.stock.clone().filter(|_| stock);
        if let Some(stand_in) = &stand_in {
            stand_in.power_off();
        }
        let over = CancellationToken::new();
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner) = Some(over.clone());
        let api = self.api.clone();
        self.after(time, over, async move {
            api.come_back();
            if let Some(stand_in) = stand_in {
                stand_in.power_on();
            }
        });
        Ok(())
    }

    /// Ends an outage of the API server now.
    pub(super) fn end_outage(&self) {
        let outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(over) = outage {
            over.cancel();
        }
        if self.api.come_back()
            && let Some(stand_in) = &self.cloud.stock
        {
            // Does nothing to one that runs.
            stand_in.power_on();
        }
    }

    /// Whether nothing is wrong yet with the machine itself.
    fn check_is_well(&self, node: &LabNode) -> Result<(), String> {
        let name = node.name();
        match node.trouble() {
            _ if !self.switch.links().is_on(End::Node(node.index())) => {
                Err(format!("{name} has no power; heal it first"))
            }
            None => Ok(()),
            Some(TroubleKind::Frozen) => Err(format!("{name} is frozen; heal it first, or wait")),
            Some(TroubleKind::KubeletDown) => Err(format!(
                "the kubelet of {name} is down; heal the node first, or wait"
            )),
        }
    }

    /// Does something after a time, unless `over` is cancelled before or the lab ends.
    fn after(&self, time: Duration, over: CancellationToken, end: impl Future<Output = ()> + Send + 'static) {
        let (turn, shutdown) = (Arc::clone(&self.one_at_a_time), self.shutdown.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = over.cancelled() => return,
                () = tokio::time::sleep(time) => {}
            }
            let _turn = turn.lock().await;
            if !over.is_cancelled() {
                // A kubelet may wait for the API server when it starts.
                let _ = shutdown.run_until_cancelled(end).await;
            }
        });
    }
}

/// Lets a frozen machine go on where it was.
fn go_on(switch: &Switch, node: &LabNode) {
    node.thaw();
    switch.change(|links| links.thaw(node.index()));
}
