//! A provider under the runtime's paused clock, with pods made to measure.

use crate::address::Cidr;
use crate::clock::Clock;
use crate::{NodeSettings, Settings, Simulated};
use evenkeel_api::names::simulated as names;
use evenkeel_vnode::core::volume::{TokenSource, Volumes};
use evenkeel_vnode::ownership::Term;
use evenkeel_vnode::provider::*;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// What a framework would be told, and what it would give.
#[derive(Default)]
pub(crate) struct Framework {
    pub(crate) reports: Mutex<Vec<Report>>,
    pub(crate) volumes: Mutex<Volumes>,
}

impl Host for Framework {
    fn report(&self, report: Report) {
        self.reports.lock().unwrap().push(report);
    }

    fn client(&self, _: &str) -> Option<kube::Client> {
        None
    }

    fn term(&self, _: &str) -> Option<Term> {
        None
    }

    fn volumes<'a>(&'a self, _: &'a PodId) -> BoxFuture<'a, Result<Arc<Volumes>, Fault>> {
        let volumes = Arc::new(self.volumes.lock().unwrap().clone());
        Box::pin(async move { Ok(volumes) })
    }

    fn token<'a>(&'a self, pod: &'a PodId, of: &'a TokenSource) -> BoxFuture<'a, Result<Arc<str>, Fault>> {
        Box::pin(async move { Ok(format!("token of {pod} for {}", of.audience).into()) })
    }
}

impl Framework {
    /// Ends that were reported: container, code, reason.
    pub(crate) fn ends(&self) -> Vec<(String, i32, String)> {
        let reports = self.reports.lock().unwrap();
        let ends = reports.iter().filter_map(|report| match report {
            Report::Container {
                name,
                observed:
                    Observed {
                        doing: Doing::Ended(exit),
                        ..
                    },
                ..
            } => Some((name.to_string(), exit.code, exit.reason.clone())),
            _ => None,
        });
        ends.collect()
    }
}

/// A provider and its framework.
pub(crate) fn provider() -> (Simulated, Arc<Framework>) {
    with(Settings::default())
}

/// Settings with addresses of the caller's own, for tests with real sockets: tests run side by side, in this
/// process and in others.
pub(crate) fn own_addresses() -> Settings {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Each process has 8 ranges, apart from those of 2,047 others; /24 is what a node has.
    let index = std::process::id() % 2048 * 8 + NEXT.fetch_add(1, Ordering::Relaxed) % 8;
    let range = Cidr::of(index);
    let node = NodeSettings {
        range: Some(range),
        ..NodeSettings::default()
    };
    Settings {
        nodes: [("node-7".to_owned(), node)].into(),
        ..Settings::default()
    }
}

pub(crate) fn with(mut settings: Settings) -> (Simulated, Arc<Framework>) {
    settings.clock = Clock::runtime(Timestamp::from_second(1_800_000_000).unwrap());
    let provider = Simulated::new(settings);
    let framework = Arc::new(Framework::default());
    provider.connect(framework.clone());
    (provider, framework)
}

/// A pod of one container `web` and one init container `init` with annotations of ours.
pub(crate) fn pod(name: &str, annotations: &[(&str, &str)]) -> PodRequest {
    pod_with(name, annotations, json!({}))
}

/// Likewise, with more fields of the container `web`.
pub(crate) fn pod_with(name: &str, annotations: &[(&str, &str)], web: Value) -> PodRequest {
    let annotations: serde_json::Map<String, Value> = annotations
        .iter()
        .map(|(key, value)| (format!("{}{key}", names::PREFIX), json!(value)))
        .collect();
    let mut container = json!({"name": "web", "image": "nginx:1"});
    for (key, value) in web.as_object().unwrap() {
        container[key] = value.clone();
    }
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "annotations": annotations},
        "spec": {
            "nodeName": "node-7",
            "initContainers": [{"name": "init", "image": "busybox"}],
            "containers": [container],
        },
    }))
    .unwrap();
    PodRequest {
        id: PodId {
            uid: format!("uid-{name}").into(),
            namespace: "default".into(),
            name: name.into(),
            node: "node-7".into(),
        },
        pod: Arc::new(pod),
    }
}

/// Creates a pod and asks to start a container.
pub(crate) async fn start(provider: &Simulated, pod: &PodRequest, container: &str) -> Result<Started, Fault> {
    let sandbox = provider.create(pod).await?;
    let (container, _) = crate::shape::find(&pod.pod, container).unwrap();
    let request = StartRequest {
        pod: pod.clone(),
        container: Arc::new(container),
        attempt: 0,
        sandbox,
    };
    provider.start(&request).await
}
