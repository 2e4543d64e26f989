//! Pods of Evenkeel's own images: their containers run as processes of the lab's binaries. All others are
//! simulated.
//!
//! | module | what it holds |
//! |---|---|
//! | [`mod@line`] | **pure**: command line and variables of a container, on a machine without namespaces |
//! | [`processes`] | the processes of a machine, which outlive its kubelet |
//! | [`volumes`] | volumes as directories |
//! | [`output`] | what processes print, and who reads it |

pub mod line;
pub mod output;
pub mod processes;
pub mod volumes;

use crate::kubeconfig::kubeconfig;
use crate::switch::Plan;
use evenkeel_probe::{
    core::{Attempt, Handler, Outcome},
    handler::{http, tcp},
};
use evenkeel_vnode::provider::{
    ContainerId, Duplex, ExecIo, Exit, Fault, FaultKind, Host, LogOptions, LogStream, NodeHealth, NodeStats,
    NodeTemplate, PodId, PodRequest, PodState, Provider, Refusal, Runtime, Sandbox, Served, StartRequest,
    Started,
};
use evenkeel_vnode_simulated::Simulated;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use line::{Image, Programs, Surroundings};
use processes::{Processes, Start};
use serde_json::json;
use std::{
    fs, io,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};
use volumes::Place;

/// How often volumes are brought up to date, as a kubelet does about every minute.
const REFRESH: Duration = Duration::from_secs(60);

/// What a machine has for pods that are processes.
#[derive(Clone)]
pub struct Ground {
    pub programs: Programs,
    /// Directory of the machine.
    pub folder: PathBuf,
    /// Directory of the logs.
    pub logs: PathBuf,
    /// Who has which address.
    pub plan: Plan,
    /// Number of the machine.
    pub index: u8,
    /// The name of the API server's certificate, where it is not the one by which nodes reach it.
    pub server_name: Option<String>,
    /// Variables of everything that is no agent: how the cluster is set up.
    pub cluster: Vec<(String, String)>,
    pub processes: Arc<Processes>,
}

impl Ground {
    /// Variables that a container gets unless its pod sets them.
    fn variables(&self, image: Image) -> Vec<(String, String)> {
        if image == Image::Evenkeel {
            return self.cluster.clone();
        }
        let (plan, index) = (&self.plan, self.index);
        let state = self.machine().join("var/lib/evenkeel");
        let agent = [
            // All machines share the loopback network: each binds an address of its own.
            (
                "EVENKEEL_LISTEN",
                format!("{}:{}", plan.inner(index), plan.agent_port),
            ),
            ("EVENKEEL_KUBELET", plan.kubelet_inside(index).to_string()),
            (
                "EVENKEEL_KUBELET_ADVERTISE",
                plan.kubelet_of_peers(index).to_string(),
            ),
            // They share a kernel, too.
            ("EVENKEEL_BOOT", self.folder.join("boot").display().to_string()),
            // And a file system: these have their usual values below the directory of the machine.
            ("EVENKEEL_STATE_DIR", state.display().to_string()),
            ("EVENKEEL_KEY", state.join("agent.key").display().to_string()),
        ];
        agent.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }

