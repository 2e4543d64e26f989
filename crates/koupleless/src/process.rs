//! Everything joined: bases that are found become nodes, what is heard of them reaches whom it concerns.

mod ears;
#[cfg(test)]
mod tests;

use crate::alert::{self, Alerts, AlertsError};
use crate::arklet::mqtt::{Credentials, MqttError, MqttOptions, MqttTunnel, Password, TlsFiles};
use crate::arklet::{HttpTunnel, Install, ModuleId, Tunnel as _};
use crate::baseline::{self, Deployments, Publisher};
use crate::cli::KouplelessArgs;
use crate::core::alert::{Alert, Limits, Scene, Shape, hooks};
use crate::core::baseline::BaselineEntry;
use crate::core::registry::{self, Change};
use crate::core::{Base, Connection, Endpoint, Identity};
use crate::discovery::heartbeat::{Auth, Door};
use crate::discovery::mqtt::Hearts;
use crate::discovery::pods::{Cluster, Keys};
use crate::discovery::token::{TokenError, Tokens};
use crate::discovery::{Discovery, Sources};
use crate::heal::{self, Healer};
use crate::peer;
use crate::provider::{Activation, BasePods, Bases, Koupleless, Life, Settings, Tunnels};
use ears::Ears;
use evenkeel_api::names::koupleless::{COMPONENT_LABEL, INSTALLED, READY};
use evenkeel_net::client::{Access, ClientArgs, ClientError};
use evenkeel_vnode::Fleet;
use evenkeel_vnode::core::pod::{Extra, Holds};
use futures::future::BoxFuture;
use jiff::Timestamp;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Deadline of a provider's call: an install, with the operations that it waits for.
const CALL: Duration = Duration::from_secs(600);
/// Between two tries to evict the pods of a lost base.
const AGAIN: Duration = Duration::from_secs(2);
/// The longest pause between two looks for pods of a base that stays lost.
const AGAIN_MOST: Duration = Duration::from_secs(30);
/// So long a base that asks for its baseline may take to be served, and between two looks whether it is.
const SERVED: Duration = Duration::from_secs(60);
const SERVED_AGAIN: Duration = Duration::from_millis(500);
/// Of one attempt to send an alert.
const ALERT: Duration = Duration::from_secs(10);
/// Value of the component label on pods of modules.
const MODULE: &str = "module";

