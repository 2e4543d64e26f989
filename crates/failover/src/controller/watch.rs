//! The watches: every change of what the planner looks at, as one stream.

use evenkeel_api::crd::{AgentStatus, FailoverPolicy, NodeIncident, ZoneHealth};
use evenkeel_api::names;
use evenkeel_net::watch::{Delta, Unreadable, deltas};
use futures::stream::{BoxStream, SelectAll, select_all};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// One change.
pub(super) enum Seen {
    Node(Delta<Node>),
    NodeLease(Delta<Lease>),
    Pod(Delta<Pod>),
    Claim(Delta<PersistentVolumeClaim>),
    Zone(Delta<ZoneHealth>),
    OwnLease(Delta<Lease>),
    Agent(Delta<AgentStatus>),
    Policy(Delta<FailoverPolicy>),
    Incident(Delta<NodeIncident>),
}

/// The kinds that are watched, by the names they have in messages.
pub(super) const WATCHED: [&str; 9] = [
    "Node",
    "node Lease",
    "Pod",
    "PersistentVolumeClaim",
    "ZoneHealth",
    "zone Lease",
    "AgentStatus",
    "FailoverPolicy",
    "NodeIncident",
];

impl Seen {
    /// The place of the kind in [`WATCHED`], if a complete list of it was just delivered.
    pub(super) fn listed(&self) -> Option<usize> {
        fn is<K>(delta: &Delta<K>) -> bool {
            matches!(delta, Delta::Listed(_))
        }
        let (place, listed) = match self {
            Self::Node(delta) => (0, is(delta)),
            Self::NodeLease(delta) => (1, is(delta)),
            Self::Pod(delta) => (2, is(delta)),
            Self::Claim(delta) => (3, is(delta)),
            Self::Zone(delta) => (4, is(delta)),
            Self::OwnLease(delta) => (5, is(delta)),
            Self::Agent(delta) => (6, is(delta)),
            Self::Policy(delta) => (7, is(delta)),
            Self::Incident(delta) => (8, is(delta)),
        };
        listed.then_some(place)
    }
}

/// All watches. They go on for ever, with back-off while the API server fails.
pub(super) fn all(client: &Client) -> SelectAll<BoxStream<'static, Seen>> {
    let plain = watcher::Config::default;
    // Pods that are bound to no node are nobody's business here.
    let bound = plain().fields("spec.nodeName!=");
    let leases = |namespace| Api::namespaced(client.clone(), namespace);
    select_all([
        follow(WATCHED[0], Api::all(client.clone()), plain())
            .map(Seen::Node)
            .boxed(),
        follow(WATCHED[1], leases(names::NODE_LEASE_NAMESPACE), plain())
            .map(Seen::NodeLease)
            .boxed(),
        follow(WATCHED[2], Api::all(client.clone()), bound)
            .map(Seen::Pod)
            .boxed(),
        follow(WATCHED[3], Api::all(client.clone()), plain())
            .map(Seen::Claim)
            .boxed(),
        follow(WATCHED[4], Api::all(client.clone()), plain())
            .map(Seen::Zone)
            .boxed(),
        follow(WATCHED[5], leases(names::NAMESPACE), plain())
            .map(Seen::OwnLease)
            .boxed(),
        follow(WATCHED[6], Api::all(client.clone()), plain())
            .map(Seen::Agent)
            .boxed(),
        follow(WATCHED[7], Api::all(client.clone()), plain())
            .map(Seen::Policy)
            .boxed(),
        follow(WATCHED[8], Api::all(client.clone()), plain())
            .map(Seen::Incident)
            .boxed(),
    ])
}

/// One watch.
fn follow<K>(
    what: &'static str,
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
) -> impl Stream<Item = Delta<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    DeserializeGuard<K>: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    deltas(what, api, config, Unreadable::StaysAsKnown)
}
