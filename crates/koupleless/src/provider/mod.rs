//! Modules as containers: what the virtual nodes ask, asked of bases.
//!
//! A base is a node, a pod's containers are modules on it. Starting one installs it, ending one removes it;
//! what a base holds beyond that is nobody's business here: modules that it came with, or that somebody
//! installed by hand, are never touched.
//!
//! What belongs to which pod stands in an annotation of the Node (the `journal`), written before the first
//! install: a process that takes a node over knows what it may remove.

mod base;
mod evict;
mod inspect;
mod install;
mod journal;
mod remote;
mod remove;

mod usage;

pub use remote::BasePods;

use crate::core::claims::Sharing;
use crate::core::profile::FailedInstall;
use crate::core::registry::UNNAMED;
use crate::core::{Base, Connection, Endpoint, Modules, Profile};
use crate::discovery::nodes::annotation;
use base::{Bound, Table};
use evenkeel_arklet::health::Health;
use evenkeel_arklet::{ErrorKind, ModuleId, Tunnel, TunnelError};
use evenkeel_vnode::ownership::Term;
use evenkeel_vnode::provider::{
    ContainerId, Duplex, ExecIo, Exit, Fault, FaultKind, Host, LogOptions, LogStream, NodeHealth, NodeStats,
    NodeTemplate, PodId, PodRequest, PodState, Provider, Refusal, Report, Runtime, Sandbox, Served,
    StartRequest, Started,
};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a base that has answered as itself is held to be there: somewhat longer than the pause between
/// two pings.
const LATELY: Duration = Duration::from_secs(15);
/// Reason where another base has answered.
const ANOTHER: &str = "AnotherBase";

/// How modules are run.
#[derive(Clone, Debug)]
pub struct Settings {
    pub profile: Arc<Profile>,
    /// The environment that this process serves: part of names and topics.
    pub env: String,
    /// Capacity of a node in pods; the profile's without.
    pub pods: Option<u32>,
    /// How often the modules of a base are resynced, at most. Twice as often while something is under way. 15
    /// s.
    pub resync: Duration,
    /// What becomes of a module that is installed beside another version of it, and does not serve.
    pub activation: Activation,
    /// Whether pods may have the same module of a base.
    pub sharing: Sharing,
    /// Operations at a time on one base. Of one module there is one at a time. 4.
    pub operations: usize,
    /// After this time an install gives back its permit among the operations on its base: jars that never
    /// come, and modules that never start, do not keep others waiting. 30 s.
    pub permit: Duration,
    /// How long an install may take in one go, waiting for another operation included. 5 min.
    pub install: Duration,
    /// What stands in each line of a base's log that is a module's, with `{module}` for its name: only such
    /// lines, and those without any such mark that follow them, are shown as the module's log. Without it the
    /// whole log is shown.
    pub log_mark: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            profile: Arc::new(crate::core::profile::KOUPLELESS),
            env: "dev".to_owned(),
            pods: None,
            resync: Duration::from_secs(15),
            activation: Activation::default(),
            sharing: Sharing::default(),
            operations: 4,
            permit: Duration::from_secs(30),
            install: Duration::from_secs(300),
            log_mark: None,
        }
    }
}

/// What becomes of a module that is installed beside another version of it, and does not serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// It takes over from the other version (`switchBiz`). Over MQTT, which has no such command, it stays as
    /// it is.
    #[default]
    Switch,
    /// It stays as it is: its container is not ready until somebody switches.
    Keep,
}

/// What is known of bases by whoever finds them.
pub trait Bases: Send + Sync + 'static {
    /// The base that is this node.
    fn base(&self, node: &str) -> Option<Arc<Base>>;

    fn life(&self, node: &str) -> Life;

    /// Somebody has answered at `endpoint`, where it was asked; `says`: what it calls itself, where it says
    /// so.
    fn answered(&self, node: &str, endpoint: &Endpoint, says: Option<&str>);

    /// `endpoint`, where it was asked, refuses connections: no process listens there.
    fn refused(&self, node: &str, endpoint: &Endpoint);
}

