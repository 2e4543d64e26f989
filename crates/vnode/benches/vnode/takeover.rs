//! Two replicas, one of which dies or stops: how long until the other serves its nodes, and whether any node
//! was served by both.

use super::Args;
use super::fleet;
use super::fleet::GROUP;
use super::witness::{self, now};
use evenkeel_api::names::NODE_LEASE_NAMESPACE;
use evenkeel_testkit::bench::{Role, Row, clients, gauge, server};
use evenkeel_testkit::cluster::Objects as _;
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use nix::sys::signal::Signal;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::Runtime;

/// How often is looked whether nodes are served; the figures are late by up to as much.
const LOOK: Duration = Duration::from_millis(100);
/// Requests that the dead replica had sent have arrived after this time, and nobody can have taken over yet.
const ARRIVAL: Duration = Duration::from_millis(500);
/// After which a round counts as failed.
const PATIENCE: Duration = Duration::from_secs(120);
const GOAL: Duration = Duration::from_secs(15);

/// What becomes of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    /// SIGKILL. Another replica comes in its place.
    Killed,
    /// SIGSTOP, and SIGCONT once its nodes are served by the other.
    Stopped,
}

/// A replica as a process.
struct Replica {
    role: Role,
    name: String,
}

/// When nodes were served again, from the blow on.
#[derive(Default)]
struct Times {
    /// Their Leases were renewed.
    renewed: Vec<Duration>,
    /// A pod that was bound meanwhile runs.
    running: Vec<Duration>,
}

struct Rounds<'a> {
    home: &'a Path,
    kubeconfig: String,
    nodes: usize,
    runtime: Runtime,
    client: Client,
    replicas: Vec<Replica>,
    /// How many have been started.
    started: usize,
    /// When a replica did nothing: it was dead or stopped.
    absences: Vec<(String, Duration, Duration)>,
}

/// Measures the take-over.
pub(crate) fn measure(args: &Args) -> Vec<Row> {
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = home.path().join("kubeconfig").to_str().unwrap().to_owned();
    let (_server, _) = Role::start(&[server::ROLE, &kubeconfig]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let client = runtime.block_on(clients(&kubeconfig)).remove(0);
    let mut rounds = Rounds {
        home: home.path(),
        kubeconfig,
        nodes: args.takeover_nodes,
        runtime,
        client,
        replicas: Vec::new(),
        started: 0,
        absences: Vec::new(),
    };
    rounds.start();
    rounds.start();
    let mut rows = Vec::new();
    for blow in [Blow::Killed, Blow::Stopped] {
        let mut times = Times::default();
        for _ in 0..args.rounds {
            rounds.settle();
            rounds.round(blow, &mut times);
        }
        rows.extend(times.rows(blow, args));
    }
    // The one that was stopped last has had its chance to do harm.
    rounds.settle();
    rows.push(rounds.served_by_two());
    rows
}

impl Times {
    fn rows(self, blow: Blow, args: &Args) -> [Row; 2] {
        let after = match blow {
            Blow::Killed => "SIGKILL",
            Blow::Stopped => "SIGSTOP",
        };
        let row = |what: &str, mut times: Vec<Duration>| {
            times.sort();
            let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
            Row {
                what: format!(
                    "take-over after {after}: from the blow until each of the replica's nodes {what}; {} times over {} rounds, {} nodes, \
                     two replicas",
                    times.len(),
                    args.rounds,
                    args.takeover_nodes
                ),
                measured: format!(
                    "median {:.1} s, max {:.1} s",
                    median.as_secs_f64(),
                    most.as_secs_f64()
                ),
                goal: Some(("<= 15 s", most <= GOAL)),
            }
        };
        [
            row("has its Lease renewed by the other", self.renewed),
            row("runs a pod that was bound to it meanwhile", self.running),
        ]
    }
}

impl Rounds<'_> {
    fn record(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    fn start(&mut self) {
        self.started += 1;
        let name = format!("replica-{}", self.started);
        let record = self.record(&name);
        let (nodes, record) = (self.nodes.to_string(), record.to_str().unwrap());
        let words = [fleet::ROLE, &self.kubeconfig, &nodes, &name, record];
        let (role, _) = Role::start(&words);
        self.replicas.push(Replica { role, name });
    }

    /// Waits until both replicas serve the same number of slots, and all nodes are well.
    fn settle(&mut self) {
        let end = now() + PATIENCE;
        loop {
            let holders = self.runtime.block_on(holders(&self.client));
            let even = self
                .replicas
                .iter()
                .all(|replica| holders.get(&replica.name) == Some(&8));
            let ready: f64 = self
                .replicas
                .iter_mut()
                .map(|replica| gauge(&replica.role.ask("metrics"), "evenkeel_vnode_nodes_ready"))
                .sum();
            if even && ready >= self.nodes as f64 {
                return;
            }
            assert!(
                now() < end,
                "the replicas do not share: {holders:?}, {ready} nodes are ready"
            );
            std::thread::sleep(LOOK);
        }
    }

    /// The replica that has served longest is struck, and the other watched.
    fn round(&mut self, blow: Blow, times: &mut Times) {
        let victim = self.replicas.remove(0);
        let nodes = self.served_by(&victim.name);
        let at = now();
        victim.role.signal(match blow {
            Blow::Killed => Signal::SIGKILL,
            Blow::Stopped => Signal::SIGSTOP,
        });
        let number = format!("{}-{}", self.absences.len(), self.started);
        self.runtime
            .block_on(watch(&self.client, &nodes, &number, at, times));
        match blow {
            Blow::Killed => {
                self.absences.push((victim.name, at, Duration::MAX));
                self.start();
            }
            Blow::Stopped => {
                self.absences.push((victim.name.clone(), at, now()));
                victim.role.signal(Signal::SIGCONT);
                self.replicas.push(victim);
            }
        }
    }

    /// Nodes that a replica serves, by what the replicas have written down.
    fn served_by(&self, name: &str) -> BTreeSet<String> {
        let (owners, _, _) = self.history();
        let nodes = owners.into_iter().filter(|(_, owner)| owner == name);
        nodes.map(|(node, _)| node).collect()
    }

    /// Who serves each node; how often a provider was asked; and what it was asked for nodes that another
    /// replica had neither given back nor lost by being away.
    fn history(&self) -> (BTreeMap<String, String>, usize, Vec<String>) {
        let mut entries = Vec::new();
        for number in 1..=self.started {
            let name = format!("replica-{number}");
            let record = witness::read(&self.record(&name));
            entries.extend(record.into_iter().map(|entry| (entry, name.clone())));
        }
        entries.sort_by_key(|(entry, _)| entry.at);
        let is_away = |name: &str, at: Duration| {
            let mut absences = self.absences.iter();
            absences.any(|(away, from, until)| away == name && (*from..*until).contains(&at))
        };
        let (count, mut owners, mut clashes) = (entries.len(), BTreeMap::<String, String>::new(), Vec::new());
        for (entry, by) in entries {
            let owner = owners.get(&entry.node);
            if entry.is_release {
                if owner == Some(&by) {
                    owners.remove(&entry.node);
                }
                continue;
            }
            match owner {
                Some(owner) if *owner != by && !is_away(owner, entry.at) => {
                    clashes.push(format!(
                        "{by} asked for {} of {owner} at {:?}",
                        entry.node, entry.at
                    ));
                }
                _ => drop(owners.insert(entry.node, by)),
            }
        }
        (owners, count, clashes)
    }

    fn served_by_two(&self) -> Row {
        let (_, count, clashes) = self.history();
        let first = clashes.first().map(|clash| format!(" ({clash})"));
        Row {
            what: format!(
                "calls of a provider for a node that another replica served, of {count} calls in all rounds"
            ),
            measured: format!("{}{}", clashes.len(), first.unwrap_or_default()),
            goal: Some(("0", clashes.is_empty())),
        }
    }
}

/// How many slots each replica holds.
async fn holders(client: &Client) -> BTreeMap<String, usize> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NODE_LEASE_NAMESPACE);
    let slots: BTreeSet<String> = (0..16).map(|slot| format!("{GROUP}-{slot}")).collect();
    let mut holders = BTreeMap::new();
    for lease in leases.list(&ListParams::default()).await.unwrap() {
        let is_slot = slots.contains(&lease.name_any());
        if let Some(holder) = lease
            .spec
            .and_then(|spec| spec.holder_identity)
            .filter(|_| is_slot)
        {
            *holders.entry(holder).or_default() += 1;
        }
    }
    holders
}

