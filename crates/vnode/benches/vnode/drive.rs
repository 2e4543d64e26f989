//! What is done and measured.

use super::Args;
use super::fleet;
use evenkeel_testkit::bench::{Role, Row, clients, gauge, gauges, server};
use evenkeel_testkit::cluster::Objects as _;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use serde_json::json;
use std::time::{Duration, Instant};

/// Creations under way at a time.
const CREATIONS: usize = 64;
/// New pods per second, and seconds, of the steady part.
const PACE: usize = 300;
const PACED_SECONDS: usize = 20;
/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// After which a phase counts as failed.
const PATIENCE: Duration = Duration::from_secs(900);

/// Measures everything.
pub(crate) fn measure(args: &Args) -> Vec<Row> {
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = home.path().join("kubeconfig");
    let kubeconfig = kubeconfig.to_str().unwrap();
    let (server, _) = Role::start(&[server::ROLE, kubeconfig]);
    let mut rows = Vec::new();

    let began = Instant::now();
    let (mut fleet, _) = Role::start(&[fleet::ROLE, kubeconfig, &args.nodes.to_string()]);
    let registered = wait("all nodes are ready", &mut fleet, |text| {
        gauge(text, "evenkeel_vnode_nodes_ready") >= args.nodes as f64
    });
    let seconds = registered.duration_since(began).as_secs_f64();
    let rate = args.nodes as f64 / seconds;
    rows.push(Row {
        what: format!(
            "nodes registered and Ready per second, {} nodes ({seconds:.1} s, process start included)",
            args.nodes
        ),
        measured: format!("{rate:.0}"),
        goal: Some((">= 500", rate >= 500.0)),
    });
    rows.push(memory(
        &fleet,
        &format!("memory with {} nodes, resident", args.nodes),
        None,
    ));

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let clients = runtime.block_on(clients(kubeconfig));
    // First at a steady rate that leaves room: how long a status takes when nothing is queued up before it.
    let paced = args.pods.min(PACED_SECONDS * PACE);
    let before = buckets(&fleet.ask("metrics"));
    runtime.block_on(create(&clients, args.nodes, 0..paced, Some(PACE)));
    wait("the first pods run", &mut fleet, |text| runs(text, paced));
    let p99 = quantile(&before, &buckets(&fleet.ask("metrics")), 0.99);
    rows.push(Row {
        what: format!("status latency p99 at {PACE} new pods per second, from the decision to the written status (upper bound of its bucket)"),
        measured: format!("{p99} s"),
        goal: Some(("<= 1 s", p99 <= 1.0)),
    });
    // Then as fast as they can be created.
    let rest = args.pods - paced;
    let before = buckets(&fleet.ask("metrics"));
    let began = Instant::now();
    runtime.block_on(create(&clients, args.nodes, paced..args.pods, None));
    let created = began.elapsed().as_secs_f64();
    let running = wait("all pods run", &mut fleet, |text| runs(text, args.pods));
    let seconds = running.duration_since(began).as_secs_f64();
    let rate = rest as f64 / seconds;
    rows.push(Row {
        what: format!(
            "pods from creation to Running per second, {rest} pods ({seconds:.1} s; creating them took {created:.1} s of it)"
        ),
        measured: format!("{rate:.0}"),
        goal: Some((">= 1,000", rate >= 1_000.0)),
    });
    let p99 = quantile(&before, &buckets(&fleet.ask("metrics")), 0.99);
    rows.push(Row {
        what: "status latency p99 over that time, queue included".to_owned(),
        measured: format!("{p99} s"),
        goal: None,
    });
    quiet(&mut fleet, args.nodes);

    let (before, cpu) = (
        gauges(&fleet.ask("metrics"), "evenkeel_vnode_api_requests_total", ""),
        fleet.cpu(),
    );
    std::thread::sleep(Duration::from_secs(args.idle));
    let (after, used) = (
        gauges(&fleet.ask("metrics"), "evenkeel_vnode_api_requests_total", ""),
        fleet.cpu() - cpu,
    );
    let minutes = args.idle as f64 / 60.0;
    rows.push(Row {
        what: format!("API requests per idle node and minute, over {} s", args.idle),
        measured: format!("{:.2}", (after - before) / args.nodes as f64 / minutes),
        goal: None,
    });
    rows.push(Row {
        what: "CPU of the idle fleet, share of a core".to_owned(),
        measured: format!("{:.0} %", 100.0 * used / args.idle as f64),
        goal: None,
    });
    let what = format!(
        "memory with {} nodes and {} pods, resident",
        args.nodes, args.pods
    );
    rows.push(memory(&fleet, &what, Some(512)));
    rows.push(memory(
        &server,
        "memory of the API server meanwhile, resident",
        None,
    ));
    rows
}

