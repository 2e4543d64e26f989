//! How many Koupleless bases and modules one process serves, how fast, at what cost, and what bases that hang
//! do to the others.
//!
//! ```text
//! cargo bench -p evenkeel-koupleless --features cli --bench load \
//!     [-- [--only load|hung] [--bases N] [--modules N] [--group N]]
//! ```
//!
//! Four processes on one machine: the embedded API server, fake bases, the provider as `evenkeel vnode
//! --provider koupleless` sets it up, and this driver, which binds the pods itself so that no scheduler is
//! measured. Each base has a loopback address of its own, sends heartbeats every 12 s from it, and starts a
//! module at once: measured is what this side does. It takes about seven minutes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a benchmark measures time, and fails by panicking"
)]
#![expect(clippy::print_stdout, reason = "prints its results")]

mod bases;
mod drive;
mod hung;
mod pods;
mod provider;

use clap::{Parser, ValueEnum};
use evenkeel_testkit::bench::{server, table};

/// As in the shipped binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Benchmark of Koupleless bases.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Bases.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(1..=bases::MOST))]
    bases: u16,
    /// Modules, spread evenly over the bases.
    #[arg(long, default_value_t = 10_000)]
    modules: usize,
    /// Modules of one pod.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    group: u16,
    /// Seconds of doing nothing, over which idle requests are counted.
    #[arg(long, default_value_t = 120)]
    idle: u64,
    /// Bases that hang, a round each; first of all there is one without.
    #[arg(long, value_delimiter = ',', default_value = "1,10")]
    hung: Vec<u16>,
    /// Seconds of a round with bases that hang, in which new pods are made on the others.
    #[arg(long, default_value_t = 60)]
    round: u64,
    /// This part alone: without `load` there are no modules before the first round.
    #[arg(long)]
    only: Option<Part>,
    /// Cargo says so.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Many bases and modules in one process.
    Load,
    /// Bases that hang.
    Hung,
}

fn main() {
    evenkeel_net::init_crypto();
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [server::ROLE, kubeconfig] => server::play(kubeconfig),
        [bases::ROLE, count, url] => bases::play(count.parse().unwrap(), url),
        [provider::ROLE, kubeconfig, heartbeat] => provider::play(kubeconfig, heartbeat),
        _ => println!("{}", table(&drive::measure(&Args::parse()))),
    }
}
