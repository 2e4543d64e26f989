//! What is done and measured.

use super::pods::{self, Seen};
use super::{Args, Part, bases, hung, provider};
use evenkeel_api::names::vnode::metrics as names;
use evenkeel_testkit::bench::{Role, Row, clients, gauge, gauges, server};
use futures::StreamExt as _;
use kube::Client;
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Creations under way at a time.
const CREATIONS: usize = 64;
/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// After which a phase counts as failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(900);

/// The processes, and the driver's own means.
pub(crate) struct Stage {
    pub(crate) runtime: Runtime,
    pub(crate) clients: Vec<Client>,
    pub(crate) seen: Seen,
    pub(crate) bases: Role,
    pub(crate) provider: Role,
    pub(crate) rows: Vec<Row>,
    _server: Role,
}

/// Measures everything.
pub(crate) fn measure(args: &Args) -> Vec<Row> {
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = home.path().join("kubeconfig");
    let kubeconfig = kubeconfig.to_str().unwrap();
    let (server, _) = Role::start(&[server::ROLE, kubeconfig]);
    // Free a moment ago, and nobody else looks for one.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{port}");
    let (bases, _) = Role::start(&[bases::ROLE, &args.bases.to_string(), &url]);
    let (provider, _) = Role::start(&[provider::ROLE, kubeconfig, &port.to_string()]);
    let runtime = Runtime::new().unwrap();
    let seen = Seen::default();
    let clients = runtime.block_on(clients(kubeconfig));
    runtime.spawn(seen.clone().watch(clients[0].clone()));
    let mut stage = Stage {
        runtime,
        clients,
        seen,
        bases,
        provider,
        rows: Vec::new(),
        _server: server,
    };
    stage.nodes(args);
    if args.only != Some(Part::Hung) {
        stage.modules(args);
        stage.idle(args);
    }
    if args.only != Some(Part::Load) {
        hung::measure(&mut stage, args);
    }
    stage.rows
}

impl Stage {
    pub(crate) fn row(&mut self, what: impl Into<String>, measured: impl Into<String>) {
        self.rows.push(Row::new(what, measured));
    }

    /// Bases become nodes.
    fn nodes(&mut self, args: &Args) {
        let count = args.bases;
        self.memory("memory before the first heartbeat");
        let began = Instant::now();
        self.bases.ask("beat");
        self.wait("all nodes are ready", |text| {
            gauge(text, names::NODES_READY) >= f64::from(count)
        });
        let seconds = began.elapsed().as_secs_f64();
        self.row(
            format!("from the first heartbeat until all {count} nodes are Ready, heartbeats all at once"),
            format!("{seconds:.1} s"),
        );
        self.memory(&format!("memory with {count} nodes"));
    }

    /// Modules come.
    fn modules(&mut self, args: &Args) {
        let (bases, group) = (usize::from(args.bases), usize::from(args.group));
        let count = args.modules.div_ceil(group);
        let modules = |pod: usize| (0..group).map(move |place| format!("m{}-{place}", pod / bases));
        for module in (0..count).step_by(bases).flat_map(modules) {
            self.bases.ask(&format!("jar {module}"));
        }
        self.bases.ask("forget");
        let (cpu, requests) = (self.provider.cpu(), self.requests());
        let most = self.provider.watch_files();
        let began = Instant::now();
        let (clients, seen) = (&self.clients, &self.seen);
        let pods: Vec<(String, u16, Vec<String>)> = (0..count)
            .map(|pod| {
                let base = u16::try_from(pod % bases).unwrap();
                (format!("pod-{pod}"), base, modules(pod).collect())
            })
            .collect();
        let made = self.runtime.block_on(async {
            futures::stream::iter(pods.iter().enumerate())
                .for_each_concurrent(CREATIONS, async |(index, (name, base, modules))| {
                    pods::create(&clients[index % clients.len()], name, *base, modules).await;
                })
                .await;
            let made = began.elapsed().as_secs_f64();
            let names: Vec<String> = pods.iter().map(|(name, ..)| name.clone()).collect();
            seen.all(&names, PATIENCE).await;
            made
        });
        let seconds = began.elapsed().as_secs_f64();
        let what = format!("{count} pods of {group} module(s)");
        self.row(
            format!("from the first creation until {what} are Ready (creating them took {made:.1} s of it)"),
            format!("{seconds:.1} s"),
        );
        let cpu = self.provider.cpu() - cpu;
        self.row("CPU of the provider meanwhile", format!("{cpu:.1} s"));
        self.rest(args);
        let requests = (self.requests() - requests) / count as f64;
        self.row(
            "API requests per pod, all that a base costs meanwhile included",
            format!("{requests:.1}"),
        );
        let asked = self.asked();
        let each = |(command, count): &(String, f64)| format!("{command} {:.2}", count / args.modules as f64);
        let asked: Vec<String> = asked.iter().map(each).collect();
        self.row(
            "requests to bases per module, polls meanwhile included",
            asked.join(", "),
        );
        self.memory(&format!("memory with {} nodes and {what}", args.bases));
        let (files, most) = (self.provider.files(), most.load(Ordering::Relaxed));
        self.row(
            "open files of the provider: now, and most meanwhile",
            format!("{files}, {most}"),
        );
    }

