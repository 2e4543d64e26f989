//! An API server on one machine, our components on another, and wires between them that lose packets.

use super::process::{Process, client, install};
use crate::support::evenkeel;
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::eventually;
use evenkeel_testkit::netns::Namespace;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Addresses of the API server, each on a wire of its own.
pub(super) const FIRST: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 1);
pub(super) const SECOND: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 1);
pub(super) const PORT: u16 = 6443;
/// How soon everything works again: what this test is about.
pub(super) const GOAL: Duration = Duration::from_secs(30);
/// For what only a broken machine needs longer for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Node of the agent.
const NODE: &str = "shore-1";

/// A component, and how the API server sees that it works.
pub(super) struct Component {
    pub(super) name: &'static str,
    /// Its command line, but for the API server; `@` is the test's directory.
    args: &'static str,
    sign: Sign,
}

/// What a component does by itself, or is made to do.
enum Sign {
    /// It renews a Lease of `evenkeel-system`.
    Renews(&'static str),
    /// It makes a ZoneHealth for an agent that is new: its watches live, and it writes.
    MakesZones,
    /// It taints a node that reports pressure on its memory: the same.
    Taints,
}

/// Everything that talks to the API server. A component more is a line more.
pub(super) const COMPONENTS: [Component; 4] = [
    Component {
        name: "agent",
        // It renews more often than by default, so that several renewals fit into the time of a test.
        args: "agent --node shore-1 --listen 127.0.0.1:7959 --key @agent.key --state-dir @state --zone-default default \
               --leader-elect-lease-duration 5s --leader-elect-renew-deadline 3s --leader-elect-retry-period 1s",
        sign: Sign::Renews("evenkeel-zone-default"),
    },
    Component {
        name: "controller",
        args: "controller --admin 127.0.0.1:9850",
        sign: Sign::Renews("evenkeel-controller"),
    },
    Component {
        name: "controller, one replica",
        args: "controller --admin 127.0.0.1:9851 --leader-elect=false --zone-default default",
        sign: Sign::MakesZones,
    },
    Component {
        name: "node-lifecycle",
        args: "node-lifecycle",
        sign: Sign::Taints,
    },
];

/// The two machines, and all processes on them.
pub(super) struct Cluster {
    // Dropped in this order: processes before their namespaces.
    processes: Vec<Process>,
    pub(super) cloud: Namespace,
    shore: Namespace,
    directory: TempDir,
}

impl Cluster {
    /// Starts everything. `further`: whether components are told of the second address.
    pub(super) fn start(further: bool) -> Self {
        let (cloud, shore) = (Namespace::new("cloud"), Namespace::new("shore"));
        for address in [FIRST, SECOND] {
            let [a, b, c, _] = address.octets();
            cloud.wire(&shore, address, Ipv4Addr::new(a, b, c, 2));
        }
        let directory = TempDir::new().expect("a temporary directory");
        let mut cluster = Self {
            processes: Vec::new(),
            cloud,
            shore,
            directory,
        };
        let port = PORT.to_string();
        let line =
            format!("apiserver --bind 0.0.0.0 --port {port} --kubeconfig-out @kubeconfig --cert-dir @pki");
        cluster.run(
            "apiserver",
            &cluster.cloud.command(evenkeel().get_program()),
            &line,
        );
        cluster.inside(async |cluster| cluster.furnish().await);
        let keygen = evenkeel()
            .args(["agent", "keygen", "--out"])
            .arg(cluster.directory.path().join("agent.key"))
            .output()
            .expect("the command starts");
        assert!(keygen.status.success(), "{keygen:?}");
        let further = if further {
            format!("--api-endpoint {SECOND}:{PORT}")
        } else {
            String::new()
        };
        let server = format!(
            "--server https://{FIRST}:{PORT} --certificate-authority @pki/ca.crt --client-certificate @pki/admin.crt \
             --client-key @pki/admin.key --tls-server-name localhost {further}"
        );
        for component in &COMPONENTS {
            let command = cluster.shore.command(evenkeel().get_program());
            // Right behind the sub-command: its own arguments may end with a command line to run.
            let (subcommand, rest) = component.args.split_once(' ').unwrap_or((component.args, ""));
            cluster.run(component.name, &command, &format!("{subcommand} {server} {rest}"));
        }
        cluster
    }

    fn run(&mut self, name: &'static str, inside: &Command, line: &str) {
        let log = self.directory.path().join(format!("{name}.log"));
        let at = format!("{}/", self.directory.path().display());
        let mut command = Command::new(inside.get_program());
        command
            .args(inside.get_args())
            .args(line.split_whitespace().map(|word| word.replace('@', &at)));
        self.processes.push(Process::start(name, &mut command, log));
    }

