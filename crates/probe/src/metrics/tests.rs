use super::*;
use crate::core::{Attempt, Kind, Outcome, Verdict};
use crate::manager::Manager;
use crate::manager::tests::{Fake, answers, introduce, kubelet, pod, probe, start, until};
use futures::FutureExt as _;
use prometheus_client::registry::Registry;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_lag_falls_into_the_bucket_that_ends_at_or_above_it() {
    let mut lags = Lags::default();
    for micros in [0, 1000, 1001, 20_000, 20_001, 5_000_000, 5_000_001, 3_600_000_000] {
        lags.observe(Duration::from_micros(micros));
    }
    assert_eq!(lags.counts, [2, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 2]);
    assert_eq!(lags.sum, Duration::from_micros(3_610_042_003));
}

/// What a scrape shows.
fn scrape(manager: &Manager) -> String {
    let mut registry = Registry::default();
    manager.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

#[tokio::test(start_paused = true)]
async fn a_scrape_of_one_worker() {
    // Two successes, three failures, an error, each after 30 ms; then nothing more.
    let number = AtomicUsize::new(0);
    let prober = Fake(move |_: &Attempt| {
        let number = number.fetch_add(1, Ordering::Relaxed);
        async move {
            if number > 5 {
                return std::future::pending().await;
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
            match number {
                0 | 1 => Outcome::success(""),
                2..=4 => Outcome::failure(""),
                _ => Outcome::error(Verdict::Unknown, "broken"),
            }
        }
        .boxed()
    });
    let (manager, _shutdown) = start(kubelet(), prober, &pod("u-1", Kind::Readiness, probe()));
    let seventh = || {
        let sample = manager.shared.sample();
        (sample.rows[0].tally.errored, sample.in_flight) == (1, 1)
    };
    until("the seventh attempt", seventh).await;
    let text = scrape(&manager);
    let (lags, others): (Vec<&str>, Vec<&str>) = text
        .lines()
        .partition(|line| line.starts_with("evenkeel_probe_lag_seconds_"));
    let expected = r#"# HELP prober_probe Attempts of probes by result, as the kubelet counts them; unknown is counted in strict mode only
# TYPE prober_probe counter
prober_probe_total{probe_type="Readiness",result="successful",container="app",pod="web-u-1",namespace="shop",pod_uid="u-1"} 2
prober_probe_total{probe_type="Readiness",result="failed",container="app",pod="web-u-1",namespace="shop",pod_uid="u-1"} 3
# HELP prober_probe_duration_seconds How long attempts took, whatever their end (the kubelet leaves failures out)
# TYPE prober_probe_duration_seconds histogram
# UNIT prober_probe_duration_seconds seconds
prober_probe_duration_seconds_sum{probe_type="Readiness",container="app",pod="web-u-1",namespace="shop"} 0.18
prober_probe_duration_seconds_count{probe_type="Readiness",container="app",pod="web-u-1",namespace="shop"} 6
prober_probe_duration_seconds_bucket{le="0.005",probe_type="Readiness",container="app",pod="web-u-1",namespace="shop"} 0
prober_probe_duration_seconds_bucket{le="0.01",probe_type="Readiness",container="app",pod="web-u-1",namespace="shop"} 0
prober_probe_duration_seconds_bucket{le="0.025",probe_type="Readiness",container="app",pod="web-u-1",namespace="shop"} 0
prober_probe_duration_seconds_bucket{le="0.05",probe_type="Readiness",container="app",pod="web-u-1",namespace="shop"} 6
prober_probe_duration_seconds_bucket{le="0.1",probe_type="Readiness",container="app",pod="web-u-1",namespace="shop"} 6
prober_probe_duration_seconds_bucket{le="0.25",probe_type="Readiness",container="app",pod="web-u-1",namespace="shop"} 6
prober_probe_duration_seconds_bucket{le="0.5",probe_type="Readiness",container="app",pod="web-u-1",namespace="shop"} 6
prober_probe_duration_seconds_bucket{le="1.0",probe_type="Readiness",container="app",pod="web-u-1",namespace="shop"} 6
prober_probe_duration_seconds_bucket{le="2.5",probe_type="Readiness",container="app",pod="web-u-1",namespace="shop"} 6
prober_probe_duration_seconds_bucket{le="5.0",probe_type="Readiness",container="app",pod="web-u-1",namespace="shop"} 6
prober_probe_duration_seconds_bucket{le="10.0",probe_type="Readiness",container="app",pod="web-u-1",namespace="shop"} 6
prober_probe_duration_seconds_bucket{le="+Inf",probe_type="Readiness",container="app",pod="web-u-1",namespace="shop"} 6
# HELP evenkeel_probe_errors Attempts that could not be made, and so say nothing about the container
# TYPE evenkeel_probe_errors counter
evenkeel_probe_errors_total{probe_type="Readiness",container="app",pod="web-u-1",namespace="shop",pod_uid="u-1"} 1
# HELP evenkeel_probe_state What is published about a container: 0 success, 1 failure, -1 unknown; absent before the container is known
# TYPE evenkeel_probe_state gauge
evenkeel_probe_state{probe_type="Readiness",container="app",pod="web-u-1",namespace="shop",pod_uid="u-1"} 1
# HELP evenkeel_probe_run How many of the latest attempts in a row had the same result
# TYPE evenkeel_probe_run gauge
evenkeel_probe_run{probe_type="Readiness",result="failed",container="app",pod="web-u-1",namespace="shop",pod_uid="u-1"} 3
# HELP evenkeel_probe_lag_seconds How much later than planned attempts began; more than 0.02 says that this process has too much to do
# TYPE evenkeel_probe_lag_seconds histogram
# UNIT evenkeel_probe_lag_seconds seconds
# HELP evenkeel_probe_attempts_in_flight Attempts that are being made now
# TYPE evenkeel_probe_attempts_in_flight gauge
evenkeel_probe_attempts_in_flight 1
# HELP evenkeel_probe_attempts_waiting Attempts that are due and wait, because as many are being made as may be
# TYPE evenkeel_probe_attempts_waiting gauge
evenkeel_probe_attempts_waiting 0
# HELP evenkeel_probe_workers Probes of containers that are being made again and again
# TYPE evenkeel_probe_workers gauge
evenkeel_probe_workers 1
# EOF"#;
    assert_eq!(others.join("\n"), expected);
    assert_eq!(lags.len(), 14, "{lags:?}");
    assert!(lags.contains(&"evenkeel_probe_lag_seconds_count 6"), "{lags:?}");
}

#[tokio::test(start_paused = true)]
async fn series_end_with_their_worker() {
    let (manager, _shutdown) = start(
        kubelet(),
        answers(|_| Outcome::success("")),
        &pod("u-1", Kind::Liveness, probe()),
    );
    introduce(&manager, &pod("u-2", Kind::Liveness, probe()));
    let counted = |uid: &str| {
        scrape(&manager)
            .lines()
            .filter(|line| line.contains(&format!("pod=\"web-{uid}\"")))
            .count()
    };
    until("both are counted", || counted("u-1") > 10 && counted("u-2") > 10).await;
    manager.remove_pod("u-1");
    assert_eq!(counted("u-1"), 0);
    assert!(counted("u-2") > 10);
}

#[test]
fn states_have_upstreams_numbers_and_results_its_names() {
    let all = [Reading::Success, Reading::Failure, Reading::Unknown];
    assert_eq!(all.map(Reading::gauge), [0, 1, -1]);
    assert_eq!(all.map(result), ["successful", "failed", "unknown"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_and_its_successor_of_the_same_name_share_one_series_of_durations() {
    let twin = |uid: &str| {
        let mut twin = crate::core::Pod::clone(&pod(uid, Kind::Readiness, probe()));
        twin.name = "db-0".into();
        Arc::new(twin)
    };
    let (manager, _shutdown) = start(kubelet(), answers(|_| Outcome::success("")), &twin("old"));
    introduce(&manager, &twin("new"));
    let both = || {
        let text = scrape(&manager);
        let of = |uid: &str| {
            text.lines()
                .any(|line| line.starts_with("prober_probe_total") && line.contains(uid))
        };
        of("old") && of("new")
    };
    until("both have probed", both).await;
    let text = scrape(&manager);
    let counts: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("prober_probe_duration_seconds_count"))
        .collect();
    let [count] = counts[..] else { panic!("{counts:?}") };
    let number: u64 = count.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(number >= 2, "{count}");
}