    /// Nothing happens.
    fn idle(&mut self, args: &Args) {
        self.bases.ask("forget");
        let (before, cpu) = (self.provider.ask("metrics"), self.provider.cpu());
        std::thread::sleep(Duration::from_secs(args.idle));
        let (after, cpu) = (self.provider.ask("metrics"), self.provider.cpu() - cpu);
        let each = |count: f64| count * 60.0 / args.idle as f64 / f64::from(args.bases);
        let asked = self.asked();
        let asked = asked
            .iter()
            .map(|(command, count)| format!("{command} {:.2}", each(*count)));
        let over = format!("per idle base and minute, over {} s", args.idle);
        let asked = asked.collect::<Vec<_>>().join(", ");
        self.row(format!("requests to bases {over}"), asked);
        let by = |method: &str| {
            let label = format!("method=\"{method}\"");
            let count = |text| gauges(text, REQUESTS, &label);
            let each = each(count(&after) - count(&before));
            format!("{method} {each:.2}")
        };
        let requests = ["GET", "POST", "PATCH", "PUT", "DELETE"].map(by).join(", ");
        self.row(format!("API requests {over}"), requests);
        let used = 100.0 * cpu / args.idle as f64;
        self.row(
            "CPU of the idle provider, share of a core",
            format!("{used:.0} %"),
        );
        self.memory("memory after that");
    }

    /// Waits until Events and what else follows the pods has been written: requests are few from one look to
    /// the next.
    fn rest(&mut self, args: &Args) {
        let end = Instant::now() + PATIENCE;
        let mut last = self.requests();
        loop {
            std::thread::sleep(Duration::from_secs(10));
            let now = self.requests();
            // What Leases take, with those of slots, and a little.
            if now - last <= 1.1 * f64::from(args.bases) + 100.0 {
                return;
            }
            assert!(Instant::now() < end, "the provider does not come to rest");
            last = now;
        }
    }

    fn requests(&mut self) -> f64 {
        gauges(&self.provider.ask("metrics"), REQUESTS, "")
    }

    /// What bases were asked since they were told to forget.
    pub(crate) fn asked(&mut self) -> Vec<(String, f64)> {
        let text = self.bases.ask("requests");
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines
            .map(|(command, count)| (command.to_owned(), count.parse().unwrap()))
            .collect()
    }

    fn memory(&mut self, what: &str) {
        let of = |figure| self.provider.memory(figure).div_ceil(1 << 20);
        let measured = format!("{} MiB, {} MiB", of("VmRSS"), of("VmHWM"));
        self.row(format!("{what}: resident, and at most so far"), measured);
    }

    /// Waits until the provider's metrics say so.
    fn wait(&mut self, what: &str, so: impl Fn(&str) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let text = self.provider.ask("metrics");
            if so(&text) {
                return;
            }
            assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}\n{text}");
            std::thread::sleep(LOOK);
        }
    }
}

/// As the text format has it.
const REQUESTS: &str = "evenkeel_vnode_api_requests_total";