    /// The directory that stands for `/`.
    fn machine(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// Where the directories of pods are.
    fn pods(&self) -> PathBuf {
        self.folder.join("pods")
    }

    /// The directory of a pod.
    fn pod(&self, id: &PodId) -> PathBuf {
        self.pods().join(&*id.uid)
    }

    /// Removes what pods of a lab that has ended have left: there are tokens and keys among it.
    pub fn clean(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.pods()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// A kubeconfig that names the API server at the node's cloud link, and the account of a pod.
    fn kubeconfig(&self, account: &std::path::Path) -> String {
        kubeconfig(
            &format!("https://{}", self.plan.cloud_link(self.index)),
            self.server_name.as_deref(),
            ("certificate-authority", json!(account.join("ca.crt"))),
            ("pod", "tokenFile", json!(account.join("token"))),
        )
    }
}

/// Runs containers of Evenkeel's images as processes.
pub struct Native {
    simulated: Simulated,
    ground: Ground,
    host: OnceLock<Arc<dyn Host>>,
}

impl Native {
    pub fn new(simulated: Simulated, ground: Ground) -> Self {
        Self {
            simulated,
            ground,
            host: OnceLock::new(),
        }
    }

    fn host(&self) -> Result<&Arc<dyn Host>, Fault> {
        let early = || Fault::new(FaultKind::Later, "NotReady", "the kubelet has not started yet");
        self.host.get().ok_or_else(early)
    }

    /// A pod with the network of its host has the address of that.
    fn sandbox(&self, pod: &Pod, sandbox: Sandbox) -> Sandbox {
        let spec = pod.spec.as_ref();
        if spec.and_then(|spec| spec.host_network) != Some(true) {
            return sandbox;
        }
        Sandbox {
            addresses: vec![self.ground.plan.kubelet(self.ground.index).ip()],
        }
    }

    /// Where a pod of this address is in truth.
    fn reached(&self, address: IpAddr) -> IpAddr {
        self.ground.plan.pod(address)
    }

    async fn run(&self, image: Image, request: &StartRequest) -> Result<Started, Fault> {
        let (ground, container) = (&self.ground, &request.container);
        let (id, pod) = (&request.pod.id, &request.pod.pod);
        // Whoever writes pods on a control plane elsewhere starts nothing else here.
        if ground.plan.routed_pods && !line::is_installed(image, pod, container) {
            let why = "on a control plane that the lab has joined it runs the agents and controllers of an installation of Evenkeel \
                       alone, as `evenkeel install` makes them";
            return Err(Fault::new(FaultKind::Never, "StartError", why));
        }
        let (folder, machine) = (ground.pod(id), ground.machine());
        let place = Place {
            pod: &folder,
            machine: &machine,
        };
        if image == Image::Agent {
            ground.processes.agent_may_start().await;
        }
        let failed = |message: String| Fault::new(FaultKind::Later, "RunContainerError", message);
        volumes::write(&**self.host()?, id, place).await?;
        let mounts = volumes::mounts(pod, container, place)?;
        let kubeconfig = folder.join("kubeconfig");
        if let Some(account) = line::account(&mounts) {
            let written =
                evenkeel_net::file::write_secret(&kubeconfig, ground.kubeconfig(account).as_bytes());
            written.map_err(|error| failed(error.to_string()))?;
        }
        let own = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
        let address = match request.sandbox.addresses.first() {
            Some(address) if !own => self.reached(*address),
            _ => ground.plan.inner(ground.index).into(),
        };
        let around = Surroundings {
            programs: &ground.programs,
            mounts: &mounts,
            address,
            variables: &ground.variables(image),
            kubeconfig: &kubeconfig,
        };
        let line = line::line(image, container, &around)
            .map_err(|why| Fault::new(FaultKind::Never, "StartError", why))?;
        let log = format!("{}-{}-{}.log", id.name, container.name, request.attempt);
        let policy = container.termination_message_policy.as_deref();
        let start = Start {
            pod: id.clone(),
            folder,
            address,
            container: container.name.as_str().into(),
            is_agent: image == Image::Agent,
            line,
            log: ground.logs.join(log),
            last_words: policy == Some("FallbackToLogsOnError"),
        };
        let program = start.line.program.display().to_string();
        let run = ground.processes.start(start);
        let run = run.map_err(|error| failed(format!("cannot start {program}: {error}")))?;
        Ok(Started {
            id: run.id,
            image_id: container.image.clone().unwrap_or_default(),
            at: run.started,
        })
    }

    /// Brings the volumes of all pods up to date, now and then.
    async fn refresh(ground: Ground, host: Arc<dyn Host>) {
        loop {
            tokio::time::sleep(REFRESH).await;
            for (id, folder) in ground.processes.pods() {
                let machine = ground.machine();
                let place = Place {
                    pod: &folder,
                    machine: &machine,
                };
                // A link that is cut is no news. The next look is soon.
                if let Err(error) = volumes::write(&*host, &id, place).await {
                    tracing::debug!(pod = %id, %error, "its volumes stay as they are for now");
                }
            }
        }
    }
}

fn unsupported<'a, T: Send + 'a>(what: &str) -> Served<'a, T> {
    let message = format!("a container that is a process of the lab takes no {what}; read its log instead");
    Box::pin(std::future::ready(Err(Fault::new(
        FaultKind::Unsupported,
        "Unsupported",
        message,
    ))))
}

fn no_container(pod: &PodId, id: &ContainerId) -> Fault {
    let message = format!("pod {pod} has no container {id}: its machine was switched off since it ran");
    Fault::new(FaultKind::NotFound, "NotFound", message)
}

impl Provider for Native {
    fn runtime(&self) -> Runtime {
        self.simulated.runtime()
    }

    fn connect(&self, host: Arc<dyn Host>) {
        self.simulated.connect(Arc::clone(&host));
        self.ground.processes.connect(Arc::clone(&host));
        if self.host.set(Arc::clone(&host)).is_ok() {
            // Ends with the runtime of the machine.
            tokio::spawn(Self::refresh(self.ground.clone(), host));
        }
    }

    fn node(&self, name: &str) -> NodeTemplate {
        self.simulated.node(name)
    }

    fn ping<'a>(&'a self, node: &'a str) -> Served<'a, NodeHealth> {
        self.simulated.ping(node)
    }

    fn admit(&self, pod: &Pod) -> Result<(), Refusal> {
        self.simulated.admit(pod)
    }