fn memory(role: &Role, what: &str, goal: Option<u64>) -> Row {
    let mebibytes = role.memory("VmRSS").div_ceil(1 << 20);
    Row {
        what: what.to_owned(),
        measured: format!("{mebibytes} MiB"),
        goal: goal.map(|most| ("<= 512 MiB", mebibytes <= most)),
    }
}

/// Creates pods, bound to nodes in turn; so many per second, or as fast as may be.
async fn create(clients: &[Client], nodes: usize, pods: std::ops::Range<usize>, pace: Option<usize>) {
    let began = tokio::time::Instant::now();
    let first = pods.start;
    let creations = futures::stream::iter(pods).map(|index| {
        let api: Api<Pod> = Api::namespaced(clients[index % clients.len()].clone(), "default");
        let node = fleet::node_name(index % nodes);
        let due = pace.map(|pace| began + Duration::from_secs_f64((index - first) as f64 / pace as f64));
        async move {
            if let Some(due) = due {
                tokio::time::sleep_until(due).await;
            }
            let pod = json!({
                "metadata": {"name": format!("pod-{index}"), "labels": {"app": "bench"}},
                "spec": {"nodeName": node, "containers": [{"name": "app", "image": "registry.example/app:1",
                    "ports": [{"containerPort": 8080}], "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}]},
            });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            api.add(&pod).await;
        }
    });
    creations.buffer_unordered(CREATIONS).collect::<Vec<()>>().await;
}

/// Waits until Events and what else follows the pods has been written: requests are few from one look to the
/// next.
fn quiet(fleet: &mut Role, nodes: usize) {
    let end = Instant::now() + PATIENCE;
    let look = Duration::from_secs(10);
    let mut last = gauges(&fleet.ask("metrics"), "evenkeel_vnode_api_requests_total", "");
    loop {
        std::thread::sleep(look);
        let now = gauges(&fleet.ask("metrics"), "evenkeel_vnode_api_requests_total", "");
        // Twice what Leases take.
        if now - last <= 2.0 * nodes as f64 + 100.0 {
            return;
        }
        assert!(Instant::now() < end, "the fleet does not come to rest");
        last = now;
    }
}

/// Waits until the fleet's metrics say so, and tells when that was.
fn wait(what: &str, fleet: &mut Role, so: impl Fn(&str) -> bool) -> Instant {
    let end = Instant::now() + PATIENCE;
    loop {
        let text = fleet.ask("metrics");
        if so(&text) {
            return Instant::now();
        }
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}\n{text}");
        std::thread::sleep(LOOK);
    }
}

/// Whether so many pods run, and it is written of all of them.
fn runs(text: &str, pods: usize) -> bool {
    gauges(text, "evenkeel_vnode_pods", "phase=\"Running\"") >= pods as f64
        && gauge(text, "evenkeel_vnode_status_queue_length") == 0.0
}

/// The buckets of the latency's histogram: upper bounds with how many values lie below.
fn buckets(text: &str) -> Vec<(f64, f64)> {
    text.lines()
        .filter_map(|line| {
            let rest = line.strip_prefix("evenkeel_vnode_status_write_latency_seconds_bucket{")?;
            let bound = rest.split("le=\"").nth(1)?.split('"').next()?;
            let bound = if bound == "+Inf" {
                f64::INFINITY
            } else {
                bound.parse().ok()?
            };
            Some((bound, rest.rsplit(' ').next()?.parse().ok()?))
        })
        .collect()
}

/// The upper bound of the bucket that holds a quantile of what came between two readings.
fn quantile(before: &[(f64, f64)], after: &[(f64, f64)], share: f64) -> f64 {
    let past = |bound: f64| {
        before
            .iter()
            .find(|(other, _)| other.total_cmp(&bound).is_eq())
            .map_or(0.0, |(_, count)| *count)
    };
    let between: Vec<(f64, f64)> = after
        .iter()
        .map(|&(bound, count)| (bound, count - past(bound)))
        .collect();
    let total = between.iter().map(|(_, count)| *count).fold(0.0, f64::max);
    assert!(total > 0.0, "no status was written");
    between
        .iter()
        .find(|(_, count)| *count >= share * total)
        .map_or(f64::INFINITY, |(bound, _)| *bound)
}
