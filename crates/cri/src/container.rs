//! A pod's containers, as its runtime knows them.

use super::{Client, Error, proto};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Labels that a kubelet gives to what it makes.
const POD: &str = "io.kubernetes.pod.name";
const NAMESPACE: &str = "io.kubernetes.pod.namespace";
const CONTAINER: &str = "io.kubernetes.container.name";

/// What a container does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Not started yet.
    Created,
    /// It has been started and runs.
    Running,
    /// It has ended.
    Exited,
    /// The runtime does not know.
    Unknown,
}

/// A container as its runtime describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Name in the pod.
    pub name: String,
    /// The runtime's ID, without a scheme.
    pub id: String,
    /// ID of the sandbox it is in.
    pub sandbox: String,
    /// The image as it was asked for.
    pub image: String,
    /// How often it was restarted before.
    pub attempt: u32,
    /// What it does.
    pub state: State,
    /// Wall time since the Unix epoch.
    pub created_at: Duration,
    /// Wall time since the Unix epoch, once it was started.
    pub started_at: Option<Duration>,
    /// Wall time since the Unix epoch, once it has ended.
    pub finished_at: Option<Duration>,
    /// Once it has ended.
    pub exit_code: Option<i32>,
    /// Why it is in its state, in one word: `Completed`, `Error`, `OOMKilled`; often empty.
    pub reason: String,
}

/// A pod's sandbox: what its containers share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// The runtime's ID.
    pub id: String,
    /// The pod's UID.
    pub pod_uid: String,
    /// Whether it works.
    pub ready: bool,
    /// How many the pod has had before.
    pub attempt: u32,
    /// Wall time since the Unix epoch.
    pub created_at: Duration,
}

impl Client {
    /// The containers of a pod, by name: of each name the newest. Empty if there is no such pod.
    pub async fn containers(&self, namespace: &str, pod: &str) -> Result<Vec<Container>, Error> {
        const METHOD: &str = "ListContainers";
        let request = proto::ListContainersRequest {
            filter: Some(proto::ContainerFilter {
                label_selector: selector(namespace, pod),
            }),
        };
        let answer: proto::ListContainersResponse = self.call(METHOD, request, self.deadline).await?;
        let mut newest: BTreeMap<String, (proto::Container, u32)> = BTreeMap::new();
        for container in answer.containers {
            if !belongs(&container.labels, namespace, pod) {
                continue;
            }
            let metadata = container.metadata.clone().unwrap_or_default();
            let name = container.labels.get(CONTAINER).cloned().unwrap_or(metadata.name);
            if name.is_empty() || container.id.is_empty() {
                return Err(self.malformed(METHOD, "a container without a name or an ID"));
            }
            let age = (container.created_at, metadata.attempt);
            let newer = newest
                .get(&name)
                .is_none_or(|(known, attempt)| age > (known.created_at, *attempt));
            if newer {
                newest.insert(name, (container, metadata.attempt));
            }
        }
        let mut containers = Vec::with_capacity(newest.len());
        for (name, (container, attempt)) in newest {
            match self.status(&container.id).await {
                Ok(status) => containers.push(joined(name, attempt, container, status)),
                // Removed between the two calls.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(containers)
    }

    /// The sandboxes of a pod, newest first. More than one once a sandbox has died.
    pub async fn sandboxes(&self, namespace: &str, pod: &str) -> Result<Vec<Sandbox>, Error> {
        const METHOD: &str = "ListPodSandbox";
        let request = proto::ListPodSandboxRequest {
            filter: Some(proto::PodSandboxFilter {
                label_selector: selector(namespace, pod),
            }),
        };
        let answer: proto::ListPodSandboxResponse = self.call(METHOD, request, self.deadline).await?;
        let mut sandboxes = Vec::new();
        for sandbox in answer.items {
            if !belongs(&sandbox.labels, namespace, pod) {
                continue;
            }
            let metadata = sandbox.metadata.unwrap_or_default();
            sandboxes.push(Sandbox {
                id: sandbox.id,
                pod_uid: metadata.uid,
                ready: sandbox.state == 0,
                attempt: metadata.attempt,
                created_at: time(sandbox.created_at),
            });
        }
        sandboxes.sort_by_key(|sandbox| std::cmp::Reverse((sandbox.created_at, sandbox.attempt)));
        Ok(sandboxes)
    }

    async fn status(&self, id: &str) -> Result<proto::ContainerStatus, Error> {
        const METHOD: &str = "ContainerStatus";
        let request = proto::ContainerStatusRequest {
            container_id: id.to_owned(),
        };
        let answer: proto::ContainerStatusResponse = self.call(METHOD, request, self.deadline).await?;
        let status = answer
            .status
            .ok_or_else(|| self.malformed(METHOD, "no status in it"))?;
        if status.id != id {
            return Err(self.malformed(METHOD, "it is about another container"));
        }
        Ok(status)
    }

    fn malformed(&self, method: &'static str, why: &str) -> Error {
        Error::Malformed {
            socket: self.socket.to_path_buf(),
            method,
            why: why.to_owned(),
        }
    }
}

/// What the list and the status say of one container.
fn joined(name: String, attempt: u32, listed: proto::Container, status: proto::ContainerStatus) -> Container {
    let happened = |nanos| (nanos != 0).then(|| time(nanos));
    let state = match status.state {
        0 => State::Created,
        1 => State::Running,
        2 => State::Exited,
        _ => State::Unknown,
    };
    Container {
        name,
        id: status.id,
        sandbox: listed.pod_sandbox_id,
        image: status.image.unwrap_or_default().image,
        attempt,
        state,
        created_at: time(status.created_at),
        started_at: happened(status.started_at),
        finished_at: happened(status.finished_at),
        exit_code: (state == State::Exited).then_some(status.exit_code),
        reason: status.reason,
    }
}

/// Since 1970. What was made while the clock stood before that is of that moment: one such container hides
/// none of the others.
fn time(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

fn selector(namespace: &str, pod: &str) -> HashMap<String, String> {
    [(NAMESPACE, namespace), (POD, pod)]
        .map(|(label, value)| (label.to_owned(), value.to_owned()))
        .into()
}

/// A runtime may know no selectors.
fn belongs(labels: &HashMap<String, String>, namespace: &str, pod: &str) -> bool {
    labels.get(NAMESPACE).is_some_and(|value| value == namespace)
        && labels.get(POD).is_some_and(|value| value == pod)
}
