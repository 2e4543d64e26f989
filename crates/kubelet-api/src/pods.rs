//! `/pods` and `/runningpods/`.

use super::{Node, Server, call, json, text};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use std::collections::HashMap;

/// The pods of the node as the API server and the kubelet have them.
pub(super) async fn all(State(server): State<Server>, Extension(node): Extension<Node>) -> Response {
    let pods = server.backend.pods(&node.name).await;
    list(pods.iter().map(|pod| &**pod))
}

/// The pods that its provider has, each with the containers that run: those of which one runs, and those of
/// which only the provider knows.
pub(super) async fn running(State(server): State<Server>, Extension(node): Extension<Node>) -> Response {
    let listing = server.backend.list(&node.name);
    let listed = match call::ask(&node, server.settings.call, "listing pods", listing).await {
        Ok(listed) => listed,
        Err(fault) => return call::refusal(fault),
    };
    let known = server.backend.pods(&node.name).await;
    let known: HashMap<&str, &Pod> = known
        .iter()
        .filter_map(|pod| Some((pod.metadata.uid.as_deref()?, &**pod)))
        .collect();
    let pods: Vec<Pod> = listed
        .iter()
        .filter_map(|id| {
            let containers = known.get(&*id.uid).map(|pod| running_containers(pod));
            if containers.as_ref().is_some_and(Vec::is_empty) {
                return None;
            }
            let mut pod = Pod::default();
            pod.metadata.namespace = Some(id.namespace.to_string());
            pod.metadata.name = Some(id.name.to_string());
            pod.metadata.uid = Some(id.uid.to_string());
            pod.spec = Some(PodSpec {
                containers: containers.unwrap_or_default(),
                ..PodSpec::default()
            });
            Some(pod)
        })
        .collect();
    list(pods.iter())
}

/// Name and image of the containers that run.
fn running_containers(pod: &Pod) -> Vec<Container> {
    let Some(status) = &pod.status else {
        return Vec::new();
    };
    [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ]
    .into_iter()
    .flatten()
    .flatten()
    .filter(|container| {
        container
            .state
            .as_ref()
            .is_some_and(|state| state.running.is_some())
    })
    .map(|container| Container {
        name: container.name.clone(),
        image: Some(container.image.clone()),
        ..Container::default()
    })
    .collect()
}

/// A `PodList`, written without a copy of its pods.
fn list<'a>(pods: impl Iterator<Item = &'a Pod>) -> Response {
    let mut body = br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#.to_vec();
    for (index, pod) in pods.enumerate() {
        if index > 0 {
            body.push(b',');
        }
        if let Err(error) = serde_json::to_writer(&mut body, pod) {
            return text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("cannot encode a pod: {error}"),
            );
        }
    }
    body.extend_from_slice(b"]}\n");
    json(body)
}