/// Why the process cannot begin. Not worth a retry with the same flags and surroundings.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// A flag does not make sense.
    #[error("{0}")]
    Flag(String),
    /// There is no API server to be found.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The heartbeats' address cannot be listened on.
    #[error("--heartbeat {address}: cannot listen there")]
    Listen {
        /// As given.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The tokens cannot be read.
    #[error("--heartbeat-token-file")]
    Tokens(#[from] TokenError),
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
    ears: Arc<Ears>,
    alerts: Option<Alerts>,
    peers: bool,
    env: String,
    namespace: String,
    identity: String,
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
    /// Reads the flags, connects and binds. `identity`: of this replica; `namespace`: where objects shared by replicas are.
    pub async fn prepare(
        args: &KouplelessArgs,
        access: &Access,
        identity: &str,
        namespace: &str,
        stop: &CancellationToken,
    ) -> Result<Self, ProcessError> {
        if args.no_heartbeat && args.mqtt_broker.is_none() && args.base_pod_selector.is_none() {
            return Err(ProcessError::Flag(
                "--no-heartbeat: no base would ever be found; add --mqtt-broker or --base-pod-selector"
                    .to_owned(),
            ));
        }
        if args.base_silent >= args.base_gone {
            return Err(ProcessError::Flag(
                "--base-silent must be less than --base-gone".to_owned(),
            ));
        }
        let healing = args.healing.settings().map_err(ProcessError::Flag)?;
        let args = &with_environment(args, |name| std::env::var(name).ok())?;
        let client = access.client("koupleless")?;
        let (bases, upgrading) = match &args.base_kubeconfig {
            Some(file) => {
                let other = ClientArgs {
                    kubeconfig: Some(file.clone()),
                    ..ClientArgs::default()
                };
                let other = other.access().await?;
                (
                    other.client("koupleless-bases")?,
                    other.upgrading("koupleless-commands")?,
                )
            }
            None => (client.clone(), access.upgrading("koupleless-commands")?),
        };
        let env = args.base_env.clone().unwrap_or_default();
        let profile = Arc::new(args.profile.clone());
        let rules = registry::Settings {
            silent: args.base_silent,
            gone: args.base_gone,
            check_addresses: !args.heartbeat_from_anywhere,
            ..registry::Settings::default()
        };
        let discovery = Discovery::new(rules, profile.clone(), &env);
        let deployments = Deployments::watch(client.clone(), &env, args.profile, stop.clone());
        let mut sources = Sources::default();
        if let Some(selector) = &args.base_pod_selector {
            sources.pods.push(Cluster {
                client: bases.clone(),
                namespace: None,
                selector: selector.clone(),
                keys: Keys::default(),
            });
        }
        if !args.no_heartbeat {
            sources.heartbeats = Some(door(args, &deployments).await?);
        }
        let mut mqtt = None;
        if let Some(options) = broker(args, identity)? {
            let (tunnel, link, events) = MqttTunnel::new(options)?;
            let ending = stop.clone();
            tokio::spawn(async move { link.run(ending).await });
            sources.hearts = Some(Hearts {
                events,
                wanted: Some(wanted(
                    deployments.clone(),
                    tunnel.clone(),
                    discovery.clone(),
                    stop.clone(),
                )),
            });
            mqtt = Some(tunnel);
        }
        let alerts = match &args.report_hooks {
            None => None,
            Some(text) => {
                let hooks = hooks(text, Shape::DingTalk)
                    .map_err(|error| ProcessError::Flag(format!("--report-hooks: {error}")))?;
                let options = alert::Options {
                    hooks,
                    limits: Limits::default(),
                    timeout: ALERT,
                    roots: None,
                };
                Some(Alerts::start(options, stop)?)
            }
        };
        let settings = Settings {
            profile,
            env: env.clone(),
            pods: args.base_pods,
            activation: if args.no_switch {
                Activation::Keep
            } else {
                Activation::Switch
            },
            log_mark: args.log_mark.clone(),
            ..Settings::default()
        };
        let tunnels = Tunnels {
            http: Arc::new(HttpTunnel::default()),
            mqtt: mqtt.map(|tunnel| Arc::new(tunnel) as _),
        };
        let found = Arc::new(Found(discovery.clone()));
        let pods = BasePods {
            client: bases.clone(),
            upgrading,
        };
        let provider = Koupleless::new(settings, found, tunnels, Some(pods));
        let healer = args.heal.then(|| {
            let options = heal::Options {
                settings: healing,
                limit: args.healing.heal_max_unavailable,
                namespace: namespace.to_owned(),
                holder: identity.to_owned(),
                listener: alerts.clone().map(|alerts| Arc::new(alerts) as _),
            };
            Healer::new(client.clone(), options, stop.clone())
        });
        let ears = Arc::new(Ears::new(
            alerts.clone(),
            healer,
            bases,
            provider.clone(),
            discovery.clone(),
        ));
        provider.let_hear(ears.clone());
        Ok(Self {
            provider,
            discovery,
            sources,
            access: access.clone(),
            client,
            ears,
            alerts,
            peers: args.peers,
            env,
            namespace: namespace.to_owned(),
            identity: identity.to_owned(),
            stop: stop.clone(),
        })
    }

    /// What the virtual nodes ask.
    pub fn provider(&self) -> Koupleless {
        self.provider.clone()
    }

    /// What differs from the usual options of a fleet.
    pub fn change(options: &mut evenkeel_vnode::Options) {
        options.call = CALL;
        options.selector = Some(format!("{COMPONENT_LABEL}={MODULE}"));
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
        let (provider, ears, alerts) = (self.provider.clone(), self.ears.clone(), self.alerts.clone());
        let ending = stop.clone();
        let following = async move {
            while let Some(event) = changes.recv().await {
                ears.follow(&event);
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
                    let evicting = evict(provider.clone(), event.node.clone());
                    tokio::spawn(ending.clone().run_until_cancelled_owned(evicting));
                }
            }
        };
        tokio::spawn(stop.clone().run_until_cancelled_owned(following));
        if self.peers {
            let keeping = keep_peers(
                self.access,
                self.client,
                self.env,
                self.namespace,
                self.identity,
                stop,
            );
            tokio::spawn(keeping);
        }
    }
}

