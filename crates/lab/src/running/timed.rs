//! Faults that end by themselves: each begins at once, and a task of the lab ends it after its time, unless
//! something else has ended it before.

use super::{
    Lab, Plane, SetupError,
    node::{LabNode, TroubleKind},
};
use crate::{
    supervise::Supervised,
    switch::{Switch, links::End},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
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

    /// Stops an agent for a time; kubelet and containers go on.
    pub(super) fn restart_agent(&self, node: &Arc<LabNode>, time: Duration) -> Result<(), String> {
        self.check_is_well(node)?;
        if !node.has_agent() {
            return Err("this lab runs without agents".to_owned());
        }
        let over = node.begin_trouble(TroubleKind::AgentDown);
        node.stop_agent();
        let node = Arc::clone(node);
        self.after(time, over, async move {
            node.end_trouble();
            node.start_agent();
        });
        Ok(())
    }

    /// Ends what was wrong with a node for a time, now.
    pub(super) async fn end_trouble(&self, node: &LabNode) -> Result<(), SetupError> {
        match node.end_trouble() {
            Some(TroubleKind::Frozen) => go_on(&self.switch, node),
            Some(TroubleKind::KubeletDown) => node.start_kubelet().await?,
            Some(TroubleKind::AgentDown) => node.start_agent(),
            None => {}
        }
        Ok(())
    }

    /// Takes the API server down for a time, and with it the stock controllers, or their stand-in, if `stock`
    /// says so.
    pub(super) async fn begin_outage(&self, time: Duration, stock: bool) -> Result<(), String> {
        if self.is_down() {
            return Err(
                "the API server is down already; wait until it is back, or heal everything".to_owned(),
            );
        }
        let over = CancellationToken::new();
        let begun = Outage {
            over: over.clone(),
            stock,
        };
        // Noted first: whoever is interrupted here, or told of a failure, may have taken it down anyway.
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner) = Some(begun);
        self.plane.kill(stock).await?;
        if stock && let Some(stand_in) = &self.cloud.stock {
            stand_in.power_off();
        }
        let (outage, plane) = (Arc::clone(&self.outage), self.plane.clone());
        let stand_in = self.cloud.stock.clone();
        self.after(time, over, async move {
            if let Err(error) = come_back(&outage, &plane, stand_in.as_ref()).await {
                tracing::error!(%error, "the API server did not come back; heal everything to try again");
            }
        });
        Ok(())
    }

    /// Whether the lab keeps the API server down.
    pub(super) fn is_down(&self) -> bool {
        self.outage
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    /// Ends an outage of the API server now.
    pub(super) async fn end_outage(&self) -> Result<(), String> {
        come_back(&self.outage, &self.plane, self.cloud.stock.as_ref()).await
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
            Some(TroubleKind::AgentDown) => Err(format!(
                "the agent of {name} is down; heal the node first, or wait"
            )),
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

/// An outage of the API server.
#[derive(Clone)]
pub(super) struct Outage {
    /// Cancelled by whatever ends it.
    over: CancellationToken,
    /// Whether the stock controllers are down as well.
    stock: bool,
}

/// Ends an outage, if there is one. One that cannot be ended stays.
async fn come_back(
    outage: &Mutex<Option<Outage>>,
    plane: &Plane,
    stand_in: Option<&Supervised>,
) -> Result<(), String> {
    let known = outage.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(Outage { over, stock }) = known else {
        return Ok(());
    };
    plane.start(stock).await?;
    *outage.lock().unwrap_or_else(PoisonError::into_inner) = None;
    over.cancel();
    if stock && let Some(stand_in) = stand_in {
        stand_in.power_on();
    }
    Ok(())
}

/// Lets a frozen machine go on where it was.
fn go_on(switch: &Switch, node: &LabNode) {
    node.thaw();
    switch.change(|links| links.thaw(node.index()));
}
