//! The cell's Lease, and the writing of reports.

use crate::cloud::{Cloud, CloudError};
use crate::metrics::{Metrics, Result as Outcome};
use crate::zone::Event;
use evenkeel_api::crd::ZoneReportSpec;
use evenkeel_api::names;
use evenkeel_election::flags::Candidacy;
use evenkeel_election::lock::LeaseLock;
use evenkeel_election::{Config, Elector, unique_identity_of};
use evenkeel_zone::engine::ReportDraft;
use jiff::{SignedDuration, Timestamp};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// A report, and the cell that it is about.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) contents: ReportDraft,
    pub(crate) zone: String,
    /// Number of the cell in its zone.
    pub(crate) cell: u32,
    /// It is another cell than the agent's own.
    pub(crate) carried: bool,
    /// When it was drafted, or came from who drafted it.
    pub(crate) at: Instant,
}

/// A draft that has waited for so long is not written any more: the engine has given it up.
const GIVEN_UP: Duration = Duration::from_secs(10);

/// Stands for the Lease of the agent's cell while the engine wants to, and says whether this agent holds it.
pub(crate) async fn campaign(
    cloud: Cloud,
    election: Option<Candidacy>,
    mut cell: watch::Receiver<String>,
    mut standing: watch::Receiver<bool>,
    events: mpsc::Sender<Event>,
    shutdown: CancellationToken,
) {
    let Some(candidacy) = election else {
        return without_election(standing, events, shutdown).await;
    };
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            wanted = standing.wait_for(|wanted| *wanted) => if wanted.is_err() { return },
        }
        let lease = names::zone_lease(&cell.borrow_and_update());
        let stop = shutdown.child_token();
        // A candidate ends with its token only, not with its handle.
        let _leaves = stop.clone().drop_guard();
        let candidate = match candidate(&cloud, &lease, &candidacy) {
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
/// and nothing else: a report carries its proof, and each has an object of its own.
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
fn candidate(cloud: &Cloud, lease: &str, candidacy: &Candidacy) -> Result<Elector, String> {
    let lock =
        LeaseLock::new(cloud.client(), &candidacy.namespace, lease).map_err(|error| error.to_string())?;
    let config = Config {
        identity: unique_identity_of(&candidacy.config.identity),
        ..candidacy.config.clone()
    };
    Elector::new(lock, config).map_err(|error| error.to_string())
}

/// Writes reports to this agent's own objects, one at a time. A write that failed is not repeated here: the
/// engine drafts anew on what it sees then.
pub(crate) async fn write(
    cloud: Cloud,
    (node, node_uid): (String, String),
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
            mut contents,
            zone,
            cell,
            carried,
            at,
        }) = draft
        else {
            return;
        };
        let (wall, waited) = (Timestamp::now(), at.elapsed());
        contents.grow_older(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
        let ReportDraft {
            mut report,
            held_for_ms,
        } = contents;
        report.written_at = Some(format!("{wall:.0}"));
        for node in &mut report.nodes {
            let held = held_for_ms.get(&node.uid).copied().unwrap_or_default();
            let held = SignedDuration::from_millis(i64::try_from(held).unwrap_or(i64::MAX));
            // What another agent says may be before all times.
            let since = wall.checked_sub(held).unwrap_or(wall);
            node.since = Some(format!("{since:.0}"));
        }
        let spec = ZoneReportSpec {
            zone,
            cell,
            reporter: node.clone(),
            report,
        };
        let answer = if waited < GIVEN_UP {
            cloud.report(&spec, &node_uid).await
        } else {
            Err(CloudError::Timeout {
                what: "waiting to write ZoneReport",
                after: GIVEN_UP,
            })
        };
        let (zone, sequence, summary) = (&spec.zone, spec.report.sequence, &spec.report.summary);
        let result = match &answer {
            Ok(()) => {
                tracing::info!(zone, cell, sequence, summary, "report written");
                "written"
            }
            Err(error) => {
                tracing::warn!(zone, cell, %error, "report not written");
                "failed"
            }
        };
        metrics.reports.get_or_create(&Outcome { result }).inc();
        let written = answer.is_ok();
        let told = if carried {
            Event::CarriedWritten {
                cell,
                sequence,
                written,
            }
        } else {
            Event::ReportWritten { written }
        };
        if events.send(told).await.is_err() {
            return;
        }
    }
}