/// Flags that are not given are read from the released controller's variables; an empty one is none.
fn with_environment(
    args: &KouplelessArgs,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<KouplelessArgs, ProcessError> {
    let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let mut args = args.clone();
    // In a shell $ENV is a start-up file.
    let env = || variable("ENV").filter(|value| !value.contains('/'));
    args.base_env = args.base_env.or_else(env).or_else(|| Some("dev".to_owned()));
    if args.mqtt_broker.is_some() {
        args.mqtt_username = args.mqtt_username.or_else(|| variable("MQTT_USERNAME"));
        let file = |name: &str| variable(name).map(std::path::PathBuf::from);
        args.mqtt_ca_file = args.mqtt_ca_file.or_else(|| file("MQTT_CA_PATH"));
        args.mqtt_cert_file = args.mqtt_cert_file.or_else(|| file("MQTT_CLIENT_CRT_PATH"));
        args.mqtt_key_file = args.mqtt_key_file.or_else(|| file("MQTT_CLIENT_KEY_PATH"));
    }
    args.report_hooks = args.report_hooks.or_else(|| variable("REPORT_HOOKS"));
    let peers = variable("ENABLE_MODULE_REPLICAS_SYNC_WITH_BASE");
    args.peers |= peers.is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let flag = |text: &str| Err(ProcessError::Flag(text.to_owned()));
    if args.mqtt_username.is_some() != args.mqtt_password_file.is_some() {
        return flag("--mqtt-username and --mqtt-password-file go together");
    }
    if args.mqtt_cert_file.is_some() != args.mqtt_key_file.is_some() {
        return flag("--mqtt-cert-file and --mqtt-key-file go together");
    }
    if args.mqtt_cert_file.is_some() && args.mqtt_ca_file.is_none() {
        return flag("--mqtt-cert-file needs --mqtt-ca-file: without it there is no TLS");
    }
    Ok(args)
}

/// Where heartbeats are taken.
async fn door(args: &KouplelessArgs, deployments: &Arc<Deployments>) -> Result<Door, ProcessError> {
    let tokens = args
        .heartbeat_token_file
        .as_deref()
        .map(Tokens::read)
        .transpose()?;
    let listener = TcpListener::bind(args.heartbeat)
        .await
        .map_err(|source| ProcessError::Listen {
            address: args.heartbeat,
            source,
        })?;
    let known: Arc<Deployments> = deployments.clone();
    Ok(Door {
        listener,
        tls: None,
        auth: Auth {
            tokens,
            certificate: false,
        },
        baseline: Some(known),
    })
}

/// How the broker is reached, if there is one.
fn broker(args: &KouplelessArgs, identity: &str) -> Result<Option<MqttOptions>, ProcessError> {
    let Some(broker) = &args.mqtt_broker else {
        return Ok(None);
    };
    let usual = if args.mqtt_ca_file.is_some() { 8883 } else { 1883 };
    let (host, port) = match broker.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') => {
            let port = port.parse().map_err(|_| {
                ProcessError::Flag(format!("--mqtt-broker: {port:?} is no port; write HOST:PORT"))
            })?;
            (host, port)
        }
        _ => (broker.as_str(), usual),
    };
    let client_id = format!("koupleless@@@{identity}");
    let mut options = MqttOptions::new(
        host.trim_matches(['[', ']']),
        port,
        client_id,
        args.base_env.as_deref().unwrap_or_default(),
    );
    options.credentials = args
        .mqtt_username
        .clone()
        .zip(args.mqtt_password_file.clone())
        .map(|(username, file)| Credentials {
            username,
            password: Password::File(file),
        });
    options.tls = args.mqtt_ca_file.clone().map(|ca| TlsFiles {
        ca,
        identity: args.mqtt_cert_file.clone().zip(args.mqtt_key_file.clone()),
    });
    Ok(Some(options))
}

