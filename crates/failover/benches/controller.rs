//! The controller of a large cluster: its memory, the time until it is ready, and how fast its webhook
//! answers.
//!
//! ```text
//! cargo bench -p evenkeel-failover --bench controller [-- --nodes N --pods N --seconds N]
//! ```
//!
//! The API server and the controller are processes of their own; the controller is bound to one core while
//! the webhook is asked. Requests come at a fixed rate, whatever is still unanswered, and each is timed from
//! the moment at which it was due. It takes about two minutes.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark measures time, and fails by panicking"
)]
#![expect(clippy::print_stdout, reason = "prints its results")]

use clap::Parser;
use evenkeel_api::names;
use evenkeel_failover::ControllerArgs;
use evenkeel_settings::Configured;
use evenkeel_testkit::bench::{self, Role, Row, quantile};
use evenkeel_testkit::cluster::Cluster;
use evenkeel_testkit::free_port;
use futures::future::join_all;
use futures::stream::{self, StreamExt as _};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

/// As in the shipped binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// First word of the controller's command line.
const ROLE: &str = "play-controller";
/// Requests to the webhook per second, and the connections that carry them, as those of an API server.
const RATE: u32 = 2_000;
const CONNECTIONS: u32 = 8;
/// Objects that are created at the same time.
const CREATING: usize = 64;
/// Nodes in a zone, three of which make a cell and more.
const ZONE: usize = 50;

/// Benchmark of the controller.
#[derive(Parser)]
struct Args {
    #[arg(long, default_value_t = 5_000)]
    nodes: usize,
    #[arg(long, default_value_t = 50_000)]
    pods: usize,
    /// For how long the webhook is asked.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Cargo says so.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Parser)]
struct Controller {
    #[command(flatten)]
    args: Configured<ControllerArgs>,
}

fn main() {
    evenkeel_net::init_crypto();
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some(bench::server::ROLE) => bench::server::play(&words[1]),
        Some(ROLE) => control(&words),
        _ => measure(&Args::parse()),
    }
}

/// A controller, until it is killed.
#[tokio::main]
async fn control(words: &[String]) {
    let controller = Controller::parse_from(words);
    evenkeel_failover::run(controller.args, CancellationToken::new())
        .await
        .unwrap();
}

#[tokio::main]
async fn measure(args: &Args) {
    let few = Size { nodes: 20, pods: 200 };
    let many = Size {
        nodes: args.nodes,
        pods: args.pods,
    };
    let small = figures(few, args.seconds).await;
    let large = figures(many, args.seconds).await;
    println!("{}", bench::table(&rows(&(few, small), &(many, large))));
}

/// How large a cluster is.
#[derive(Clone, Copy)]
struct Size {
    nodes: usize,
    pods: usize,
}

/// What is measured of a controller.
struct Figures {
    ready: Duration,
    /// Resident memory in bytes once everything is listed, the most at any time, and after the webhook was
    /// asked.
    memory: [u64; 3],
    /// Seconds until each answer of the webhook, and the cores that were used meanwhile.
    answers: Vec<f64>,
    cores: f64,
}

