//! The writer and the machine together, against an API server.

use super::*;
use crate::core::Now;
use crate::core::node::{Machine, Settings};
use crate::fleet::tests::fake::{Fake, Trick, World};
use crate::provider::NodeTemplate;
use evenkeel_election::{FencingToken, Gate};
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{ApiServer, api_server};
use k8s_openapi::api::core::v1::{NodeCondition, Taint};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// A node whose machine is driven by hand, in time of its own.
struct Bench {
    api: ApiServer,
    node_writer: NodeWriter,
    world: Arc<World>,
    machine: Machine,
    settings: Settings,
    at: Duration,
    wake: Duration,
    /// Kinds of what was asked, the waits aside.
    log: Vec<&'static str>,
}

impl Bench {
    async fn new(template: NodeTemplate) -> Self {
        let mut bench = Self::on(api_server(), template);
        bench
            .step(Input::Begin(Some("10.0.0.1:10250".parse().unwrap())))
            .await;
        bench
    }

    fn on(api: ApiServer, template: NodeTemplate) -> Self {
        let world = Arc::new(World::default());
        Self {
            node_writer: NodeWriter::new(api.client(), Fake::new(&world, 1)),
            api,
            world,
            machine: Machine::new("n1", template),
            settings: Settings::default(),
            at: Duration::from_secs(1_700_000_000),
            wake: Duration::MAX,
            log: Vec::new(),
        }
    }

    async fn step(&mut self, input: Input) {
        let mut inputs = vec![input];
        while !inputs.is_empty() {
            let now = Now {
                mono: self.at,
                wall: self.at,
            };
            for action in self.machine.step(&self.settings, inputs.remove(0), now) {
                self.log.push(match &action {
                    Action::Ping => "ping",
                    Action::Register(_) => "register",
                    Action::Post(_) => "post",
                    Action::Lease(_) => "lease",
                    Action::Record(..) => "record",
                    Action::Wake(wake) => {
                        self.wake = self.at + *wake;
                        continue;
                    }
                });
                inputs.extend(self.node_writer.perform("n1", action).await);
            }
        }
    }

    async fn pass(&mut self, time: Duration) {
        let end = self.at + time;
        while self.wake <= end {
            self.at = self.wake;
            self.step(Input::Tick).await;
        }
        self.at = end;
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.api.client())
    }

    async fn node(&self) -> Node {
        self.nodes().get("n1").await.unwrap()
    }

    async fn lease(&self) -> Lease {
        let leases: Api<Lease> = Api::namespaced(self.api.client(), names::NODE_LEASE_NAMESPACE);
        leases.get("n1").await.unwrap()
    }

    async fn condition(&self, kind: &str) -> Option<NodeCondition> {
        let conditions = self.node().await.status.unwrap().conditions.unwrap_or_default();
        conditions.into_iter().find(|one| one.type_ == kind)
    }

    async fn patch(&self, patch: Value) {
        let (nodes, params) = (self.nodes(), PatchParams::default());
        let patch = Patch::Strategic(patch);
        nodes.patch("n1", &params, &patch).await.unwrap();
        nodes.patch_status("n1", &params, &patch).await.unwrap();
    }
}

