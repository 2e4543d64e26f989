//! Every revision of a Lease, with the time of its receipt.

use super::history::Revision;
use evenkeel_testkit::ApiServer;
use evenkeel_testkit::candidate::boot_time;
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams};
use std::time::Duration;
use tokio::sync::watch;

/// Watches a Lease from before it exists, past the network.
pub(crate) struct Recorder {
    leases: Api<DynamicObject>,
    name: String,
    revisions: watch::Receiver<Vec<Revision>>,
}

impl Recorder {
    pub(crate) async fn start(server: &ApiServer, namespace: &str, name: &str) -> Self {
        let kind = ApiResource::erase::<Lease>(&());
        let leases: Api<DynamicObject> = Api::namespaced_with(server.client(), namespace, &kind);
        let list = leases.list(&ListParams::default()).await.unwrap();
        let since = list.metadata.resource_version.unwrap();
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        let mut events = leases.watch(&params, &since).await.unwrap().boxed();
        let (publish, revisions) = watch::channel(Vec::new());
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event.unwrap() {
                    WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                        let revision = revision(&lease, boot_time(), Timestamp::now());
                        publish.send_modify(|revisions| revisions.push(revision));
                    }
                    WatchEvent::Bookmark(_) => {}
                    other => panic!("the recorder cannot go on after {other:?}"),
                }
            }
        });
        Self {
            leases,
            name: name.to_owned(),
            revisions,
        }
    }

    /// Who holds the Lease; empty for nobody.
    pub(crate) fn holder(&self) -> String {
        let revisions = self.revisions.borrow();
        revisions
            .last()
            .map(|revision| revision.holder.clone())
            .unwrap_or_default()
    }

    /// Waits until some revision has no holder.
    pub(crate) async fn released(&self, deadline: Duration) {
        let mut revisions = self.revisions.clone();
        let released = revisions.wait_for(|all| all.iter().any(|revision| revision.holder.is_empty()));
        let released = tokio::time::timeout(deadline, released).await;
        released.expect("somebody releases the lease").unwrap();
    }

    /// The whole history up to now.
    pub(crate) async fn history(&self, deadline: Duration) -> Vec<Revision> {
        let lease = self.leases.get(&self.name).await.unwrap();
        let version = lease.metadata.resource_version.unwrap();
        let mut revisions = self.revisions.clone();
        let recorded = revisions.wait_for(|all| all.iter().any(|revision| revision.version == version));
        let recorded = tokio::time::timeout(deadline, recorded).await;
        recorded
            .expect("the recorder sees every revision")
            .unwrap()
            .clone()
    }
}

fn revision(lease: &DynamicObject, received: Duration, wall: Timestamp) -> Revision {
    let spec = &lease.data["spec"];
    let time = |field: &str| {
        spec[field]
            .as_str()
            .map(|text| text.parse::<Timestamp>().unwrap())
    };
    let mut fields: Vec<String> = spec
        .as_object()
        .map(|spec| spec.keys().cloned().collect())
        .unwrap_or_default();
    fields.sort();
    let renewed = time("renewTime");
    let age = renewed.and_then(|renewed| Duration::try_from(wall.duration_since(renewed)).ok());
    Revision {
        uid: lease.metadata.uid.clone().unwrap_or_default(),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        received,
        written: received.saturating_sub(age.unwrap_or_default()),
        holder: spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
        seconds: spec["leaseDurationSeconds"].as_u64().unwrap_or_default(),
        acquired: time("acquireTime"),
        renewed,
        transitions: spec["leaseTransitions"].as_i64().unwrap_or(-1),
        fields,
    }
}
