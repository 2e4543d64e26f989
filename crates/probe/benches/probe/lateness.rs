//! How late probes begin.

use crate::pods::{Nobody, handlers, manager, populate, tcp};
use crate::runtime;
use crate::server::Servers;
use crate::table::Table;
use evenkeel_probe::core::{Attempt, Compat, Outcome, Verdict};
use evenkeel_probe::handler::Prober;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const WORKERS: usize = 10_000;
const PERIOD: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(10);

/// Notes how late each attempt is when the prober gets it, and how it ends.
struct Watched<P> {
    prober: P,
    on: Arc<AtomicBool>,
    lags: Arc<Mutex<Vec<Duration>>>,
    failed: Arc<AtomicUsize>,
}

impl<P: Prober> Prober for Watched<P> {
    async fn probe(&self, attempt: &Attempt) -> Outcome {
        if self.on.load(Ordering::Relaxed) {
            self.lags.lock().unwrap().push(attempt.lag);
        }
        let outcome = self.prober.probe(attempt).await;
        if outcome.verdict != Verdict::Success {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }
}

pub(crate) fn measure(servers: &Servers, table: &mut Table) {
    one("without I/O", Compat::Kubelet, Nobody, servers, table);
    one("without I/O, strict", Compat::Strict, Nobody, servers, table);
    one("TCP", Compat::Kubelet, handlers(), servers, table);
}

fn one(name: &str, compat: Compat, prober: impl Prober, servers: &Servers, table: &mut Table) {
    let watched = Watched {
        prober,
        on: Arc::default(),
        lags: Arc::default(),
        failed: Arc::default(),
    };
    let (on, lags, failed) = (watched.on.clone(), watched.lags.clone(), watched.failed.clone());
    runtime().block_on(async {
        let manager = manager(compat, watched);
        populate(&manager, WORKERS, &tcp(servers.tcp), PERIOD);
        tokio::time::sleep(WARM_UP).await;
        on.store(true, Ordering::Relaxed);
        tokio::time::sleep(MEASURED).await;
        on.store(false, Ordering::Relaxed);
    });
    let mut lags = std::mem::take(&mut *lags.lock().unwrap());
    let expected = WORKERS * MEASURED.as_secs() as usize;
    assert!(
        lags.len() > expected / 2,
        "only {} attempts of {expected}",
        lags.len()
    );
    let failed = failed.load(Ordering::Relaxed);
    assert_eq!(failed, 0, "{name}: attempts failed");
    lags.sort_unstable();
    let at = |percent: usize| lags[(lags.len() * percent / 100).min(lags.len() - 1)].as_secs_f64() * 1e3;
    let rate = lags.len() as f64 / MEASURED.as_secs_f64();
    let what = format!("{WORKERS} workers, period 1 s, {name} ({rate:.0}/s)");
    table.below(&format!("{what}: lateness p50"), at(50), None, "ms");
    table.below(&format!("{what}: lateness p99"), at(99), Some(20.0), "ms");
    table.below(&format!("{what}: lateness, highest"), at(100), None, "ms");
}
