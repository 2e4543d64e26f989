//! Sets the replicas of peer Deployments to the number of bases; what that is, `core::peer` says.
//!
//! Every replica of the controller watches, the leader of one Lease writes.

use crate::core::peer::{Bases, Change, costs, nodes_of, peers_of};
use crate::events::Events;
use evenkeel_api::names::koupleless::peer::{COMPONENT, LEASE, SCALED};
use evenkeel_election::lock::LeaseLock;
use evenkeel_election::{Config, ConfigError, Elector};
use evenkeel_net::log::causes;
use evenkeel_net::watch::{Delta, Key, Unreadable, deltas, key};
use futures::StreamExt as _;
use futures::stream::select;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{ParseExpressionError, Selector};
use kube::runtime::watcher;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Changes within this time are handled together: bases come and go in groups.
const GATHER: Duration = Duration::from_millis(200);
/// After a write that failed.
const AGAIN: Duration = Duration::from_secs(5);
/// For how long the writes about one Deployment may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// A node counts for this long after its state became unknown, unless somebody says otherwise.
pub const GRACE: Duration = Duration::from_secs(60);

/// How peers are kept.
#[derive(Clone, Debug)]
pub struct Options {
    /// The environment whose nodes and Deployments are watched.
    pub env: String,
    /// For how long a node whose state is unknown counts.
    pub grace: Duration,
    /// Namespace of the Lease.
    pub namespace: String,
    /// How this replica stands for it.
    pub election: Config,
}