/// Is notified of what happens to bases and modules beside what is reported to the framework. Must not block.
pub trait Observer: Send + Sync + 'static {
    /// What a base said of its health.
    fn health(&self, node: &str, health: &Health);

    /// A module could not be installed.
    fn not_installed(&self, base: &Base, module: &ModuleId, fault: &Fault);

    /// A node is not served here any more.
    fn released(&self, node: &str);
}

/// Whether a base lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// It was heard of lately.
    Alive,
    /// It was not heard of for so long that its state is not known; why, for people. Nothing is moved for
    /// that.
    Silent(String),
    /// It is gone, and its modules with it; by which evidence.
    Lost(String),
}

#[derive(Clone)]
pub struct Tunnels {
    /// To their own HTTP servers.
    pub http: Arc<dyn Tunnel>,
    /// By way of a broker.
    pub mqtt: Option<Arc<dyn Tunnel>>,
}

impl Tunnels {
    fn to(&self, base: &Base) -> Result<&dyn Tunnel, Fault> {
        match (base.endpoint.by, &self.mqtt) {
            (Connection::Http(_), _) => Ok(&*self.http),
            (Connection::Mqtt, Some(mqtt)) => Ok(&**mqtt),
            (Connection::Mqtt, None) => {
                let message = format!("{base} is reached by an MQTT broker, and none is set");
                Err(Fault::new(FaultKind::Later, "BaseUnreachable", message))
            }
        }
    }
}

/// Installs modules into bases. Cheap to clone.
#[derive(Clone)]
pub struct Koupleless(Arc<Inner>);

struct Inner {
    settings: Settings,
    bases: Arc<dyn Bases>,
    tunnels: Tunnels,
    /// The cluster that bases run in as pods.
    pods: Option<BasePods>,
    host: OnceLock<Arc<dyn Host>>,
    observer: OnceLock<Arc<dyn Observer>>,
    table: Table,
}

impl std::fmt::Debug for Koupleless {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Koupleless")
            .field("settings", &self.0.settings)
            .finish_non_exhaustive()
    }
}

impl Koupleless {
    /// A provider for these bases. `pods`: the cluster in which bases run as pods, for `logs`, `exec` and
    /// `attach`.
    pub fn new(settings: Settings, bases: Arc<dyn Bases>, tunnels: Tunnels, pods: Option<BasePods>) -> Self {
        Self(Arc::new(Inner {
            settings,
            bases,
            tunnels,
            pods,
            host: OnceLock::new(),
            observer: OnceLock::new(),
            table: Table::default(),
        }))
    }

    /// Sets who is notified; to be called once, before the fleet starts.
    pub fn observe_with(&self, observer: Arc<dyn Observer>) {
        // A second observer is ignored.
        let _ = self.0.observer.set(observer);
    }

    /// What is known of a base has changed: its Node is brought up to date at once.
    pub fn stir(&self, node: &str) {
        if let Some(host) = self.0.host.get() {
            host.report(Report::Node { name: node.into() });
        }
    }

    /// For how long this replica serves a node; `None`: it does not.
    pub fn term(&self, node: &str) -> Option<Term> {
        self.0.host.get()?.term(node)
    }

    /// Whether a node's base is gone.
    pub fn is_lost(&self, node: &str) -> bool {
        matches!(self.0.bases.life(node), Life::Lost(_))
    }

    /// Removes all modules of a base that were installed for pods, but for those whose pods stay on it; how
    /// many remain.
    pub async fn purge(&self, node: &str) -> Result<usize, Fault> {
        self.0.purge(node).await
    }

    /// Deletes the pods of a node whose base is gone, as far as the node is served here; how many were on it,
    /// those on their way out included. Each is deleted by its UID, with an Event that says why. `None`:
    /// nothing was done, the base is not lost or the node not served here.
    pub async fn evict(&self, node: &str) -> Result<Option<usize>, Fault> {
        self.0.evict(node).await
    }
}

impl Inner {
    /// The base of a node, with what is remembered of it.
    fn bound(&self, node: &str) -> Result<Bound, Fault> {
        let base = self.bases.base(node).ok_or_else(|| {
            let message = format!("no base is known for node {node}");
            Fault::new(FaultKind::Later, "BaseUnknown", message)
        })?;
        let memory = self.table.of(node, &self.settings);
        Ok(Bound {
            node: node.into(),
            base,
            memory,
        })
    }

