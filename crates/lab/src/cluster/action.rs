//! What a controller wants done, and the doing of it.

use super::view::{Refused, View};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use std::{fmt, time::Duration};

/// The kinds that controllers write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each variant is the kind it is named after")]
pub enum Kind {
    ConfigMap,
    ControllerRevision,
    DaemonSet,
    Deployment,
    EndpointSlice,
    Endpoints,
    Event,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    ReplicaSet,
    Service,
    ServiceAccount,
    StatefulSet,
}

impl Kind {
    fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::ConfigMap => ("", "v1", "ConfigMap", "configmaps"),
            Self::ControllerRevision => ("apps", "v1", "ControllerRevision", "controllerrevisions"),
            Self::DaemonSet => ("apps", "v1", "DaemonSet", "daemonsets"),
            Self::Deployment => ("apps", "v1", "Deployment", "deployments"),
            Self::EndpointSlice => ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
            Self::Endpoints => ("", "v1", "Endpoints", "endpoints"),
            Self::Event => ("", "v1", "Event", "events"),
            Self::Namespace => ("", "v1", "Namespace", "namespaces"),
            Self::PersistentVolume => ("", "v1", "PersistentVolume", "persistentvolumes"),
            Self::PersistentVolumeClaim => ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
            Self::Pod => ("", "v1", "Pod", "pods"),
            Self::PodDisruptionBudget => ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
            Self::ReplicaSet => ("apps", "v1", "ReplicaSet", "replicasets"),
            Self::Service => ("", "v1", "Service", "services"),
            Self::ServiceAccount => ("", "v1", "ServiceAccount", "serviceaccounts"),
            Self::StatefulSet => ("apps", "v1", "StatefulSet", "statefulsets"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    fn name(self) -> String {
        self.resource().kind
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Create {
        kind: Kind,
        namespace: String,
        /// The object, without apiVersion and kind.
        object: Value,
    },
    /// Merge-patch an object, or its status.
    Patch {
        kind: Kind,
        /// Namespace; empty for cluster scope.
        namespace: String,
        name: String,
        /// Whether the status subresource is meant.
        status: bool,
        patch: Value,
    },
    /// Delete exactly this object.
    Delete {
        kind: Kind,
        /// Namespace; empty for cluster scope.
        namespace: String,
        name: String,
        /// UID precondition.
        uid: String,
        /// Grace period; `None` is the object's own.
        grace_seconds: Option<u32>,
    },
    /// Bind a pod to a node.
    Bind {
        namespace: String,
        name: String,
        /// UID of the pod.
        uid: String,
        node: String,
    },
}

impl Action {
    /// UID of the controller of what is created.
    fn owner(&self) -> Option<&str> {
        let Self::Create { object, .. } = self else {
            return None;
        };
        let owners = object["metadata"]["ownerReferences"].as_array()?;
        let controller = owners.iter().find(|owner| owner["controller"] == true)?;
        controller["uid"].as_str()
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create {
                kind,
                namespace,
                object,
            } => {
                let metadata = &object["metadata"];
                let name = metadata["name"]
                    .as_str()
                    .or_else(|| metadata["generateName"].as_str())
                    .unwrap_or("?");
                write!(f, "create {kind:?} {namespace}/{name}")
            }
            Self::Patch {
                kind,
                namespace,
                name,
                status,
                ..
            } => {
                write!(
                    f,
                    "patch {kind:?} {namespace}/{name}{}",
                    if *status { " status" } else { "" }
                )
            }
            Self::Delete {
                kind,
                namespace,
                name,
                ..
            } => write!(f, "delete {kind:?} {namespace}/{name}"),
            Self::Bind {
                namespace,
                name,
                node,
                ..
            } => write!(f, "bind Pod {namespace}/{name} to {node}"),
        }
    }
}

/// A write that the view does not show yet.
enum Pending {
    Version(String, u64),
    PodLeaving(String),
    PodBound(String),
}

/// Executes actions in order and waits until the view shows them, for at most 5 s. A refused write is logged
/// and left: the next look at the lab decides again. `false` if one was refused for another reason than that
/// the lab had moved on; the caller must pause then. What became of creations is noted in `refused`.
pub async fn execute(
    client: &Client,
    view: &View,
    controller: &'static str,
    actions: Vec<Action>,
    refused: &mut Refused,
) -> bool {
    let mut pending = Vec::new();
    let mut all_went = true;
    for action in actions {
        let done = perform(client, &action).await;
        if let Some(owner) = action.owner() {
            match &done {
                Err(kube::Error::Api(status)) if is_fault(status) => {
                    refused.insert(owner.to_owned(), status.message.clone());
                }
                _ => {
                    refused.remove(owner);
                }
            }
        }
        match done {
            Ok(Some(shown)) => pending.push(shown),
            Ok(None) => {}
            Err(kube::Error::Api(status)) if !is_fault(&status) => {
                tracing::debug!(controller, %action, reason = %status.message, "overtaken");
            }
            Err(kube::Error::Api(status)) => {
                all_went = false;
                tracing::warn!(controller, %action, reason = %status.message, "write refused");
            }
            Err(error) => {
                all_went = false;
                tracing::warn!(controller, %action, %error, "write failed");
            }
        }
    }
    let mut changes = view.changes();
    let visible = async {
        while pending.iter().any(|write| !is_visible(view, write)) {
            if changes.changed().await.is_err() {
                // The view ends with the lab.
                return;
            }
        }
    };
    if tokio::time::timeout(Duration::from_secs(5), visible)
        .await
        .is_err()
    {
        tracing::warn!(controller, "own writes are not visible after 5 s, going on");
    }
    all_went
}

/// Whether the owner has to hear of the refusal. In a namespace that is on its way out everything is refused.
fn is_fault(status: &kube::core::Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut causes = causes.map(|cause| cause.reason.as_str());
    !matches!(status.code, 404 | 409) && !causes.any(|reason| reason == "NamespaceTerminating")
}

fn is_visible(view: &View, write: &Pending) -> bool {
    match write {
        Pending::Version(kind, version) => view.has_seen(kind, *version),
        Pending::PodLeaving(uid) => view
            .pods()
            .iter()
            .all(|pod| pod.metadata.uid.as_ref() != Some(uid) || pod.metadata.deletion_timestamp.is_some()),
        Pending::PodBound(uid) => view.pods().iter().all(|pod| {
            let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            pod.metadata.uid.as_ref() != Some(uid) || bound
        }),
    }
}

async fn perform(client: &Client, action: &Action) -> Result<Option<Pending>, kube::Error> {
    match action {
        Action::Create {
            kind,
            namespace,
            object,
        } => {
            let mut object = object.clone();
            let resource = kind.resource();
            object["apiVersion"] = json!(resource.api_version);
            object["kind"] = json!(resource.kind);
            let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
            let made = api(client, *kind, namespace)
                .create(&PostParams::default(), &object)
                .await?;
            Ok(version(*kind, &made))
        }
        Action::Patch {
            kind,
            namespace,
            name,
            status,
            patch,
        } => {
            let api = api(client, *kind, namespace);
            let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
            let changed = if *status {
                api.patch_status(name, &params, &patch).await?
            } else {
                api.patch(name, &params, &patch).await?
            };
            Ok(version(*kind, &changed))
        }
        Action::Delete {
            kind,
            namespace,
            name,
            uid,
            grace_seconds,
        } => {
            let params = DeleteParams {
                grace_period_seconds: *grace_seconds,
                preconditions: Some(Preconditions {
                    uid: Some(uid.clone()),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            api(client, *kind, namespace).delete(name, &params).await?;
            Ok((*kind == Kind::Pod).then(|| Pending::PodLeaving(uid.clone())))
        }
        Action::Bind {
            namespace,
            name,
            uid,
            node,
        } => {
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace, "uid": uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            });
            let request = http::Request::post(format!("/api/v1/namespaces/{namespace}/pods/{name}/binding"))
                .header("Content-Type", "application/json")
                .body(serde_json::to_vec(&binding).map_err(kube::Error::SerdeError)?)
                .map_err(kube::Error::HttpError)?;
            client.request::<Value>(request).await?;
            Ok(Some(Pending::PodBound(uid.clone())))
        }
    }
}

fn version(kind: Kind, object: &DynamicObject) -> Option<Pending> {
    let version = object.metadata.resource_version.as_ref()?.parse().ok()?;
    (kind != Kind::Event).then(|| Pending::Version(kind.name(), version))
}

fn api(client: &Client, kind: Kind, namespace: &str) -> Api<DynamicObject> {
    if namespace.is_empty() {
        Api::all_with(client.clone(), &kind.resource())
    } else {
        Api::namespaced_with(client.clone(), namespace, &kind.resource())
    }
}
