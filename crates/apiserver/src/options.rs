//! How a server is set up.

use crate::kubelet::KubeletOptions;
use std::net::IpAddr;
use std::sync::Arc;

/// How a server is set up. `Options::default()` is what kube-apiserver would do with RBAC, without journal.
#[derive(Clone, Debug)]
pub struct Options {
    /// As kube-apiserver's `--default-not-ready-toleration-seconds`.
    pub default_not_ready_toleration_seconds: i64,
    /// As kube-apiserver's `--default-unreachable-toleration-seconds`.
    pub default_unreachable_toleration_seconds: i64,
    /// Whether requests without credentials are served as `system:anonymous` (RBAC still applies).
    pub anonymous_auth: bool,
    /// `false` lets every authenticated user do everything.
    pub rbac: bool,
    /// Bearer tokens known beforehand.
    pub tokens: Vec<StaticToken>,
    /// Version that `/version` claims.
    pub git_version: String,
    /// Events kept for watches; older resourceVersions answer 410 Gone.
    pub watch_history: usize,
    /// Namespaces that exist from the start, beside `default`, `kube-system`, `kube-public`,
    /// `kube-node-lease`.
    pub namespaces: Vec<String>,
    /// How kubelets are reached.
    pub kubelet: KubeletOptions,
    /// Whether requests for serving certificates are approved where the requester is the kubelet that they
    /// are for, or may approve them anyway. This trusts nodes: they write the addresses themselves by which
    /// it is decided. Names and addresses of this server, of another node, and loopback ones unless
    /// [`proxy_to_any_address`](KubeletOptions::proxy_to_any_address) is set, are left to an administrator.
    /// Off in kube-apiserver, where somebody has to decide.
    pub approve_kubelet_serving: bool,
    /// Where pods are reached by webhooks of Services.
    pub pods: PodRoutes,
}

/// Where pods are reached. A server without a pod network, whose pods are processes on its own machine, has
/// no route to the addresses that EndpointSlices name, and connects to another address in their stead.
#[derive(Clone, Default)]
pub struct PodRoutes(Option<Arc<dyn Fn(IpAddr) -> IpAddr + Send + Sync>>);

impl PodRoutes {
    /// `route` is given the address of a pod and says to which one to connect.
    pub fn new(route: impl Fn(IpAddr) -> IpAddr + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(route)))
    }

    /// The address to connect to; by default the pod's own.
    pub(crate) fn to(&self, address: IpAddr) -> IpAddr {
        self.0.as_ref().map_or(address, |route| route(address))
    }
}

impl std::fmt::Debug for PodRoutes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() {
            "PodRoutes(given)"
        } else {
            "PodRoutes(direct)"
        })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            default_not_ready_toleration_seconds: 300,
            default_unreachable_toleration_seconds: 300,
            anonymous_auth: true,
            rbac: true,
            tokens: Vec::new(),
            git_version: "v1.36.2".to_owned(),
            watch_history: 65_536,
            namespaces: Vec::new(),
            kubelet: KubeletOptions::default(),
            approve_kubelet_serving: false,
            pods: PodRoutes::default(),
        }
    }
}

/// A bearer token and whom it stands for.
#[derive(Clone)]
pub struct StaticToken {
    /// The secret, as it stands in `Authorization: Bearer`.
    pub token: String,
    /// Name of the user that the token stands for.
    pub user: String,
    /// Groups; `system:authenticated` is added.
    pub groups: Vec<String>,
}

impl std::fmt::Debug for StaticToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StaticToken")
            .field("user", &self.user)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}
