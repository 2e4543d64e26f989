//! A fleet with the fake provider over the embedded API server.

use super::fake::{Fake, World};
use evenkeel_testkit::{ApiServer, api_server, eventually};
use evenkeel_vnode::fleet::{Fleet, Options, Strays};
use evenkeel_vnode::provider::PodId;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// An API server, a provider, and a fleet between them.
pub(crate) struct Bench {
    pub(crate) api: ApiServer,
    pub(crate) world: Arc<World>,
    pub(crate) fake: Arc<Fake>,
    pub(crate) fleet: Fleet,
}

/// Options with times for tests.
pub(crate) fn options(fake: &Fake) -> Options {
    let mut options = Options::new("test", fake, vec!["10.1.2.3".parse().unwrap()]);
    options.call = Duration::from_secs(1);
    options.strays = Strays {
        first: Duration::from_millis(20),
        every: Duration::from_millis(200),
        apart: Duration::from_millis(300),
    };
    let pods = Arc::make_mut(&mut options.pods);
    pods.back_off = Duration::from_millis(50);
    pods.back_off_max = Duration::from_millis(200);
    options
}

impl Bench {
    pub(crate) async fn new(nodes: &[&str]) -> Self {
        let (api, world) = (api_server(), Arc::new(World::default()));
        let fake = Fake::new(&world, 1);
        let bench = Self::again(api, world, fake, nodes);
        for node in nodes {
            bench.node_is_ready(node).await;
        }
        bench
    }

    /// A fleet over what is there.
    pub(crate) fn again(api: ApiServer, world: Arc<World>, fake: Arc<Fake>, nodes: &[&str]) -> Self {
        let options = options(&fake);
        Self::with(api, world, fake, options, nodes)
    }

    pub(crate) fn with(
        api: ApiServer,
        world: Arc<World>,
        fake: Arc<Fake>,
        options: Options,
        nodes: &[&str],
    ) -> Self {
        let fleet = Fleet::start(api.client(), fake.clone(), options, CancellationToken::new());
        for node in nodes {
            fleet.add(node);
        }
        Self {
            api,
            world,
            fake,
            fleet,
        }
    }

    pub(crate) async fn end(&self) {
        self.fleet.shutdown();
        let stopped = tokio::time::timeout(DEADLINE, self.fleet.stopped()).await;
        assert!(stopped.is_ok(), "the fleet does not end");
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.api.client(), "default")
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.api.client())
    }

    pub(crate) async fn node_is_ready(&self, name: &str) -> Node {
        eventually("the node is Ready", DEADLINE, async || {
            let node = self.nodes().get_opt(name).await.unwrap()?;
            let conditions = node.status.as_ref()?.conditions.as_ref()?;
            let ready = conditions
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True");
            ready.then_some(node)
        })
        .await
    }

    /// A pod with one container `app`, bound to a node.
    pub(crate) async fn pod(&self, name: &str, node: &str, more: Value) -> PodId {
        let mut pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "automountServiceAccountToken": false, "enableServiceLinks": false,
                "containers": [{"name": "app", "image": "registry.example.com/app:1"}]},
        });
        json_patch::merge(&mut pod, &more);
        let made: Pod = serde_json::from_value(pod).unwrap();
        let made = self.pods().create(&PostParams::default(), &made).await.unwrap();
        PodId {
            uid: made.metadata.uid.unwrap().into(),
            namespace: "default".into(),
            name: name.into(),
            node: node.into(),
        }
    }

    pub(crate) async fn until(&self, what: &str, name: &str, holds: impl Fn(&Pod) -> bool) -> Pod {
        eventually(what, DEADLINE, async || {
            let pod = self.pods().get_opt(name).await.unwrap()?;
            holds(&pod).then_some(pod)
        })
        .await
    }

    pub(crate) async fn is_ready(&self, name: &str) -> Pod {
        self.until("the pod is Ready", name, is_ready).await
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn is_gone(&self, name: &str) {
        eventually("the pod is gone", DEADLINE, async || {
            let pod = self.pods().get_opt(name).await.unwrap();
            pod.is_none().then_some(())
        })
        .await;
    }

    pub(crate) async fn event(&self, about: &str, reason: &str) -> Event {
        eventually("the event", DEADLINE, async || {
            let events: Api<Event> = Api::all(self.api.client());
            let events = events.list(&Default::default()).await.unwrap().items;
            events.into_iter().find(|event| {
                event.involved_object.name.as_deref() == Some(about)
                    && event.reason.as_deref() == Some(reason)
            })
        })
        .await
    }
}

pub(crate) fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.iter();
    let mut conditions = status.flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Why the first container waits.
pub(crate) fn waits(pod: &Pod) -> Option<&str> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let waiting = statuses.first()?.state.as_ref()?.waiting.as_ref()?;
    waiting.reason.as_deref()
}

pub(crate) fn restarts(pod: &Pod) -> i32 {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    statuses.map_or(0, |statuses| statuses[0].restart_count)
}
