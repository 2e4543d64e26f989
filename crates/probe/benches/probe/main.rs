//! What probes cost: probes per second on one core, how late they are, memory, sockets left behind.
//!
//! ```text
//! cargo bench -p evenkeel-probe --features grpc --bench probe [-- throughput lateness memory sockets]
//! ```
//!
//! The prober runs on the first core that this process may use and the servers, another process, on the last.
//! All traffic is on the loopback; it needs no privileges and takes about a minute and a half.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a benchmark measures time, and fails by panicking"
)]
#![expect(clippy::print_stdout, reason = "prints its results")]

mod lateness;
mod load;
mod memory;
mod pods;
mod server;
mod sockets;
mod table;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use server::Servers;
use table::Table;

/// Parts of the benchmark, in their order.
const PARTS: [&str; 4] = ["throughput", "sockets", "lateness", "memory"];

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    match words.first().map(String::as_str) {
        Some(server::ROLE) => return server::run(words[1].parse().unwrap()),
        Some(memory::ROLE) => return memory::run(),
        _ => {}
    }
    if let Some(unknown) = words.iter().find(|word| !PARTS.contains(&word.as_str())) {
        panic!("no part {unknown}; there are {}", PARTS.join(", "));
    }
    let wanted = |part: &str| words.is_empty() || words.iter().any(|word| word == part);
    let cores = cores();
    println!("{} cores, load {} at the start", cores.len(), load());
    let servers = Servers::start(*cores.last().unwrap());
    pin(cores[0]);

    let mut table = Table::default();
    if wanted("throughput") {
        load::throughput(&servers, &mut table);
    }
    if wanted("sockets") {
        sockets::left(&servers, &mut table);
    }
    if wanted("lateness") {
        lateness::measure(&servers, &mut table);
    }
    drop(servers);
    if wanted("memory") {
        memory::measure(&mut table);
    }
    println!("{table}");
    println!("load {} at the end", load());
}

/// The cores that this process may use.
fn cores() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    (0..CpuSet::count())
        .filter(|core| allowed.is_set(*core).unwrap_or(false))
        .collect()
}

/// Keeps this thread, and those that it starts, on one core, even if it was kept on another.
fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

/// How busy the machine is: the averages of 1, 5 and 15 minutes.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// A runtime on this thread's core.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}
