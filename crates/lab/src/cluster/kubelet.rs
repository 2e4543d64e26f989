//! A node's kubelet: a fleet of one virtual node, with simulated containers, on a machine of its own.
//!
//! It is what `evenkeel vnode` runs, so that pods, probes, logs and exec are as on any virtual node. It
//! reaches the API server through its node's cloud link like a real one: a cut link silences it. The machine
//! is a thread with a runtime of its own, which holds every task, timer and socket of the kubelet. Power goes
//! by dropping it: nothing is said to anybody, and nothing is left that could write.

use super::native::{Ground, Native};
use crate::join;
use evenkeel_api::names;
use evenkeel_kubelet_api::{
    kubelet::{Certificate, Clients, KubeletApi, KubeletApiError},
    listeners,
};
use evenkeel_net::{
    client::ClientArgs,
    log::causes,
    pki::{Identity, PkiError},
    serve::ServerTls,
};
use evenkeel_vnode::{
    Fleet, Options,
    core::admit::Feature,
    provider::{NodeTemplate, Provider},
};
use evenkeel_vnode_simulated::{self as simulated, NodeSettings, Simulated, address::Cidr};
use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Time from binding to running: image there, container started.
const START_DELAY: Duration = Duration::from_millis(800);
/// Time a well-behaved container needs to end.
const STOP_DELAY: Duration = Duration::from_millis(500);
/// Kubernetes' own time between renewals of a node's Lease, which lasts four times as long.
const LEASE_INTERVAL: Duration = Duration::from_secs(10);
/// A kubelet looks at its Node this often (`nodeStatusUpdateFrequency`) and puts right what others wrote
/// there, such as `Ready=Unknown` while its machine stood still. A virtual node does not look, so it reports
/// this often.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);
/// Between two looks whether the kubelet listens.
const LOOK: Duration = Duration::from_millis(5);
/// The Kubernetes that the lab's API server speaks.
const VERSION: &str = "v1.36.2";

#[derive(Clone)]
pub struct KubeletConfig {
    pub name: String,
    /// The zone that its node is labelled with; without one it has no such label.
    pub zone: Option<String>,
    /// Addresses of its pods.
    pub pods: Cidr,
    /// Where it listens; the port is the published one, too.
    pub listen: SocketAddr,
    /// Published address (InternalIP).
    pub address: IpAddr,
    /// How it reaches the API server.
    pub kubeconfig: PathBuf,
    pub serving: Identity,
    /// The authority of its clients' certificates, PEM.
    pub clients: String,
    /// Whether its control plane is one that the lab joined: then its Node is marked.
    pub joined: bool,
    /// Changes with every boot.
    pub boot_id: String,
    /// File to which it logs, after what it logged before.
    pub log: PathBuf,
    /// Whether it is a machine of the control plane: a node for what belongs there, and for nothing else.
    pub of_control_plane: bool,
    /// What pods of Evenkeel's own images run on; without it they are simulated like all others.
    pub ground: Option<Ground>,
}

