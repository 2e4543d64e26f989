//! Why a lab could not start.

use super::manifests;
use crate::{
    directory::DirectoryError,
    join::CleanError,
    supervise::StartError,
    switch::{ROUTED_PODS, SwitchError},
};
use evenkeel_net::file::WriteError;
use evenkeel_net::pki::PkiError;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

/// Why a lab could not start.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A file in it cannot be written.
    #[error(transparent)]
    File(#[from] WriteError),
    /// The API server's port is taken.
    #[error("cannot listen on {address} for the API server: {source}; choose another port with --port")]
    Port {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    /// Evenkeel could not be installed.
    #[error("cannot install Evenkeel: {source}; logs of pods are in {}", logs.display())]
    Install {
        #[source]
        source: Box<evenkeel_install::InstallError>,
        logs: PathBuf,
    },
    /// Pods cannot have the addresses that the control plane knows them by.
    #[error(
        "cannot use {address} for pods: {source}. Kubernetes reaches the controllers' webhook at the addresses of \
         their pods, in {ROUTED_PODS}: as root, `ip route add local {ROUTED_PODS} dev lo` gives these to this \
         machine"
    )]
    Pods {
        address: IpAddr,
        #[source]
        source: io::Error,
    },
    /// The address of the controllers' common webhook, or its port, is taken.
    #[error(
        "cannot listen on {address} for the controllers' webhook: {source}; choose other addresses with --subnet"
    )]
    Service {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    /// An address of the lab's network is taken.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// The API server could not start.
    #[error("cannot start the API server: {0}")]
    ApiServer(String),
    /// A certificate could not be made.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The lab could not set itself up through the API.
    #[error("cannot {what}: {source}")]
    Api {
        /// What was to be done.
        what: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// An object was refused.
    #[error(transparent)]
    Manifest(#[from] manifests::ManifestError),
    /// A child process could not be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A child process does not get ready.
    #[error("{name} does not get ready: {reason}; its log is {log}")]
    NotReady {
        name: String,
        reason: String,
        log: PathBuf,
    },
    /// A node's kubelet could not start.
    #[error("cannot start the kubelet of {node}: {reason}")]
    Kubelet { node: String, reason: String },
    /// The control plane that was joined is not as it was found.
    #[error(transparent)]
    Clean(#[from] CleanError),
    /// The API server that the lab took down does not come back.
    #[error("{0}; once it answers, `evenkeel lab clean --join KUBECONFIG` removes what the lab left")]
    Outage(String),
    /// The lab was told to stop while it started.
    #[error("stopped while starting")]
    Stopped,
}

impl SetupError {
    /// Whether another configuration would help: exit code 2.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Directory(_)
                | Self::File(_)
                | Self::Port { .. }
                | Self::Pods { .. }
                | Self::Service { .. }
                | Self::Switch(_)
                | Self::Manifest(_)
        )
    }
}
