//! One node: its kubelet on a machine of its own, its agent as a process.

use super::{Lab, SetupError, faults::state_of};
use crate::{
    cluster::{
        kubelet::{KubeletConfig, Machine},
        native::{Ground, line::Programs, processes::Processes},
    },
    scenario::layout::Place,
    supervise::Supervised,
};
use evenkeel_api::names::service_accounts;
use evenkeel_net::file::write_secret;
use evenkeel_net::pki::ServerNames;
use jiff::{SignedDuration, Timestamp};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};
use tokio_util::sync::CancellationToken;

/// A node of the lab.
pub(super) struct LabNode {
    index: u8,
    folder: PathBuf,
    /// All but the boot, which changes.
    config: KubeletConfig,
    kubelet: Mutex<Kubelet>,
    agent: OnceLock<Supervised>,
}

/// The node's kubelet, and what is wrong with it for a time.
#[derive(Default)]
struct Kubelet {
    boot_id: String,
    machine: Option<Machine>,
    trouble: Option<Trouble>,
}

/// A fault that ends by itself.
#[derive(Clone)]
pub(super) struct Trouble {
    pub(super) kind: TroubleKind,
    /// Cancelled by whatever ends it before its time.
    pub(super) over: CancellationToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TroubleKind {
    /// The whole machine stands still.
    Frozen,
    /// The kubelet is down.
    KubeletDown,
    /// The agent is down.
    AgentDown,
}

impl LabNode {
    /// Makes the node's credentials; nothing runs yet.
    pub(super) async fn new(
        index: u8,
        place: &Place,
        of_control_plane: bool,
        lab: &Lab,
    ) -> Result<Self, SetupError> {
        let name = place.name.clone();
        let folder = lab.directory.folder(&format!("nodes/{name}"))?;
        let plan = lab.switch.plan();
        let link = format!("https://{}", plan.cloud_link(index));
        let names = ServerNames {
            dns: vec![name.clone()],
            ips: [plan.outer(index).into(), plan.inner(index).into()]
                .into_iter()
                .chain(plan.outside)
                .collect(),
        };
        let identity = lab.plane.machine(&name, &names).await?;
        let kubeconfig = folder.join("kubelet.kubeconfig");
        let account = (lab.namespace_of_kubelets(), service_accounts::VNODE);
        lab.write_kubeconfig(&kubeconfig, &link, account, None).await?;
        let pods = plan.pods(index).parse();
        let pods = pods.map_err(|reason| SetupError::Kubelet {
            node: name.clone(),
            reason,
        })?;
        let config = KubeletConfig {
            zone: place.zone.clone(),
            pods,
            listen: plan.kubelet_inside(index),
            address: plan.kubelet(index).ip(),
            kubeconfig,
            serving: identity.serving,
            clients: identity.clients,
            joined: lab.plane.joined().is_some(),
            boot_id: String::new(),
            log: lab.directory.log(&format!("kubelet-{name}")),
            of_control_plane,
            // Whoever writes pods on a control plane elsewhere starts processes here only where the user has
            // asked for it.
            ground: (lab.plane.joined().is_none() || lab.settings.evenkeel.is_in_pods())
                .then(|| ground(index, &folder, lab)),
            name,
        };
        Ok(Self {
            index,
            folder,
            config,
            kubelet: Mutex::default(),
            agent: OnceLock::new(),
        })
    }

    /// Name of the node.
    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    /// 1-based number.
    pub(super) fn index(&self) -> u8 {
        self.index
    }

    /// Tells the agent of the machine's present boot.
    pub(super) fn boot_file(&self) -> PathBuf {
        self.folder.join("boot")
    }

    /// Where the node's files are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Pods that are processes.
    fn processes(&self) -> Option<&Processes> {
        self.config.ground.as_ref().map(|ground| &*ground.processes)
    }

    /// Its agent, once it was started by the lab itself.
    pub(super) fn agent(&self) -> Option<&Supervised> {
        self.agent.get()
    }

    /// Hands over the agent that was started for it; only the first counts.
    pub(super) fn set_agent(&self, agent: Supervised) {
        if self.agent.set(agent).is_err() {
            tracing::error!(node = self.name(), "a second agent was started");
        }
    }

    /// Starts the machine: a new boot of the kubelet, and the agent if it was switched off. At the start of
    /// the lab machines have been up for an hour: nobody takes them for back from a power cut.
    pub(super) async fn boot(&self) -> Result<(), SetupError> {
        let boot_id = format!("{:032x}", rand::random::<u128>());
        let is_first = self.kubelet().boot_id.is_empty();
        let age = if is_first { 3_600 } else { 0 };
        let booted = Timestamp::now() - SignedDuration::from_secs(age);
        write_secret(&self.boot_file(), format!("{boot_id}\n{booted}\n").as_bytes())?;
        self.kubelet().boot_id = boot_id;
        if let Some(processes) = self.processes() {
            processes.power_on();
        }
        self.start_kubelet().await?;
        if let Some(agent) = self.agent() {
            agent.power_on();
        }
        Ok(())
    }

    /// Starts the kubelet under the present boot: containers that ran go on running.
    pub(super) async fn start_kubelet(&self) -> Result<(), SetupError> {
        let config = KubeletConfig {
            boot_id: self.kubelet().boot_id.clone(),
            ..self.config.clone()
        };
        let machine = Machine::boot(config).await.map_err(|error| SetupError::Kubelet {
            node: self.name().to_owned(),
            reason: error.to_string(),
        })?;
        self.kubelet().machine = Some(machine);
        Ok(())
    }