/// Why a kubelet did not start.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// Its address is taken. Worth a retry once its owner is gone.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    /// No thread, or no runtime on it.
    #[error("cannot start a machine for it: {0}")]
    Machine(#[source] io::Error),
    #[error("cannot write its log {}: {source}", path.display())]
    Log {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Its kubeconfig is of no use.
    #[error("cannot use its kubeconfig: {0}")]
    Client(String),
    /// Its certificate is of no use.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// Its API cannot be served.
    #[error(transparent)]
    Api(#[from] KubeletApiError),
    /// It ended before it had begun; the log says why.
    #[error("it ended while it started")]
    Ended,
}

/// A kubelet that runs. Dropping it takes its power and does not wait.
pub struct Machine {
    power: DropGuard,
    off: oneshot::Receiver<()>,
    freezes: mpsc::UnboundedSender<Freeze>,
    /// While it is there, the machine stands still.
    frozen: Option<std::sync::mpsc::Sender<()>>,
}

/// Has a machine stand still until the other end of `until` is dropped.
struct Freeze {
    begun: oneshot::Sender<()>,
    until: std::sync::mpsc::Receiver<()>,
}

impl Freeze {
    /// Holds up the thread, and with it every task and timer of the machine.
    fn hold(self) {
        // Nobody waits for the begin where the lab ends in a hurry.
        let _ = self.begun.send(());
        // Nothing is ever sent: the end of the channel is the end of the stand-still.
        let _ = self.until.recv();
    }
}

impl Machine {
    /// Starts a kubelet and waits until it listens; it registers its node by and by.
    pub async fn boot(config: KubeletConfig) -> Result<Self, BootError> {
        // A listener that finds its port taken would be opened on the next one.
        let address = config.listen;
        drop(std::net::TcpListener::bind(address).map_err(|source| BootError::Listen { address, source })?);
        let log = log(&config)?;
        let (power, (dark, off)) = (CancellationToken::new(), oneshot::channel());
        let (begun, started) = oneshot::channel();
        let (freezes, orders) = mpsc::unbounded_channel();
        let (machine, powered) = (config.name.clone(), power.clone());
        std::thread::Builder::new()
            .name(machine)
            .spawn(move || {
                // All that is done on this thread.
                let _log = tracing::dispatcher::set_default(&log);
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = match runtime {
                    Ok(runtime) => runtime,
                    Err(error) => {
                        // Nobody waits where the lab ends in a hurry, here and below.
                        let _ = begun.send(Err(BootError::Machine(error)));
                        return;
                    }
                };
                runtime.block_on(attend(powered, orders, run(config, begun)));
                // Whatever the kubelet is doing ends here, at once.
                runtime.shutdown_background();
                let _ = dark.send(());
            })
            .map_err(BootError::Machine)?;
        let power = power.drop_guard();
        started.await.map_err(|_| BootError::Ended)??;
        Ok(Self {
            power,
            off,
            freezes,
            frozen: None,
        })
    }

    /// Has it stand still, with all its tasks and timers, until [`Machine::thaw`]. It does once the answer
    /// resolves.
    pub fn freeze(&mut self) -> oneshot::Receiver<()> {
        let ((begun, answer), (frozen, until)) = (oneshot::channel(), std::sync::mpsc::channel());
        if self.freezes.send(Freeze { begun, until }).is_err() {
            tracing::debug!("a machine that is off was to stand still");
        }
        self.frozen = Some(frozen);
        answer
    }

    /// Lets it go on where it was.
    pub fn thaw(&mut self) {
        self.frozen = None;
    }

    /// Takes its power, and waits until nothing of it is left and its address is free.
    pub async fn power_off(self) {
        let Self {
            power, off, frozen, ..
        } = self;
        drop(power);
        // A thread that is held up sees that the power is gone.
        drop(frozen);
        // A machine that broke is off as well.
        let _ = off.await;
    }
}

/// Runs a kubelet until the power goes, or until it cannot start. It is held up here rather than in a task of
/// its own, so that a machine that loses its power while it stands still does nothing more.
async fn attend(
    powered: CancellationToken,
    mut freezes: mpsc::UnboundedReceiver<Freeze>,
    kubelet: impl Future<Output = ()>,
) {
    tokio::pin!(kubelet);
    loop {
        tokio::select! {
            biased;
            () = powered.cancelled() => return,
            Some(freeze) = freezes.recv() => freeze.hold(),
            () = &mut kubelet => return,
        }
    }
}

/// What a kubelet says is not the lab's own business: as from a process of its own, it goes to a file.
fn log(config: &KubeletConfig) -> Result<tracing::Dispatch, BootError> {
    let path = &config.log;
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let file = file.map_err(|source| BootError::Log {
        path: path.clone(),
        source,
    })?;
    let lines = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_ansi(false)
        .with_writer(Arc::new(file));
    Ok(lines.finish().into())
}

/// Runs until it is dropped. Tells when it has begun, or why it does not; nobody may be there to hear it.
async fn run(config: KubeletConfig, begun: oneshot::Sender<Result<(), BootError>>) {
    match start(config).await {
        Ok(_fleet) => {
            let _ = begun.send(Ok(()));
            std::future::pending::<()>().await;
        }
        Err(error) => {
            let _ = begun.send(Err(error));
        }
    }
}

async fn start(config: KubeletConfig) -> Result<Fleet, BootError> {
    let args = ClientArgs {
        kubeconfig: Some(config.kubeconfig.clone()),
        ..ClientArgs::default()
    };
    let client = args
        .client("kubelet")
        .await
        .map_err(|error| BootError::Client(causes(&error)))?;
    let simulated = Simulated::new(simulated::Settings {
        start_delay: START_DELAY,
        stop_delay: STOP_DELAY,
        template: template(&config),
        nodes: BTreeMap::from([(
            config.name.clone(),
            NodeSettings {
                range: Some(config.pods),
                boot: Some(config.boot_id),
            },
        )]),
        ..simulated::Settings::default()
    });
    // The machine stands for one that has volumes to mount; what is in them is nobody's.
    let mut features = vec![Feature::Mounts];
    let provider: Arc<dyn Provider> = match config.ground {
        Some(ground) => {
            features.push(Feature::Host);
            Arc::new(Native::new(simulated, ground))
        }
        None => Arc::new(simulated),
    };
    let mut options = Options::new(&config.name, &*provider, vec![config.address]);
    options.features = features;
    VERSION.clone_into(&mut options.nodes.version);
    options.nodes.report = STATUS_INTERVAL;
    options.nodes.lease.interval = LEASE_INTERVAL;
    options.nodes.lease.duration = LEASE_INTERVAL * 4;
    let api = KubeletApi {
        listeners: listeners::Settings {
            address: config.listen.ip(),
            first_port: config.listen.port(),
        },
        certificate: Certificate::Given(ServerTls::new(&config.serving, Some(&config.clients))?),
        clients: Clients::AsGiven,
        rules: evenkeel_kubelet_api::auth::Rules::default(),
    };
    // It ends with its machine alone.
    let never = CancellationToken::new();
    options.kubelet = Some(Arc::new(api.prepare().await?.begin(&client, &never)));
    let fleet = Fleet::start(client, provider, options, never);
    fleet.add(&config.name);
    // A machine that has booted answers at its kubelet's address.
    while fleet.served() == 0 {
        tokio::time::sleep(LOOK).await;
    }
    Ok(fleet)
}

fn template(config: &KubeletConfig) -> NodeTemplate {
    let text = |pairs: &[(&str, &str)]| {
        let pairs = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        pairs.collect::<BTreeMap<_, _>>()
    };
    let mut labels = text(&[
        names::vnode::MACHINE_LABEL,
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", "amd64"),
    ]);
    labels.extend(
        config
            .zone
            .clone()
            .map(|zone| (names::ZONE_LABELS[0].to_owned(), zone)),
    );
    if config.of_control_plane {
        labels.insert(names::CONTROL_PLANE_LABEL.to_owned(), String::new());
    }
    let mark = config.joined.then_some(join::LABEL);
    labels.extend(mark.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let taint = config.of_control_plane.then_some("NoSchedule").into_iter();
    NodeTemplate {
        // It stands for a machine with an agent. What is labelled as a virtual node would be in no roster.
        labels,
        taints: taint
            .map(|effect| {
                (
                    names::CONTROL_PLANE_LABEL.to_owned(),
                    String::new(),
                    effect.to_owned(),
                )
            })
            .collect(),
        architecture: "amd64".to_owned(),
        capacity: text(&[
            ("cpu", "4"),
            ("memory", "8Gi"),
            ("pods", "110"),
            ("ephemeral-storage", "64Gi"),
        ]),
        addresses: vec![
            ("InternalIP".to_owned(), config.address.to_string()),
            ("Hostname".to_owned(), config.name.clone()),
        ],
        ..NodeTemplate::default()
    }
}
