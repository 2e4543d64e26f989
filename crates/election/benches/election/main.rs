//! How fast leadership passes on, and what it costs in requests: Evenkeel's elector beside client-go's.
//!
//! ```text
//! cargo bench -p evenkeel-election --bench election [-- --elections N --busy THREADS]
//! ```
//!
//! For each setting both kinds run at the same time on one embedded API server, over TLS, many independent
//! elections in a process: a leader and a standby. Renewals are spread evenly over a retry period, so that
//! one kill meets elections at all points of their round. It takes about four minutes and needs Go for
//! client-go's half.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a benchmark measures time, and fails by panicking"
)]
#![expect(clippy::print_stdout, reason = "prints its results")]

#[path = "../../examples/candidate/program/mod.rs"]
mod program;
mod race;
mod table;

use clap::Parser;
use evenkeel_testkit::ServedApi;
use evenkeel_testkit::candidate::Timing;
use evenkeel_testkit::interop::build_clientgo;
use race::{Kind, race};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use table::Row;

/// Benchmarks of elections.
#[derive(Parser)]
struct Args {
    /// Elections of the leader that crashes.
    #[arg(long, default_value_t = 200, value_parser = at_least_one)]
    elections: usize,
    /// Threads that compute all the time beside the elections, to see what load does.
    #[arg(long, default_value_t = 0)]
    busy: usize,
    /// Cargo says so.
    #[arg(long, hide = true)]
    bench: bool,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse::<NonZeroUsize>();
    number.map(NonZeroUsize::get).map_err(|error| error.to_string())
}

/// Stock Kubernetes' timing, and ours.
const TIMINGS: [Timing; 2] = [Timing::seconds(15, 10, 2), Timing::seconds(5, 3, 1)];

fn main() {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(race::PLAY_CANDIDATE) {
        let program = std::iter::once("candidate".to_owned()).chain(words);
        program::run(program).unwrap();
    } else {
        measure(&Args::parse());
    }
}

/// Threads that compute until this is dropped.
struct Busy {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    fn start(count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..count).map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        });
        let threads = threads.collect();
        Self { stop, threads }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that does nothing does not panic.
            let _ = thread.join();
        }
    }
}

#[tokio::main]
async fn measure(args: &Args) {
    let clientgo = evenkeel_testkit::go()
        .map(|go| build_clientgo(&go, Path::new(env!("CARGO_TARGET_TMPDIR"))))
        .transpose()
        .unwrap_or_else(|why| panic!("{why}"));
    if clientgo.is_none() {
        println!("SKIPPED client-go: no go on PATH");
    }
    let kinds: Vec<Kind> = std::iter::once(Kind::Evenkeel)
        .chain(clientgo.map(Kind::ClientGo))
        .collect();
    let busy = Busy::start(args.busy);
    let mut rows = Vec::new();
    for timing in TIMINGS {
        let api = ServedApi::start().await;
        let races = kinds.iter().map(|kind| race(&api, kind, timing, args.elections));
        let results = futures::future::join_all(races).await;
        for (kind, result) in kinds.iter().zip(results) {
            rows.push(Row {
                timing,
                kind: kind.name(),
                result,
            });
        }
    }
    drop(busy);
    println!("{}", table::text(&rows, args.elections, args.busy));
}