    /// How a base is addressed.
    fn target(&self, base: &Base) -> evenkeel_arklet::Base {
        evenkeel_arklet::Base {
            identity: base.identity.to_string(),
            environment: self.settings.env.clone(),
            address: base.socket(),
        }
    }

    /// The way to a base that is about to be changed. Addresses are given to others: unless it has answered
    /// as itself within `lately` it is asked first, so that nothing is installed or removed where another
    /// base is by now. Over MQTT the topic says whose it is.
    async fn way(&self, bound: &Bound, lately: Duration) -> Result<&dyn Tunnel, Fault> {
        let tunnel = self.tunnels.to(&bound.base)?;
        let by_address = bound.base.endpoint.by != Connection::Mqtt;
        if by_address && !bound.memory.is_itself(&bound.base.endpoint, lately) {
            self.health(bound).await?;
        }
        Ok(tunnel)
    }

    /// How the base says that it is.
    async fn health(&self, bound: &Bound) -> Result<Health, Fault> {
        let tunnel = self.tunnels.to(&bound.base)?;
        let answer = tunnel.health(&self.target(&bound.base)).await;
        let health = answer.map_err(|error| self.fault(bound, &error))?;
        let endpoint = &bound.base.endpoint;
        self.bases
            .answered(&bound.node, endpoint, health.identity.as_deref());
        let mut state = bound.memory.state();
        state.itself = Some((Instant::now(), endpoint.clone()));
        state.another = false;
        drop(state);
        Ok(health)
    }

    /// A call without an outcome, as the framework takes it; the base is held to be alive or not by it.
    fn fault(&self, bound: &Bound, error: &TunnelError) -> Fault {
        let endpoint = &bound.base.endpoint;
        // Whatever has become of it, that it is there is not sure any more.
        bound.memory.state().itself = None;
        let reason = match &error.kind {
            ErrorKind::Connect(source) => {
                if source.kind() == std::io::ErrorKind::ConnectionRefused {
                    self.bases.refused(&bound.node, endpoint);
                }
                "BaseUnreachable"
            }
            ErrorKind::NoBroker => "BaseUnreachable",
            ErrorKind::Another { says } => {
                if !std::mem::replace(&mut bound.memory.state().another, true) {
                    tracing::warn!(node = %bound.node, base = %bound.base, says, "another base answers there: it is left alone");
                }
                self.bases.answered(&bound.node, endpoint, Some(says));
                ANOTHER
            }
            ErrorKind::Silent { .. } | ErrorKind::Unfinished { .. } => "BaseTimeout",
            ErrorKind::Busy { .. } => "BaseBusy",
            ErrorKind::RecordLost { .. } => "BaseRestarted",
            ErrorKind::Invalid(_) | ErrorKind::Unsupported { .. } => "InvalidModule",
            ErrorKind::Broken(_)
            | ErrorKind::Status { .. }
            | ErrorKind::TooLong { .. }
            | ErrorKind::Unreadable { .. }
            | ErrorKind::Refused { .. } => "BaseError",
        };
        let kind = match &error.kind {
            ErrorKind::Invalid(_) | ErrorKind::Unsupported { .. } => FaultKind::Never,
            _ => FaultKind::Later,
        };
        Fault::new(kind, reason, evenkeel_net::log::causes(error))
    }

    /// A failed install, as the profile has it.
    fn failed(&self, reason: &str, message: String) -> Fault {
        let kind = match self.settings.profile.failed_install {
            FailedInstall::Waits => FaultKind::Later,
            FailedInstall::FailsPod => FaultKind::Fatal,
        };
        Fault::new(kind, reason, message)
    }

    fn sandbox(base: &Base) -> Sandbox {
        Sandbox {
            addresses: vec![base.endpoint.address],
        }
    }
}

/// What a base is, for people, where a machine has its operating system.
fn os_image(base: &Base) -> String {
    let known = [&base.name, &base.version].into_iter().flatten();
    let known = known.filter(|text| !text.trim().is_empty() && *text != UNNAMED);
    known.fold("Koupleless base".to_owned(), |text, word| {
        format!("{text} {}", word.trim())
    })
}

