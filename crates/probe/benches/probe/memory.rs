//! What a worker costs while it does nothing.

use crate::pods::{Nobody, http, manager, populate};
use crate::runtime;
use crate::table::Table;
use evenkeel_probe::core::Compat;
use std::process::Command;
use std::time::Duration;

pub(crate) const ROLE: &str = "idle-workers";

const WORKERS: usize = 10_000;
/// Long enough for each worker to have been asked before it is measured, and to be idle then.
const PERIOD: Duration = Duration::from_secs(5);

/// In a process of its own, with nothing in memory from before.
pub(crate) fn measure(table: &mut Table) {
    let output = Command::new(std::env::current_exe().unwrap())
        .arg(ROLE)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let bytes: f64 = text
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("bytes expected: {output:?}"));
    let what = format!("memory per idle worker, of {WORKERS} (system allocator)");
    table.below(&what, bytes, Some(4096.0), "B");
}

/// The process: one pod, one container and one HTTP probe for each worker, all of which have succeeded once.
pub(crate) fn run() {
    runtime().block_on(async {
        let manager = manager(Compat::Strict, Nobody);
        let before = resident();
        populate(&manager, WORKERS, &http(8080), PERIOD);
        let snapshot = || {
            manager
                .snapshot()
                .workers
                .iter()
                .filter(|kept| kept.tally.successful > 0)
                .count()
        };
        while snapshot() < WORKERS {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let after = resident();
        println!("{}", after.saturating_sub(before) / WORKERS);
    });
}

/// Bytes of this process in memory.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .unwrap()
        .unwrap();
    pages * usize::try_from(size).unwrap()
}
