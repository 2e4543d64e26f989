//! A provider that answers pings, and nothing else.

use crate::provider::{
    ContainerId, Duplex, ExecIo, Exit, Fault, FaultKind, Host, LogOptions, LogStream, NodeHealth, NodeStats,
    NodeTemplate, PodId, PodRequest, PodState, Provider, Refusal, Runtime, Sandbox, StartRequest, Started,
};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a ping answers; `None`: never.
pub(super) struct Pinged(Mutex<Option<Result<NodeHealth, Fault>>>);

impl Default for Pinged {
    fn default() -> Self {
        Self(Mutex::new(Some(Ok(NodeHealth::default()))))
    }
}

impl Pinged {
    pub(super) fn answers(&self, answer: Result<NodeHealth, &str>) {
        let answer = answer.map_err(|message| Fault::new(FaultKind::Later, "Broken", message));
        *self.0.lock().unwrap() = Some(answer);
    }

    pub(super) fn falls_silent(&self) {
        *self.0.lock().unwrap() = None;
    }
}

fn unasked<T>() -> T {
    panic!("the hand asks for pings alone")
}

impl Provider for Pinged {
    fn ping<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<NodeHealth, Fault>> {
        match self.0.lock().unwrap().clone() {
            Some(answer) => Box::pin(std::future::ready(answer)),
            None => Box::pin(std::future::pending()),
        }
    }

    fn runtime(&self) -> Runtime {
        unasked()
    }

    fn connect(&self, _: Arc<dyn Host>) {
        unasked::<()>();
    }

    fn node(&self, _: &str) -> NodeTemplate {
        unasked()
    }

    fn admit(&self, _: &Pod) -> Result<(), Refusal> {
        unasked()
    }

    fn list<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<PodId>, Fault>> {
        unasked()
    }

    fn status<'a>(&'a self, _: &'a PodRequest) -> BoxFuture<'a, Result<Option<PodState>, Fault>> {
        unasked()
    }

    fn create<'a>(&'a self, _: &'a PodRequest) -> BoxFuture<'a, Result<Sandbox, Fault>> {
        unasked()
    }

    fn update<'a>(&'a self, _: &'a PodRequest) -> BoxFuture<'a, Result<(), Fault>> {
        unasked()
    }

    fn start<'a>(&'a self, _: &'a StartRequest) -> BoxFuture<'a, Result<Started, Fault>> {
        unasked()
    }

    fn stop<'a>(
        &'a self,
        _: &'a PodId,
        _: &'a ContainerId,
        _: Duration,
    ) -> BoxFuture<'a, Result<Exit, Fault>> {
        unasked()
    }

    fn release(&self, _: &str) {
        unasked::<()>();
    }

    fn delete<'a>(&'a self, _: &'a PodId) -> BoxFuture<'a, Result<(), Fault>> {
        unasked()
    }

    fn logs<'a>(
        &'a self,
        _: &'a PodId,
        _: &'a ContainerId,
        _: &'a LogOptions,
    ) -> BoxFuture<'a, Result<LogStream, Fault>> {
        unasked()
    }

    fn exec<'a>(
        &'a self,
        _: &'a PodId,
        _: &'a ContainerId,
        _: &'a [String],
        _: ExecIo,
    ) -> BoxFuture<'a, Result<i32, Fault>> {
        unasked()
    }

    fn attach<'a>(
        &'a self,
        _: &'a PodId,
        _: &'a ContainerId,
        _: ExecIo,
    ) -> BoxFuture<'a, Result<i32, Fault>> {
        unasked()
    }

    fn port_forward<'a>(&'a self, _: &'a PodId, _: u16) -> BoxFuture<'a, Result<Box<dyn Duplex>, Fault>> {
        unasked()
    }

    fn stats<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<NodeStats, Fault>> {
        unasked()
    }
}
