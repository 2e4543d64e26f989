//! The watches: every change of what the process looks at, as one stream.

use evenkeel_api::names;
use evenkeel_failover_rules::world::{Kind, Seen};
use evenkeel_net::watch::{Delta, Unreadable, deltas, restartable};
use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll, select_all};
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use tokio::sync::Notify;

/// After so many seconds the API server ends a watch that is not audited often, and it goes on where it was.
const ENDS_SECS: u32 = 60;

/// Restarts watches that were found not to deliver.
#[derive(Clone)]
pub(super) struct Restarts(BTreeMap<Kind, Arc<Notify>>);

impl Default for Restarts {
    fn default() -> Self {
        Self(Kind::ALL.map(|kind| (kind, Arc::default())).into())
    }
}

impl Restarts {
    pub(super) fn begin_anew(&self, kind: Kind) {
        if let Some(restart) = self.0.get(&kind) {
            restart.notify_one();
        }
    }

    /// One watch, and how the world takes in what it delivers.
    fn follow<K>(
        &self,
        kind: Kind,
        api: Api<DeserializeGuard<K>>,
        config: watcher::Config,
        seen: fn(Delta<K>) -> Seen,
    ) -> BoxStream<'static, Seen>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
        DeserializeGuard<K>: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let restart = self.0.get(&kind).map(Arc::clone).unwrap_or_default();
        let begin = move || deltas(kind.name(), api.clone(), config.clone(), Unreadable::StaysAsKnown);
        restartable(restart, begin).map(seen).boxed()
    }
}

/// All watches. They go on for ever, with back-off while the API server fails. An object that cannot be
/// decoded keeps its last known state.
pub(super) fn all(
    client: &Client,
    namespace: &str,
    restarts: &Restarts,
) -> SelectAll<BoxStream<'static, Seen>> {
    let plain = watcher::Config::default;
    // Nobody proves that these deliver, and a proxy may hold a stream on which nothing comes any more.
    let ending = || plain().timeout(ENDS_SECS);
    // The controller decides nothing about pods that are bound to no node.
    let bound = ending().fields("spec.nodeName!=");
    let home = ending().fields(&format!("metadata.name={namespace}"));
    let client = || client.clone();
    let node_leases = Api::namespaced(client(), names::NODE_LEASE_NAMESPACE);
    let own_leases = Api::namespaced(client(), namespace);
    select_all([
        restarts.follow(Kind::NodeLease, node_leases, plain(), Seen::NodeLease),
        restarts.follow(Kind::Report, Api::all(client()), plain(), Seen::Report),
        restarts.follow(Kind::Zone, Api::all(client()), ending(), Seen::Zone),
        restarts.follow(Kind::Challenge, Api::all(client()), ending(), Seen::Challenge),
        restarts.follow(Kind::Node, Api::all(client()), ending(), Seen::Node),
        restarts.follow(Kind::Pod, Api::all(client()), bound, Seen::Pod),
        restarts.follow(Kind::Claim, Api::all(client()), ending(), Seen::Claim),
        restarts.follow(Kind::OwnLease, own_leases, ending(), Seen::OwnLease),
        restarts.follow(Kind::Agent, Api::all(client()), ending(), Seen::Agent),
        restarts.follow(Kind::Policy, Api::all(client()), ending(), Seen::Policy),
        restarts.follow(Kind::Incident, Api::all(client()), ending(), Seen::Incident),
        restarts.follow(Kind::Home, Api::all(client()), home, Seen::Home),
    ])
}
