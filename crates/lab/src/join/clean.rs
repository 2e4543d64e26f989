//! Removes everything of a lab from a control plane.

use super::{Cluster, LABEL, is_installed};
use evenkeel_api::names;
use k8s_openapi::Resource as _;
use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration,
    coordination::v1::Lease,
    core::v1::{Namespace, Node, Pod},
};
use kube::{
    Api, Discovery, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PropagationPolicy},
    discovery::{ApiGroup, Scope, verbs},
};
use serde_json::json;
use std::{collections::BTreeSet, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time in which everything has to be gone; the garbage collector and the namespace controller need their
/// share of it.
const GONE_WITHIN: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(500);

/// Why something is left.
#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    #[error("cannot {what} on the control plane: {}", evenkeel_net::log::causes(.source))]
    Api {
        what: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// Evenkeel, which a lab had installed.
    #[error(
        "cannot uninstall Evenkeel from the control plane: {0}; `evenkeel lab clean --join KUBECONFIG` tries again"
    )]
    Uninstall(#[source] Box<evenkeel_install::InstallError>),
    #[error(
        "still there after {} s: {left}; `evenkeel lab clean --join KUBECONFIG` tries again",
        GONE_WITHIN.as_secs()
    )]
    Left { left: String },
}

fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> CleanError {
    let what = what.into();
    move |source| CleanError::Api {
        what,
        source: Box::new(source),
    }
}

