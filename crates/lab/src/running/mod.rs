//! A running lab: API server, workload controllers, kubelets, network, and Evenkeel's own processes.

mod credentials;
mod error;
mod faults;
mod forwarder;
pub mod manifests;
mod node;
mod plane;
mod processes;
mod timed;

pub use error::SetupError;

use crate::{
    cluster,
    control::Fault,
    directory::Directory,
    join::Joinable,
    observe::Observer,
    scenario::{
        StockTimers,
        layout::{Layout, Place},
    },
    supervise::Supervised,
    switch::{FIRST_ROUTED, Plan, Switch},
};
use evenkeel_api::names::{CONTROL_PLANE_LABEL, DEFAULT_ZONE, NAMESPACE};
use evenkeel_api::policy::Profile;
use evenkeel_apiserver::{ApiServer, Options, PodRoutes, kubelet::KubeletOptions};
use evenkeel_install::objects::{CRDS, INSTALLATION, POLICIES, RBAC};
use evenkeel_net::pki::ServerNames;
use kube::{Client, api::DynamicObject};
use node::LabNode;
use plane::Plane;
use processes::CloudSide;
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};
use timed::Outage;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// What virtual nodes may do.
const VNODE: &str = include_str!("../../../../deploy/vnode.yaml");
/// What there is before anything runs where Evenkeel is not installed but started, with the files it is from.
pub const WITHOUT_INSTALLING: [(&str, &str); 4] = [
    (CRDS, "crds.yaml"),
    (RBAC, "rbac.yaml"),
    (POLICIES, "policies.yaml"),
    (VNODE, "vnode.yaml"),
];
/// What the lab's own controllers need beside the roles that Kubernetes gives their namesakes.
const LAB_RBAC: &str = include_str!("../../manifests/lab-rbac.yaml");

/// Where the account of the kubelets is while Evenkeel's own namespace comes and goes with an installation.
const KUBE_SYSTEM: &str = "kube-system";
/// Machines of the control plane, and zone of these, where Evenkeel is installed.
pub const CONTROL_PLANE: &str = "control-plane";
/// Number of these machines: one for each replica of the controller.
const CONTROL_PLANE_MACHINES: u8 = 2;
/// Time for an installation to be ready.
const INSTALLED_WITHIN: Duration = Duration::from_secs(120);

/// How Evenkeel is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is not: stock Kubernetes alone.
    Absent,
    /// Agents and controllers are processes that the lab starts itself.
    Processes,
    /// It is installed as `evenkeel install` does it: agents and controllers are pods.
    Installed,
    /// Everything is there that an installation needs, and the user installs it.
    Installable,
}

impl Presence {
    /// Whether pods of Evenkeel's images are to run.
    pub fn is_in_pods(self) -> bool {
        matches!(self, Self::Installed | Self::Installable)
    }
}

/// How a lab is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The nodes, which [`Layout::check`] accepts.
    pub layout: Layout,
    /// Number of controllers, 1 to [`crate::scenario::crash::MAX_CONTROLLERS`].
    pub controllers: u8,
    /// Defaults that the controllers run with.
    pub profile: Profile,
    /// Port of the API server on 127.0.0.1; 0 takes a free one.
    pub port: u16,
    pub dir: PathBuf,
    /// The `evenkeel` binary that is run for agents, controller and stand-in.
    pub program: PathBuf,
    /// The binary of the agent alone; without it, agents are run by `program`, too.
    pub agent: Option<PathBuf>,
    /// Third octet of the lab's addresses.
    pub subnet: u8,
    /// Whether Evenkeel is there, and how.
    pub evenkeel: Presence,
    /// Timers of the stand-in for the stock controllers.
    pub stock: StockTimers,
    /// Decides which datagrams are lost on lossy links.
    pub seed: u64,
    /// The control plane to join, instead of one of the lab's own.
    pub join: Option<Joinable>,
}

impl Settings {
    /// Timers of the stock controllers: Kubernetes' own on a control plane that was joined.
    fn stock(&self) -> StockTimers {
        match self.join {
            Some(_) => StockTimers::KUBERNETES,
            None => self.stock,
        }
    }

    fn control_plane_machines(&self) -> u8 {
        if self.evenkeel.is_in_pods() {
            CONTROL_PLANE_MACHINES
        } else {
            0
        }
    }