    /// Runs this on the server's machine, whose own loopback no fault touches.
    pub(super) fn inside<T: Send>(&self, work: impl AsyncFnOnce(&Self) -> T + Send) -> T {
        self.cloud.inside(|| {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime")
                .block_on(work(self))
        })
    }

    /// An administrator on the server's machine.
    pub(super) async fn client(&self) -> Client {
        client(&self.directory.path().join("kubeconfig")).await
    }

    /// Definitions, namespace and node that components expect.
    async fn furnish(&self) {
        let client = self.client().await;
        install(&client).await;
        node(&client, NODE, "default", json!([])).await;
    }

    /// Waits until every component shows its sign; `what` is in the message of failure, and must differ from
    /// call to call. How long each took.
    pub(super) async fn all_work(
        &self,
        what: &'static str,
        within: Duration,
    ) -> Vec<(&'static str, Duration)> {
        let client = self.client().await;
        let start = Instant::now();
        let signs = COMPONENTS.iter().map(|component| {
            let client = client.clone();
            async move {
                let message = format!("{what}: {} works", component.name);
                component.sign.shown(&client, what, &message, within).await;
                (component.name, start.elapsed())
            }
        });
        futures::future::join_all(signs).await
    }

    /// The first calls find components that are still starting.
    pub(super) fn settle(&self) {
        self.inside(async |cluster| cluster.all_work("at first", PATIENCE).await);
    }
}

impl Sign {
    async fn shown(&self, client: &Client, what: &str, message: &str, within: Duration) {
        // Each call has its own node in its own zone.
        let name = what.replace(' ', "-");
        match self {
            Self::Renews(lease) => {
                let leases: Api<Lease> = Api::namespaced(client.clone(), "evenkeel-system");
                // The first change may have been under way; the last one needs the answer to one that was
                // not.
                let mut versions: Vec<Option<String>> = Vec::new();
                let start = Instant::now();
                while versions.len() < 4 {
                    let rest = within.saturating_sub(start.elapsed());
                    let next = eventually(message, rest, || async {
                        let version = leases
                            .get_opt(lease)
                            .await
                            .ok()?
                            .map(|lease| lease.resource_version());
                        let version = version.flatten();
                        (versions.last() != Some(&version)).then_some(version)
                    });
                    versions.push(next.await);
                }
            }
            Self::MakesZones => {
                let zone = format!("zone-{name}");
                let uid = node(client, &zone, &zone, json!([])).await;
                let agents = of_kind(client, "AgentStatus", "agentstatuses");
                let status = eventually(message, within, || async { agents.get_opt(NODE).await.ok()? }).await;
                let mut spec = status.data["spec"].clone();
                spec["nodeUid"] = uid.into();
                let mut fresh = DynamicObject::new(&zone, &ApiResource::erase::<Node>(&()));
                fresh.types = status.types;
                fresh.data = json!({ "spec": spec });
                agents.add(&fresh).await;
                let zones = of_kind(client, "ZoneHealth", "zonehealth");
                eventually(message, within, || async { zones.get_opt(&zone).await.ok()? }).await;
            }
            Self::Taints => {
                let pressed = format!("pressed-{name}");
                let conditions = json!([
                    { "type": "Ready", "status": "True" },
                    { "type": "MemoryPressure", "status": "True" },
                ]);
                node(client, &pressed, "", conditions).await;
                let nodes: Api<Node> = Api::all(client.clone());
                eventually(message, within, || async {
                    let taints = nodes.get(&pressed).await.ok()?.spec?.taints?;
                    taints
                        .iter()
                        .any(|taint| taint.key == "node.kubernetes.io/memory-pressure")
                        .then_some(())
                })
                .await;
            }
        }
    }
}

/// Makes a node; its UID.
async fn node(client: &Client, name: &str, zone: &str, conditions: Value) -> String {
    let nodes: Api<Node> = Api::all(client.clone());
    let labels = if zone.is_empty() {
        json!({})
    } else {
        json!({ "topology.kubernetes.io/zone": zone })
    };
    let wanted = json!({ "metadata": { "name": name, "labels": labels } });
    let wanted: Node = serde_json::from_value(wanted).expect("a Node");
    let made = nodes.add(&wanted).await;
    let status = json!({ "status": { "conditions": conditions } });
    nodes
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .expect("patched");
    made.uid().expect("a UID")
}

fn of_kind(client: &Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("evenkeel.io", "v1alpha1", kind), plural);
    Api::all_with(client.clone(), &kind)
}
