//! The watches: every change of what the process looks at, as one stream.

use evenkeel_api::names;
use evenkeel_failover_rules::world::{Kind, Seen};
use evenkeel_net::watch::{Delta, Unreadable, deltas, restartable};
use futures::stream::{BoxStream, SelectAll, select_all};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use tokio::sync::Notify;

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
    // The controller decides nothing about pods that are bound to no node.
    let bound = plain().fields("spec.nodeName!=");
    let home = plain().fields(&format!("metadata.name={namespace}"));
    let leases = {
        let client = client.clone();
        move || {
            let api = Api::namespaced(client.clone(), names::NODE_LEASE_NAMESPACE);
            follow(Kind::NodeLease, api, plain())
        }
    };
    let reports = {
        let client = client.clone();
        move || follow(Kind::Report, Api::all(client.clone()), plain())
    };
    let own = Api::namespaced(client.clone(), namespace);
    select_all([
        restartable(Arc::clone(&restarts.leases), leases)
            .map(Seen::NodeLease)
            .boxed(),
        restartable(Arc::clone(&restarts.reports), reports)
            .map(Seen::Report)
            .boxed(),
        follow(Kind::Zone, Api::all(client.clone()), plain())
            .map(Seen::Zone)
            .boxed(),
        follow(Kind::Challenge, Api::all(client.clone()), plain())
            .map(Seen::Challenge)
            .boxed(),
        follow(Kind::Node, Api::all(client.clone()), plain())
            .map(Seen::Node)
            .boxed(),
        follow(Kind::Pod, Api::all(client.clone()), bound)
            .map(Seen::Pod)
            .boxed(),
        follow(Kind::Claim, Api::all(client.clone()), plain())
            .map(Seen::Claim)
            .boxed(),
        follow(Kind::OwnLease, own, plain()).map(Seen::OwnLease).boxed(),
        follow(Kind::Agent, Api::all(client.clone()), plain())
            .map(Seen::Agent)
            .boxed(),
        follow(Kind::Policy, Api::all(client.clone()), plain())
            .map(Seen::Policy)
            .boxed(),
        follow(Kind::Incident, Api::all(client.clone()), plain())
            .map(Seen::Incident)
            .boxed(),
        follow::<Namespace>(Kind::Home, Api::all(client.clone()), home)
            .map(Seen::Home)
            .boxed(),
    ])
}

/// One watch. An object that cannot be decoded keeps its last known state.
fn follow<K>(
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