async fn figures(size: Size, seconds: u32) -> Figures {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let path = kubeconfig.to_str().unwrap();
    let (server, _) = Role::start(&[bench::server::ROLE, path]);
    let clients = bench::clients(path).await;
    let cluster = Cluster::by(clients[0].clone());
    cluster.install().await;
    populate(size, &clients).await;
    let kubelets = tokio::spawn(renew(size, clients.clone()));

    let (admin, webhook) = (address(), address());
    let started = Instant::now();
    let mut controller = start(path, admin, webhook);
    while !is_ready(admin).await {
        assert!(controller.try_wait().unwrap().is_none(), "the controller ended");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ready = started.elapsed();
    let process = controller.id();
    // For what it does once after it is ready.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let settled = bench::memory(process, "VmRSS");

    let pinned = Command::new("taskset")
        .args(["-acp", "0", &process.to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(pinned.unwrap().success(), "taskset is part of util-linux");
    let target = Target::of(&cluster, webhook).await;
    let before = bench::cpu(process);
    let answers = target.ask(seconds).await;
    let cores = (bench::cpu(process) - before) / f64::from(seconds);
    let memory = [
        settled,
        bench::memory(process, "VmHWM"),
        bench::memory(process, "VmRSS"),
    ];
    controller.kill().unwrap();
    controller.wait().unwrap();
    kubelets.abort();
    drop(server);
    Figures {
        ready,
        memory,
        answers,
        cores,
    }
}

fn rows((few, small): &(Size, Figures), (many, large): &(Size, Figures)) -> Vec<Row> {
    let named = |size: &Size| format!("{} nodes and {} pods", size.nodes, size.pods);
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let goal = |row: Row, goal, met| Row {
        goal: Some((goal, met)),
        ..row
    };
    let asked = |size: &Size, figures: &Figures| {
        let [half, most] = [0.5, 0.99].map(|share| quantile(&figures.answers, share).unwrap() * 1e3);
        let what = format!(
            "webhook on one core, {RATE} pod statuses a second, {}: median and p99",
            named(size)
        );
        let row = Row::new(
            what,
            format!("{half:.2} and {most:.2} ms ({:.2} cores in use)", figures.cores),
        );
        goal(row, "p99 <= 2 ms", most <= 2.0)
    };
    let growth = large.memory[2].saturating_sub(large.memory[0]);
    vec![
        goal(
            Row::new(
                format!("controller: resident memory, {}", named(many)),
                mib(large.memory[0]),
            ),
            "<= 128 MiB",
            large.memory[0] <= 128 << 20,
        ),
        Row::new("the same, the most at any time", mib(large.memory[1])),
        Row::new(format!("the same, {}", named(few)), mib(small.memory[0])),
        Row::new(
            format!(
                "from the start of the process until `/readyz` says 200, {}",
                named(many)
            ),
            format!("{:.2} s", large.ready.as_secs_f64()),
        ),
        asked(few, small),
        asked(many, large),
        goal(
            Row::new("memory that the webhook adds", mib(growth)),
            "<= 20 MiB",
            growth <= 20 << 20,
        ),
    ]
}

fn address() -> SocketAddr {
    ([127, 0, 0, 1], free_port().unwrap()).into()
}

fn start(kubeconfig: &str, admin: SocketAddr, webhook: SocketAddr) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([ROLE, "--kubeconfig", kubeconfig, "--admin", &admin.to_string()])
        .args(["--webhook-listen", &webhook.to_string()])
        .args(["--webhook-address", &format!("https://{webhook}")])
        .spawn()
        .unwrap()
}

async fn is_ready(admin: SocketAddr) -> bool {
    let Ok(stream) = TcpStream::connect(admin).await else {
        return false;
    };
    let (mut requests, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("/readyz")
        .header("host", "x")
        .body(Full::<bytes::Bytes>::default())
        .unwrap();
    requests
        .send_request(request)
        .await
        .is_ok_and(|answer| answer.status().is_success())
}

/// Nodes with their Leases, and pods that run on them.
async fn populate(args: Size, clients: &[kube::Client]) {
    let cluster = |number: usize| Cluster::by(clients[number % clients.len()].clone());
    let nodes = stream::iter(0..args.nodes).map(|number| async move {
        let name = format!("node-{number}");
        let zone = format!("zone-{}", number / ZONE);
        cluster(number).create::<Node>(node(&name, &zone)).await;
        let renewed = jiff::Timestamp::now().to_string();
        let lease = json!({"metadata": {"name": name}, "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed}});
        cluster(number).namespaced(names::NODE_LEASE_NAMESPACE).create::<Lease>(lease).await;
    });
    nodes.buffer_unordered(CREATING).for_each(async |()| {}).await;
    let pods = stream::iter(0..args.pods).map(|number| async move {
        cluster(number)
            .create::<Pod>(pod(number, number % args.nodes))
            .await;
    });
    pods.buffer_unordered(CREATING).for_each(async |()| {}).await;
}

/// The kubelets: each Lease once in ten seconds.
async fn renew(size: Size, clients: Vec<kube::Client>) {
    let period = Duration::from_secs(10) / u32::try_from(size.nodes).unwrap();
    let mut due = tokio::time::interval(period);
    for number in (0..size.nodes).cycle() {
        due.tick().await;
        let home =
            Cluster::by(clients[number % clients.len()].clone()).namespaced(names::NODE_LEASE_NAMESPACE);
        let name = format!("node-{number}");
        tokio::spawn(async move { home.renew(&name, &name).await });
    }
}

/// A node with some of what nodes carry: 30 images.
fn node(name: &str, zone: &str) -> Value {
    let images: Vec<Value> = (0..30)
        .map(|number| json!({"names": [format!("registry.example/team/program-{number}@sha256:{:064}", number)], "sizeBytes": 1}))
        .collect();
    json!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            names::ZONE_LABELS[0]: zone,
        }},
        "status": {
            "images": images, "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
                "lastHeartbeatTime": "2026-11-28T00:00:00Z", "lastTransitionTime": "2026-11-28T00:00:00Z"}],
        },
    })
}

