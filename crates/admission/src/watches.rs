//! The webhook's own watches. Every replica serves the webhook, whoever leads, so every replica watches.

use crate::clock::Clock;
use crate::core::View;
use crate::core::facts::Facts;
use crate::evidence::{Evidence, node_facts, policy_facts, renew_time};
use arc_swap::ArcSwap;
use evenkeel_api::crd::{FailoverPolicy, ZoneHealth};
use evenkeel_api::names;
use evenkeel_net::watch::{Delta, Key, Unreadable, deltas};
use futures::stream::{BoxStream, select_all};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A quarter of the time for which a view may be acted upon: evidence that runs out, and Leases that turn stale
/// without an event, show in the next view.
const REFRESH: Duration = Duration::from_millis(500);

enum Seen {
    Zone(Delta<ZoneHealth>),
    OwnLease(Delta<Lease>),
    NodeLease(Delta<Lease>),
    Node(Delta<Node>),
    Policy(Delta<FailoverPolicy>),
}

/// Which watches have delivered a complete list.
#[derive(Default)]
struct Complete {
    zones: bool,
    own_leases: bool,
    node_leases: bool,
    nodes: bool,
    policies: bool,
}

impl Complete {
    fn all(&self) -> bool {
        self.zones && self.own_leases && self.node_leases && self.nodes && self.policies
    }
}

/// Keeps `view` up to date until `shutdown`. It stays empty, so that everything passes, until every watch has
/// delivered a complete list.
pub(crate) async fn keep(
    client: Client,
    clock: Clock,
    view: Arc<ArcSwap<View>>,
    shutdown: CancellationToken,
) {
    let mut seen = all(&client);
    let mut evidence = Evidence::new();
    let mut facts = Facts::default();
    let mut complete = Complete::default();
    let mut refresh = tokio::time::interval(REFRESH);
    refresh.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            Some(seen) = seen.next() => {
                take(clock, seen, &mut evidence, &mut facts, &mut complete);
            }
            _ = refresh.tick() => {}
        }
        if complete.all() {
            let now = clock.now();
            let next = facts.view(now, |uid| evidence.verdict(uid, now));
            report(&view.load(), &next);
            view.store(Arc::new(next));
        }
    }
}

fn take(clock: Clock, seen: Seen, evidence: &mut Evidence, facts: &mut Facts, complete: &mut Complete) {
    let now = clock.now();
    match seen {
        Seen::Zone(Delta::Put(zone)) => {
            for (node, refusal) in evidence.zone_health(now, &zone) {
                tracing::warn!(zone = zone.name_any(), node, %refusal, "verdict refused");
            }
        }
        Seen::Zone(Delta::Gone((_, name))) => evidence.zone_health_gone(&name),
        Seen::Zone(Delta::Listed(keys)) => {
            let names = names_of(keys);
            evidence.retain_zones(|name| names.contains(name));
            complete.zones = true;
        }
        Seen::OwnLease(Delta::Put(lease)) => evidence.lease(now, &lease),
        Seen::OwnLease(Delta::Gone(_)) => {}
        Seen::OwnLease(Delta::Listed(_)) => complete.own_leases = true,
        Seen::NodeLease(Delta::Put(lease)) => facts.lease(now, &lease.name_any(), renew_time(&lease)),
        Seen::NodeLease(Delta::Gone((_, name))) => facts.leases().forget(&name),
        Seen::NodeLease(Delta::Listed(keys)) => {
            let names = names_of(keys);
            facts.leases().retain(|name| names.contains(name));
            complete.node_leases = true;
        }
        Seen::Node(Delta::Put(node)) => facts.node(now, &node.name_any(), node_facts(&node)),
        Seen::Node(Delta::Gone((_, name))) => facts.forget_node(&name),
        Seen::Node(Delta::Listed(keys)) => {
            let names = names_of(keys);
            facts.retain_nodes(|name| names.contains(name));
            complete.nodes = true;
        }
        Seen::Policy(Delta::Put(policy)) => facts.policy(&policy.name_any(), policy_facts(&policy)),
        Seen::Policy(Delta::Gone((_, name))) => facts.forget_policy(&name),
        Seen::Policy(Delta::Listed(keys)) => {
            let names = names_of(keys);
            facts.retain_policies(|name| names.contains(name));
            complete.policies = true;
        }
    }
}

/// Each of these kinds is watched in one namespace or has none, so names are enough.
fn names_of(keys: BTreeSet<Key>) -> BTreeSet<String> {
    keys.into_iter().map(|(_, name)| name).collect()
}

fn report(before: &View, after: &View) {
    for node in after
        .nodes
        .keys()
        .filter(|node| !before.nodes.contains_key(*node))
    {
        tracing::info!(
            node,
            "node is disconnected: its pods, taints and endpoints are kept at admission"
        );
    }
    for node in before
        .nodes
        .keys()
        .filter(|node| !after.nodes.contains_key(*node))
    {
        tracing::info!(node, "node is no longer disconnected: stock writes pass again");
    }
}

fn all(client: &Client) -> futures::stream::SelectAll<BoxStream<'static, Seen>> {
    let own = Api::namespaced(client.clone(), names::NAMESPACE);
    let kubelets = Api::namespaced(client.clone(), names::NODE_LEASE_NAMESPACE);
    select_all([
        follow("ZoneHealth", Api::all(client.clone()))
            .map(Seen::Zone)
            .boxed(),
        follow("zone Lease", own).map(Seen::OwnLease).boxed(),
        follow("node Lease", kubelets).map(Seen::NodeLease).boxed(),
        follow("Node", Api::all(client.clone())).map(Seen::Node).boxed(),
        follow("FailoverPolicy", Api::all(client.clone()))
            .map(Seen::Policy)
            .boxed(),
    ])
}

/// A watch. An object that cannot be read counts as gone: nothing is known of it, so nothing is done on its behalf.
fn follow<K>(what: &'static str, api: Api<DeserializeGuard<K>>) -> impl Stream<Item = Delta<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    DeserializeGuard<K>: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    deltas(what, api, watcher::Config::default(), Unreadable::CountsAsGone)
}
