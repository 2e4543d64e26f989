//! The cell's Lease, and the writing of ZoneHealth.

use crate::cloud::Cloud;
use crate::metrics::{Metrics, Result as Outcome};
use crate::zone::Event;
use evenkeel_api::names;
use evenkeel_election::lock::LeaseLock;
use evenkeel_election::{Config, Elector, unique_identity_of};
use evenkeel_zone::engine::ZoneReport;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// A report with the state of the object that it was drafted on.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) report: Box<ZoneReport>,
    pub(crate) resource_version: String,
}

/// Stands for the Lease of the agent's cell while the engine wants to, and says whether this agent holds it.
pub(crate) async fn campaign(
    cloud: Cloud,
    election: Option<Config>,
    mut cell: watch::Receiver<String>,
    mut standing: watch::Receiver<bool>,
    events: mpsc::Sender<Event>,
    shutdown: CancellationToken,
) {
    let Some(config) = election else {
        return without_election(standing, events, shutdown).await;
    };
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            wanted = standing.wait_for(|wanted| *wanted) => if wanted.is_err() { return },
        }
        let lease = format!("{}{}", names::ZONE_LEASE_PREFIX, *cell.borrow_and_update());
        let stop = shutdown.child_token();
        // A candidate ends with its token only, not with its handle.
        let _leaves = stop.clone().drop_guard();
        let candidate = match candidate(&cloud, &lease, &config) {
            Ok(candidate) => candidate,
            Err(error) => {
                tracing::error!(error, lease, "cannot stand for the cell's Lease");
                return;
            }
        };
        let election = candidate.run(stop.clone());
        let mut state = election.watch();
        loop {
            let leading = state.borrow_and_update().leads();
            if events.send(Event::Leading(leading)).await.is_err() {
                return;
            }
            tokio::select! {
                changed = state.changed() => if changed.is_err() { break },
                _ = standing.wait_for(|wanted| !*wanted) => break,
                moved = cell.changed() => if moved.is_err() { return } else { break },
                () = shutdown.cancelled() => break,
            }
        }
        stop.cancel();
        let reason = election.stopped().await;
        tracing::debug!(lease, ?reason, "no longer standing for the cell's Lease");
        if events.send(Event::Leading(false)).await.is_err() {
            return;
        }
    }
}

/// Leads whenever the engine wants to. Several agents of a zone may then write at once, which costs writes
/// and nothing else: a report carries its proof, and is written by compare-and-swap.
async fn without_election(
    mut standing: watch::Receiver<bool>,
    events: mpsc::Sender<Event>,
    shutdown: CancellationToken,
) {
    loop {
        let wanted = *standing.borrow_and_update();
        if events.send(Event::Leading(wanted)).await.is_err() {
            return;
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            changed = standing.changed() => if changed.is_err() { return },
        }
    }
}

/// This node, with an identity of this campaign: a restarted agent is another candidate.
fn candidate(cloud: &Cloud, lease: &str, config: &Config) -> Result<Elector, String> {
    let lock = LeaseLock::new(cloud.client(), names::NAMESPACE, lease).map_err(|error| error.to_string())?;
    let config = Config {
        identity: unique_identity_of(&config.identity),
        ..config.clone()
    };
    Elector::new(lock, config).map_err(|error| error.to_string())
}

/// Writes reports, one at a time, by compare-and-swap. A write that failed is not repeated here: the engine
/// drafts anew on what it sees then.
pub(crate) async fn write(
    cloud: Cloud,
    cell: watch::Receiver<String>,
    mut drafts: mpsc::Receiver<Draft>,
    events: mpsc::Sender<Event>,
    metrics: Metrics,
    shutdown: CancellationToken,
) {
    loop {
        let draft = tokio::select! {
            () = shutdown.cancelled() => return,
            draft = drafts.recv() => draft,
        };
        let Some(Draft {
            report,
            resource_version,
        }) = draft
        else {
            return;
        };
        let ZoneReport {
            mut status,
            held_for_ms,
        } = *report;
        for node in &mut status.nodes {
            if let Some(held) = held_for_ms.get(&node.uid) {
                let since =
                    Timestamp::now() - SignedDuration::from_millis(i64::try_from(*held).unwrap_or_default());
                node.since = Some(format!("{since:.0}"));
            }
        }
        let cell = cell.borrow().clone();
        let result = match cloud.publish(&cell, &resource_version, &status).await {
            Ok(seen) => {
                tracing::info!(
                    cell,
                    sequence = status.sequence,
                    summary = status.summary,
                    "zone health written"
                );
                if events.send(Event::Seen(Box::new(seen))).await.is_err() {
                    return;
                }
                "written"
            }
            Err(error) if error.is_conflict() => {
                tracing::debug!(cell, "somebody else wrote first");
                match cloud.zone_health(&cell).await {
                    Ok(Some(seen)) => {
                        if events.send(Event::Seen(Box::new(seen))).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => tracing::warn!(cell, "ZoneHealth is gone"),
                    Err(error) => tracing::debug!(%error, "cannot read what others wrote"),
                }
                "conflict"
            }
            Err(error) => {
                tracing::warn!(cell, %error, "zone health not written");
                "failed"
            }
        };
        metrics.reports.get_or_create(&Outcome { result }).inc();
    }
}
