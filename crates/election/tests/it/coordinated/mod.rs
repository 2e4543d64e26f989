//! Candidates and the coordinator at the embedded API server.

mod candidates;
mod elections;
mod electors;

use evenkeel_election::coordinated::{Candidacy, CandidacyError, Coordinator, stand};
use evenkeel_election::core::coordinated::Timing;
use evenkeel_testkit::{SOON, eventually};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::coordination::v1beta1::LeaseCandidate;
use kube::{Api, Client};
use semver::Version;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const NAMESPACE: &str = "kube-system";
pub(crate) const LEASE: &str = "component-a";

pub(crate) fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), NAMESPACE)
}

pub(crate) fn candidates(client: &Client) -> Api<LeaseCandidate> {
    Api::namespaced(client.clone(), NAMESPACE)
}

pub(crate) fn candidacy(identity: &str, version: &str) -> Candidacy {
    let version: Version = version.parse().unwrap();
    Candidacy::new(NAMESPACE, LEASE, identity, version)
}

/// A candidate that stands until it is told otherwise or dropped.
pub(crate) struct Standing {
    stop: CancellationToken,
    task: JoinHandle<Result<(), CandidacyError>>,
}

impl Standing {
    pub(crate) fn new(client: &Client, candidacy: Candidacy) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(stand(client.clone(), candidacy, stop.clone()));
        Self { stop, task }
    }

    pub(crate) async fn withdraw(mut self) {
        self.stop.cancel();
        (&mut self.task).await.unwrap().unwrap();
    }

    /// Ends as a crash does.
    pub(crate) fn crash(self) {
        self.task.abort();
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A coordinator that works until the guard is dropped.
pub(crate) fn coordinate(coordinator: Coordinator) -> DropGuard {
    let stop = CancellationToken::new();
    tokio::spawn(coordinator.run(stop.clone()));
    stop.drop_guard()
}

pub(crate) fn coordinator(client: &Client) -> Coordinator {
    Coordinator::new(client.clone())
        .in_namespace(NAMESPACE)
        .with_timing(Timing::default())
}

pub(crate) async fn spec(client: &Client) -> Option<LeaseSpec> {
    leases(client).get_opt(LEASE).await.unwrap()?.spec
}

/// Waits for the Lease to be as wanted.
pub(crate) async fn until(client: &Client, what: &str, wanted: impl Fn(&LeaseSpec) -> bool) -> LeaseSpec {
    eventually(what, SOON, || async {
        spec(client).await.filter(|spec| wanted(spec))
    })
    .await
}

pub(crate) async fn until_held_by(client: &Client, holder: &str) -> LeaseSpec {
    until(client, &format!("held by {holder}"), |spec| {
        spec.holder_identity.as_deref() == Some(holder)
    })
    .await
}

/// The candidate's object, once it is as wanted.
pub(crate) async fn until_candidate(
    client: &Client,
    identity: &str,
    wanted: impl Fn(&LeaseCandidate) -> bool,
) -> LeaseCandidate {
    eventually(&format!("candidate {identity}"), SOON, || async {
        candidates(client)
            .get_opt(identity)
            .await
            .unwrap()
            .filter(|object| wanted(object))
    })
    .await
}
