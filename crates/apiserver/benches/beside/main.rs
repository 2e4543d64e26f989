//! The embedded API server beside Kubernetes' own with etcd: the same machine, load and run.
//!
//! ```text
//! cargo xtask real --build-only      # once; without it the embedded server is measured alone
//! cargo bench -p evenkeel-apiserver --bench beside [-- --seconds N --objects N --watchers N]
//! ```
//!
//! Each server is a process of its own, and this one is the load: 32 connections over TLS, one request at a
//! time on each. Load and server share the machine's cores, so both are in every figure. It takes about three
//! minutes.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark measures time, and fails by panicking"
)]
#![expect(clippy::print_stdout, reason = "prints its results")]

mod fan_out;
mod load;
mod server;

use clap::Parser;
use evenkeel_testkit::bench::{self, Row, quantile};
use load::{Load, Target};
use server::Server;
use std::time::Duration;

/// As in the shipped binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Benchmark of the API server.
#[derive(Parser)]
struct Args {
    /// Seconds of creating objects, and of reading them.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Objects with which the memory is read.
    #[arg(long, default_value_t = 100_000)]
    objects: usize,
    /// Clients that watch the object that changes.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    watchers: u32,
    /// Cargo says so.
    #[arg(long, hide = true)]
    bench: bool,
}

/// How often a start and an event are measured.
const STARTS: usize = 5;
const EVENTS: usize = 20;

/// What is measured of one server.
struct Figures {
    ready: Duration,
    idle: u64,
    creates: Rate,
    gets: Rate,
    /// Objects at the time, and the memory.
    full: (usize, u64),
    /// Until the last watcher has the event: the median and the longest.
    fan_out: (Duration, Duration),
}

/// Requests per second, and what one second of them costs in CPU seconds.
struct Rate {
    per_second: f64,
    server: f64,
    load: f64,
}

fn main() {
    evenkeel_net::init_crypto();
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some(bench::server::ROLE) => bench::server::play(&words.next().unwrap()),
        _ => measure(&Args::parse()),
    }
}

#[tokio::main]
async fn measure(args: &Args) {
    let ours = figures(args, Server::embedded()).await;
    let real = match Server::kubernetes() {
        Some(server) => Some(figures(args, server).await),
        None => None,
    };
    println!("{}", bench::table(&rows(args, &ours, real.as_ref())));
}

async fn figures(args: &Args, mut server: Server) -> Figures {
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        starts.push(server.starts().await.as_secs_f64());
    }
    let idle = server.memory();
    let target = Target::of(&server.kubeconfig()).await;
    let mut load = Load::new(target.clone()).await;
    let time = Duration::from_secs(args.seconds);
    let creates = rate(&server, time, load.create_for(time)).await;
    let gets = rate(&server, time, load.get_for(time)).await;
    load.create_up_to(args.objects).await;
    let full = (load.objects(), server.memory());
    let rounds = fan_out::measure(&target, args.watchers, EVENTS).await;
    let of = |values: &[f64], share| Duration::from_secs_f64(quantile(values, share).unwrap());
    Figures {
        ready: of(&starts, 0.5),
        idle,
        creates,
        gets,
        full,
        fan_out: (of(&rounds, 0.5), of(&rounds, 1.0)),
    }
}

async fn rate(server: &Server, time: Duration, work: impl Future<Output = usize>) -> Rate {
    let before = (server.cpu(), server::own_cpu());
    let count = work.await;
    let seconds = time.as_secs_f64();
    Rate {
        per_second: count as f64 / seconds,
        server: (server.cpu() - before.0) / seconds,
        load: (server::own_cpu() - before.1) / seconds,
    }
}

fn rows(args: &Args, ours: &Figures, real: Option<&Figures>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut both = |what: &str, goal: (&'static str, bool), text: &dyn Fn(&Figures) -> String| {
        let mut row = Row::new(what, text(ours));
        row.goal = (!goal.0.is_empty()).then_some(goal);
        rows.push(row);
        let theirs = real.map_or("not measured: it is not built".to_owned(), text);
        rows.push(Row::new("the same of Kubernetes' own", theirs));
    };
    let millis = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let per_second = |rate: &Rate| {
        let Rate {
            per_second,
            server,
            load,
        } = rate;
        format!("{per_second:.0} (cores in use: server {server:.2}, load {load:.2})")
    };
    both(
        &format!("from the start of the process until `/readyz` says 200, median of {STARTS}"),
        ("<= 50 ms", ours.ready <= Duration::from_millis(50)),
        &|figures| millis(figures.ready),
    );
    both(
        "memory at rest",
        ("<= 40 MiB", ours.idle <= 40 << 20),
        &|figures| mib(figures.idle),
    );
    let creates = format!("ConfigMaps created per second, {} connections", load::CONNECTIONS);
    both(
        &creates,
        (">= 12,000", ours.creates.per_second >= 12_000.0),
        &|figures| per_second(&figures.creates),
    );
    both(
        "read per second",
        (">= 20,000", ours.gets.per_second >= 20_000.0),
        &|figures| per_second(&figures.gets),
    );
    both("memory with that many ConfigMaps", ("", true), &|figures| {
        format!("{} with {}", mib(figures.full.1), figures.full.0)
    });
    both(
        &format!(
            "from a change until the last of {} watchers has it, median and longest of {EVENTS}",
            args.watchers
        ),
        ("<= 100 ms", ours.fan_out.0 <= Duration::from_millis(100)),
        &|figures| format!("{}, {}", millis(figures.fan_out.0), millis(figures.fan_out.1)),
    );
    rows
}
