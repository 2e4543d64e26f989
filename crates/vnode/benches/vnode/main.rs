//! How many virtual nodes one process holds, how fast, and at what cost.
//!
//! ```text
//! cargo bench -p evenkeel-vnode --bench vnode \
//!     [-- [--only load|takeover] [--nodes N] [--pods N] [--rounds N]]
//! ```
//!
//! Three processes on one machine: the embedded API server, the fleet with the simulated provider (containers
//! start at once), and this driver, which binds the pods itself so that no scheduler is measured. Everything
//! goes over TLS. It takes about six minutes, the last of them idle. Then, for less than three minutes more,
//! two fleets share some nodes, and one after the other is killed or stopped.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a benchmark measures time, and fails by panicking"
)]
#![expect(clippy::print_stdout, reason = "prints its results")]

mod drive;
mod fleet;
mod takeover;
mod witness;

use clap::{Parser, ValueEnum};
use evenkeel_testkit::bench::{server, table};

/// As in the shipped binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Benchmark of virtual nodes.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Nodes.
    #[arg(long, default_value_t = 10_000)]
    nodes: usize,
    /// Pods, spread evenly over the nodes.
    #[arg(long, default_value_t = 100_000)]
    pods: usize,
    /// Seconds of doing nothing, over which idle requests are counted.
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// This part alone.
    #[arg(long)]
    only: Option<Part>,
    /// Nodes that two replicas share.
    #[arg(long, default_value_t = 400)]
    takeover_nodes: usize,
    /// How often a replica is killed, and how often one is stopped.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Cargo says so.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Many nodes and pods in one process.
    Load,
    /// The nodes of a replica that dies.
    Takeover,
}

fn main() {
    evenkeel_net::init_crypto();
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some(server::ROLE) => server::play(&words.next().unwrap()),
        Some(fleet::ROLE) => {
            let (kubeconfig, nodes) = (words.next().unwrap(), words.next().unwrap());
            let replica = words.next().map(|identity| fleet::Replica {
                identity,
                record: words.next().unwrap().into(),
            });
            fleet::play(&kubeconfig, nodes.parse().unwrap(), replica);
        }
        _ => {
            let args = Args::parse();
            let mut rows = Vec::new();
            if args.only != Some(Part::Takeover) {
                rows.extend(drive::measure(&args));
            }
            if args.only != Some(Part::Load) {
                rows.extend(takeover::measure(&args));
            }
            println!("{}", table(&rows));
        }
    }
}
