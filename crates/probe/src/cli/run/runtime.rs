//! Containers of a runtime, looked up again and again. Nothing is done to them.

use super::super::error::CliError;
use super::super::kubelet::{self, Action, Seen};
use super::setup::Setup;
use crate::core::engine::Report;
use crate::core::{ContainerState, ContainerStatus, Kind, Phase, Pod, PodStatus, Role, runs_again};
use evenkeel_cri::{self as cri, Client, State};
use evenkeel_net::log::causes;
use std::future::Future;
use std::net::IpAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Between an answer of the runtime and the next request.
const LIST_AGAIN: Duration = Duration::from_secs(1);
/// For each call. Commands have their own time.
const CALL: Duration = Duration::from_secs(5);

/// A request for the pod's containers that is under way.
type Listing = Pin<Box<dyn Future<Output = Result<Vec<cri::Container>, cri::Error>> + Send>>;

/// The runtime's view of a pod.
pub(super) struct Runtime {
    client: Client,
    /// Of container IDs.
    scheme: String,
    pod: Arc<Pod>,
    address: Option<IpAddr>,
    grace: Duration,
    containers: Vec<Known>,
    /// The next answer; a slow runtime holds nothing else up.
    listing: Listing,
    /// What is wrong with the runtime, as reported last.
    trouble: Option<String>,
    /// Containers for which a kill was reported, by ID.
    killed: Vec<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    status: ContainerStatus,
    restarts: u32,
}

