//! Probes per second.

use crate::pods::{attempt, grpc, handlers, http, tcp};
use crate::runtime;
use crate::server::Servers;
use crate::table::Table;
use evenkeel_probe::core::{Handler, Verdict};
use evenkeel_probe::handler::Prober as _;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Attempts under way at any time.
const IN_FLIGHT: usize = 128;
/// Before and while it is measured.
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(5);

pub(crate) fn throughput(servers: &Servers, table: &mut Table) {
    for (name, handler, goal) in [
        ("HTTP", http(servers.http), Some(20_000.0)),
        ("TCP", tcp(servers.tcp), Some(20_000.0)),
        ("gRPC", grpc(servers.grpc), None),
    ] {
        run(&handler, WARM_UP, usize::MAX);
        let began = Instant::now();
        let done = run(&handler, MEASURED, usize::MAX);
        let rate = done as f64 / began.elapsed().as_secs_f64();
        table.at_least(&format!("{name} probes per second, one core"), rate, goal, "/s");
    }
}

/// Probes, so many at a time, until the time is over or so many are made; says how many. All must succeed.
pub(crate) fn run(handler: &Handler, time: Duration, most: usize) -> usize {
    let (left, done) = (Cell::new(most), Cell::new(0));
    let (handlers, attempt) = (handlers(), attempt(handler.clone()));
    let end = Instant::now() + time;
    let client = async || {
        while Instant::now() < end && left.get() > 0 {
            left.set(left.get() - 1);
            let outcome = handlers.probe(&attempt).await;
            assert!(
                outcome.verdict == Verdict::Success && outcome.error.is_none(),
                "{outcome:?}"
            );
            done.set(done.get() + 1);
        }
    };
    runtime().block_on(futures::future::join_all((0..IN_FLIGHT).map(|_| client())));
    done.get()
}