fn pod(number: usize, node: usize) -> Value {
    let environment: Vec<Value> = (0..20)
        .map(|number| json!({"name": format!("SETTING_{number}"), "value": "a value of usual length"}))
        .collect();
    json!({
        "metadata": {"name": format!("pod-{number}"), "labels": {"app": format!("app-{}", number % 500), "tier": "web"}},
        "spec": {
            "nodeName": format!("node-{node}"),
            "containers": [{"name": "main", "image": "registry.example/team/program:1.0", "env": environment,
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}, "ports": [{"containerPort": 8080}]}],
            "tolerations": [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// The webhook, as the API server reaches it.
struct Target {
    address: SocketAddr,
    path: String,
    tls: TlsConnector,
    body: bytes::Bytes,
}

impl Target {
    async fn of(cluster: &Cluster, address: SocketAddr) -> Self {
        let configuration: MutatingWebhookConfiguration = cluster.get(names::WEBHOOK_CONFIGURATION).await;
        let webhook = configuration.webhooks.unwrap().remove(0);
        let url = webhook.client_config.url.unwrap();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&webhook.client_config.ca_bundle.unwrap().0) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let tls = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            address,
            path: url
                .split_once("//")
                .unwrap()
                .1
                .split_once('/')
                .map(|(_, path)| format!("/{path}"))
                .unwrap(),
            tls: TlsConnector::from(Arc::new(tls)),
            body: serde_json::to_vec(&review()).unwrap().into(),
        }
    }

    async fn connect(&self) -> SendRequest<Full<bytes::Bytes>> {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let name = ServerName::from(self.address.ip());
        let tls = self.tls.connect(name, tcp).await.unwrap();
        let (requests, connection) = handshake(TokioIo::new(tls)).await.unwrap();
        tokio::spawn(connection);
        requests
    }

    /// Asks at the fixed rate; the seconds that each answer took from when the request was due.
    async fn ask(&self, seconds: u32) -> Vec<f64> {
        let start = Instant::now() + Duration::from_millis(200);
        let period = Duration::from_secs(1) * CONNECTIONS / RATE;
        let each = seconds * RATE / CONNECTIONS;
        let work = (0..CONNECTIONS).map(async |number| {
            let mut requests = self.connect().await;
            let mut times = Vec::new();
            for turn in 0..each {
                let due = start + period * turn + period * number / CONNECTIONS;
                // Timers are a millisecond late.
                if let Some(early) = due.checked_sub(Duration::from_millis(2)) {
                    tokio::time::sleep_until(early.into()).await;
                }
                while Instant::now() < due {
                    tokio::task::yield_now().await;
                }
                let request = Request::builder()
                    .method(Method::POST)
                    .uri(&self.path)
                    .header("host", self.address.to_string())
                    .header("content-type", "application/json")
                    .body(Full::from(self.body.clone()))
                    .unwrap();
                requests.ready().await.unwrap();
                let answer = requests.send_request(request).await.unwrap();
                assert!(answer.status().is_success());
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                times.push(due.elapsed().as_secs_f64());
                assert!(body.windows(14).any(|part| part == br#""allowed":true"#));
            }
            times
        });
        join_all(work).await.concat()
    }
}

/// The stock node controller marks a pod not ready.
fn review() -> Value {
    let mut old = pod(1, 1);
    old["metadata"]["namespace"] = json!("default");
    old["apiVersion"] = json!("v1");
    old["kind"] = json!("Pod");
    let mut new = old.clone();
    new["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "7f1c1b52-7a3c-4e0b-9d5b-0f5c1f0f3d11", "kind": kind, "resource": resource, "subResource": "status",
        "requestKind": kind, "requestResource": resource, "requestSubResource": "status",
        "name": "pod-1", "namespace": "default", "operation": "UPDATE",
        "userInfo": {"username": names::STOCK_NODE_CONTROLLER_USERS[0], "groups": ["system:serviceaccounts"]},
        "object": new, "oldObject": old, "dryRun": false, "options": {},
    }})
}
