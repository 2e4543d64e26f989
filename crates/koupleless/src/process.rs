//! Everything joined: bases that are found become nodes, what is heard of them reaches whom it concerns.

mod broker;
mod observer;
pub mod settings;

use crate::alert::{self, Alerts, AlertsError};
use crate::baseline::Deployments;
use crate::core::alert::{Alert, Hook, Limits, Scene};
use crate::core::registry::{self, Change};
use crate::core::{Base, Endpoint};
use crate::discovery::listener::ListenerError;
use crate::discovery::mqtt::MqttHeartbeats;
use crate::discovery::pods::{Cluster, Keys};
use crate::discovery::{Discovery, Sources};
use crate::heal::{self, Healer};
use crate::metrics::Metrics;
use crate::peer;
use crate::provider::{self, BasePods, Bases, Koupleless, Life, Tunnels};
use evenkeel_api::names::NODE_LEASE_NAMESPACE;
use evenkeel_api::names::koupleless::{INSTALLED, READY};
use evenkeel_arklet::HttpTunnel;
use evenkeel_arklet::mqtt::{MqttError, MqttTunnel};
use evenkeel_kubelet_api::tls::AGAIN as FILES_AGAIN;
use evenkeel_net::client::{Access, ClientArgs, ClientError};
use evenkeel_vnode::Fleet;
use evenkeel_vnode::core::pod::{Extra, Holds};
use futures::FutureExt as _;
use jiff::Timestamp;
use observer::BaseObserver;
use prometheus_client::registry::Registry;
use settings::Settings;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::JoinMap;

/// Connections that one base has with this process at a time, at most: four operations, an inspection of its
/// modules, a poll of its health, and its heartbeat. All of them are open while bases hang.
pub const FILES: usize = 7;

/// Deadline of a provider's call: an install, with the operations that it waits for.
const CALL: Duration = Duration::from_secs(600);
/// Pause between two tries to evict the pods of a lost base.
const AGAIN: Duration = Duration::from_secs(2);
/// The longest such pause, of a base that stays lost.
const AGAIN_MOST: Duration = Duration::from_secs(30);
/// Of one attempt to send an alert.
const ALERT: Duration = Duration::from_secs(10);

