//! An API server, bases, and a fleet whose nodes they are.

use evenkeel_api::names::koupleless::{INSTALLED, READY};
use evenkeel_arklet::http::HttpOptions;
use evenkeel_arklet::mqtt::MqttOptions;
use evenkeel_arklet::{HttpTunnel, MqttTunnel, Tunnel};
use evenkeel_koupleless::core::profile::{KOUPLELESS, Profile};
use evenkeel_koupleless::core::{self, Connection, Endpoint, Identity};
use evenkeel_koupleless::provider::{Bases, Koupleless, Life, Settings, Tunnels};
use evenkeel_testkit::arklet::{self, Base, BizState, Jar, Jars, Setup};
use evenkeel_testkit::objects::container_status;
pub(super) use evenkeel_testkit::objects::{phase, waits};
use evenkeel_testkit::{Cluster, SOON, ServedApi, ends, until};
use evenkeel_vnode::core::pod::{Extra, Holds};
use evenkeel_vnode::{Fleet, Options};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Bases as a test says they are.
#[derive(Default)]
pub(super) struct Known {
    bases: Mutex<HashMap<String, (Arc<core::Base>, Life)>>,
    refused: Mutex<Vec<String>>,
}

impl Known {
    pub(super) fn is(&self, node: &str, life: Life) {
        self.bases.lock().unwrap().get_mut(node).unwrap().1 = life;
    }

    pub(super) fn refusals(&self, node: &str) -> usize {
        let refused = self.refused.lock().unwrap();
        refused.iter().filter(|one| *one == node).count()
    }
}

impl Bases for Known {
    fn base(&self, node: &str) -> Option<Arc<core::Base>> {
        Some(self.bases.lock().unwrap().get(node)?.0.clone())
    }

    fn life(&self, node: &str) -> Life {
        let bases = self.bases.lock().unwrap();
        bases.get(node).map_or(Life::Alive, |(_, life)| life.clone())
    }

    fn answered(&self, _: &str, _: &Endpoint, _: Option<&str>) {}

    fn refused(&self, node: &str, _: &Endpoint) {
        self.refused.lock().unwrap().push(node.to_owned());
    }
}

pub(super) struct World {
    api: ServedApi,
    cluster: Cluster,
    pub(super) known: Arc<Known>,
    pub(super) jars: Jars,
    fleet: Option<(Fleet, DropGuard)>,
    provider: Option<Koupleless>,
    settings: Settings,
    http: HttpOptions,
    mqtt: Option<MqttTunnel>,
    fail_refused: bool,
}

impl Deref for World {
    type Target = Cluster;

