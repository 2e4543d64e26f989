//! What the kubelet's HTTP API asks of the fleet.

use super::common::Common;
use crate::pods::{Message, Query};
use crate::provider::{
    ContainerId, Duplex, ExecIo, Fault, FaultKind, LogOptions, LogStream, NodeStats, PodId,
};
use evenkeel_kubelet_api::{Backend, Served, Wanted};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The fleet, as its listeners see it.
pub(crate) struct FleetBackend {
    pub(crate) common: Arc<Common>,
}

impl FleetBackend {
    async fn request<T>(&self, node: &str, question: impl FnOnce(oneshot::Sender<T>) -> Query) -> Option<T> {
        let handle = self.common.directory.node(node)?;
        let (answer, answered) = oneshot::channel();
        handle.send(Message::Query(Box::new(question(answer))));
        answered.await.ok()
    }
}

fn not_served(node: &str) -> Fault {
    let message = format!("node {node} is not served here any more");
    Fault::new(FaultKind::NotFound, "NodeNotServed", message)
}

impl Backend for FleetBackend {
    fn pods<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Vec<Arc<Pod>>> {
        Box::pin(async move { self.request(node, Query::Pods).await.unwrap_or_default() })
    }

    fn container<'a>(&'a self, wanted: &'a Wanted) -> Served<'a, (PodId, ContainerId)> {
        Box::pin(async move {
            let question = |answer| Query::Container {
                wanted: wanted.clone(),
                answer,
            };
            let answered = self.request(&wanted.node, question).await;
            answered.unwrap_or_else(|| Err(not_served(&wanted.node)))
        })
    }

    fn pod<'a>(
        &'a self,
        node: &'a str,
        namespace: &'a str,
        name: &'a str,
        uid: Option<&'a str>,
    ) -> Served<'a, (PodId, Arc<Pod>)> {
        Box::pin(async move {
            let question = |answer| Query::Pod {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: uid.map(ToOwned::to_owned),
                answer,
            };
            let answered = self.request(node, question).await;
            answered.unwrap_or_else(|| Err(not_served(node)))
        })
    }

    fn ill(&self, node: &str) -> Option<String> {
        match self.common.directory.node(node) {
            None => Some(not_served(node).message),
            Some(handle) => handle.ill().map(|why| why.to_string()),
        }
    }

    fn list<'a>(&'a self, node: &'a str) -> Served<'a, Vec<PodId>> {
        self.common.provider.list(node)
    }

    fn logs<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        options: &'a LogOptions,
    ) -> Served<'a, LogStream> {
        self.common.provider.logs(pod, container, options)
    }

    fn exec<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        command: &'a [String],
        io: ExecIo,
    ) -> Served<'a, i32> {
        self.common.provider.exec(pod, container, command, io)
    }

    fn attach<'a>(&'a self, pod: &'a PodId, container: &'a ContainerId, io: ExecIo) -> Served<'a, i32> {
        self.common.provider.attach(pod, container, io)
    }

    fn port_forward<'a>(&'a self, pod: &'a PodId, port: u16) -> Served<'a, Box<dyn Duplex>> {
        self.common.provider.port_forward(pod, port)
    }

    fn stats<'a>(&'a self, node: &'a str) -> Served<'a, NodeStats> {
        self.common.provider.stats(node)
    }
}
