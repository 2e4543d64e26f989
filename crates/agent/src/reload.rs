//! What a running agent takes over from its configuration file.

use crate::args::{ArgsError, RELOADED, RunArgs, Settings};
use crate::check::{Checks, Registry};
use crate::metrics::Metrics;
use crate::zone::Event;
use evenkeel_settings::{Change, Changes};
use evenkeel_zone::roster::RosterKeys;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// A check that is off convicts nobody (hazard 46).
pub(crate) fn warn_of_missing_checks(settings: &Settings, metrics: &Metrics) {
    if settings.kubelet.is_none() {
        tracing::warn!("--kubelet none: peers have nothing to check, and no vote ever finds this node dead");
    }
    let lacking = settings.checks.lacking();
    metrics
        .lacking
        .set(i64::try_from(lacking.plugins).unwrap_or(i64::MAX));
    if let Some(problem) = lacking.problem {
        tracing::warn!(problem, "this agent cannot make all checks of --check");
    }
    if !settings.checks.has("kubelet") {
        tracing::warn!(
            "--check without kubelet: this agent recognises no kubelet, and vouches for no node whose agent is down"
        );
    }
}

/// Takes over what the configuration file says anew, as far as a running agent can.
pub(crate) async fn take_over(
    (mut changes, plugins): (Changes<RunArgs>, Registry),
    (checks, events): (watch::Sender<Checks>, mpsc::Sender<Event>),
    (metrics, mut asks_for_signatures): (Metrics, bool),
    stop: CancellationToken,
) {
    loop {
        let change = tokio::select! {
            () = stop.cancelled() => return,
            change = changes.next() => change,
        };
        let read = change
            .map_err(ArgsError::from)
            .and_then(|Change { settings, fields, .. }| Ok((settings.settings(&plugins)?, fields)));
        let (settings, fields) = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(%error, "the configuration file is not used: what it said before holds");
                continue;
            }
        };
        let (taken, left): (Vec<_>, Vec<_>) = fields
            .into_iter()
            .partition(|field| RELOADED.contains(&field.as_str()));
        if !left.is_empty() {
            let fields = left.join(", ");
            tracing::warn!(
                fields,
                "the configuration file changed: start the agent again for these fields"
            );
        }
        if taken.is_empty() {
            continue;
        }
        if asks_for_signatures && settings.roster_keys.is_empty() {
            tracing::error!(
                "the configuration file has no rosterPublicKey any more, by which any roster would count: nothing is taken over; \
                 start the agent again if that is meant"
            );
            continue;
        }
        asks_for_signatures = !settings.roster_keys.is_empty();
        tracing::info!(
            fields = taken.join(", "),
            "taken over from the configuration file"
        );
        warn_of_missing_checks(&settings, &metrics);
        checks.send_replace(settings.checks);
        let keys = RosterKeys::new(settings.roster_keys);
        let of_checks = taken.iter().any(|field| field != "rosterPublicKey");
        let changed = of_checks.then_some(Event::ChecksChanged);
        for event in changed.into_iter().chain([Event::RosterKeys(keys)]) {
            if events.send(event).await.is_err() {
                return;
            }
        }
    }
}
