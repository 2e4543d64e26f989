//! Pods of bases that are gone.

use super::{Inner, Life};
use evenkeel_api::names::events::EVICTED;
use evenkeel_vnode::provider::{Fault, FaultKind};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Preconditions};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource as _, ResourceExt as _};

impl Inner {
    pub(super) async fn evict(&self, node: &str) -> Result<Option<usize>, Fault> {
        let Life::Lost(why) = self.bases.life(node) else {
            // It is back: nothing moves.
            return Ok(None);
        };
        let Ok(client) = self.client(node) else {
            // Whoever serves the node evicts.
            return Ok(None);
        };
        let pods = self.pods_on(node, &client).await?;
        // One that cannot be deleted, because a webhook refuses it for instance, holds up no other.
        let mut failure = None;
        for pod in pods.iter().filter(|pod| stays(pod)) {
            let Some(uid) = pod.uid() else { continue };
            if !matches!(self.bases.life(node), Life::Lost(_)) {
                break;
            }
            let namespace = pod.namespace().unwrap_or_default();
            let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
            let how = DeleteParams::default().preconditions(Preconditions {
                uid: Some(uid),
                ..Preconditions::default()
            });
            match pods.delete(&pod.name_any(), &how).await {
                Ok(_) => {}
                // Gone, or another of its name.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => continue,
                Err(error) => {
                    let name = pod.name_any();
                    let message = format!("node {node}: cannot delete pod {namespace}/{name}: {error}");
                    failure.get_or_insert(Fault::new(FaultKind::Later, "EvictionFailed", message));
                    continue;
                }
            }
            tracing::warn!(node, pod = %format!("{namespace}/{}", pod.name_any()), why, "pod of a lost base deleted");
            record(&client, pod, &why).await;
        }
        failure.map_or(Ok(Some(pods.len())), Err)
    }

    /// The modules' pods that are on a node, those on their way out included.
    pub(super) async fn pods_on(&self, node: &str, client: &Client) -> Result<Vec<Pod>, Fault> {
        let pods: Api<Pod> = Api::all(client.clone());
        let list = pods.list(&crate::pods::on(node)).await.map_err(|error| {
            let message = format!("node {node}: cannot list its pods: {error}");
            Fault::new(FaultKind::Later, "PodsUnknown", message)
        })?;
        Ok(list.items)
    }
}

/// Whether a pod is not on its way out.
pub(super) fn stays(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
}

/// An Event that cannot be written changes nothing.
async fn record(client: &Client, pod: &Pod, why: &str) {
    let reporter = Reporter {
        controller: "evenkeel-koupleless".to_owned(),
        instance: None,
    };
    let event = Event {
        type_: EventType::Warning,
        reason: EVICTED.to_owned(),
        note: Some(format!("the base is gone: {why}")),
        action: "Evict".to_owned(),
        secondary: None,
    };
    let recorder = Recorder::new(client.clone(), reporter);
    if let Err(error) = recorder.publish(&event, &pod.object_ref(&())).await {
        tracing::warn!(%error, pod = pod.name_any(), "cannot record why a pod was deleted");
    }
}
