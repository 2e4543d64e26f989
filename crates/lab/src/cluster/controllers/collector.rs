//! Garbage collection: dependents of owners that are gone, owners that wait for their dependents, and
//! dependents that are to be left behind.
//!
//! It follows the metadata of all kinds that can be listed, watched and deleted, those of custom resources
//! included. What becomes of an object is decided by [`steps`], a pure function of the [`Graph`].

mod graph;
mod watches;

pub use graph::{Graph, Key, Node, Step, steps};

use crate::cluster::controllers::overtaken;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use watches::Watches;

/// Looks again at least this often: a step that was refused is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Collects until `shutdown`. `client` reads and writes.
pub async fn run(client: Client, shutdown: CancellationToken) {
    let watches = Watches::start(&client, &shutdown);
    let mut changes = watches.changes();
    loop {
        changes.mark_unchanged();
        let steps = watches.with(steps);
        for step in steps {
            tracing::debug!(%step, "collecting");
            if let Err(error) = perform(&client, &watches, &step).await {
                tracing::warn!(%error, %step, "cannot collect yet");
            }
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            // A time-out is as good as a change.
            _ = tokio::time::timeout(RETRY, changes.changed()) => {}
        }
    }
}

async fn perform(client: &Client, watches: &Watches, step: &Step) -> Result<(), kube::Error> {
    match step {
        Step::Delete { node, policy, unless } => {
            // The owner's own watch may be behind: only the API server knows that it is gone.
            for owner in unless {
                let Some(resource) = watches.resource(owner) else {
                    return Ok(());
                };
                let api = api(client, &resource.0, resource.1.then_some(node.namespace.as_str()));
                let found = api.get_metadata_opt(&owner.name).await?;
                if found.is_some_and(|found| found.metadata.uid.as_ref() == Some(&owner.uid)) {
                    return Ok(());
                }
            }
            let params = DeleteParams {
                propagation_policy: Some(match *policy {
                    "Foreground" => PropagationPolicy::Foreground,
                    "Orphan" => PropagationPolicy::Orphan,
                    _ => PropagationPolicy::Background,
                }),
                preconditions: Some(Preconditions {
                    uid: Some(node.uid.clone()),
                    resource_version: Some(node.version.clone()),
                }),
                ..DeleteParams::default()
            };
            let deleted = of(client, watches, node);
            let Some(api) = deleted else { return Ok(()) };
            overtaken(api.delete(&node.name, &params).await.map(drop))
        }
        Step::Patch { node, change } => {
            let Some(api) = of(client, watches, node) else {
                return Ok(());
            };
            let written = api
                .patch_metadata(&node.name, &PatchParams::default(), &Patch::Merge(change))
                .await;
            overtaken(written.map(drop))
        }
    }
}

fn of(client: &Client, watches: &Watches, node: &Node) -> Option<Api<DynamicObject>> {
    let (resource, _) = watches.by_key(&node.key)?;
    let namespace = (!node.namespace.is_empty()).then_some(node.namespace.as_str());
    Some(api(client, &resource, namespace))
}

fn api(client: &Client, resource: &kube::core::ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}