    /// Ends everything on the node at once. The switch must be silent already, so that nobody hears of it.
    pub(super) async fn power_off(&self) {
        self.end_trouble();
        if let Some(agent) = self.agent() {
            agent.power_off();
        }
        if let Some(processes) = self.processes() {
            processes.power_off().await;
        }
        self.stop_kubelet().await;
    }

    /// Ends kubelet and pods, each in order.
    pub(super) async fn stop(&self) {
        self.stop_kubelet().await;
        if let Some(ground) = &self.config.ground {
            ground.processes.stop().await;
            clean(ground);
        }
    }

    /// Ends the kubelet, and waits until its address is free.
    pub(super) async fn stop_kubelet(&self) {
        let machine = self.kubelet().machine.take();
        if let Some(machine) = machine {
            machine.power_off().await;
        }
    }

    /// Has kubelet and agent stand still. The switch must be silent already.
    pub(super) async fn freeze(&self) {
        if let Some(agent) = self.agent() {
            agent.freeze();
        }
        if let Some(processes) = self.processes() {
            processes.freeze();
        }
        let frozen = self.kubelet().machine.as_mut().map(Machine::freeze);
        if let Some(frozen) = frozen {
            // A machine that broke stands still as well.
            let _ = frozen.await;
        }
    }

    /// Lets kubelet and agent go on.
    pub(super) fn thaw(&self) {
        if let Some(machine) = self.kubelet().machine.as_mut() {
            machine.thaw();
        }
        if let Some(agent) = self.agent() {
            agent.thaw();
        }
        if let Some(processes) = self.processes() {
            processes.thaw();
        }
    }

    /// Whether it has an agent, as a process of the lab or as a pod.
    pub(super) fn has_agent(&self) -> bool {
        self.agent().is_some()
            || self
                .processes()
                .is_some_and(|processes| processes.agent().is_some())
    }

    /// How its agent is, for people.
    pub(super) fn agent_state(&self) -> String {
        match (self.agent(), self.processes().and_then(Processes::agent)) {
            (Some(agent), _) => state_of(Some(agent)),
            (None, None) => state_of(None),
            (None, Some((false, _))) => "down".to_owned(),
            (None, Some((true, 1))) => "running".to_owned(),
            (None, Some((true, starts))) => format!("running (restarted {})", starts - 1),
        }
    }

    /// SIGKILL to its agent, which is started again.
    pub(super) fn crash_agent(&self) {
        if let Some(agent) = self.agent() {
            agent.crash();
        }
        if let Some(processes) = self.processes() {
            processes.crash(|_, run| run.is_agent);
        }
    }

    /// SIGKILL to its agent, which stays down until [`LabNode::start_agent`].
    pub(super) fn stop_agent(&self) {
        if let Some(agent) = self.agent() {
            agent.power_off();
        }
        if let Some(processes) = self.processes() {
            processes.hold_agent();
        }
    }

    /// Has its agent start again.
    pub(super) fn start_agent(&self) {
        if let Some(agent) = self.agent() {
            agent.power_on();
        }
        if let Some(processes) = self.processes() {
            processes.release_agent();
        }
    }

    /// Pods of the controller that run on it.
    pub(super) fn controllers(&self) -> Vec<String> {
        let running = self.processes().map(Processes::running).unwrap_or_default();
        let running = running.into_iter().filter(|(_, run)| !run.is_agent);
        running.map(|(pod, _)| pod).collect()
    }

    /// SIGKILL to the container of a controller's pod, which is started again.
    pub(super) fn crash_controller(&self, pod: &str) {
        if let Some(processes) = self.processes() {
            processes.crash(|name, run| name == pod && !run.is_agent);
        }
    }

    /// What is wrong with it for a time.
    pub(super) fn trouble(&self) -> Option<TroubleKind> {
        self.kubelet().trouble.as_ref().map(|trouble| trouble.kind)
    }

    /// Notes what is wrong with it. The token is cancelled by whatever ends that before its time.
    pub(super) fn begin_trouble(&self, kind: TroubleKind) -> CancellationToken {
        let over = CancellationToken::new();
        self.kubelet().trouble = Some(Trouble {
            kind,
            over: over.clone(),
        });
        over
    }

    /// Forgets what was wrong, and says what it was.
    pub(super) fn end_trouble(&self) -> Option<TroubleKind> {
        let trouble = self.kubelet().trouble.take()?;
        trouble.over.cancel();
        Some(trouble.kind)
    }

    fn kubelet(&self) -> MutexGuard<'_, Kubelet> {
        self.kubelet.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn clean(ground: &Ground) {
    if let Err(error) = ground.clean() {
        let folder = ground.folder.display();
        tracing::warn!(%folder, %error, "directories of pods are left");
    }
}

/// What pods of Evenkeel's own images run on.
fn ground(index: u8, folder: &Path, lab: &Lab) -> Ground {
    let stock = lab.settings.stock();
    let cluster = [
        (
            "EVENKEEL_NODE_MONITOR_GRACE_PERIOD",
            stock.grace_period.to_string(),
        ),
        (
            "EVENKEEL_DEFAULT_UNREACHABLE_TOLERATION_SECONDS",
            stock.unreachable_toleration_seconds.to_string(),
        ),
    ];
    let ground = Ground {
        programs: Programs {
            evenkeel: lab.settings.program.clone(),
            agent: lab.settings.agent.clone(),
        },
        folder: folder.to_owned(),
        logs: lab.directory.logs(),
        plan: *lab.switch.plan(),
        index,
        server_name: lab.plane.server_name().map(str::to_owned),
        cluster: cluster.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        processes: Arc::new(Processes::new(tokio::runtime::Handle::current())),
    };
    // Of a lab that was killed.
    clean(&ground);
    ground
}
