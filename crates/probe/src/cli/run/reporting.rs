//! Events on their way to the API server, if that was asked for.

use super::super::args::RunArgs;
use super::super::error::CliError;
use super::setup::Setup;
use crate::core::{Event, Pod, Role};
use crate::events::{ApiSink, EventAbout, EventSink, NullSink, Source};
use evenkeel_net::log::causes;
use k8s_openapi::api::core::v1 as corev1;
use kube::Api;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long the API server may take to show the pod.
const ASK: Duration = Duration::from_secs(20);

/// Where events go.
pub(super) struct Reporting {
    sink: Arc<dyn EventSink>,
    /// What writes to the API server, and ends when the guard is dropped.
    api: Option<(ApiSink, DropGuard)>,
}

impl Reporting {
    /// Nowhere, unless `--events`; then the pod must be there, since events hang on its UID.
    pub(super) async fn start(args: &RunArgs, setup: &Setup) -> Result<Self, CliError> {
        if !args.events {
            return Ok(Self {
                sink: Arc::new(NullSink),
                api: None,
            });
        }
        let pod = &setup.pod;
        let uid = setup.workload.pod["metadata"]["uid"].as_str().unwrap_or_default();
        if setup.workload.kind != "Pod" || uid.is_empty() {
            return Err(CliError::usage(format!(
                "--events: {}: {} has no metadata.uid, and events hang on it; give a pod of the API server, as from \
                 `kubectl get pod NAME -o yaml`",
                setup.workload.origin,
                setup.workload.title()
            )));
        }
        let client = args
            .client
            .client("probe")
            .await
            .map_err(|error| CliError::usage(format!("--events: {}", causes(&error))))?;
        let pods: Api<corev1::Pod> = Api::namespaced(client.clone(), &pod.namespace);
        let found = match tokio::time::timeout(ASK, pods.get_opt(&pod.name)).await {
            Ok(found) => found.map_err(|error| CliError::later(format!("--events: {}", causes(&error))))?,
            Err(_) => return Err(CliError::later("--events: the API server does not answer")),
        };
        let there = found.and_then(|found| found.metadata.uid);
        if there.as_deref() != Some(uid) {
            return Err(CliError::usage(format!(
                "--events: the API server has {} by the name {}/{}; give its manifest as it is there",
                if there.is_some() { "another pod" } else { "no pod" },
                pod.namespace,
                pod.name
            )));
        }
        let source = Source {
            component: "evenkeel-probe".to_owned(),
            host: setup.workload.pod["spec"]["nodeName"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        };
        let stop = CancellationToken::new();
        let sink = ApiSink::start(client, source, stop.clone());
        Ok(Self {
            sink: Arc::new(sink.clone()),
            api: Some((sink, stop.drop_guard())),
        })
    }

    /// Waits for the last writes, two seconds at most. Nothing may be recorded any more.
    pub(super) async fn finish(&mut self) {
        if let Some((sink, stop)) = self.api.take() {
            drop(stop);
            sink.stopped().await;
        }
    }

    /// For the manager.
    pub(super) fn sink(&self) -> Arc<dyn EventSink> {
        self.sink.clone()
    }

    /// An event that is no probe's.
    pub(super) fn record(&self, pod: &Pod, container: &Arc<str>, event: Event) {
        let role = pod
            .container(container)
            .map_or(Role::Regular, |container| container.role);
        let about = EventAbout {
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            container: container.clone(),
            role,
        };
        self.sink.record(about, event);
    }
}
