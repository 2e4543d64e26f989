//! What an agent writes into its own AgentStatus when its engine says so.

use super::Cloud;
use crate::metrics::{Metrics, Result as Outcome};
use crate::zone::Event;
use evenkeel_api::zone::RosterAcknowledgement;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// A write that the engine asks for.
pub(crate) enum Statement {
    /// The node reaches the API server.
    Link,
    /// The agent has this roster in force.
    Roster(RosterAcknowledgement),
}

/// Makes the writes that the engine asks for, one at a time, and says what became of each. One that failed is
/// not repeated here: the engine knows when. Where there is no AgentStatus, it is made anew.
pub(crate) async fn write_statements(
    cloud: Cloud,
    mut asked: mpsc::Receiver<Statement>,
    events: mpsc::Sender<Event>,
    metrics: Metrics,
    register: Arc<Notify>,
    shutdown: CancellationToken,
) {
    let mut count = None;
    loop {
        let next = tokio::select! {
            () = shutdown.cancelled() => return,
            next = asked.recv() => next,
        };
        let Some(statement) = next else { return };
        let write = async {
            match &statement {
                Statement::Link => cloud.prove_link(&mut count).await,
                Statement::Roster(acknowledged) => cloud.acknowledge(acknowledged).await,
            }
        };
        let outcome = tokio::select! {
            () = shutdown.cancelled() => return,
            outcome = write => outcome,
        };
        let written = outcome.is_ok();
        if let Err(error) = outcome {
            tracing::debug!(%error, "AgentStatus is not written");
            if error.is_missing() {
                register.notify_one();
            }
        }
        let told = match statement {
            Statement::Link => {
                let result = if written { "written" } else { "failed" };
                metrics.link_proofs.get_or_create(&Outcome { result }).inc();
                Event::LinkProof { written }
            }
            Statement::Roster(_) => Event::Acknowledged { written },
        };
        if events.send(told).await.is_err() {
            return;
        }
    }
}
