//! What the framework asks.

use super::{Simulated, identity, plan};
use evenkeel_probe::core::{Attempt, Outcome};
use evenkeel_vnode::provider::{
    ContainerId, Duplex, ExecIo, Exit, Fault, FaultKind, Host, LogOptions, LogStream, NodeHealth, NodeStats,
    NodeTemplate, PodId, PodRequest, PodState, Provider, Refusal, Runtime, Sandbox, Served, StartRequest,
    Started,
};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use std::time::Duration;

impl Provider for Simulated {
    fn runtime(&self) -> Runtime {
        Runtime {
            name: identity::RUNTIME.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn connect(&self, host: Arc<dyn Host>) {
        if self.0.host.set(host).is_ok() {
            self.wait_for_deadlines();
        } else {
            tracing::warn!("the simulated provider was connected twice: the first host stays");
        }
    }

    fn node(&self, name: &str) -> NodeTemplate {
        let now = self.0.now();
        let mut table = self.0.table();
        let node = table.node(name, &self.0.settings, now);
        let mut template = self.0.settings.template.clone();
        for (resource, amount) in [
            ("cpu", "32"),
            ("memory", "128Gi"),
            ("ephemeral-storage", "1Ti"),
            ("pods", "110"),
        ] {
            let known = template.capacity.entry(resource.to_owned());
            known.or_insert_with(|| amount.to_owned());
        }
        for (text, usual) in [
            (&mut template.os_image, "Evenkeel simulated machine"),
            (&mut template.kernel_version, identity::RUNTIME),
        ] {
            if text.is_empty() {
                usual.clone_into(text);
            }
        }
        template.pod_cidr = node.pool.range().to_string();
        template.boot_id = node.boot.to_string();
        if template.provider_id.is_empty() {
            template.provider_id = format!("{}://{name}", identity::RUNTIME);
        }
        template
    }

    fn ping<'a>(&'a self, node: &'a str) -> Served<'a, NodeHealth> {
        Box::pin(async move {
            let now = self.0.now();
            let mut table = self.0.table();
            match &table.node(node, &self.0.settings, now).ailment {
                Some(message) => Err(Fault::new(FaultKind::Later, "SimulatedFailure", message)),
                None => Ok(NodeHealth::default()),
            }
        })
    }

    fn admit(&self, pod: &Pod) -> Result<(), Refusal> {
        plan::admit(pod)
    }

    fn list<'a>(&'a self, node: &'a str) -> Served<'a, Vec<PodId>> {
        Box::pin(async move {
            let table = self.0.table();
            let pods = table
                .nodes
                .get(node)
                .into_iter()
                .flat_map(|node| node.pods.iter());
            let records = pods.filter_map(|uid| table.pods.get(uid));
            Ok(records.map(|record| record.id.clone()).collect())
        })
    }

    fn status<'a>(&'a self, pod: &'a PodRequest) -> Served<'a, Option<PodState>> {
        Box::pin(async move { self.adopt_pod(pod) })
    }

    fn create<'a>(&'a self, pod: &'a PodRequest) -> Served<'a, Sandbox> {
        Box::pin(async move { self.create_pod(pod) })
    }

    fn update<'a>(&'a self, pod: &'a PodRequest) -> Served<'a, ()> {
        Box::pin(async move { self.update_pod(pod) })
    }

    fn start<'a>(&'a self, request: &'a StartRequest) -> Served<'a, Started> {
        Box::pin(self.start_container(request))
    }

    fn stop<'a>(&'a self, pod: &'a PodId, container: &'a ContainerId, grace: Duration) -> Served<'a, Exit> {
        Box::pin(self.stop_container(pod, container, grace))
    }

    fn release(&self, node: &str) {
        let mut table = self.0.table();
        let pods = table.nodes.get(node).map(|node| node.pods.clone());
        for uid in pods.into_iter().flatten() {
            table.remove(&uid);
        }
    }

    fn delete<'a>(&'a self, pod: &'a PodId) -> Served<'a, ()> {
        Box::pin(async move {
            self.0.table().remove(&pod.uid);
            Ok(())
        })
    }

    fn logs<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        options: &'a LogOptions,
    ) -> Served<'a, LogStream> {
        Box::pin(async move { self.read_logs(pod, container, options) })
    }

    fn exec<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        command: &'a [String],
        io: ExecIo,
    ) -> Served<'a, i32> {
        Box::pin(self.run_exec(pod, container, command, io))
    }

    fn attach<'a>(&'a self, pod: &'a PodId, container: &'a ContainerId, io: ExecIo) -> Served<'a, i32> {
        Box::pin(self.join(pod, container, io))
    }

    fn port_forward<'a>(&'a self, pod: &'a PodId, port: u16) -> Served<'a, Box<dyn Duplex>> {
        Box::pin(self.forward(pod, port))
    }

    fn stats<'a>(&'a self, node: &'a str) -> Served<'a, NodeStats> {
        Box::pin(async move { Ok(self.measure(node)) })
    }

    fn probe<'a>(&'a self, pod: &'a PodId, attempt: &'a Attempt) -> Option<BoxFuture<'a, Outcome>> {
        self.answer(pod, attempt)
    }
}