impl Runtime {
    /// Connects, and looks for the pod; at least its sandbox must be there.
    pub(super) async fn connect(socket: &Path, setup: &Setup) -> Result<Self, CliError> {
        let client = Client::connect_within(socket, CALL)
            .await
            .map_err(|error| CliError::usage(format!("--cri: {}", causes(&error))))?;
        let version = client
            .version()
            .await
            .map_err(|error| CliError::usage(format!("--cri: {}", causes(&error))))?;
        let Pod { namespace, name, .. } = &*setup.pod;
        let later = |error: cri::Error| CliError::later(format!("--cri: {}", causes(&error)));
        let found = client.containers(namespace, name).await.map_err(later)?;
        if found.is_empty() && client.sandboxes(namespace, name).await.map_err(later)?.is_empty() {
            return Err(CliError::usage(format!(
                "--cri: {} has no pod {namespace}/{name}; give the manifest of a pod that is on this node, with its \
                 namespace",
                socket.display(),
            )));
        }
        let mut runtime = Self {
            listing: list_later(client.clone(), setup.pod.clone()),
            client,
            scheme: format!("{}://", version.runtime),
            pod: setup.pod.clone(),
            address: setup.address,
            grace: setup.grace,
            containers: Vec::new(),
            trouble: None,
            killed: Vec::new(),
        };
        runtime.know(&found);
        Ok(runtime)
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Requests the containers again and again until something has changed. Returns what is to be reported
    /// then. Nothing is lost when the future is dropped.
    pub(super) async fn changed(&mut self) -> Vec<String> {
        loop {
            let answer = self.listing.as_mut().await;
            self.listing = list_later(self.client.clone(), self.pod.clone());
            let before = self.containers.clone();
            let trouble = match answer {
                Ok(found) => {
                    self.know(&found);
                    None
                }
                Err(error) => Some(causes(&error)),
            };
            let mut notes = Vec::new();
            if trouble != self.trouble {
                notes.push(match &trouble {
                    Some(trouble) => format!("the containers are as last seen: {trouble}"),
                    None => "the container runtime answers again".to_owned(),
                });
                self.trouble = trouble;
            }
            if !notes.is_empty() || before != self.containers {
                return notes;
            }
        }
    }

    fn know(&mut self, found: &[cri::Container]) {
        let known = |container: &cri::Container| {
            self.pod.container(&container.name).map(|spec| {
                let id: Arc<str> = format!("{}{}", self.scheme, container.id).into();
                let before = self.containers.iter().find(|known| known.status.id == id);
                let state = match container.state {
                    State::Created => ContainerState::Waiting,
                    State::Running => ContainerState::Running {
                        started_at: container.started_at.unwrap_or(container.created_at),
                    },
                    State::Exited => ContainerState::Terminated {
                        exit_code: container.exit_code.unwrap_or(255),
                    },
                    State::Unknown => before.map_or(ContainerState::Waiting, |known| known.status.state),
                };
                Known {
                    status: ContainerStatus {
                        name: spec.name.clone(),
                        id,
                        state,
                        started: before.and_then(|known| known.status.started),
                        ready: before.is_some_and(|known| known.status.ready),
                        taken_over: false,
                    },
                    restarts: container.attempt,
                }
            })
        };
        self.containers = found.iter().filter_map(known).collect();
        let ids: Vec<_> = self
            .containers
            .iter()
            .map(|known| known.status.id.clone())
            .collect();
        self.killed.retain(|id| ids.contains(id));
    }

    pub(super) fn status(&self) -> PodStatus {
        PodStatus {
            phase: Phase::Running,
            address: self.address,
            ready: self.ready(),
            restarting_all: false,
            containers: self.containers.iter().map(|known| known.status.clone()).collect(),
        }
    }

    pub(super) fn seen(&self) -> impl Iterator<Item = Seen> {
        let probed = self.pod.containers.iter().filter(|spec| spec.role != Role::Init);
        probed.map(|spec| {
            let known = self
                .containers
                .iter()
                .find(|known| known.status.name == spec.name);
            known.map_or_else(
                || Seen {
                    name: spec.name.clone(),
                    id: "".into(),
                    state: ContainerState::Waiting,
                    started: false,
                    ready: false,
                    restarts: 0,
                },
                |Known { status, restarts }| Seen {
                    name: status.name.clone(),
                    id: status.id.clone(),
                    state: status.state,
                    started: status.started == Some(true) && status.state.is_running(),
                    ready: status.ready && status.state.is_running(),
                    restarts: *restarts,
                },
            )
        })
    }

    pub(super) fn ready(&self) -> bool {
        self.seen().all(|container| container.ready)
    }

    /// Whether all containers have ended and none runs again.
    pub(super) fn failed(&self) -> bool {
        let status = self.status();
        let mut probed = self.pod.containers.iter().filter(|spec| spec.role != Role::Init);
        probed.all(|spec| {
            self.containers.iter().any(|known| {
                let ContainerState::Terminated { exit_code } = known.status.state else {
                    return false;
                };
                known.status.name == spec.name && !runs_again(&self.pod, spec, exit_code, &status)
            })
        })
    }

    pub(super) fn take(&mut self, reports: &[Report]) {
        for report in reports {
            let found = self
                .containers
                .iter_mut()
                .find(|known| known.status.name == report.container);
            if let Some(known) = found {
                (known.status.started, known.status.ready) = (Some(report.started), report.ready);
            }
        }
    }

    /// What a kubelet would do; once for each container.
    pub(super) fn fail(&mut self, container: &str, id: &str, kind: Kind) -> Vec<Action> {
        let running = self.containers.iter().any(|known| {
            *known.status.name == *container && *known.status.id == *id && known.status.state.is_running()
        });
        let reported = self.killed.iter().any(|killed| **killed == *id);
        let Some(spec) = self.pod.container(container).filter(|_| running && !reported) else {
            return Vec::new();
        };
        self.killed.push(id.into());
        vec![kubelet::kill(&self.pod, spec, kind, self.grace)]
    }
}

/// Requests the pod's containers, after a while.
fn list_later(client: Client, pod: Arc<Pod>) -> Listing {
    Box::pin(async move {
        tokio::time::sleep(LIST_AGAIN).await;
        client.containers(&pod.namespace, &pod.name).await
    })
}
