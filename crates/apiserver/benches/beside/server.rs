//! The two servers as processes.

use crate::load::Target;
use evenkeel_testkit::bench::{self, Role, server::ROLE};
use evenkeel_testkit::real::Kubernetes;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What serves the API: in Kubernetes the server and its database.
const COMPONENTS: [&str; 2] = ["kube-apiserver", "etcd"];

pub(crate) enum Server {
    Embedded { home: TempDir, role: Option<Role> },
    Kubernetes(Kubernetes),
}

impl Server {
    /// It does not run yet.
    pub(crate) fn embedded() -> Self {
        let home = tempfile::tempdir().unwrap();
        Self::Embedded { home, role: None }
    }

    /// Without the components that would write on their own; `None` where it is not built, after saying so.
    pub(crate) fn kubernetes() -> Option<Self> {
        let kubernetes = Kubernetes::start("Kubernetes' own API server")?;
        kubernetes.order(&["stop", "kube-scheduler", "kube-controller-manager"]);
        Some(Self::Kubernetes(kubernetes))
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        match self {
            Self::Embedded { home, .. } => home.path().join("kubeconfig"),
            Self::Kubernetes(kubernetes) => kubernetes.kubeconfig(),
        }
    }

    /// Starts the API server anew, and says how long it took until it was ready. etcd goes on.
    pub(crate) async fn starts(&mut self) -> Duration {
        let kubeconfig = self.kubeconfig();
        let began = match self {
            Self::Embedded { role, .. } => {
                *role = None;
                let began = Instant::now();
                let (started, _) = Role::start(&[ROLE, kubeconfig.to_str().unwrap()]);
                *role = Some(started);
                began
            }
            Self::Kubernetes(kubernetes) => {
                kubernetes.order(&["stop", COMPONENTS[0]]);
                let began = Instant::now();
                kubernetes.order(&["start", COMPONENTS[0]]);
                began
            }
        };
        Target::of(&kubeconfig).await.is_ready().await;
        began.elapsed()
    }

    /// Resident memory in bytes.
    pub(crate) fn memory(&self) -> u64 {
        match self {
            Self::Embedded { role, .. } => role.as_ref().unwrap().memory("VmRSS"),
            Self::Kubernetes(kubernetes) => {
                let memory = |component| bench::memory(kubernetes.process_of(component), "VmRSS");
                COMPONENTS.into_iter().map(memory).sum()
            }
        }
    }

    /// CPU seconds that it has used.
    pub(crate) fn cpu(&self) -> f64 {
        match self {
            Self::Embedded { role, .. } => role.as_ref().unwrap().cpu(),
            Self::Kubernetes(kubernetes) => {
                let cpu = |component| bench::cpu(kubernetes.process_of(component));
                COMPONENTS.into_iter().map(cpu).sum()
            }
        }
    }
}

/// CPU seconds that this process has used.
pub(crate) fn own_cpu() -> f64 {
    bench::cpu(std::process::id())
}