    fn deref(&self) -> &Self::Target {
        &self.cluster
    }
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(KOUPLELESS).await
    }

    pub(super) async fn with(profile: Profile) -> Self {
        Self::set(|settings, _| settings.profile = Arc::new(profile)).await
    }

    /// Whose calls wait for a base that hangs until the test is over: what they hold meanwhile nobody else
    /// gets.
    pub(super) async fn patient() -> Self {
        Self::set(|_, http| http.query = 10 * SOON).await
    }

    /// One with other settings.
    pub(super) async fn set(change: impl FnOnce(&mut Settings, &mut HttpOptions)) -> Self {
        Self::made(false, change).await
    }

    /// Likewise, where pods that cannot run become Failed.
    pub(super) async fn failing(profile: Profile) -> Self {
        Self::made(true, |settings, _| settings.profile = Arc::new(profile)).await
    }

    async fn made(fail_refused: bool, change: impl FnOnce(&mut Settings, &mut HttpOptions)) -> Self {
        let mut settings = Settings {
            profile: Arc::new(KOUPLELESS),
            resync: Duration::from_millis(50),
            log_mark: None,
            ..Settings::default()
        };
        let mut http = HttpOptions {
            query: Duration::from_secs(2),
            poll: Duration::from_millis(20),
            ..HttpOptions::default()
        };
        change(&mut settings, &mut http);
        let api = ServedApi::start().await;
        let cluster = api.cluster("test").await;
        let mut world = Self {
            api,
            cluster,
            known: Arc::default(),
            jars: Jars::new(),
            fleet: None,
            provider: None,
            settings,
            http,
            mqtt: None,
            fail_refused,
        };
        world.begin().await;
        world
    }

    /// One whose bases are reached by way of a broker, too.
    pub(super) async fn over(broker: SocketAddr) -> Self {
        let mut world = Self::new().await;
        world.end().await;
        let mut options = MqttOptions::new(broker.ip().to_string(), broker.port(), "controller", "dev");
        options.reconnect = Duration::from_millis(20);
        options.reconnect_most = Duration::from_millis(100);
        options.query = Duration::from_secs(1);
        let (tunnel, link, mut events) = MqttTunnel::new(options).unwrap();
        // Until the test's runtime ends.
        tokio::spawn(link.run(CancellationToken::new()));
        tokio::spawn(async move { while events.recv().await.is_some() {} });
        world.mqtt = Some(tunnel);
        world.begin().await;
        world
    }

    /// A base on a broker; its node's name.
    pub(super) async fn base_over(&self, broker: SocketAddr, identity: &str) -> (Base, String) {
        let mut who = arklet::Identity::stock("127.0.0.1");
        identity.clone_into(&mut who.id);
        "dev".clone_into(&mut who.env);
        let base = Base::start(Setup {
            identity: Some(who),
            jars: self.jars.clone(),
            ..Setup::default()
        });
        base.mqtt(Some(arklet::MqttTunnel::to(broker)));
        let node = self.know(identity, &base, Connection::Mqtt);
        self.ready::<Node>(&node).await;
        (base, node)
    }

    /// A provider for the same bases, which no fleet has.
    pub(super) fn another_provider(&self) -> Koupleless {
        let tunnels = Tunnels {
            http: Arc::new(HttpTunnel::new(self.http.clone())),
            mqtt: self.mqtt.clone().map(|mqtt| Arc::new(mqtt) as Arc<dyn Tunnel>),
        };
        Koupleless::new(self.settings.clone(), self.known.clone(), tunnels, None)
    }

    /// A process that serves all bases.
    pub(super) async fn begin(&mut self) {
        let provider = self.another_provider();
        self.provider = Some(provider.clone());
        let mut options = Options::new("koupleless", &provider, vec!["127.0.0.1".parse().unwrap()]);
        let pods = Arc::make_mut(&mut options.pods);
        pods.back_off = Duration::from_millis(100);
        pods.back_off_max = Duration::from_millis(400);
        pods.fail_refused = self.fail_refused;
        pods.conditions = vec![
            Extra {
                kind: INSTALLED.to_owned(),
                holds: Holds::ContainersRunning,
            },
            Extra {
                kind: READY.to_owned(),
                holds: Holds::ContainersReady,
            },
        ];
        options.nodes.ping = Duration::from_millis(100);
        // Few, so that bases that hang could take all of them.
        (options.starts, options.looks) = (4, 4);
        options.strays.first = Duration::from_millis(100);
        options.strays.every = Duration::from_millis(200);
        options.strays.apart = Duration::from_millis(200);
        let stop = CancellationToken::new();
        let own = self.api.client("koupleless").await;
        let fleet = Fleet::start(own, Arc::new(provider), options, stop.clone());
        for node in self.known.bases.lock().unwrap().keys() {
            fleet.add(node);
        }
        self.fleet = Some((fleet, stop.drop_guard()));
    }

    /// What the process that runs, or ran last, has its nodes provided by.
    pub(super) fn provider(&self) -> Koupleless {
        self.provider.clone().expect("a process has begun")
    }

    /// The process ends.
    pub(super) async fn end(&mut self) {
        let (fleet, stop) = self.fleet.take().expect("it runs");
        drop(stop);
        ends("the fleet", fleet.stopped()).await;
    }

    /// A module's jar; its URL.
    pub(super) fn jar(&self, jar: Jar) -> String {
        let url = format!("file:///opt/biz/{}-{}.jar", jar.name, jar.version);
        self.jars.put(&url, jar);
        url
    }

    /// A base whose node is ready; the node's name.
    pub(super) async fn base(&self, identity: &str) -> (Base, String) {
        let jars = self.jars.clone();
        self.base_with(identity, |setup| setup.jars = jars).await
    }

    /// The same, set up otherwise.
    pub(super) async fn base_with(&self, identity: &str, change: impl FnOnce(&mut Setup)) -> (Base, String) {
        let mut setup = Setup {
            identity: Some(arklet::Identity {
                id: identity.to_owned(),
                ..arklet::Identity::stock(Ipv4Addr::LOCALHOST)
            }),
            ..Setup::default()
        };
        change(&mut setup);
        let base = Base::start(setup);
        let node = self.know(identity, &base, Connection::Http(base.address().port()));
        self.ready::<Node>(&node).await;
        (base, node)
    }

    /// A base with a pod `p` of the module `biz1:1`, which is ready; its node's name, and the URL of the jar.
    pub(super) async fn running(&self) -> (Base, String, String) {
        let url = self.jar(Jar::new("biz1", "1"));
        let (base, node) = self.base("a").await;
        self.pod("p", &node, &[("biz1", "1", &url)]).await;
        self.ready::<Pod>("p").await;
        (base, node, url)
    }

    fn know(&self, identity: &str, base: &Base, by: Connection) -> String {
        let known = core::Base {
            identity: Identity::new(identity).unwrap(),
            name: Some("web".to_owned()),
            version: Some("1.0.0".to_owned()),
            cluster: Some("default".to_owned()),
            host_name: None,
            endpoint: Endpoint {
                address: base.address().ip(),
                by,
            },
            pod: None,
        };
        let node = self.settings.profile.node_name(&known, "dev");
        let entry = (Arc::new(known), Life::Alive);
        self.known.bases.lock().unwrap().insert(node.clone(), entry);
        if let Some((fleet, _)) = &self.fleet {
            fleet.add(&node);
        }
        node
    }

    /// A pod of modules: name, version, URL of each.
    pub(super) async fn pod(&self, name: &str, node: &str, modules: &[(&str, &str, &str)]) -> Pod {
        self.pod_with(name, node, modules, |_| {}).await
    }

    /// The same, its object changed.
    pub(super) async fn pod_with(
        &self,
        name: &str,
        node: &str,
        modules: &[(&str, &str, &str)],
        change: impl FnOnce(&mut Value),
    ) -> Pod {
        let containers: Vec<Value> = modules
            .iter()
            .map(|(module, version, url)| {
                json!({"name": module, "image": url, "env": [{"name": "BIZ_VERSION", "value": version}]})
            })
            .collect();
        let mut pod = json!({
            "metadata": {"name": name, "labels": {"virtual-kubelet.koupleless.io/component": "module"}},
            "spec": {
                "nodeName": node,
                "automountServiceAccountToken": false,
                // Longer than any test waits: a pod that is gone has not waited for it.
                "terminationGracePeriodSeconds": 600,
                "readinessGates": [{"conditionType": READY}],
                "containers": containers,
            },
        });
        change(&mut pod);
        self.create(pod).await
    }
}

/// Waits until a base has begun with a module and not ended.
pub(super) async fn is_starting(base: &Base, name: &str, version: &str) {
    until("it is being installed", async || {
        base.state(name, version) == Some(BizState::Resolved)
    })
    .await;
}

/// Status of a pod's condition; empty without it.
pub(super) fn condition<'a>(pod: &'a Pod, kind: &str) -> &'a str {
    evenkeel_testkit::objects::condition(pod, kind).0
}

/// Status of a node's `Ready`.
pub(super) fn condition_of_node(node: &Node) -> &str {
    evenkeel_testkit::objects::condition(node, "Ready").0
}

pub(super) fn restarts(pod: &Pod, container: &str) -> i32 {
    container_status(pod, container).unwrap().restart_count
}
