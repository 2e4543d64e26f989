//! Deletion of namespaces: everything in them first, then the namespace.

use super::{deployment::seconds, overtaken, owned::is_finished};
use crate::cluster::view::View;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition, Pod};
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
/// Seconds between the deletion of a namespace and that of what is in it, as upstream has it: until then,
/// other API servers may not know yet that nothing more is to be made there.
const GRACE: i64 = 5;
/// The finalizer of a namespace that this controller takes off.
const FINALIZER: &str = "kubernetes";

/// Finalizes namespaces until `shutdown`.
pub async fn run(client: Client, view: View, shutdown: CancellationToken) {
    let mut changes = view.changes();
    loop {
        changes.mark_unchanged();
        let leaving: Vec<(String, Timestamp)> = view
            .snapshot()
            .namespaces
            .iter()
            .filter_map(|namespace| {
                let since = namespace.metadata.deletion_timestamp.as_ref()?;
                Some((namespace.name_any(), since.0))
            })
            .collect();
        for namespace in leaving
            .iter()
            .filter(|(_, since)| is_due(*since))
            .map(|(name, _)| name)
        {
            if let Err(error) = empty(&client, namespace).await {
                tracing::warn!(%error, %namespace, "cannot finalize the namespace yet");
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

fn is_due(since: Timestamp) -> bool {
    Timestamp::now().duration_since(since).as_secs() >= GRACE
}

/// What a namespace still holds after everything in it was deleted.
#[derive(Debug, Default)]
struct Left {
    /// Objects of each resource.
    resources: BTreeMap<String, usize>,
    /// Objects that each finalizer holds.
    finalizers: BTreeMap<String, usize>,
    /// What went wrong.
    faults: Vec<String>,
}

impl Left {
    fn count(&mut self, resource: &ApiResource, left: &[ObjectMeta]) {
        if left.is_empty() {
            return;
        }
        let name = format!("{}.{}", resource.plural, resource.group);
        self.resources.insert(name, left.len());
        for finalizer in left
            .iter()
            .flat_map(|metadata| metadata.finalizers.iter().flatten())
        {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
    }

    /// Takes down that objects are there which nothing holds and which should have ended.
    fn miss(&mut self, resource: &ApiResource, left: &[ObjectMeta], namespace: &str) {
        let held = |metadata: &ObjectMeta| metadata.finalizers.iter().flatten().next().is_some();
        if !left.is_empty() && !left.iter().any(held) {
            self.faults.push(format!(
                "unexpected items still remain in namespace: {namespace} for gvr: {}/{}, Resource={}",
                resource.group, resource.version, resource.plural
            ));
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
        let remains = !self.resources.is_empty();
        let held = !self.finalizers.is_empty();
        let failed = !self.faults.is_empty();
        let failure = format!(
            "Failed to delete all resource types, {} remaining: {}",
            self.faults.len(),
            self.faults.join(", ")
        );
        let remain = format!("Some resources are remaining: {}", listed(&self.resources, "has"));
        let finalizers = format!(
            "Some content in the namespace has finalizers remaining: {}",
            listed(&self.finalizers, "in")
        );
        // Each kind with whether it is so, and what it says if it is, and if it is not.
        let known = [
            (
                "NamespaceDeletionDiscoveryFailure",
                false,
                ("", ""),
                ("ResourcesDiscovered", "All resources successfully discovered"),
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                false,
                ("", ""),
                ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            ),
            (
                "NamespaceDeletionContentFailure",
                failed,
                ("ContentDeletionFailed", failure.as_str()),
                (
                    "ContentDeleted",
                    "All content successfully deleted, may be waiting on finalization",
                ),
            ),
            (
                "NamespaceContentRemaining",
                remains,
                ("SomeResourcesRemain", remain.as_str()),
                ("ContentRemoved", "All content successfully removed"),
            ),
            (
                "NamespaceFinalizersRemaining",
                held,
                ("SomeFinalizersRemain", finalizers.as_str()),
                (
                    "ContentHasNoFinalizers",
                    "All content-preserving finalizers finished",
                ),
            ),
        ];
        // Conditions of others stay; those of this controller keep their places.
        let mut all: Vec<Value> = old.iter().map(|condition| json!(condition)).collect();
        for (kind, is_so, so, otherwise) in known {
            let value = if is_so { "True" } else { "False" };
            let (reason, message) = if is_so { so } else { otherwise };
            let place = all.iter().position(|condition| condition["type"] == kind);
            let before = place
                .map(|place| &all[place])
                .filter(|before| before["status"] == value);
            let since = before.map(|before| before["lastTransitionTime"].clone());
            let condition = json!({
                "type": kind, "status": value, "reason": reason, "message": message,
                "lastTransitionTime": since.unwrap_or_else(|| json!(seconds(now))),
            });
            match place {
                Some(place) => all[place] = condition,
                None => all.push(condition),
            }
        }
        all
    }

    /// Writes the conditions where they changed, and says whether they did. The resourceVersion keeps it from
    /// undoing what others wrote.
    async fn tell(&self, client: &Client, namespace: &Namespace) -> Result<bool, kube::Error> {
        let old = namespace
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_deref());
        let old = old.unwrap_or_default();
        let conditions = self.conditions(old, Timestamp::now());
        if json!(old) == json!(conditions) {
            return Ok(false);
        }
        let version = &namespace.metadata.resource_version;
        let change = json!({"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}});
        let api: Api<Namespace> = Api::all(client.clone());
        let written = api
            .patch_status(
                &namespace.name_any(),
                &PatchParams::default(),
                &Patch::Merge(change),
            )
            .await;
        overtaken(written.map(drop))?;
        Ok(true)
    }
}

/// Deletes what is in the namespace, and then lets it go.
async fn empty(client: &Client, name: &str) -> Result<(), kube::Error> {
    let Some(namespace) = Api::<Namespace>::all(client.clone()).get_opt(name).await? else {
        return Ok(());
    };
    let finalizers = namespace
        .spec
        .iter()
        .flat_map(|spec| spec.finalizers.iter().flatten());
    if namespace.metadata.deletion_timestamp.is_none()
        || !finalizers.into_iter().any(|held| held == FINALIZER)
    {
        return Ok(());
    }
    let mut left = Left::default();
    // Pods end before anything that they may need goes.
    let pods = ApiResource::erase::<Pod>(&());
    let patience = patience(client, &namespace).await?;
    let remaining = delete_all(client, name, &pods).await?;
    if !remaining.is_empty() {
        if !patience {
            left.miss(&pods, &remaining, name);
        }
        // As upstream: what is left is said only once the pods are gone.
        left.tell(client, &namespace).await?;
        return Ok(());
    }
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let deletable = capabilities.supports_operation(verbs::DELETE)
                && capabilities.supports_operation(verbs::LIST);
            if capabilities.scope != Scope::Namespaced || !deletable || resource == pods {
                continue;
            }
            let remaining = delete_all(client, name, &resource).await?;
            left.count(&resource, &remaining);
            left.miss(&resource, &remaining, name);
        }
    }
    // What was written is a new version of the namespace: the next look lets go of that one.
    if left.tell(client, &namespace).await? || !left.resources.is_empty() {
        return Ok(());
    }
    let mut finalized = json!(namespace);
    let kept = namespace
        .spec
        .iter()
        .flat_map(|spec| spec.finalizers.iter().flatten());
    let kept: Vec<&String> = kept.filter(|held| *held != FINALIZER).collect();
    finalized["apiVersion"] = json!("v1");
    finalized["kind"] = json!("Namespace");
    finalized["spec"]["finalizers"] = json!(kept);
    let request = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"))
        .header("Content-Type", "application/json")
        .body(serde_json::to_vec(&finalized).map_err(kube::Error::SerdeError)?)
        .map_err(kube::Error::HttpError)?;
    overtaken(client.request::<Value>(request).await.map(drop))
}

/// Whether pods may still be ending by their own grace periods.
async fn patience(client: &Client, namespace: &Namespace) -> Result<bool, kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &namespace.name_any());
    let pods = api.list(&ListParams::default()).await?;
    let grace = pods
        .iter()
        .filter(|pod| !is_finished(pod))
        .filter_map(|pod| pod.spec.as_ref()?.termination_grace_period_seconds);
    let since = namespace.metadata.deletion_timestamp.as_ref();
    let gone = since.map_or(0, |since| Timestamp::now().duration_since(since.0).as_secs());
    Ok(gone < grace.max().unwrap_or(0))
}

/// Deletes all objects of a resource, and returns those that are there afterwards.
async fn delete_all(
    client: &Client,
    namespace: &str,
    resource: &ApiResource,
) -> Result<Vec<ObjectMeta>, kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let all = ListParams::default();
    if api.list_metadata(&all.clone().limit(1)).await?.items.is_empty() {
        return Ok(Vec::new());
    }
    api.delete_collection(&DeleteParams::background(), &all).await?;
    let left = api.list_metadata(&all).await?;
    Ok(left.items.into_iter().map(|object| object.metadata).collect())
}

#[cfg(test)]
#[path = "namespace_tests.rs"]
mod tests;