    fn list<'a>(&'a self, node: &'a str) -> Served<'a, Vec<PodId>> {
        Box::pin(async move {
            let mut pods = self.simulated.list(node).await?;
            for (id, _) in self.ground.processes.pods() {
                if pods.iter().all(|known| known.uid != id.uid) {
                    pods.push(id);
                }
            }
            Ok(pods)
        })
    }

    fn status<'a>(&'a self, request: &'a PodRequest) -> Served<'a, Option<PodState>> {
        Box::pin(async move {
            let state = self.simulated.status(request).await?;
            Ok(state.map(|mut state| {
                state.sandbox = self.sandbox(&request.pod, state.sandbox);
                state
                    .containers
                    .extend(self.ground.processes.observed(&request.id));
                state
            }))
        })
    }

    fn create<'a>(&'a self, request: &'a PodRequest) -> Served<'a, Sandbox> {
        Box::pin(async move {
            let sandbox = self.simulated.create(request).await?;
            Ok(self.sandbox(&request.pod, sandbox))
        })
    }

    fn update<'a>(&'a self, pod: &'a PodRequest) -> Served<'a, ()> {
        self.simulated.update(pod)
    }

    fn start<'a>(&'a self, request: &'a StartRequest) -> Served<'a, Started> {
        match request.container.image.as_deref().and_then(Image::of) {
            Some(image) => Box::pin(self.run(image, request)),
            None => self.simulated.start(request),
        }
    }

    fn stop<'a>(&'a self, pod: &'a PodId, container: &'a ContainerId, grace: Duration) -> Served<'a, Exit> {
        if !Processes::owns(container) {
            return self.simulated.stop(pod, container, grace);
        }
        Box::pin(async move {
            let run = self.ground.processes.run(pod, container);
            let exit = match run {
                Some(run) => run.stop(grace).await,
                None => None,
            };
            exit.ok_or_else(|| no_container(pod, container))
        })
    }

    fn release(&self, node: &str) {
        self.simulated.release(node);
    }

    fn delete<'a>(&'a self, pod: &'a PodId) -> Served<'a, ()> {
        Box::pin(async move {
            let deleted = self.ground.processes.delete(pod).await;
            self.simulated.delete(pod).await?;
            deleted.map_err(|error| {
                let message = format!("cannot remove the directory of pod {pod}: {error}");
                Fault::new(FaultKind::Later, "FailedKillPod", message)
            })
        })
    }

    fn logs<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        options: &'a LogOptions,
    ) -> Served<'a, LogStream> {
        if !Processes::owns(container) {
            return self.simulated.logs(pod, container, options);
        }
        Box::pin(async move {
            let run = self.ground.processes.run(pod, container);
            let run = run.ok_or_else(|| no_container(pod, container))?;
            Ok(output::read(run.log, options, run.ended))
        })
    }

    fn exec<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        command: &'a [String],
        io: ExecIo,
    ) -> Served<'a, i32> {
        if Processes::owns(container) {
            return unsupported("commands (exec)");
        }
        self.simulated.exec(pod, container, command, io)
    }

    fn attach<'a>(&'a self, pod: &'a PodId, container: &'a ContainerId, io: ExecIo) -> Served<'a, i32> {
        if Processes::owns(container) {
            return unsupported("attachments");
        }
        self.simulated.attach(pod, container, io)
    }

    fn port_forward<'a>(&'a self, pod: &'a PodId, port: u16) -> Served<'a, Box<dyn Duplex>> {
        let Some(address) = self.ground.processes.address(pod) else {
            return self.simulated.port_forward(pod, port);
        };
        Box::pin(async move {
            match tokio::net::TcpStream::connect((address, port)).await {
                Ok(stream) => Ok(Box::new(stream) as Box<dyn Duplex>),
                Err(error) => {
                    let message = format!("failed to connect to {address}:{port} of pod {pod}: {error}");
                    Err(Fault::new(FaultKind::Invalid, "PortForwardFailed", message))
                }
            }
        })
    }

    fn stats<'a>(&'a self, node: &'a str) -> Served<'a, NodeStats> {
        self.simulated.stats(node)
    }

    fn probe<'a>(&'a self, pod: &'a PodId, attempt: &'a Attempt) -> Option<BoxFuture<'a, Outcome>> {
        if !Processes::owns(&ContainerId(Arc::clone(&attempt.target.container_id))) {
            return self.simulated.probe(pod, attempt);
        }
        let mut target = attempt.target.clone();
        target.address = target.address.map(|address| self.reached(address));
        let probe = &attempt.probe;
        match &probe.handler {
            Handler::HttpGet(get) => Some(Box::pin(async move {
                http::probe(get, &target, probe, attempt.compat).await
            })),
            Handler::TcpSocket { host, port } => Some(Box::pin(async move {
                tcp::probe(host.as_deref(), port, &target, probe.timeout).await
            })),
            Handler::Grpc { .. } | Handler::Exec { .. } => None,
        }
    }
}
