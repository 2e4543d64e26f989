//! What the kubelet's HTTP API asks of the fleet.

use super::common::Common;
use crate::pods::{Ask, Message};
use crate::provider::{ContainerId, Fault, FaultKind, PodId, Provider};
use crate::server::{Backend, Wanted};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The fleet, as its doors see it.
pub(crate) struct FleetBackend {
    pub(crate) common: Arc<Common>,
}

impl FleetBackend {
    async fn ask<T>(&self, node: &str, question: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Option<T> {
        let handle = self.common.directory.node(node)?;
        let (answer, answered) = oneshot::channel();
        handle.send(Message::Ask(Box::new(question(answer))));
        answered.await.ok()
    }
}

fn not_served(node: &str) -> Fault {
    let message = format!("node {node} is not served here any more");
    Fault::new(FaultKind::NotFound, "NodeNotServed", message)
}

impl Backend for FleetBackend {
    fn provider(&self) -> &Arc<dyn Provider> {
        &self.common.provider
    }

    fn pods<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Vec<Arc<Pod>>> {
        Box::pin(async move { self.ask(node, Ask::Pods).await.unwrap_or_default() })
    }

    fn container<'a>(&'a self, wanted: &'a Wanted) -> BoxFuture<'a, Result<(PodId, ContainerId), Fault>> {
        Box::pin(async move {
            let question = |answer| Ask::Container {
                wanted: wanted.clone(),
                answer,
            };
            let answered = self.ask(&wanted.node, question).await;
            answered.unwrap_or_else(|| Err(not_served(&wanted.node)))
        })
    }

    fn pod<'a>(
        &'a self,
        node: &'a str,
        namespace: &'a str,
        name: &'a str,
        uid: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(PodId, Arc<Pod>), Fault>> {
        Box::pin(async move {
            let question = |answer| Ask::Pod {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: uid.map(ToOwned::to_owned),
                answer,
            };
            let answered = self.ask(node, question).await;
            answered.unwrap_or_else(|| Err(not_served(node)))
        })
    }

    fn ill(&self, node: &str) -> Option<String> {
        match self.common.directory.node(node) {
            None => Some(not_served(node).message),
            Some(handle) => handle.ill().map(|why| why.to_string()),
        }
    }
}