/// Why the process cannot begin. Not worth a retry with the same flags and surroundings.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// There is no API server to be found.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Heartbeats cannot be taken.
    #[error(transparent)]
    Listener(#[from] ListenerError),
    /// The broker cannot be used.
    #[error("--mqtt-broker")]
    Mqtt(#[from] MqttError),
    /// Alerts cannot be sent.
    #[error("--report-hooks")]
    Alerts(#[from] AlertsError),
}

/// Bases as nodes, before the fleet runs.
pub struct Process {
    provider: Koupleless,
    discovery: Discovery,
    sources: Sources,
    access: Access,
    client: kube::Client,
    observer: Arc<BaseObserver>,
    alerts: Option<Alerts>,
    metrics: Metrics,
    peers: bool,
    env: String,
    identity: String,
    holds_leases: bool,
    stop: CancellationToken,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process")
            .field("env", &self.env)
            .finish_non_exhaustive()
    }
}

impl Process {
    /// Connects and binds. `identity`: of this replica; `namespace`: where it is noted which bases are
    /// healed.
    pub async fn prepare(
        settings: Settings,
        access: &Access,
        identity: &str,
        namespace: &str,
        stop: &CancellationToken,
    ) -> Result<Self, ProcessError> {
        let client = access.client("koupleless")?;
        let elsewhere = settings.pods.as_ref().and_then(|pods| pods.kubeconfig.clone());
        let base_pods = base_pods(elsewhere, &client, access).await?;
        let env = settings.env;
        let profile = Arc::new(settings.profile.clone());
        let holds_leases = profile.leases_by_process;
        let rules = registry::Settings {
            silent: settings.silent,
            gone: settings.gone,
            check_addresses: settings.check_addresses,
            ..registry::Settings::default()
        };
        let discovery = Discovery::new(rules, profile.clone(), &env);
        let deployments = Deployments::watch(client.clone(), &env, settings.profile, stop.clone());
        let mut sources = Sources::default();
        let watches_pods = settings.pods.is_some();
        if let Some(pods) = settings.pods {
            sources.pods.push(Cluster {
                client: base_pods.client.clone(),
                namespace: None,
                selector: pods.selector,
                keys: Keys::default(),
            });
        }
        if let Some(heartbeats) = &settings.heartbeats {
            let baseline: Arc<Deployments> = deployments.clone();
            let listener = heartbeats.open(Some(baseline), FILES_AGAIN, stop);
            sources.heartbeats = Some(listener.await?);
        }
        let mut mqtt = None;
        if let Some(broker) = &settings.broker {
            let options = broker::options(broker, &env, identity);
            let (tunnel, link, events) = MqttTunnel::new(options)?;
            let ending = stop.clone();
            tokio::spawn(async move { link.run(ending).await });
            sources.hearts = Some(MqttHeartbeats {
                events,
                connected: tunnel.connected(),
                wanted: Some(broker::wanted(
                    deployments.clone(),
                    tunnel.clone(),
                    discovery.clone(),
                    stop.clone(),
                )),
            });
            mqtt = Some(tunnel);
        }
        let alerts = alerts(settings.hooks, stop)?;
        let modules = provider::Settings {
            profile,
            env: env.clone(),
            pods: settings.capacity,
            activation: settings.activation,
            sharing: settings.sharing,
            log_mark: settings.log_mark,
            ..provider::Settings::default()
        };
        let metrics = Metrics::default();
        let tunnels = Tunnels {
            http: metrics.counting(Arc::new(HttpTunnel::default())),
            mqtt: mqtt.map(|tunnel| metrics.counting(Arc::new(tunnel))),
        };
        let found = Arc::new(Found(discovery.clone()));
        // A pod that a Node records counts only where pods are watched: whoever wrote it may have meant
        // another cluster.
        let pods = watches_pods.then_some(base_pods);
        let provider = Koupleless::new(modules, found, tunnels, pods.clone());
        let healer = settings.healing.map(|healing| {
            let options = heal::Options {
                settings: healing.settings,
                limit: healing.limit,
                namespace: namespace.to_owned(),
                holder: identity.to_owned(),
                observer: alerts.clone().map(|alerts| Arc::new(alerts) as _),
            };
            Healer::new(client.clone(), options, stop.clone())
        });
        let observer = Arc::new(BaseObserver::new(
            alerts.clone(),
            healer,
            pods.map(|pods| pods.client),
            provider.clone(),
            discovery.clone(),
        ));
        provider.observe_with(observer.clone());
        Ok(Self {
            provider,
            discovery,
            sources,
            access: access.clone(),
            client,
            observer,
            alerts,
            metrics,
            peers: settings.peers,
            env,
            identity: identity.to_owned(),
            holds_leases,
            stop: stop.clone(),
        })
    }

    /// Puts its numbers under their names.
    pub fn metrics(&self) -> impl FnOnce(&mut Registry) + Send + use<> {
        let (metrics, discovery) = (self.metrics.clone(), self.discovery.clone());
        move |registry| metrics.register(&discovery, registry)
    }

    /// What the virtual nodes ask.
    pub fn provider(&self) -> Koupleless {
        self.provider.clone()
    }

    /// What differs from the usual options of a fleet.
    pub fn change(&self) -> impl FnOnce(&mut evenkeel_vnode::Options) + Send + use<> {
        let holder = self.holds_leases.then(|| self.identity.as_str().into());
        move |options| {
            options.nodes.lease.holder = holder;
            Self::of_every_process(options);
        }
    }

    fn of_every_process(options: &mut evenkeel_vnode::Options) {
        options.call = CALL;
        options.selector = Some(crate::pods::selector());
        let extra = |kind: &str, holds| Extra {
            kind: kind.to_owned(),
            holds,
        };
        Arc::make_mut(&mut options.pods).conditions = vec![
            extra(INSTALLED, Holds::ContainersRunning),
            extra(READY, Holds::ContainersReady),
        ];
    }

    /// Finds bases for a fleet from now on.
    pub fn begin(self, fleet: &Fleet) {
        let stop = self.stop.clone();
        let mut changes = self.discovery.subscribe();
        self.discovery
            .start(&self.client, Arc::new(fleet.clone()), self.sources, &stop);
        let (provider, observer, alerts) =
            (self.provider.clone(), self.observer.clone(), self.alerts.clone());
        let discovery = self.discovery.clone();
        let following = async move {
            let mut evictions: JoinMap<Arc<str>, ()> = JoinMap::new();
            while let Some(event) = changes.recv().await {
                // Those that have ended are forgotten.
                while evictions.join_next().now_or_never().flatten().is_some() {}
                observer.follow(&event);
                provider.stir(&event.node);
                if let Change::Lost(evidence) = &event.change {
                    if let Some(alerts) = &alerts {
                        alerts.raise(Alert {
                            scene: Scene::BaseLost,
                            base: event.base.identity.to_string(),
                            module: None,
                            message: evidence.to_string(),
                            at: Timestamp::now(),
                        });
                    }
                    let evicting = evict(provider.clone(), discovery.clone(), event.node.clone());
                    // In place of one that has not noticed yet that the base was back meanwhile.
                    evictions.spawn(event.node.clone(), evicting);
                }
            }
        };
        tokio::spawn(stop.clone().run_until_cancelled_owned(following));
        if self.peers {
            let keeping = keep_peers(self.access, self.client, self.env, self.identity, stop);
            tokio::spawn(keeping);
        }
    }
}

/// Clients of the cluster in which bases run as pods: that of `kubeconfig`, or the cluster of the virtual
/// nodes.
async fn base_pods(
    kubeconfig: Option<PathBuf>,
    client: &kube::Client,
    access: &Access,
) -> Result<BasePods, ProcessError> {
    let Some(file) = kubeconfig else {
        return Ok(BasePods {
            client: client.clone(),
            upgrading: access.upgrading("koupleless-commands")?,
        });
    };
    let other = ClientArgs {
        kubeconfig: Some(file),
        ..ClientArgs::default()
    };
    let other = other.access().await?;
    Ok(BasePods {
        client: other.client("koupleless-bases")?,
        upgrading: other.upgrading("koupleless-commands")?,
    })
}

/// Alerts to these receivers; `None` if there are none.
fn alerts(hooks: Vec<Hook>, stop: &CancellationToken) -> Result<Option<Alerts>, ProcessError> {
    if hooks.is_empty() {
        return Ok(None);
    }
    let options = alert::Options {
        hooks,
        limits: Limits::default(),
        timeout: ALERT,
        roots: None,
    };
    Ok(Some(Alerts::start(options, stop)?))
}

/// Evicts for as long as the base is lost: pods may still be bound to its node. A node without pods need not
/// stay.
async fn evict(provider: Koupleless, discovery: Discovery, node: Arc<str>) {
    let mut pause = AGAIN;
    while provider.is_lost(&node) {
        match provider.evict(&node).await {
            Ok(None) => {}
            Ok(Some(pods)) => discovery.pods(&node, pods),
            Err(fault) => {
                tracing::warn!(%node, reason = fault.reason, error = fault.message, "cannot evict the pods of a lost base, trying again");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(AGAIN_MOST);
    }
}

async fn keep_peers(
    access: Access,
    client: kube::Client,
    env: String,
    identity: String,
    stop: CancellationToken,
) {
    let not_kept = |error: &(dyn std::error::Error + 'static)| {
        tracing::error!(
            error = evenkeel_net::log::causes(error),
            "replicas of peer Deployments are not kept"
        );
    };
    // The election tries a refused read again by itself.
    let lock = match access.reading_once().client("koupleless-peers") {
        Ok(lock) => lock,
        Err(error) => return not_kept(&error),
    };
    let options = peer::Options {
        env,
        grace: peer::GRACE,
        // Every cluster has it, and the Leases by which replicas share the nodes are there, too.
        namespace: NODE_LEASE_NAMESPACE.to_owned(),
        election: evenkeel_election::Config::new(&identity),
    };
    if let Err(error) = peer::run(client, lock, options, stop).await {
        not_kept(&error);
    }
}

/// Bases as the discovery knows them.
struct Found(Discovery);

impl Bases for Found {
    fn base(&self, node: &str) -> Option<Arc<Base>> {
        self.0.base(node)
    }

    fn life(&self, node: &str) -> Life {
        match self.0.life(node) {
            Some(registry::Life::Silent) => {
                let silence = self.0.silence(node).unwrap_or_default();
                Life::Silent(format!(
                    "nothing was heard of the base for {} s",
                    silence.as_secs()
                ))
            }
            Some(registry::Life::Lost(evidence)) => Life::Lost(evidence.to_string()),
            Some(registry::Life::Alive) | None => Life::Alive,
        }
    }

    fn answered(&self, node: &str, endpoint: &Endpoint, says: Option<&str>) {
        self.0.answered(node, endpoint, says);
    }

    fn refused(&self, node: &str, endpoint: &Endpoint) {
        if let Some(socket) = endpoint.socket() {
            self.0.refused(node, socket);
        }
    }
}
