//! One node: its kubelet as a task, its agent as a process.

use super::{World, WorldError};
use crate::{
    cluster::kubelet::{self, KubeletConfig},
    supervise::Supervised,
};
use evenkeel_apiserver::ApiServer;
use evenkeel_net::{
    client::ClientArgs,
    pki::{Identity, ServerNames, Validity},
    serve::ServerTls,
};
use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};
use tokio::{net::TcpListener, task::JoinHandle};

/// Kubernetes' own intervals of a kubelet.
const LEASE_INTERVAL: Duration = Duration::from_secs(10);

/// A node of the lab.
pub(super) struct LabNode {
    index: u8,
    name: String,
    folder: PathBuf,
    serving: Identity,
    kubelet: Mutex<Option<JoinHandle<()>>>,
    pub(super) agent: Option<Supervised>,
}

impl LabNode {
    /// Makes the node's credentials; nothing runs yet.
    pub(super) fn new(index: u8, world: &World, api: &ApiServer) -> Result<Self, WorldError> {
        let name = format!("{}-{index}", world.settings.prefix);
        let folder = world.directory.folder(&format!("nodes/{name}"))?;
        let user = format!("system:node:{name}");
        let link = format!("https://{}", world.switch.plan().cloud_link(index));
        let kubeconfig = api.kubeconfig(&link, &user, &["system:nodes"])?;
        world
            .directory
            .write_secret(&folder.join("kubelet.kubeconfig"), &kubeconfig)?;
        let plan = world.switch.plan();
        let names = ServerNames {
            dns: vec![name.clone()],
            ips: vec![plan.outer(index).into(), plan.inner(index).into()],
        };
        let serving = api.ca().issue_server(&user, &names, validity())?;
        Ok(Self {
            index,
            name,
            folder,
            serving,
            kubelet: Mutex::default(),
            agent: None,
        })
    }

    /// Name of the node.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// 1-based number.
    pub(super) fn index(&self) -> u8 {
        self.index
    }

    /// Where the node's files are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts the kubelet, and the agent if it was switched off.
    pub(super) async fn boot(&self, world: &World) -> Result<(), WorldError> {
        let failed = |reason: String| WorldError::Kubelet {
            node: self.name.clone(),
            reason,
        };
        let plan = world.switch.plan();
        let args = ClientArgs {
            kubeconfig: Some(self.folder.join("kubelet.kubeconfig")),
            ..ClientArgs::default()
        };
        let client = args
            .client("kubelet")
            .await
            .map_err(|error| failed(error.to_string()))?;
        let address = (plan.inner(self.index), plan.kubelet_port);
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| failed(format!("cannot listen on {}:{}: {error}", address.0, address.1)))?;
        let tls = ServerTls::new(&self.serving, None).map_err(|error| failed(error.to_string()))?;
        let config = KubeletConfig {
            name: self.name.clone(),
            index: self.index,
            address: IpAddr::V4(plan.outer(self.index)),
            port: plan.kubelet_port,
            labels: BTreeMap::new(),
            lease_interval: LEASE_INTERVAL,
            status_interval: LEASE_INTERVAL,
            boot_id: format!("{:032x}", rand::random::<u128>()),
        };
        let shutdown = world.shutdown.clone();
        let name = self.name.clone();
        let task = tokio::spawn(async move {
            if let Err(error) = Box::pin(kubelet::run(config, client, listener, tls, shutdown)).await {
                tracing::error!(node = name, %error, "the kubelet failed");
            }
        });
        *self.running() = Some(task);
        if let Some(agent) = &self.agent {
            agent.power_on();
        }
        Ok(())
    }

    /// Ends everything on the node at once. The switch must be silent already, so that nobody hears of it.
    pub(super) async fn power_off(&self) {
        if let Some(agent) = &self.agent {
            agent.power_off();
        }
        let task = self.running().take();
        if let Some(task) = task {
            task.abort();
            // Aborted is what it should be; its listener is free once it is joined.
            let _ = task.await;
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.kubelet
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for LabNode {
    fn drop(&mut self) {
        if let Some(task) = self.running().take() {
            task.abort();
        }
    }
}

fn validity() -> Validity {
    let now = jiff::Timestamp::now().as_second();
    Validity {
        from: now - 3_600,
        until: now + 365 * 24 * 3_600,
    }
}
