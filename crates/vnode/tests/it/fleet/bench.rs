//! A fleet with the fake provider over the embedded API server.

use super::fake::{Fake, World};
use evenkeel_testkit::{ApiServer, Cluster, api_server, ends};
use evenkeel_vnode::fleet::{Fleet, Options, Strays};
use evenkeel_vnode::provider::PodId;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// An API server, a provider, and a fleet between them.
pub(crate) struct Bench {
    pub(crate) api: ApiServer,
    pub(crate) world: Arc<World>,
    pub(crate) fake: Arc<Fake>,
    pub(crate) fleet: Fleet,
    cluster: Cluster,
}

impl Deref for Bench {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
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
            bench.ready::<Node>(node).await;
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
            cluster: Cluster::of(&api),
            api,
            world,
            fake,
            fleet,
        }
    }

    pub(crate) async fn end(&self) {
        self.fleet.shutdown();
        ends("the fleet", self.fleet.stopped()).await;
    }

    /// A pod with one container `app`, bound to a node.
    pub(crate) async fn pod(&self, name: &str, node: &str, more: Value) -> PodId {
        let mut spec = json!({"spec": {"enableServiceLinks": false}});
        json_patch::merge(&mut spec, &more);
        let made = self.cluster.pod(name, node, spec).await;
        PodId {
            uid: made.metadata.uid.unwrap().into(),
            namespace: "default".into(),
            name: name.into(),
            node: node.into(),
        }
    }
}