fn template() -> NodeTemplate {
    NodeTemplate {
        labels: [("ours".to_owned(), "1".to_owned())].into(),
        annotations: [("note".to_owned(), "x".to_owned())].into(),
        taints: vec![(
            "virtual-kubelet.io/provider".into(),
            "sim".into(),
            "NoSchedule".into(),
        )],
        capacity: [("cpu", "4"), ("memory", "2048Mi"), ("pods", "110")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ..NodeTemplate::default()
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_node_is_registered_beats_and_reports() {
    let mut bench = Bench::new(template()).await;
    let node = bench.node().await;
    let taints = node.spec.as_ref().unwrap().taints.clone().unwrap();
    assert!(
        taints
            .iter()
            .any(|taint| taint.key == "virtual-kubelet.io/provider")
    );
    assert_eq!(bench.condition("Ready").await.unwrap().status, "True");
    let lease = bench.lease().await;
    let owner = &lease.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(Some(&owner.uid), node.metadata.uid.as_ref());
    bench.pass(10 * MINUTE).await;
    assert!(bench.lease().await.spec.unwrap().renew_time > lease.spec.unwrap().renew_time);
    bench.log.clear();
    bench.pass(10 * MINUTE).await;
    let count = |what| bench.log.iter().filter(|entry| **entry == what).count();
    assert_eq!((count("post"), count("register")), (2, 0));
    assert!((57..=60).contains(&count("lease")));
}

#[tokio::test]
async fn foreign_writes_survive() {
    let mut bench = Bench::new(template()).await;
    let theirs = json!({
        "metadata": {"labels": {"theirs": "1"}, "annotations": {"theirs": "1"}},
        "spec": {"taints": [{"key": "theirs", "effect": "NoExecute"}]},
        "status": {
            "conditions": [{"type": "Theirs", "status": "True", "reason": "R"}],
            "addresses": [{"type": "ExternalIP", "address": "192.0.2.1"}],
            "capacity": {"example.com/gpu": "1"},
        },
    });
    bench.patch(theirs).await;
    let less = NodeTemplate {
        labels: [("new".to_owned(), "2".to_owned())].into(),
        annotations: [].into(),
        ..template()
    };
    let address = Some("10.0.0.2:10250".parse().unwrap());
    bench.step(Input::Template(Box::new(less), address)).await;
    bench.pass(11 * MINUTE).await;
    let node = bench.node().await;
    let labels = node.metadata.labels.unwrap();
    assert!(labels.contains_key("theirs") && labels.contains_key("new") && !labels.contains_key("ours"));
    let annotations = node.metadata.annotations.unwrap();
    assert!(annotations.contains_key("theirs") && !annotations.contains_key("note"));
    let taints: Vec<Taint> = node.spec.unwrap().taints.unwrap();
    assert!(taints.iter().any(|taint| taint.key == "theirs"));
    let status = node.status.unwrap();
    assert!(status.capacity.unwrap().contains_key("example.com/gpu"));
    let addresses: Vec<String> = status
        .addresses
        .unwrap()
        .into_iter()
        .map(|one| one.address)
        .collect();
    assert!(addresses.contains(&"192.0.2.1".to_owned()) && addresses.contains(&"10.0.0.2".to_owned()));
    assert!(!addresses.contains(&"10.0.0.1".to_owned()));
    let conditions = status.conditions.unwrap();
    assert!(conditions.iter().any(|one| one.type_ == "Theirs") && conditions.len() == 6);
}

#[tokio::test]
async fn a_node_that_was_made_anew_is_recognised() {
    let mut bench = Bench::new(template()).await;
    let first = bench.node().await.metadata.uid;
    bench.nodes().remove("n1").await;
    let mut bare = Node::default();
    bare.metadata.name = Some("n1".to_owned());
    bench.nodes().add(&bare).await;
    // Nobody tells; the next report finds out.
    bench.pass(6 * MINUTE).await;
    let node = bench.node().await;
    assert_ne!(node.metadata.uid, first);
    assert_eq!(bench.machine.uid(), node.metadata.uid.as_deref());
    assert_eq!(bench.condition("Ready").await.unwrap().status, "True");
    assert!(node.metadata.labels.unwrap().contains_key("ours"));
    let owners = bench.lease().await.metadata.owner_references.unwrap();
    assert_eq!(owners.len(), 1);
    assert_eq!(Some(&owners[0].uid), node.metadata.uid.as_ref());
}

#[tokio::test]
async fn a_node_of_another_kubelet_is_left_alone() {
    let mut bench = Bench::on(api_server(), template());
    let mut other = Node::default();
    other.metadata.name = Some("n1".to_owned());
    let created = bench.nodes().add(&other).await;
    let status = json!({"status": {"nodeInfo": {
        "architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "containerd://2", "kernelVersion": "6",
        "kubeProxyVersion": "", "kubeletVersion": "v1.36.0", "machineID": "m", "operatingSystem": "linux",
        "osImage": "Debian", "systemUUID": "s",
    }}});
    bench.patch(status).await;
    let before = bench.node().await;
    bench
        .step(Input::Begin(Some("10.0.0.1:10250".parse().unwrap())))
        .await;
    bench.pass(MINUTE).await;
    bench.node_writer.delete("n1").await.unwrap();
    assert_eq!(bench.node().await, before);
    assert_eq!(before.metadata.uid, created.metadata.uid);
    assert_eq!(bench.machine.uid(), None, "it is not ours");
}

#[tokio::test]
async fn a_deleted_node_is_registered_anew() {
    let mut bench = Bench::new(template()).await;
    let first = bench.node().await.metadata.uid;
    bench.node_writer.delete("n1").await.unwrap();
    bench.node_writer.delete("n1").await.unwrap();
    assert!(bench.nodes().get_opt("n1").await.unwrap().is_none());
    bench.step(Input::Gone).await;
    bench.pass(MINUTE).await;
    let node = bench.node().await;
    assert_ne!(node.metadata.uid, first);
    assert_eq!(bench.lease().await.metadata.owner_references.unwrap().len(), 1);
    assert!(node.spec.unwrap().taints.unwrap().len() >= 2);
}

#[tokio::test]
async fn a_process_that_starts_again_adopts_the_node_without_a_write() {
    let mut bench = Bench::new(template()).await;
    bench.pass(MINUTE).await;
    let before = bench.node().await;
    let mut next = Bench::on(bench.api.clone(), template());
    next.at = bench.at + MINUTE / 3;
    next.step(Input::Begin(Some("10.0.0.1:10250".parse().unwrap())))
        .await;
    assert!(next.machine.is_ready());
    assert_eq!(next.node().await, before);
}

#[tokio::test]
async fn a_provider_that_errs_or_is_silent_makes_the_node_not_ready_and_its_lease_goes_on() {
    let mut bench = Bench::new(template()).await;
    bench.pass(MINUTE).await;
    let renewed = bench.lease().await.spec.unwrap().renew_time;
    bench.world.trick("ping", "n1", &[Trick::Later; 100]);
    bench.pass(MINUTE).await;
    let ready = bench.condition("Ready").await.unwrap();
    assert_eq!(
        (
            ready.status.as_str(),
            ready.reason.as_deref(),
            ready.message.as_deref()
        ),
        ("False", Some("ProviderUnwell"), Some("it may work later"))
    );
    assert!(bench.lease().await.spec.unwrap().renew_time > renewed);
    bench.world.trick("ping", "n1", &[]);
    bench.pass(MINUTE).await;
    assert_eq!(bench.condition("Ready").await.unwrap().status, "True");
}

#[tokio::test(start_paused = true)]
async fn a_silent_provider_is_given_ten_seconds() {
    let bench = Bench::on(api_server(), template());
    bench.world.trick("ping", "n1", &[Trick::Hang]);
    let answer = bench.node_writer.perform("n1", Action::Ping).await;
    let Some(Input::Pinged(Err(fault))) = answer else {
        panic!("{answer:?}")
    };
    assert!(fault.message.contains("10s"), "{fault}");
}

#[tokio::test]
async fn others_who_write_the_lease_between_cost_a_read_and_keep_what_they_wrote() {
    let mut bench = Bench::new(template()).await;
    let leases: Api<Lease> = Api::namespaced(bench.api.client(), names::NODE_LEASE_NAMESPACE);
    let label = json!({"metadata": {"labels": {"theirs": "1"}}});
    leases.merge("n1", label).await;
    let before = bench.lease().await;
    bench.pass(MINUTE).await;
    let after = bench.lease().await;
    assert!(after.spec.unwrap().renew_time > before.spec.unwrap().renew_time);
    assert!(after.metadata.labels.unwrap().contains_key("theirs"));
}

#[tokio::test]
async fn what_a_closed_gate_refuses_has_failed() {
    let mut bench = Bench::on(api_server(), template());
    let gate = Gate::new();
    bench.node_writer = bench.node_writer.with_client(gate.client(&bench.api.client()));
    bench.step(Input::Begin(None)).await;
    assert!(bench.nodes().get_opt("n1").await.unwrap().is_none());
    assert!(gate.rejections() > 0 && bench.machine.uid().is_none());
    let token = FencingToken {
        lease_uid: "u".to_owned(),
        transitions: 1,
    };
    gate.open(token, Duration::MAX);
    bench.pass(MINUTE).await;
    assert!(bench.machine.is_ready());
}