    /// Where a control plane elsewhere reaches the lab.
    fn outside(&self) -> Option<IpAddr> {
        self.join.as_ref().and_then(|join| join.address)
    }
}

/// A running lab. [`Lab::stop`] ends it in order; dropping it ends it at once.
pub struct Lab {
    settings: Settings,
    directory: Directory,
    plane: Plane,
    client: Client,
    url: String,
    switch: Arc<Switch>,
    nodes: Vec<Arc<LabNode>>,
    /// Machines of the control plane, which scenarios leave alone. There are some where Evenkeel is
    /// installed.
    control: Vec<Arc<LabNode>>,
    cloud: CloudSide,
    observer: Observer,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    children: CancellationToken,
    /// Held by whatever changes what is broken.
    one_at_a_time: Arc<tokio::sync::Mutex<()>>,
    /// What the lab has taken down of the control plane.
    outage: Arc<Mutex<Option<Outage>>>,
}

impl Lab {
    /// Starts everything and waits until every node is registered and every process is ready. `progress` is
    /// told what is going on. `interrupt` ends the start, not the lab: that is what [`Lab::stop`] does.
    pub async fn start(
        settings: Settings,
        progress: &(dyn Fn(&str) + Sync),
        interrupt: &CancellationToken,
    ) -> Result<Self, SetupError> {
        let mut lab = tokio::select! {
            () = interrupt.cancelled() => return Err(SetupError::Stopped),
            built = Self::build(settings, progress) => built?,
        };
        let filled = tokio::select! {
            () = interrupt.cancelled() => Err(SetupError::Stopped),
            filled = lab.fill(progress) => filled,
        };
        match filled {
            Ok(()) => Ok(lab),
            Err(error) => {
                if let Err(also) = lab.stop().await {
                    tracing::error!(
                        error = evenkeel_net::log::causes(&also),
                        "the lab did not stop in order"
                    );
                }
                Err(error)
            }
        }
    }

    /// The API server and the network, without anybody who uses them.
    async fn build(settings: Settings, progress: &(dyn Fn(&str) + Sync)) -> Result<Self, SetupError> {
        let (shutdown, children) = (CancellationToken::new(), CancellationToken::new());
        let guard = shutdown.clone().drop_guard();
        let directory = Directory::claim(&settings.dir)?;
        let nodes = u8::try_from(settings.layout.len()).unwrap_or(u8::MAX);
        let nodes = nodes.saturating_add(settings.control_plane_machines());
        let plan = Plan {
            outside: settings.outside(),
            routed_pods: settings.join.is_some() && settings.evenkeel.is_in_pods(),
            ..Plan::new(nodes, settings.subnet)
        };
        if plan.routed_pods {
            let address = FIRST_ROUTED.into();
            std::net::TcpListener::bind((address, 0))
                .map_err(|source| SetupError::Pods { address, source })?;
        }
        let tasks = TaskTracker::new();
        let (plane, url, address) = if let Some(Joinable { cluster, api, .. }) = &settings.join {
            progress(&format!("joining {} ({})", cluster.context(), cluster.url()));
            let plane = Plane::Joined(Box::new(cluster.clone()));
            (plane, cluster.url().to_owned(), *api)
        } else {
            progress("starting the API server");
            let (api, address) = own_server(&settings, plan, &tasks, &shutdown).await?;
            (Plane::Own(api), format!("https://{address}"), address)
        };
        let switch = Switch::start(plan, address, settings.seed, shutdown.clone()).await?;
        if let Some(cluster) = plane.joined() {
            progress("looking for what an earlier lab has left there, and removing it");
            let removed = Box::pin(cluster.clean()).await?;
            if !removed.is_empty() {
                progress(&format!("removed {} objects of an earlier lab", removed.len()));
            }
        }
        if let Plane::Own(api) = &plane {
            let text = api.kubeconfig(&url, "kubernetes-admin", &["system:masters"])?;
            directory.write_secret(&directory.kubeconfig(), &text)?;
        }
        let client = plane.client();
        // What happens while the API server is down is recorded as well.
        let observer = Observer::start(&plane.observer(), &shutdown);
        tasks.spawn(plane.clone().run_controllers(shutdown.clone()));
        let lab = Self {
            cloud: CloudSide::new(&settings, &directory)?,
            nodes: Vec::new(),
            control: Vec::new(),
            settings,
            directory,
            plane,
            client,
            url,
            switch: Arc::new(switch),
            observer,
            tasks,
            shutdown,
            children,
            one_at_a_time: Arc::default(),
            outage: Arc::default(),
        };
        guard.disarm();
        Ok(lab)
    }

