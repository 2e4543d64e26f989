//! The workload controllers: each a pure function of a snapshot and a time.

pub mod accounts;
pub mod collector;
pub mod daemonset;
pub mod deployment;
pub mod disruption;
pub mod endpoints;
pub mod namespace;
pub mod owned;
pub mod podgc;
pub mod replicaset;
pub mod revisions;
pub mod scheduler;
pub mod statefulset;
pub mod volumes;

#[cfg(test)]
mod tests;

use super::{
    action::{Action, execute},
    view::{Refused, Snapshot, View},
};
use jiff::Timestamp;
use kube::Client;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Looks at the lab, says what to do.
type Reconcile = fn(&Snapshot, Timestamp) -> Vec<Action>;

/// The controllers by name, and the ServiceAccount in `kube-system` as which each of them writes; the names
/// are upstream's, so that RBAC and admission webhooks see what they would see in a real cluster.
const CONTROLLERS: [(&str, &str, Reconcile); 13] = [
    ("deployment", "deployment-controller", deployment::reconcile),
    ("replicaset", "replicaset-controller", replicaset::reconcile),
    ("statefulset", "statefulset-controller", statefulset::reconcile),
    ("daemonset", "daemon-set-controller", daemonset::reconcile),
    ("disruption", "disruption-controller", disruption::reconcile),
    ("endpointslice", "endpointslice-controller", endpoints::slices),
    ("endpoint", "endpoint-controller", endpoints::endpoints),
    ("scheduler", "", scheduler::reconcile),
    ("pod-collector", "pod-garbage-collector", podgc::reconcile),
    (
        "service-account",
        "service-account-controller",
        accounts::reconcile,
    ),
    ("volume-binder", "persistent-volume-binder", volumes::reconcile),
    (
        "claim-protection",
        "pvc-protection-controller",
        volumes::protect_claims,
    ),
    (
        "volume-protection",
        "pv-protection-controller",
        volumes::protect_volumes,
    ),
];

/// Looks again at least this often, so that time alone (a pod becoming available) moves things on.
const RESYNC: Duration = Duration::from_secs(1);

/// Runs all controllers until `shutdown`. `client_of` gives the client of a user with its groups; `admin`
/// reads.
pub async fn run(
    admin: Client,
    client_of: impl Fn(&str, &[&str]) -> Client,
    ca_pem: String,
    shutdown: CancellationToken,
) {
    let view = View::start(&admin, &shutdown).await;
    let mut running = tokio::task::JoinSet::new();
    let client_of_account = |account: &str| {
        let user = format!("system:serviceaccount:kube-system:{account}");
        client_of(
            &user,
            &[
                "system:serviceaccounts",
                "system:serviceaccounts:kube-system",
                "system:authenticated",
            ],
        )
    };
    for (name, account, reconcile) in CONTROLLERS {
        let client = if account.is_empty() {
            client_of("system:kube-scheduler", &["system:authenticated"])
        } else {
            client_of_account(account)
        };
        running.spawn(drive(name, client, view.clone(), reconcile, shutdown.clone()));
    }
    running.spawn(accounts::publish_ca(
        admin.clone(),
        view.clone(),
        ca_pem,
        shutdown.clone(),
    ));
    let collector = client_of_account("generic-garbage-collector");
    running.spawn(collector::run(collector, shutdown.clone()));
    running.spawn(namespace::run(admin, view, shutdown));
    while let Some(ended) = running.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a controller ended by itself");
        }
    }
}

async fn drive(
    name: &'static str,
    client: Client,
    view: View,
    reconcile: Reconcile,
    shutdown: CancellationToken,
) {
    let mut changes = view.changes();
    let mut before = Vec::new();
    let mut refused = Refused::new();
    loop {
        changes.mark_unchanged();
        let snapshot = Snapshot {
            refused: refused.clone(),
            ..view.snapshot()
        };
        let actions = reconcile(&snapshot, Timestamp::now());
        // Writes that change nothing would be asked for again at once, for ever.
        let repeated = actions == before;
        for action in &actions {
            tracing::debug!(controller = name, %action, "acting");
        }
        let idle = actions.is_empty() || repeated;
        before.clone_from(&actions);
        let work = execute(&client, &view, name, actions, &mut refused);
        let all_went = tokio::select! {
            () = shutdown.cancelled() => return,
            all_went = work => all_went,
        };
        let pause = async {
            if !all_went {
                tokio::time::sleep(RESYNC).await;
            } else if idle {
                // A time-out is as good as a change: time alone moves things on.
                let _ = tokio::time::timeout(RESYNC, changes.changed()).await;
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = pause => {}
        }
    }
}

/// A refusal because the object is gone or was changed is none: the next look decides again.
fn overtaken(written: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match written {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => other,
    }
}
