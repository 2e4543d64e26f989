//! How kubelets are reached, and which certificates are accepted of them.

/// How the server reaches kubelets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletOptions {
    /// Types of node addresses, the preferred one first.
    pub address_types: Vec<String>,
    /// Port of kubelets whose node does not say.
    pub default_port: u16,
    /// Which serving certificates are accepted.
    pub trust: KubeletTrust,
    /// Whether `nodes/proxy`, `pods/proxy` and `services/proxy` reach loopback and link-local addresses,
    /// which kube-apiserver refuses. Logs, exec, attach and port-forward reach any address of a node, here as
    /// there. Kubelets may then live on loopback addresses, too, so that their serving certificates may be
    /// for these.
    pub proxy_to_any_address: bool,
}

impl Default for KubeletOptions {
    fn default() -> Self {
        Self {
            address_types: ["InternalIP", "ExternalIP", "Hostname"]
                .map(str::to_owned)
                .to_vec(),
            default_port: 10250,
            trust: KubeletTrust::ServerCa,
            proxy_to_any_address: false,
        }
    }
}

/// Which serving certificates of kubelets are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeletTrust {
    /// Those that the server's own authority issued, as by signing requests for
    /// `kubernetes.io/kubelet-serving`.
    ServerCa,
    /// Those that the authorities in this PEM text issued.
    Authority(String),
    /// All, as a stock kubeadm cluster does.
    Anything,
}