fn invalid(refusal: Refusal) -> Fault {
    Fault::new(FaultKind::Never, &refusal.reason, refusal.message)
}

impl Provider for Koupleless {
    fn runtime(&self) -> Runtime {
        Runtime {
            name: "arklet".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn connect(&self, host: Arc<dyn Host>) {
        // One fleet has it.
        let _ = self.0.host.set(host);
    }

    fn node(&self, name: &str) -> NodeTemplate {
        let Some(base) = self.0.bases.base(name) else {
            return NodeTemplate::default();
        };
        let settings = &self.0.settings;
        let profile = &settings.profile;
        let pods = settings.pods.unwrap_or(profile.pods);
        let addresses = if profile.base_address {
            let host = base.host_name.clone().unwrap_or_else(|| name.to_owned());
            vec![
                ("InternalIP".to_owned(), base.endpoint.address.to_string()),
                ("Hostname".to_owned(), host),
            ]
        } else {
            Vec::new()
        };
        NodeTemplate {
            labels: profile.labels(&base, &settings.env),
            annotations: BTreeMap::from([annotation(&base)]),
            taints: profile.taints(&base, &settings.env),
            capacity: BTreeMap::from([("pods".to_owned(), pods.to_string())]),
            addresses,
            provider_id: format!("koupleless://{}", base.identity),
            os_image: os_image(&base),
            kernel_version: self.0.java(name),
            ..NodeTemplate::default()
        }
    }

    fn ping<'a>(&'a self, node: &'a str) -> Served<'a, NodeHealth> {
        Box::pin(self.0.ping(node))
    }

    fn admit(&self, pod: &Pod) -> Result<(), Refusal> {
        Modules::of(pod, &self.0.settings.profile).map(drop)
    }

    fn list<'a>(&'a self, node: &'a str) -> Served<'a, Vec<PodId>> {
        Box::pin(self.0.list(node))
    }

    fn status<'a>(&'a self, pod: &'a PodRequest) -> Served<'a, Option<PodState>> {
        Box::pin(self.0.status(pod))
    }

    fn create<'a>(&'a self, pod: &'a PodRequest) -> Served<'a, Sandbox> {
        Box::pin(self.0.create(pod))
    }

    fn update<'a>(&'a self, _: &'a PodRequest) -> Served<'a, ()> {
        // Labels, annotations and tolerations are nothing to a base; a new image is a new container.
        Box::pin(async { Ok(()) })
    }

    fn start<'a>(&'a self, request: &'a StartRequest) -> Served<'a, Started> {
        Box::pin(self.0.start(request))
    }

    fn stop<'a>(&'a self, pod: &'a PodId, container: &'a ContainerId, _: Duration) -> Served<'a, Exit> {
        Box::pin(self.0.stop(pod, container))
    }

    fn release(&self, node: &str) {
        self.0.table.forget(node);
        if let Some(observer) = self.0.observer.get() {
            observer.released(node);
        }
    }

    fn delete<'a>(&'a self, pod: &'a PodId) -> Served<'a, ()> {
        Box::pin(self.0.delete(pod))
    }

    fn logs<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        options: &'a LogOptions,
    ) -> Served<'a, LogStream> {
        Box::pin(self.0.logs(pod, container, options))
    }

    fn exec<'a>(
        &'a self,
        pod: &'a PodId,
        _: &'a ContainerId,
        command: &'a [String],
        io: ExecIo,
    ) -> Served<'a, i32> {
        Box::pin(self.0.exec(pod, command, io))
    }

    fn attach<'a>(&'a self, pod: &'a PodId, _: &'a ContainerId, io: ExecIo) -> Served<'a, i32> {
        Box::pin(self.0.attach(pod, io))
    }

    fn port_forward<'a>(&'a self, pod: &'a PodId, port: u16) -> Served<'a, Box<dyn Duplex>> {
        Box::pin(self.0.port_forward(pod, port))
    }

    fn stats<'a>(&'a self, node: &'a str) -> Served<'a, NodeStats> {
        Box::pin(std::future::ready(self.0.stats(node)))
    }
}