    /// Custom resources, namespaces, roles.
    async fn install(&self) -> Result<(), SetupError> {
        if self.settings.evenkeel.is_in_pods() {
            // The rest is the installation's, and leaves with it.
            let vnode = VNODE.replace(NAMESPACE, self.namespace_of_kubelets());
            let mut objects = manifests::parse(&vnode, "vnode.yaml")?;
            // kube-system is nobody's to make.
            objects.retain(|object| {
                object
                    .types
                    .as_ref()
                    .is_none_or(|types| types.kind != "Namespace")
            });
            self.create(objects, "vnode.yaml").await?;
        } else {
            for (text, origin) in WITHOUT_INSTALLING {
                self.apply(text, origin).await?;
            }
        }
        if self.plane.joined().is_none() {
            self.apply(LAB_RBAC, "lab-rbac.yaml").await?;
        }
        Ok(())
    }

    async fn fill(&mut self, progress: &(dyn Fn(&str) + Sync)) -> Result<(), SetupError> {
        self.install().await?;
        let places = self.settings.layout.places();
        progress(&format!("starting {} nodes", places.len()));
        for (index, place) in (1..).zip(&places) {
            let node = LabNode::new(index, place, false, self).await?;
            node.boot().await?;
            self.nodes.push(Arc::new(node));
        }
        for number in 1..=self.settings.control_plane_machines() {
            let place = Place {
                name: format!("{CONTROL_PLANE}-{number}"),
                zone: Some(CONTROL_PLANE.to_owned()),
            };
            let index = u8::try_from(places.len())
                .unwrap_or(u8::MAX)
                .saturating_add(number);
            let node = LabNode::new(index, &place, true, self).await?;
            node.boot().await?;
            self.control.push(Arc::new(node));
        }
        self.nodes_registered().await?;
        if self.plane.joined().is_none() {
            progress("starting the stand-in for the stock controllers");
            self.start_stock().await?;
        }
        if self.settings.evenkeel == Presence::Installed {
            progress("installing Evenkeel, as `evenkeel install` does");
            self.install_evenkeel().await?;
        }
        if self.settings.evenkeel == Presence::Processes {
            let controllers = match self.settings.controllers {
                1 => "Evenkeel's controller".to_owned(),
                count => format!("{count} of Evenkeel's controllers"),
            };
            let binary = match self.settings.agent {
                Some(_) => "evenkeel-agent",
                None => "evenkeel agent",
            };
            progress(&format!(
                "starting {controllers} and one agent on each node ({binary})"
            ));
            self.start_evenkeel().await?;
        }
        Ok(())
    }

