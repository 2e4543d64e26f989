//! The watches: every change of what the process looks at, as one stream.

use evenkeel_api::names;
use evenkeel_failover_rules::world::{Kind, Seen};
use evenkeel_net::watch::{Delta, Unreadable, deltas, restartable};
use futures::stream::{BoxStream, SelectAll, select_all};
use futures::{Stream, StreamExt as _};
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use tokio::sync::Notify;

/// After so many seconds the API server ends a watch that is not audited, and it goes on where it was.
const ENDS_SECS: u32 = 60;

/// Restarts watches that were found not to deliver.
#[derive(Clone, Default)]
pub(super) struct Restarts {
    leases: Arc<Notify>,
    reports: Arc<Notify>,
}

impl Restarts {
    pub(super) fn begin_anew(&self, kind: Kind) {
        match kind {
            Kind::NodeLease => self.leases.notify_one(),
            Kind::Report => self.reports.notify_one(),
            _ => {}
        }
    }
}

/// All watches. They go on for ever, with back-off while the API server fails.
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
    let leases = {
        let client = client.clone();
        move || {
            let api = Api::namespaced(client.clone(), names::NODE_LEASE_NAMESPACE);
            changes(Kind::NodeLease, api, plain())
        }
    };
    let reports = {
        let client = client.clone();
        move || changes(Kind::Report, Api::all(client.clone()), plain())
    };
    let client = || client.clone();
    select_all([
        restartable(Arc::clone(&restarts.leases), leases)
            .map(Seen::NodeLease)
            .boxed(),
        restartable(Arc::clone(&restarts.reports), reports)
            .map(Seen::Report)
            .boxed(),
        follow(Kind::Zone, Api::all(client()), ending(), Seen::Zone),
        follow(Kind::Challenge, Api::all(client()), ending(), Seen::Challenge),
        follow(Kind::Node, Api::all(client()), ending(), Seen::Node),
        follow(Kind::Pod, Api::all(client()), bound, Seen::Pod),
        follow(Kind::Claim, Api::all(client()), ending(), Seen::Claim),
        follow(
            Kind::OwnLease,
            Api::namespaced(client(), namespace),
            ending(),
            Seen::OwnLease,
        ),
        follow(Kind::Agent, Api::all(client()), ending(), Seen::Agent),
        follow(Kind::Policy, Api::all(client()), ending(), Seen::Policy),
        follow(Kind::Incident, Api::all(client()), ending(), Seen::Incident),
        follow(Kind::Home, Api::all(client()), home, Seen::Home),
    ])
}

/// One watch, and how the world takes in what it delivers.
fn follow<K>(
    kind: Kind,
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
    seen: fn(Delta<K>) -> Seen,
) -> BoxStream<'static, Seen>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    DeserializeGuard<K>: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    changes(kind, api, config).map(seen).boxed()
}

/// What a watch delivers. An object that cannot be decoded keeps its last known state.
fn changes<K>(
    kind: Kind,
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
) -> impl Stream<Item = Delta<K>> + use<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    DeserializeGuard<K>: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    deltas(kind.name(), api, config, Unreadable::StaysAsKnown)
}
