//! How many virtual nodes one process holds, how fast, and at what cost.
//!
//! ```text
//! cargo bench -p evenkeel-vnode --bench vnode [-- --nodes N] [--pods N]
//! ```
//!
//! Three processes on one machine: the embedded API server, the fleet with the simulated provider (containers start at once),
//! and this driver, which binds the pods itself so that no scheduler is measured. Everything goes over TLS. It takes about
//! six minutes, the last of them idle.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark fails by panicking")]
#![expect(clippy::print_stdout, reason = "prints its results")]

mod child;
mod drive;
mod fleet;
mod server;
mod table;

use clap::Parser;

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
    /// Cargo says so.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    evenkeel_net::init_crypto();
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some(server::ROLE) => server::play(&words.next().unwrap()),
        Some(fleet::ROLE) => fleet::play(&words.next().unwrap(), words.next().unwrap().parse().unwrap()),
        _ => {
            let args = Args::parse();
            println!("{}", table::text(&drive::measure(&args)));
        }
    }
}
