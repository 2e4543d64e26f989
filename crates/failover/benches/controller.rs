//! The controller of a large cluster: its memory, the time until it is ready, and how fast its webhook
//! answers.
//!
//! ```text
//! cargo bench -p evenkeel-failover --bench controller [-- --nodes N --pods N --seconds N]
//! ```
//!
//! The API server and the controller are processes of their own. While the webhook is asked, the controller
//! is bound to one core, and everything else to the others. Requests come at a fixed rate and each is timed
//! from the moment at which it was due, less what the load itself was late, which is told as well: who asks
//! has real-time priority where that is allowed. It takes about two minutes.
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
use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
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
    /// What [`Target::ask`] tells, and the cores that the process used meanwhile.
    answers: Vec<[f64; 2]>,
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
    while !is_ready(admin) {
        assert!(controller.try_wait().unwrap().is_none(), "the controller ended");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ready = started.elapsed();
    let process = controller.id();
    // For what it does once after it is ready.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let settled = bench::memory(process, "VmRSS");

    let last = thread::available_parallelism().unwrap().get() - 1;
    pin(process, "0");
    for other in [server.id(), std::process::id()] {
        pin(other, &format!("1-{last}"));
    }
    let target = Target::of(&cluster, webhook).await;
    let before = bench::cpu(process);
    priority("--fifo", "1");
    let answers = target.ask(seconds);
    priority("--other", "0");
    let cores = (bench::cpu(process) - before) / f64::from(seconds);
    let memory = [
        settled,
        bench::memory(process, "VmHWM"),
        bench::memory(process, "VmRSS"),
    ];
    pin(std::process::id(), &format!("0-{last}"));
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
        let millis = |which: usize, share| {
            let times: Vec<f64> = figures.answers.iter().map(|times| times[which]).collect();
            quantile(&times, share).unwrap() * 1e3
        };
        let (half, most) = (millis(1, 0.5), millis(1, 0.99));
        let what = format!(
            "webhook on one core, {RATE} pod statuses a second, {}: median and p99",
            named(size)
        );
        let row = Row::new(
            what,
            format!(
                "{half:.2} and {most:.2} ms, without what the load itself was late, {:.2} ms at p99 ({:.2} cores in use)",
                millis(0, 0.99),
                figures.cores
            ),
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

/// Has all threads of a process run on these cores alone, as `taskset` understands them.
fn pin(process: u32, cores: &str) {
    let pinned = Command::new("taskset")
        .args(["-acp", cores, &process.to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(
        pinned.unwrap().success(),
        "taskset is part of util-linux, and two cores are needed"
    );
}

/// Changes how this thread is scheduled, and with it those that it starts.
#[expect(clippy::print_stderr, reason = "says what its results suffer from")]
fn priority(policy: &str, level: &str) {
    let main = std::process::id().to_string();
    let changed = Command::new("chrt")
        .args([policy, "--pid", level, &main])
        .status();
    if !changed.unwrap().success() {
        eprintln!("whoever asks the webhook has no priority and may be late: chrt needs root");
    }
}

fn start(kubeconfig: &str, admin: SocketAddr, webhook: SocketAddr) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([ROLE, "--kubeconfig", kubeconfig, "--admin", &admin.to_string()])
        .args(["--webhook-listen", &webhook.to_string()])
        .args(["--webhook-address", &format!("https://{webhook}")])
        .spawn()
        .unwrap()
}

fn is_ready(admin: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(admin) else {
        return false;
    };
    stream
        .write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.starts_with("HTTP/1.1 200 ")
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
    tls: Arc<ClientConfig>,
    request: Vec<u8>,
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
        let path = url.strip_prefix(&format!("https://{address}")).unwrap();
        let body = serde_json::to_vec(&review()).unwrap();
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        Self {
            address,
            tls: Arc::new(tls),
            request: [head.as_bytes(), &body].concat(),
        }
    }

    /// Asks at the fixed rate. Of each request the seconds by which its thread woke too late, and those from
    /// when it was due to its answer, less that. Waiting for the answer before it on its connection counts.
    ///
    /// One thread a connection, which sleeps: timers of a runtime are a millisecond late, and threads that
    /// wait for an instant by looking at the clock keep others from the core for milliseconds.
    fn ask(&self, seconds: u32) -> Vec<[f64; 2]> {
        let start = Instant::now() + Duration::from_millis(200);
        let period = Duration::from_secs(1) * CONNECTIONS / RATE;
        let turns = seconds * RATE / CONNECTIONS;
        thread::scope(|scope| {
            let asking = (0..CONNECTIONS).map(|number| {
                let first = start + period * number / CONNECTIONS;
                scope.spawn(move || {
                    let mut connection = self.connect();
                    let due = (0..turns).map(|turn| first + period * turn);
                    due.map(|due| self.ask_once(&mut connection, due))
                        .collect::<Vec<_>>()
                })
            });
            let asking: Vec<_> = asking.collect();
            asking
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        })
    }

    fn connect(&self) -> BufReader<StreamOwned<ClientConnection, TcpStream>> {
        let mut tcp = TcpStream::connect(self.address).unwrap();
        tcp.set_nodelay(true).unwrap();
        let name = ServerName::from(self.address.ip());
        let mut tls = ClientConnection::new(Arc::clone(&self.tls), name).unwrap();
        tls.complete_io(&mut tcp).unwrap();
        BufReader::new(StreamOwned::new(tls, tcp))
    }

    fn ask_once(
        &self,
        connection: &mut BufReader<StreamOwned<ClientConnection, TcpStream>>,
        due: Instant,
    ) -> [f64; 2] {
        let free = due.max(Instant::now());
        thread::sleep(free.saturating_duration_since(Instant::now()));
        let late = free.elapsed().as_secs_f64();
        connection.get_mut().write_all(&self.request).unwrap();
        let mut line = String::new();
        connection.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200 "), "{line}");
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            connection.read_line(&mut line).unwrap();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim_end().parse().unwrap();
            }
        }
        let mut answer = vec![0; length];
        connection.read_exact(&mut answer).unwrap();
        let answered = due.elapsed().as_secs_f64() - late;
        assert!(answer.windows(14).any(|part| part == br#""allowed":true"#));
        [late, answered]
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
