//! The control plane of a lab: its own API server, or one that it joined.

use super::{SetupError, cluster};
use crate::join::{Cluster, Component, MachineIdentity};
use evenkeel_apiserver::ApiServer;
use evenkeel_net::pki::{PkiError, ServerNames, Validity};
use kube::Client;
use tokio_util::sync::CancellationToken;

/// Cheap to clone.
#[derive(Clone)]
pub(super) enum Plane {
    /// The embedded API server, with workload controllers and a stand-in for the stock controllers.
    Own(ApiServer),
    /// Somebody else's, with controllers of its own.
    Joined(Box<Cluster>),
}

impl Plane {
    /// The administrator's client.
    pub(super) fn client(&self) -> Client {
        match self {
            Self::Own(api) => api.client(),
            Self::Joined(cluster) => cluster.client(),
        }
    }

    /// The same; where the API server is the lab's own, it also works while that is down for everybody else.
    pub(super) fn observer(&self) -> Client {
        match self {
            Self::Own(api) => api.observer(),
            Self::Joined(cluster) => cluster.client(),
        }
    }

    /// Certificate of the authority that the API server's certificate is of, PEM.
    pub(super) fn authority(&self) -> &str {
        match self {
            Self::Own(api) => api.ca().certificate_pem(),
            Self::Joined(cluster) => cluster.authority(),
        }
    }

    /// The name that the API server's certificate is checked against, where that is not the one it is
    /// reached by: nodes reach it by addresses of the lab's network.
    pub(super) fn server_name(&self) -> Option<&str> {
        match self {
            Self::Own(_) => None,
            Self::Joined(cluster) => Some(cluster.server_name()),
        }
    }

    /// The cluster that was joined.
    pub(super) fn joined(&self) -> Option<&Cluster> {
        match self {
            Self::Own(_) => None,
            Self::Joined(cluster) => Some(cluster),
        }
    }

    /// The identity of the machine of a node.
    pub(super) async fn machine(
        &self,
        node: &str,
        names: &ServerNames,
    ) -> Result<MachineIdentity, SetupError> {
        match self {
            Self::Own(api) => Ok(issue(api, node, names)?),
            Self::Joined(cluster) => {
                cluster
                    .machine(node, names)
                    .await
                    .map_err(|error| SetupError::Kubelet {
                        node: node.to_owned(),
                        reason: evenkeel_net::log::causes(&error),
                    })
            }
        }
    }

    /// Ends the API server, and of a cluster that was joined the controller manager as well if `stock` says
    /// so. It must be up.
    pub(super) async fn kill(&self, stock: bool) -> Result<(), String> {
        match self {
            Self::Own(api) => {
                api.crash();
                Ok(())
            }
            Self::Joined(cluster) => match cluster.control() {
                Some(control) => control.kill(components(stock)).await,
                None => Err(
                    "the lab cannot stop a control plane that it joined; name a command that can with \
                             --control-plane"
                        .to_owned(),
                ),
            },
        }
    }

    /// Starts again what [`Plane::kill`] ended.
    pub(super) async fn start(&self, stock: bool) -> Result<(), String> {
        match self {
            Self::Own(api) => {
                api.come_back();
                Ok(())
            }
            Self::Joined(cluster) => match cluster.control() {
                Some(control) => control.start(components(stock)).await,
                None => Ok(()),
            },
        }
    }

    /// Runs the lab's workload controllers where nobody else does.
    pub(super) async fn run_controllers(self, shutdown: CancellationToken) {
        if let Self::Own(api) = self {
            let users = api.clone();
            let client_of = move |user: &str, groups: &[&str]| users.client_as(user, groups);
            let ca = api.ca().certificate_pem().to_owned();
            cluster::controllers::run(api.client(), client_of, ca, shutdown).await;
        }
    }
}

fn components(stock: bool) -> &'static [Component] {
    const BOTH: &[Component] = &[Component::ApiServer, Component::ControllerManager];
    if stock { BOTH } else { &BOTH[..1] }
}

fn issue(api: &ApiServer, node: &str, names: &ServerNames) -> Result<MachineIdentity, PkiError> {
    let user = format!("system:node:{node}");
    let now = jiff::Timestamp::now().as_second();
    let validity = Validity {
        from: now - 3_600,
        until: now + 365 * 24 * 3_600,
    };
    Ok(MachineIdentity {
        serving: api.ca().issue_server(&user, names, validity)?,
        clients: api.ca().certificate_pem().to_owned(),
    })
}