/// Why peers are kept no longer.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// The election cannot work so. Not worth a retry.
    #[error("the election of the replica that keeps peer Deployments cannot work")]
    Config(#[from] ConfigError),
    /// The Lease cannot be named so. Not worth a retry.
    #[error("Lease {0}/{LEASE} cannot be used: {1}")]
    Lock(String, String),
    /// The election ended by itself. Start again.
    #[error("the election of the replica that keeps peer Deployments ended")]
    Ended,
}

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("spec.selector cannot be used")]
    Selector(#[from] ParseExpressionError),
    #[error("cannot list its pods")]
    List(#[source] kube::Error),
    #[error("cannot set the deletion cost of pod {0}")]
    Cost(String, #[source] kube::Error),
    #[error("cannot set spec.replicas")]
    Replicas(#[source] kube::Error),
    #[error("no answer in time")]
    Late,
}

enum Seen {
    Node(Delta<Node>),
    Deployment(Delta<Deployment>),
}

struct Peers {
    bases: Bases,
    deployments: BTreeMap<Key, Deployment>,
    nodes_listed: bool,
    deployments_listed: bool,
    writer: Client,
    events: Events,
}

/// Keeps the replicas of peer Deployments until `shutdown`. `lock_client` keeps the Lease, with connections
/// of its own.
pub async fn run(
    client: Client,
    lock_client: Client,
    options: Options,
    shutdown: CancellationToken,
) -> Result<(), PeersError> {
    let lock = LeaseLock::new(lock_client, &options.namespace, LEASE)
        .map_err(|error| PeersError::Lock(options.namespace.clone(), error.to_string()))?;
    // The Lease is given back after the last write.
    let resign = CancellationToken::new();
    let mut election = Elector::new(lock, options.election.clone())?.run(resign.clone());
    let mut peers = Peers {
        bases: Bases::new(&options.env, options.grace),
        deployments: BTreeMap::new(),
        nodes_listed: false,
        deployments_listed: false,
        writer: election.gate().client(&client),
        events: Events::start(client.clone(), COMPONENT, shutdown.clone()),
    };
    let config = |labels: String| watcher::Config::default().labels(&labels);
    let nodes = deltas(
        "nodes of bases",
        Api::all(client.clone()),
        config(nodes_of(&options.env)),
        Unreadable::StaysAsKnown,
    );
    let deployments = deltas(
        "peer Deployments",
        Api::all(client),
        config(peers_of(&options.env)),
        Unreadable::StaysAsKnown,
    );
    let mut seen = Box::pin(select(nodes.map(Seen::Node), deployments.map(Seen::Deployment)));
    let mut resync: Option<Instant> = None;
    let outcome = loop {
        let due = async {
            match resync {
                Some(at) => tokio::time::sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => break Ok(()),
            state = election.next() => match state {
                Some(state) => {
                    tracing::debug!(?state, "election of the replica that keeps peer Deployments");
                    sooner(&mut resync, GATHER);
                }
                None => break Err(PeersError::Ended),
            },
            Some(seen) = seen.next() => {
                peers.take(seen);
                sooner(&mut resync, GATHER);
            }
            () = due => {
                let Some(work) = election.work().filter(|_| peers.is_complete()) else {
                    resync = None;
                    continue;
                };
                let resyncing = Box::pin(peers.resync());
                let next = shutdown.run_until_cancelled(resyncing).await.flatten();
                resync = next.map(|next| Instant::now() + next);
                drop(work);
            }
        }
    };
    resign.cancel();
    election.stopped().await;
    outcome
}

fn sooner(resync: &mut Option<Instant>, after: Duration) {
    let at = Instant::now() + after;
    *resync = Some(resync.map_or(at, |due| due.min(at)));
}

impl Peers {
    /// Without a complete list of nodes a Deployment would be shrunk for bases that were not heard of yet.
    fn is_complete(&self) -> bool {
        self.nodes_listed && self.deployments_listed
    }

    fn take(&mut self, seen: Seen) {
        match seen {
            Seen::Node(Delta::Put(node)) => self.bases.put(&node, Timestamp::now()),
            Seen::Node(Delta::Gone((_, name))) => self.bases.gone(&name),
            Seen::Node(Delta::Listed(keys)) => {
                let names: BTreeSet<String> = keys.into_iter().map(|(_, name)| name).collect();
                self.bases.retain(&names);
                self.nodes_listed = true;
            }
            Seen::Deployment(Delta::Put(deployment)) => {
                self.deployments.insert(key(&*deployment), *deployment);
            }
            Seen::Deployment(Delta::Gone(key)) => {
                self.deployments.remove(&key);
            }
            Seen::Deployment(Delta::Listed(keys)) => {
                self.deployments.retain(|key, _| keys.contains(key));
                self.deployments_listed = true;
            }
            Seen::Node(Delta::Broken) | Seen::Deployment(Delta::Broken) => {}
        }
    }

    /// Writes what is not as it should be. Returns when to resync again, if nothing happens before.
    async fn resync(&mut self) -> Option<Duration> {
        let now = Timestamp::now();
        let mut again = self.bases.next(now).map(|at| {
            let wait = at.duration_since(now).max(SignedDuration::ZERO);
            // Not a moment before it.
            wait.unsigned_abs() + Duration::from_millis(10)
        });
        let changes: Vec<_> = self
            .deployments
            .values()
            .filter_map(|deployment| Some((deployment.clone(), Change::of(deployment, &self.bases, now)?)))
            .collect();
        for (deployment, change) in changes {
            let (namespace, name) = key(&deployment);
            let written = tokio::time::timeout(DEADLINE, self.write(&deployment, change)).await;
            match written.unwrap_or(Err(WriteError::Late)) {
                Ok(written) => {
                    tracing::info!(
                        namespace,
                        name,
                        from = change.from,
                        to = change.to,
                        "replicas follow bases"
                    );
                    let note = format!(
                        "replicas set from {} to {}, the number of bases",
                        change.from, change.to
                    );
                    self.events
                        .put(deployment.object_ref(&()), false, SCALED, "Scale", note);
                    self.deployments.insert((namespace, name), written);
                }
                Err(error) => {
                    tracing::warn!(
                        namespace,
                        name,
                        to = change.to,
                        error = causes(&error),
                        "replicas cannot follow bases, trying again"
                    );
                    again = Some(again.map_or(AGAIN, |wait| wait.min(AGAIN)));
                }
            }
        }
        again
    }

    async fn write(&self, deployment: &Deployment, change: Change) -> Result<Deployment, WriteError> {
        let (namespace, name) = key(deployment);
        self.set_costs(deployment, &namespace).await?;
        let patch = json!({
            "metadata": {"resourceVersion": deployment.metadata.resource_version},
            "spec": {"replicas": change.to},
        });
        let deployments: Api<Deployment> = Api::namespaced(self.writer.clone(), &namespace);
        let written = deployments.patch(&name, &params(), &Patch::Merge(patch)).await;
        written.map_err(WriteError::Replicas)
    }

    /// Before replicas are lowered the pods of lost bases must be known as those to go, and when bases are
    /// back, as any other.
    async fn set_costs(&self, deployment: &Deployment, namespace: &str) -> Result<(), WriteError> {
        let Some(spec) = &deployment.spec else {
            return Ok(());
        };
        let selector: Selector = spec.selector.clone().try_into()?;
        if selector.selects_all() {
            return Ok(());
        }
        let pods: Api<Pod> = Api::namespaced(self.writer.clone(), namespace);
        let params_of_list = ListParams::default().labels_from(&selector);
        for pod in pods.list(&params_of_list).await.map_err(WriteError::List)? {
            let costs = costs(&pod, &self.bases);
            if costs.is_empty() {
                continue;
            }
            let name = pod.name_any();
            let patch = json!({"metadata": {"uid": pod.metadata.uid, "annotations": costs}});
            match pods.patch(&name, &params(), &Patch::Merge(patch)).await {
                Ok(_) => {}
                // It is gone, or another one of its name has come.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(WriteError::Cost(name, error)),
            }
        }
        Ok(())
    }
}

fn params() -> PatchParams {
    PatchParams::apply(COMPONENT)
}