/// What somebody else has deleted meanwhile is gone as well.
fn gone<T>(deleted: kube::Result<T>) -> kube::Result<()> {
    match deleted {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}

impl Cluster {
    /// Deletes every object of a lab, whichever run made it, and waits until all are gone. Does nothing where
    /// there are none. No process of that lab may run any more. Says what it deleted, by kind and name.
    pub async fn clean(&self) -> Result<Vec<String>, CleanError> {
        let mut deleted = BTreeSet::new();
        deleted.extend(self.uninstall(false).await?);
        self.delete_webhook(&mut deleted).await?;
        let discovery = Discovery::new(self.client.clone()).run_aggregated().await;
        let discovery = discovery.map_err(api("list the kinds of objects"))?;
        let end = Instant::now() + GONE_WITHIN;
        loop {
            let left = self.delete_all(&discovery, &mut deleted).await?;
            if left.is_empty() {
                return Ok(deleted.into_iter().collect());
            }
            if Instant::now() > end {
                let left = left.into_iter().collect::<Vec<_>>().join(", ");
                return Err(CleanError::Left { left });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Uninstalls Evenkeel where a lab has installed it, and says what was removed. Pods on machines that do
    /// not run any more are ended in the kubelets' stead.
    pub async fn uninstall(&self, machines_run: bool) -> Result<Option<String>, CleanError> {
        let home = self.home().await.map_err(api("read namespaces"))?;
        if !home.is_some_and(|home| is_installed(&home)) {
            return Ok(None);
        }
        let never = CancellationToken::new();
        let uninstalling = evenkeel_install::uninstall(&self.client, names::NAMESPACE, GONE_WITHIN, &never);
        let ending = async {
            loop {
                self.end_pods().await?;
                tokio::time::sleep(POLL).await;
            }
        };
        let uninstalled = tokio::select! {
            uninstalled = uninstalling => uninstalled,
            ended = ending, if !machines_run => return ended,
        };
        uninstalled.map_err(|error| CleanError::Uninstall(Box::new(error)))?;
        // It stays where it holds what is somebody else's, and is theirs then.
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let mark = Patch::Merge(json!({"metadata": {"labels": {LABEL.0: null}}}));
        let left = namespaces
            .patch(names::NAMESPACE, &PatchParams::default(), &mark)
            .await;
        gone(left).map_err(api("give back the namespace"))?;
        Ok(Some("installation of Evenkeel".to_owned()))
    }

    /// It goes first, since nobody answers it any more. A controller that lacks it makes it without a label:
    /// it is the lab's where the installation is.
    async fn delete_webhook(&self, deleted: &mut BTreeSet<String>) -> Result<(), CleanError> {
        if self.home().await.map_err(api("read namespaces"))?.is_none() {
            return Ok(());
        }
        let webhooks: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let name = names::WEBHOOK_CONFIGURATION;
        if webhooks
            .get_opt(name)
            .await
            .map_err(api("read the webhook's configuration"))?
            .is_some()
        {
            let done = webhooks.delete(name, &DeleteParams::default()).await;
            gone(done).map_err(api("delete the webhook's configuration"))?;
            deleted.insert(format!("MutatingWebhookConfiguration {name}"));
        }
        Ok(())
    }

    /// Deletes what is there, and says what that was. Nodes are the last: by them the pods are found whose
    /// end no kubelet confirms any more.
    async fn delete_all(
        &self,
        discovery: &Discovery,
        deleted: &mut BTreeSet<String>,
    ) -> Result<BTreeSet<String>, CleanError> {
        let nodes = self.end_pods().await?;
        let mut left = BTreeSet::new();
        let kinds = discovery.groups().flat_map(ApiGroup::recommended_resources);
        let deletable = kinds.filter(|(resource, capabilities)| {
            capabilities.supports_operation(verbs::LIST)
                && capabilities.supports_operation(verbs::DELETE)
                && resource.kind != Node::KIND
        });
        for (resource, capabilities) in deletable {
            let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            let found = match all.list_metadata(&labelled()).await {
                Ok(found) => found,
                // A kind of ours whose definition has just been deleted.
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                Err(error) => return Err(api(format!("list {}", resource.plural))(error)),
            };
            for object in found {
                let namespace = object.namespace();
                let named = match &namespace {
                    Some(namespace) => format!("{} {namespace}/{}", resource.kind, object.name_any()),
                    None => format!("{} {}", resource.kind, object.name_any()),
                };
                if object.metadata.deletion_timestamp.is_none() {
                    let one = match (capabilities.scope.clone(), namespace) {
                        (Scope::Namespaced, Some(namespace)) => {
                            Api::namespaced_with(self.client.clone(), &namespace, &resource)
                        }
                        _ => all.clone(),
                    };
                    let done = one.delete(&object.name_any(), &how(&resource.group)).await;
                    gone(done).map_err(api(format!("delete {named}")))?;
                    deleted.insert(named.clone());
                }
                left.insert(named);
            }
        }
        if left.is_empty() {
            for node in nodes {
                self.delete_node(&node).await?;
                let named = format!("{} {node}", Node::KIND);
                deleted.insert(named.clone());
                left.insert(named);
            }
        }
        Ok(left)
    }

    /// Ends the pods on the lab's nodes that were told to end, and says which nodes there are.
    async fn end_pods(&self) -> Result<Vec<String>, CleanError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let nodes = nodes
            .list_metadata(&labelled())
            .await
            .map_err(api("list nodes"))?;
        let nodes: Vec<String> = nodes.iter().map(ResourceExt::name_any).collect();
        let pods: Api<Pod> = Api::all(self.client.clone());
        for node in &nodes {
            let bound = ListParams::default().fields(&format!("spec.nodeName={node}"));
            for pod in pods.list_metadata(&bound).await.map_err(api("list pods"))? {
                if pod.metadata.deletion_timestamp.is_some() {
                    let namespace = pod.namespace().unwrap_or_default();
                    let one: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
                    let now = DeleteParams::default().grace_period(0);
                    gone(one.delete(&pod.name_any(), &now).await).map_err(api("delete a pod"))?;
                }
            }
        }
        Ok(nodes)
    }

    async fn delete_node(&self, node: &str) -> Result<(), CleanError> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), names::NODE_LEASE_NAMESPACE);
        gone(leases.delete(node, &DeleteParams::default()).await).map_err(api("delete a node's Lease"))?;
        let nodes: Api<Node> = Api::all(self.client.clone());
        gone(nodes.delete(node, &DeleteParams::default()).await).map_err(api("delete a node"))
    }
}

pub(super) fn labelled() -> ListParams {
    ListParams::default().labels(&format!("{}={}", LABEL.0, LABEL.1))
}

/// Workloads stay until their pods are gone, so that they are waited for.
fn how(group: &str) -> DeleteParams {
    let policy = match group {
        "apps" | "batch" => PropagationPolicy::Foreground,
        _ => PropagationPolicy::Background,
    };
    DeleteParams {
        propagation_policy: Some(policy),
        ..DeleteParams::default()
    }
}
