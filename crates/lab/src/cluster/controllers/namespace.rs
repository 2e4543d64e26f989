//! Deletion of namespaces: everything in them first, then the namespace.

use super::deployment::seconds;
use crate::cluster::view::View;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    core::ApiResource,
    discovery::{Discovery, Scope, verbs},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
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

/// What a namespace still holds after everything in it was deleted.
#[derive(Default)]
struct Left {
    /// Objects of each resource.
    resources: BTreeMap<String, usize>,
    /// Objects that each finalizer holds.
    finalizers: BTreeMap<String, usize>,
}

impl Left {
    fn count(&mut self, resource: &ApiResource, metadata: &ObjectMeta) {
        *self
            .resources
            .entry(format!("{}.{}", resource.plural, resource.group))
            .or_default() += 1;
        for finalizer in metadata.finalizers.iter().flatten() {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
    }

    /// The conditions of the namespace, with upstream's words.
    fn conditions(&self, old: &[NamespaceCondition], now: Timestamp) -> Vec<Value> {
        let listed = |all: &BTreeMap<String, usize>, verb: &str| {
            let each = all
                .iter()
                .map(|(name, number)| format!("{name} {verb} {number} resource instances"));
            each.collect::<Vec<_>>().join(", ")
        };
        let held = !self.finalizers.is_empty();
        let (reason, message) = if held {
            let each = listed(&self.finalizers, "in");
            (
                "SomeFinalizersRemain",
                format!("Some content in the namespace has finalizers remaining: {each}"),
            )
        } else {
            (
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished".to_owned(),
            )
        };
        let remain = format!("Some resources are remaining: {}", listed(&self.resources, "has"));
        [
            (
                "DiscoveryFailure",
                false,
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            (
                "GroupVersionParsingFailure",
                false,
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            (
                "ContentFailure",
                false,
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            ("ContentRemaining", true, "SomeResourcesRemain", &remain),
            ("FinalizersRemaining", held, reason, &message),
        ]
        .into_iter()
        .map(|(kind, is_so, reason, message)| {
            let about = if kind.ends_with("Failure") {
                "NamespaceDeletion"
            } else {
                "Namespace"
            };
            let kind = format!("{about}{kind}");
            let value = if is_so { "True" } else { "False" };
            let same = old
                .iter()
                .find(|condition| condition.type_ == kind && condition.status == value);
            let since = same.and_then(|condition| condition.last_transition_time.as_ref());
            json!({
                "type": kind, "status": value, "reason": reason, "message": message,
                "lastTransitionTime": seconds(since.map_or(now, |time| time.0)),
            })
        })
        .collect()
    }

    /// Writes the conditions where they changed.
    async fn tell(&self, client: &Client, namespace: &Namespace) -> Result<(), kube::Error> {
        let old = namespace
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_deref());
        let old = old.unwrap_or_default();
        let conditions = self.conditions(old, Timestamp::now());
        if json!(old) == json!(conditions) {
            return Ok(());
        }
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        let api: Api<Namespace> = Api::all(client.clone());
        match api
            .patch_status(&namespace.name_any(), &PatchParams::default(), &patch)
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error),
        }
    }
}

async fn empty(client: &Client, namespace: &Namespace) -> Result<(), kube::Error> {
    let name = namespace.name_any();
    let discovery = Discovery::new(client.clone()).run().await?;
    let mut left = Left::default();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let deletable = capabilities.supports_operation(verbs::DELETE)
                && capabilities.supports_operation(verbs::LIST);
            if capabilities.scope != Scope::Namespaced || !deletable {
                continue;
            }
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &name, &resource);
            for object in api.list_metadata(&ListParams::default()).await? {
                left.count(&resource, &object.metadata);
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
    if !left.resources.is_empty() {
        return left.tell(client, namespace).await;
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

#[cfg(test)]
#[path = "namespace_tests.rs"]
mod tests;