/// Binds a pod to each of the nodes, and watches until all of these run and the nodes' Leases are renewed.
async fn watch(client: &Client, nodes: &BTreeSet<String>, round: &str, at: Duration, times: &mut Times) {
    assert!(!nodes.is_empty(), "the replica serves no node");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let leases: Api<Lease> = Api::namespaced(client.clone(), NODE_LEASE_NAMESPACE);
    let bound = futures::stream::iter(nodes).map(|node| {
        let pod = json!({
            "metadata": {"name": format!("{node}-{round}"), "labels": {"round": round}},
            "spec": {"nodeName": node, "containers": [{"name": "app", "image": "registry.example/app:1"}]},
        });
        let (pods, pod) = (&pods, serde_json::from_value(pod).unwrap());
        async move { drop(pods.add(&pod).await) }
    });
    bound.buffer_unordered(16).collect::<Vec<()>>().await;
    tokio::time::sleep(ARRIVAL.saturating_sub(now().saturating_sub(at))).await;
    let mut before = versions(&leases, nodes).await;
    let mut waiting = nodes.clone();
    let ours = ListParams::default().labels(&format!("round={round}"));
    while !before.is_empty() || !waiting.is_empty() {
        let elapsed = now().saturating_sub(at);
        assert!(
            elapsed < PATIENCE,
            "not taken over: {} Leases are not renewed, {} pods do not run",
            before.len(),
            waiting.len()
        );
        tokio::time::sleep(LOOK).await;
        let (after, seen) = (versions(&leases, nodes).await, now().saturating_sub(at));
        before.retain(|node, version| {
            let same = after.get(node) == Some(version);
            if !same {
                times.renewed.push(seen);
            }
            same
        });
        let (list, seen) = (pods.list(&ours).await.unwrap(), now().saturating_sub(at));
        for pod in list {
            let runs = pod
                .status
                .is_some_and(|status| status.phase.as_deref() == Some("Running"));
            let node = pod.spec.and_then(|spec| spec.node_name).unwrap();
            if runs && waiting.remove(&node) {
                times.running.push(seen);
            }
        }
    }
}

/// Versions of the nodes' Leases.
async fn versions(leases: &Api<Lease>, nodes: &BTreeSet<String>) -> BTreeMap<String, String> {
    let list = leases.list_metadata(&ListParams::default()).await.unwrap();
    let versions = list
        .into_iter()
        .map(|lease| (lease.name_any(), lease.resource_version().unwrap()));
    versions.filter(|(name, _)| nodes.contains(name)).collect()
}
