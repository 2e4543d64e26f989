//! Deletion of namespaces: everything in them first, then the namespace.

use crate::cluster::view::View;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams},
    discovery::{Discovery, Scope, verbs},
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Looks at terminating namespaces at least this often: their contents end at their own pace.
const RETRY: Duration = Duration::from_millis(500);

/// Finalizes namespaces until `shutdown`.
pub async fn run(client: Client, view: View, shutdown: CancellationToken) {
    let mut changes = view.changes();
    loop {
        changes.mark_unchanged();
        let leaving: Vec<Namespace> = view
            .snapshot()
            .namespaces
            .iter()
            .filter(|namespace| namespace.metadata.deletion_timestamp.is_some())
            .map(|namespace| Namespace::clone(namespace))
            .collect();
        for namespace in &leaving {
            if let Err(error) = empty(&client, namespace).await {
                tracing::warn!(%error, namespace = %namespace.name_any(), "cannot finalize the namespace yet");
            }
        }
        let pause = async {
            if leaving.is_empty() {
                // An error means that the view is gone, which `shutdown` tells as well.
                let _ = changes.changed().await;
            } else {
                tokio::time::sleep(RETRY).await;
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = pause => {}
        }
    }
}

async fn empty(client: &Client, namespace: &Namespace) -> Result<(), kube::Error> {
    let name = namespace.name_any();
    let discovery = Discovery::new(client.clone()).run().await?;
    let mut left = 0_usize;
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let deletable = capabilities.supports_operation(verbs::DELETE)
                && capabilities.supports_operation(verbs::LIST);
            if capabilities.scope != Scope::Namespaced || !deletable {
                continue;
            }
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &name, &resource);
            for object in api.list_metadata(&ListParams::default()).await? {
                left += 1;
                if object.metadata.deletion_timestamp.is_none() {
                    match api.delete(&object.name_any(), &DeleteParams::background()).await {
                        Ok(_) => {}
                        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }
    if left > 0 {
        return Ok(());
    }
    let mut finalized = json!(namespace);
    finalized["apiVersion"] = json!("v1");
    finalized["kind"] = json!("Namespace");
    finalized["spec"]["finalizers"] = json!([]);
    let request = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"))
        .header("Content-Type", "application/json")
        .body(serde_json::to_vec(&finalized).map_err(kube::Error::SerdeError)?)
        .map_err(kube::Error::HttpError)?;
    match client.request::<Value>(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error),
    }
}
