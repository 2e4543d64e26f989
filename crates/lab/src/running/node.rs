//! One node: its kubelet on a machine of its own, its agent as a process.

use super::{Lab, SetupError};
use crate::{
    cluster::kubelet::{KubeletConfig, Machine},
    supervise::Supervised,
};
use evenkeel_apiserver::ApiServer;
use evenkeel_net::pki::{Identity, ServerNames, Validity};
use evenkeel_vnode::simulated::address::Cidr;
use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Mutex,
};

/// A node of the lab.
pub(super) struct LabNode {
    index: u8,
    name: String,
    folder: PathBuf,
    serving: Identity,
    clients: String,
    pods: Cidr,
    kubelet: Mutex<Option<Machine>>,
    pub(super) agent: Option<Supervised>,
}

impl LabNode {
    /// Makes the node's credentials; nothing runs yet.
    pub(super) fn new(index: u8, lab: &Lab, api: &ApiServer) -> Result<Self, SetupError> {
        let name = format!("{}-{index}", lab.settings.prefix);
        let folder = lab.directory.folder(&format!("nodes/{name}"))?;
        let user = format!("system:node:{name}");
        let link = format!("https://{}", lab.switch.plan().cloud_link(index));
        let kubeconfig = api.kubeconfig(&link, &user, &["system:nodes"])?;
        lab.directory
            .write_secret(&folder.join("kubelet.kubeconfig"), &kubeconfig)?;
        let plan = lab.switch.plan();
        let names = ServerNames {
            dns: vec![name.clone()],
            ips: vec![plan.outer(index).into(), plan.inner(index).into()],
        };
        let serving = api.ca().issue_server(&user, &names, validity())?;
        let pods = format!("10.244.{index}.0/24");
        let pods = pods.parse().map_err(|reason| SetupError::Kubelet {
            node: name.clone(),
            reason,
        })?;
        Ok(Self {
            index,
            name,
            folder,
            serving,
            clients: api.ca().certificate_pem().to_owned(),
            pods,
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
    pub(super) async fn boot(&self, lab: &Lab) -> Result<(), SetupError> {
        let plan = lab.switch.plan();
        let config = KubeletConfig {
            name: self.name.clone(),
            pods: self.pods,
            listen: (plan.inner(self.index), plan.kubelet_port).into(),
            address: IpAddr::V4(plan.outer(self.index)),
            kubeconfig: self.folder.join("kubelet.kubeconfig"),
            serving: self.serving.clone(),
            clients: self.clients.clone(),
            boot_id: format!("{:032x}", rand::random::<u128>()),
            log: lab.directory.log(&format!("kubelet-{}", self.name)),
        };
        let machine = Machine::boot(config).await.map_err(|error| SetupError::Kubelet {
            node: self.name.clone(),
            reason: error.to_string(),
        })?;
        *self.kubelet() = Some(machine);
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
        self.stop().await;
    }

    /// Ends the kubelet, and waits until its address is free.
    pub(super) async fn stop(&self) {
        let machine = self.kubelet().take();
        if let Some(machine) = machine {
            machine.power_off().await;
        }
    }

    fn kubelet(&self) -> std::sync::MutexGuard<'_, Option<Machine>> {
        self.kubelet
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn validity() -> Validity {
    let now = jiff::Timestamp::now().as_second();
    Validity {
        from: now - 3_600,
        until: now + 365 * 24 * 3_600,
    }
}
