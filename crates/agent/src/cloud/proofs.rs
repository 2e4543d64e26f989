//! Proofs that the node reaches the API server.

use super::Cloud;
use crate::metrics::{Metrics, Result as Outcome};
use crate::zone::Event;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Makes the writes that the engine asks for, one at a time, and says what became of each. One that failed is
/// not repeated here: the engine knows when.
pub(crate) async fn prove_links(
    cloud: Cloud,
    mut asked: mpsc::Receiver<()>,
    events: mpsc::Sender<Event>,
    metrics: Metrics,
    shutdown: CancellationToken,
) {
    let mut count = None;
    loop {
        let next = tokio::select! {
            () = shutdown.cancelled() => return,
            next = asked.recv() => next,
        };
        if next.is_none() {
            return;
        }
        let outcome = tokio::select! {
            () = shutdown.cancelled() => return,
            outcome = cloud.prove_link(&mut count) => outcome,
        };
        let result = match &outcome {
            Ok(()) => "written",
            Err(error) => {
                tracing::debug!(%error, "the link to the API server is not proven");
                "failed"
            }
        };
        metrics.link_proofs.get_or_create(&Outcome { result }).inc();
        let told = Event::LinkProof {
            written: outcome.is_ok(),
        };
        if events.send(told).await.is_err() {
            return;
        }
    }
}