/// Answers bases that ask for their baseline over MQTT. All replicas hear them, and the one that serves a base's node
/// answers: a base that asks is not known to anybody yet, so that is waited for.
fn wanted(
    deployments: Arc<Deployments>,
    tunnel: MqttTunnel,
    discovery: Discovery,
    stop: CancellationToken,
) -> crate::discovery::mqtt::Wanted {
    Arc::new(move |metadata| {
        let Ok(identity) = Identity::new(&metadata.identity) else {
            return;
        };
        let base = Base {
            identity,
            name: metadata.name.clone(),
            version: metadata.version.clone(),
            cluster: metadata.cluster_name.clone(),
            host_name: None,
            endpoint: Endpoint {
                // Of no account over MQTT.
                address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                by: Connection::Mqtt,
            },
            pod: None,
        };
        let (deployments, tunnel) = (deployments.clone(), tunnel.clone());
        let discovery = discovery.clone();
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            let is_ours = async {
                loop {
                    let node = discovery.node_of(&base.identity);
                    if node.is_some_and(|node| discovery.judges(&node)) {
                        return;
                    }
                    tokio::time::sleep(SERVED_AGAIN).await;
                }
            };
            if tokio::time::timeout(SERVED, is_ours).await.is_err() {
                tracing::debug!(base = %base.identity, "a base that asks for its baseline is served by another replica");
                return;
            }
            if let Err(error) = baseline::answer(&*deployments, &tunnel, &base).await {
                tracing::warn!(base = %base.identity, error = evenkeel_net::log::causes(&error), "a base has no baseline");
            }
        }));
    })
}

impl Publisher for MqttTunnel {
    fn publish<'a>(
        &'a self,
        identity: &'a Identity,
        baseline: &'a [BaselineEntry],
    ) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let target = crate::arklet::Base {
                identity: identity.to_string(),
                environment: self.environment().to_owned(),
                address: None,
            };
            let install = |entry: &BaselineEntry| {
                let id = ModuleId::new(&*entry.biz_name, &*entry.biz_version);
                Install::new(id, &*entry.biz_url)
            };
            let installs: Vec<Install> = baseline.iter().map(install).collect();
            match self.batch(&target, &installs).await {
                Ok(outcome) => {
                    tracing::info!(base = %identity, outcome = %outcome.overall, "baseline carried out");
                    Ok(())
                }
                // It has it; how it went its modules tell.
                Err(error) if error.may_have_run() => Ok(()),
                Err(error) => Err(evenkeel_net::log::causes(&error)),
            }
        })
    }
}

/// Evicts for as long as the base is lost: pods may still be bound to its node.
async fn evict(provider: Koupleless, node: Arc<str>) {
    let mut pause = AGAIN;
    while provider.is_lost(&node) {
        if let Err(fault) = provider.evict(&node).await {
            tracing::warn!(%node, reason = fault.reason, "{}, trying again", fault.message);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(AGAIN_MOST);
    }
}

async fn keep_peers(
    access: Access,
    client: kube::Client,
    env: String,
    namespace: String,
    identity: String,
    stop: CancellationToken,
) {
    let lock = match access.client("koupleless-peers") {
        Ok(lock) => lock,
        Err(error) => {
            tracing::error!(
                error = evenkeel_net::log::causes(&error),
                "replicas of peer Deployments are not kept"
            );
            return;
        }
    };
    let options = peer::Options {
        env,
        grace: peer::GRACE,
        namespace,
        election: evenkeel_election::Config::new(&identity),
    };
    if let Err(error) = peer::run(client, lock, options, stop).await {
        tracing::error!(
            error = evenkeel_net::log::causes(&error),
            "replicas of peer Deployments are not kept any more"
        );
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

    fn answered(&self, node: &str, says: Option<&str>) {
        if let Some(base) = self.0.base(node) {
            self.0.answered(node, &base.endpoint, says);
        }
    }

    fn refused(&self, node: &str) {
        if let Some(socket) = self.0.base(node).and_then(|base| base.socket()) {
            self.0.refused(node, socket);
        }
    }
}
