//! The zone's Lease, and the writing of ZoneHealth.

use crate::cloud::Cloud;
use crate::metrics::{Metrics, Result as Outcome};
use crate::zone::Event;
use evenkeel_api::names;
use evenkeel_election::{Config, State};
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

/// Stands for the zone's Lease while the engine wants to, and says whether this agent holds it.
pub(crate) async fn campaign(
    cloud: Cloud,
    node: String,
    zone_object: String,
    mut standing: watch::Receiver<bool>,
    events: mpsc::Sender<Event>,
    shutdown: CancellationToken,
) {
    let lease = format!("{}{zone_object}", names::ZONE_LEASE_PREFIX);
    let config = Config::new(names::NAMESPACE, &lease, &node);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            wanted = standing.wait_for(|wanted| *wanted) => if wanted.is_err() { return },
        }
        let stop = shutdown.child_token();
        let mut candidate = match evenkeel_election::run(cloud.client(), config.clone(), stop.clone()) {
            Ok(candidate) => candidate,
            Err(error) => {
                tracing::error!(%error, lease, "cannot stand for the zone's Lease");
                return;
            }
        };
        loop {
            let leading = matches!(*candidate.state.borrow_and_update(), State::Leading { .. });
            if events.send(Event::Leading(leading)).await.is_err() {
                return;
            }
            tokio::select! {
                changed = candidate.state.changed() => if changed.is_err() { break },
                _ = standing.wait_for(|wanted| !*wanted) => break,
                () = shutdown.cancelled() => break,
            }
        }
        stop.cancel();
        if let Err(error) = candidate.done.await {
            tracing::error!(%error, lease, "the candidate for the zone's Lease ended badly");
        }
        if events.send(Event::Leading(false)).await.is_err() {
            return;
        }
    }
}

/// Writes reports, one at a time, by compare-and-swap. A write that failed is not repeated here: the engine drafts
/// anew on what it sees then.
pub(crate) async fn write(
    cloud: Cloud,
    zone_object: String,
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
        let result = match cloud.publish(&zone_object, &resource_version, &status).await {
            Ok(seen) => {
                tracing::info!(
                    zone = zone_object,
                    sequence = status.sequence,
                    storm = status.storm,
                    summary = status.summary,
                    "zone health written"
                );
                if events.send(Event::Seen(Box::new(seen))).await.is_err() {
                    return;
                }
                "written"
            }
            Err(error) if error.is_conflict() => {
                tracing::debug!(zone = zone_object, "somebody else wrote first");
                match cloud.zone_health(&zone_object).await {
                    Ok(Some(seen)) => {
                        if events.send(Event::Seen(Box::new(seen))).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => tracing::warn!(zone = zone_object, "ZoneHealth is gone"),
                    Err(error) => tracing::debug!(%error, "cannot read what others wrote"),
                }
                "conflict"
            }
            Err(error) => {
                tracing::warn!(zone = zone_object, %error, "zone health not written");
                "failed"
            }
        };
        metrics.reports.get_or_create(&Outcome { result }).inc();
    }
}
