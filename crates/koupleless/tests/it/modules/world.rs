//! An API server, bases, and a fleet whose nodes they are.

use evenkeel_api::names::koupleless::{INSTALLED, READY};
use evenkeel_arklet::http::HttpOptions;
use evenkeel_arklet::mqtt::MqttOptions;
use evenkeel_arklet::{HttpTunnel, MqttTunnel, Tunnel};
use evenkeel_koupleless::core::profile::{KOUPLELESS, Profile};
use evenkeel_koupleless::core::{self, Connection, Endpoint, Identity};
use evenkeel_koupleless::provider::{Bases, Koupleless, Life, Settings, Tunnels};
use evenkeel_net::client::ClientArgs;
use evenkeel_testkit::arklet::{self, Base, BizState, Jar, Jars, Setup};
use evenkeel_testkit::{ServedApi, eventually};
use evenkeel_vnode::core::pod::{Extra, Holds};
use evenkeel_vnode::{Fleet, Options};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(super) const DEADLINE: Duration = Duration::from_secs(60);

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

/// The pod that a test waits for, printed where the test gives up: the only trace of a rare failure in CI.
#[derive(Default)]
struct OnFailure(Mutex<Option<Pod>>);

impl Drop for OnFailure {
    #[allow(clippy::print_stderr, reason = "the harness shows it with the test's failure")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:#}", json!(self.0));
        }
    }
}

pub(super) struct World {
    api: ServedApi,
    pub(super) client: Client,
    pub(super) known: Arc<Known>,
    pub(super) jars: Jars,
    fleet: Option<(Fleet, DropGuard)>,
    provider: Option<Koupleless>,
    settings: Settings,
    http: HttpOptions,
    mqtt: Option<MqttTunnel>,
    fail_refused: bool,
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
        Self::set(|_, http| http.query = 10 * DEADLINE).await
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
        let client = client(&api, "test").await;
        let mut world = Self {
            api,
            client,
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
        self.node(&node, "is Ready", |node| condition_of_node(node) == "True")
            .await;
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
        let own = client(&self.api, "koupleless").await;
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
        let stopped = tokio::time::timeout(DEADLINE, fleet.stopped()).await;
        assert!(stopped.is_ok(), "the fleet does not end");
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
        self.node(&node, "is Ready", |node| condition_of_node(node) == "True")
            .await;
        (base, node)
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

    pub(super) async fn node(&self, name: &str, what: &str, holds: impl Fn(&Node) -> bool) -> Node {
        let nodes: Api<Node> = Api::all(self.client.clone());
        eventually(&format!("node {name} {what}"), DEADLINE, async || {
            let node = nodes.get_opt(name).await.unwrap()?;
            holds(&node).then_some(node)
        })
        .await
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
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
        let pod: Pod = serde_json::from_value(pod).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap()
    }

    pub(super) async fn until(&self, what: &str, name: &str, holds: impl Fn(&Pod) -> bool) -> Pod {
        let last = OnFailure::default();
        eventually(&format!("pod {name}: {what}"), DEADLINE, async || {
            let pod = self.pods().get_opt(name).await.unwrap();
            last.0.lock().unwrap().clone_from(&pod);
            pod.filter(&holds)
        })
        .await
    }

    pub(super) async fn is_ready(&self, name: &str) -> Pod {
        self.until("is Ready", name, |pod| condition(pod, "Ready") == "True")
            .await
    }

    pub(super) async fn is_gone(&self, name: &str) {
        eventually(&format!("pod {name} is gone"), DEADLINE, async || {
            let pod = self.pods().get_opt(name).await.unwrap();
            pod.is_none().then_some(())
        })
        .await;
    }

    pub(super) async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits for an event about a pod whose message contains this.
    pub(super) async fn event(&self, about: &str, reason: &str, text: &str) {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        eventually(
            &format!("event {reason} of pod {about} with {text:?}"),
            DEADLINE,
            async || {
                let all = events.list(&Default::default()).await.unwrap();
                let found = all.items.into_iter().any(|event| {
                    event.involved_object.name.as_deref() == Some(about)
                        && event.reason.as_deref() == Some(reason)
                        && event.message.as_deref().unwrap_or_default().contains(text)
                });
                found.then_some(())
            },
        )
        .await;
    }
}

async fn client(api: &ServedApi, name: &str) -> Client {
    let args = ClientArgs {
        kubeconfig: Some(api.direct(name)),
        ..ClientArgs::default()
    };
    args.client(name).await.unwrap()
}

/// Waits until a base has begun with a module and not ended.
pub(super) async fn is_starting(base: &Base, name: &str, version: &str) {
    eventually("it is being installed", DEADLINE, async || {
        (base.state(name, version) == Some(BizState::Resolved)).then_some(())
    })
    .await;
}

/// Status of a pod's condition; empty without it.
pub(super) fn condition<'a>(pod: &'a Pod, kind: &str) -> &'a str {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .find(|condition| condition.type_ == kind)
        .map_or("", |condition| &condition.status)
}

/// Status of a node's `Ready`.
pub(super) fn condition_of_node(node: &Node) -> &str {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .find(|condition| condition.type_ == "Ready")
        .map_or("", |condition| &condition.status)
}

/// Why a container waits: reason and message.
pub(super) fn waits<'a>(pod: &'a Pod, container: &str) -> Option<(&'a str, &'a str)> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let status = statuses.iter().find(|status| status.name == container)?;
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    Some((
        waiting.reason.as_deref().unwrap_or_default(),
        waiting.message.as_deref().unwrap_or_default(),
    ))
}

pub(super) fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

pub(super) fn restarts(pod: &Pod, container: &str) -> i32 {
    let status = pod.status.as_ref().unwrap();
    let mut all = status.container_statuses.iter().flatten();
    all.find(|status| status.name == container).unwrap().restart_count
}