    /// Namespace of the account of the kubelets.
    fn namespace_of_kubelets(&self) -> &'static str {
        if self.settings.evenkeel.is_in_pods() {
            KUBE_SYSTEM
        } else {
            NAMESPACE
        }
    }

    /// Installs what `evenkeel install` installs, by the same code, and waits until it runs.
    async fn install_evenkeel(&self) -> Result<(), SetupError> {
        if self.plane.joined().is_some() {
            // By its label the namespace, and so the installation, is known as the lab's.
            let namespace = format!(
                "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}, labels: {{{INSTALLATION}: {NAMESPACE}}}}}\n"
            );
            self.apply(&namespace, "the namespace of the installation")
                .await?;
        }
        let options = evenkeel_install::Options {
            mode: "act".to_owned(),
            profile: self.settings.profile.name().to_owned(),
            zone_default: Some(DEFAULT_ZONE.to_owned()),
            // The lab's scheduler knows no preferences.
            controller_nodes: vec![(CONTROL_PLANE_LABEL.to_owned(), String::new())],
            ..evenkeel_install::Options::default()
        };
        let installed =
            evenkeel_install::install(&self.client, &options, INSTALLED_WITHIN, &self.children).await;
        installed.map(drop).map_err(|source| SetupError::Install {
            source: Box::new(source),
            logs: self.directory.logs(),
        })
    }

    async fn nodes_registered(&self) -> Result<(), SetupError> {
        let wanted = self.settings.layout.len();
        let registered = self
            .observer
            .wait_for(Duration::from_secs(30), |now| {
                now.nodes().filter(|node| node.ready == "True").count() >= wanted
            })
            .await;
        match registered {
            Some(_) => Ok(()),
            None => Err(SetupError::Kubelet {
                node: self.node_names().join(", "),
                reason: format!(
                    "not all Ready within 30 s: {}",
                    self.observer.now().unready(wanted).join("; ")
                ),
            }),
        }
    }

    /// Creates the objects of a manifest.
    pub async fn apply(&self, text: &str, origin: &str) -> Result<usize, SetupError> {
        self.create(manifests::parse(text, origin)?, origin).await
    }

    async fn create(&self, objects: Vec<DynamicObject>, origin: &str) -> Result<usize, SetupError> {
        let joined = self.plane.joined().is_some();
        Ok(manifests::apply(&self.client, objects, origin, joined).await?)
    }

    /// What happened so far.
    pub fn observer(&self) -> &Observer {
        &self.observer
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        match self.plane.joined() {
            Some(cluster) => cluster.kubeconfig().to_owned(),
            None => self.directory.kubeconfig(),
        }
    }

    /// Where the API server answers.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How it was set up.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Cancelled once the lab's processes have stopped.
    pub fn shutdown_token(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Names of the nodes, in order.
    pub fn node_names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name().to_owned()).collect()
    }

    /// Stops every process and task, and removes what must not outlive the lab: files, and whatever it made
    /// on a control plane that it joined.
    pub async fn stop(&self) -> Result<(), SetupError> {
        // Processes first: what they say goodbye to is still there.
        let outage = {
            let _turn = self.one_at_a_time.lock().await;
            self.end_outage().await
        };
        let uninstalled = match self.plane.joined() {
            Some(cluster) if outage.is_ok() => Box::pin(cluster.uninstall(true)).await.map(drop),
            _ => Ok(()),
        };
        self.children.cancel();
        let agents = self.nodes.iter().filter_map(|node| node.agent());
        futures::future::join_all(self.cloud.children().chain(agents).map(Supervised::stopped)).await;
        let machines = self.nodes.iter().chain(&self.control);
        futures::future::join_all(machines.map(|node| node.stop())).await;
        self.shutdown.cancel();
        self.tasks.close();
        if tokio::time::timeout(Duration::from_secs(10), self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("a task of the lab did not end within 10 s");
        }
        self.switch.stopped().await;
        self.directory.clean()?;
        outage.map_err(SetupError::Outage)?;
        if let Some(cluster) = self.plane.joined() {
            Box::pin(cluster.clean()).await?;
        }
        Ok(uninstalled?)
    }

    /// Does what a fault asks for, and says what was done; the error says what is wrong with it.
    pub async fn inflict(&self, fault: &Fault) -> Result<String, String> {
        let _turn = self.one_at_a_time.lock().await;
        faults::inflict(self, fault).await
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.children.cancel();
        self.shutdown.cancel();
    }
}

async fn serve(api: ApiServer, listener: TcpListener, names: ServerNames, shutdown: CancellationToken) {
    if let Err(error) = api.serve(listener, &names, shutdown).await {
        tracing::error!(%error, "the API server's listener failed");
    }
}

/// Starts the lab's own API server.
async fn own_server(
    settings: &Settings,
    plan: Plan,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) -> Result<(ApiServer, SocketAddr), SetupError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, settings.port));
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| SetupError::Port { address, source })?;
    let address = listener
        .local_addr()
        .map_err(|source| SetupError::Port { address, source })?;
    let toleration = i64::from(settings.stock.unreachable_toleration_seconds);
    let api = ApiServer::new(Options {
        default_not_ready_toleration_seconds: toleration,
        default_unreachable_toleration_seconds: toleration,
        kubelet: KubeletOptions {
            // Where all nodes of the lab are: on loopback.
            proxy_to_any_address: true,
            ..KubeletOptions::default()
        },
        pods: PodRoutes::new(move |address| plan.pod(address)),
        ..Options::default()
    })
    .map_err(|error| SetupError::ApiServer(error.to_string()))?;
    let names = ServerNames {
        dns: Vec::new(),
        ips: (1..=plan.nodes)
            .map(|node| IpAddr::V4(plan.outer(node)))
            .collect(),
    };
    tasks.spawn(serve(api.clone(), listener, names, shutdown.clone()));
    Ok((api, address))
}
