//! Carries out what a node's machine asks for.
//!
//! A request takes at most ten seconds. Registrations, which come by the thousand when a process starts or an
//! outage ends, take turns; the wait for a turn does not count.

mod requests;

pub(crate) use requests::is_absent;

#[cfg(test)]
mod tests;

use crate::core::node::{Action, Input, Refused};
use crate::core::{lease, merge};
use crate::provider::{Fault, FaultKind, Provider};
use evenkeel_api::names;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// The longest that one request, or all of a registration, may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// Registrations at once, over all nodes whose writers are copies of one.
const REGISTRATIONS: usize = 64;

/// Writes Nodes and Leases by one client, for any number of nodes. Cheap to clone.
#[derive(Clone)]
pub struct NodeWriter {
    shared: Arc<Shared>,
}

struct Shared {
    client: Arc<Client>,
    nodes: Api<Node>,
    leases: Api<Lease>,
    provider: Arc<dyn Provider>,
    turns: Arc<Semaphore>,
}

impl NodeWriter {
    /// Writes by way of `client`, whose gate refuses once another replica may serve the node.
    pub fn new(client: Client, provider: Arc<dyn Provider>) -> Self {
        Self::taking_turns(client, provider, Arc::new(Semaphore::new(REGISTRATIONS)))
    }

    /// The same with another client: its registrations take turns with this one's.
    #[must_use]
    pub fn with_client(&self, client: Client) -> Self {
        let Shared { provider, turns, .. } = &*self.shared;
        Self::taking_turns(client, Arc::clone(provider), Arc::clone(turns))
    }

    fn taking_turns(client: Client, provider: Arc<dyn Provider>, turns: Arc<Semaphore>) -> Self {
        let shared = Shared {
            nodes: Api::all(client.clone()),
            leases: Api::namespaced(client.clone(), names::NODE_LEASE_NAMESPACE),
            client: Arc::new(client),
            provider,
            turns,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The client. Shared, since one of kube's takes half a kibibyte.
    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.shared.client
    }

    /// Does it and returns how it went; `None` for actions without an answer, which are the caller's to do.
    /// Never takes longer than 10 s once a registration's turn has come. A request that the gate refuses has
    /// failed like any other.
    pub async fn perform(&self, node: &str, action: Action) -> Option<Input> {
        Some(match action {
            Action::Ping => {
                let answer = tokio::time::timeout(DEADLINE, self.shared.provider.ping(node)).await;
                Input::Pinged(answer.unwrap_or_else(|_| {
                    let message = format!("the provider has not answered a ping within {DEADLINE:?}");
                    Err(Fault::new(FaultKind::Later, "Timeout", message))
                }))
            }
            Action::Register(wanted) => {
                // Closed by nobody: without a turn it is done all the same.
                let _turn = self.shared.turns.acquire().await;
                let work = requests::register(&self.shared.nodes, node, &wanted);
                Input::Written(within(work).await.map(Box::new))
            }
            Action::Post(patch) => {
                let work = requests::post(&self.shared.nodes, node, &patch);
                Input::Written(within(work).await.map(Box::new))
            }
            Action::Lease(request) => {
                let work = requests::lease(&self.shared.leases, node, request);
                let answer = tokio::time::timeout(DEADLINE, work).await;
                Input::Lease(answer.unwrap_or_else(|_| lease::Answer::Failed(no_answer())))
            }
            Action::Record(..) | Action::Wake(_) => return None,
        })
    }

    /// Deletes Node and Lease. What is gone already is no error; those of another kubelet stay.
    pub async fn delete(&self, node: &str) -> kube::Result<()> {
        let found = match self.shared.nodes.get(node).await {
            Ok(found) => Some(found),
            Err(kube::Error::Api(status)) if is_absent(&status) => None,
            Err(error) => return Err(error),
        };
        if let Some(found) = found {
            if merge::is_foreign(&found) {
                tracing::warn!(node, "{}", requests::foreign(node));
                return Ok(());
            }
            let exact = DeleteParams::default().preconditions(Preconditions {
                uid: found.metadata.uid,
                resource_version: None,
            });
            requests::gone(self.shared.nodes.delete(node, &exact).await)?;
        }
        requests::gone(self.shared.leases.delete(node, &DeleteParams::default()).await)
    }
}

async fn within<T>(work: impl Future<Output = Result<T, Refused>>) -> Result<T, Refused> {
    let answer = tokio::time::timeout(DEADLINE, work).await;
    answer.unwrap_or_else(|_| Err(Refused::Failed(no_answer())))
}

fn no_answer() -> String {
    format!("the API server has not answered within {DEADLINE:?}")
}
