//! What survives a prober.

use super::*;
use std::os::unix::fs::MetadataExt as _;

fn thrice() -> Probe {
    Probe {
        failure_threshold: 3,
        ..probe()
    }
}

/// A manager whose container has run for an hour, with its state in `file`.
fn resume(file: &StateFile, prober: impl Prober, kind: Kind) -> (Manager, CancellationToken) {
    let shutdown = CancellationToken::new();
    let manager = Manager::builder(kubelet())
        .clock(Clock::steady(WALL))
        .state(file.clone())
        .start(prober, shutdown.clone());
    let mut status = running(Duration::from_secs(3600));
    status.ready = kind == Kind::Readiness;
    status.containers[0].ready = status.ready;
    manager.add_pod(pod("1", kind, thrice()));
    manager.update_status("1", status);
    (manager, shutdown)
}

async fn attempts(notices: &mut broadcast::Receiver<Arc<Notice>>, mut number: usize) {
    while number > 0 {
        if let Notice::Ended { .. } = &*notices.recv().await.unwrap() {
            number -= 1;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_count_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let file = StateFile::new(directory.path().join("probes.json"));
    let failing = || answers(|_| Outcome::failure(""));

    let (manager, shutdown) = resume(&file, failing(), Kind::Liveness);
    attempts(&mut manager.notices(), 2).await;
    assert_ne!(reading(&manager, "1", Kind::Liveness), Some(Reading::Failure));
    shutdown.cancel();
    manager.stopped().await;

    let (manager, _shutdown) = resume(&file, failing(), Kind::Liveness);
    assert_ne!(reading(&manager, "1", Kind::Liveness), Some(Reading::Failure));
    let mut notices = manager.notices();
    attempts(&mut notices, 1).await;
    until("the third", || {
        reading(&manager, "1", Kind::Liveness) == Some(Reading::Failure)
    })
    .await;
    let more = notices.try_recv().into_iter();
    assert_eq!(
        more.filter(|notice| matches!(**notice, Notice::Ended { .. }))
            .count(),
        0,
        "one attempt was enough"
    );
}

#[tokio::test(start_paused = true)]
async fn a_ready_container_stays_ready_without_a_flap() {
    let directory = tempfile::tempdir().unwrap();
    let file = StateFile::new(directory.path().join("probes.json"));
    let (manager, shutdown) = resume(&file, answers(|_| Outcome::success("")), Kind::Readiness);
    until("ready", || {
        reading(&manager, "1", Kind::Readiness) == Some(Reading::Success)
    })
    .await;
    shutdown.cancel();
    manager.stopped().await;

    // From now on it fails, twice of three times: nobody is to notice the restart.
    let (manager, _shutdown) = resume(&file, answers(|_| Outcome::failure("")), Kind::Readiness);
    let mut changes = manager.subscribe();
    attempts(&mut manager.notices(), 2).await;
    let reports = manager.update_status("1", running(Duration::from_secs(3600)));
    assert!(reports[0].ready && reports[0].started, "{reports:?}");
    assert_eq!(reading(&manager, "1", Kind::Readiness), Some(Reading::Success));
    let heard: Vec<Reading> = std::iter::from_fn(|| changes.next().now_or_never().flatten())
        .map(|change| change.reading)
        .collect();
    assert!(!heard.contains(&Reading::Failure), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn the_file_is_written_at_most_once_a_second_and_not_for_more_of_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let file = StateFile::new(directory.path().join("probes.json"));
    let path = directory.path().join("probes.json");
    // Each content is a new file.
    let content = || std::fs::metadata(&path).map_or(0, |file| (file.ino() << 32) ^ file.ctime_nsec() as u64);
    let fast = Probe {
        period: Duration::from_millis(20),
        ..probe()
    };
    let shutdown = CancellationToken::new();
    let manager = Manager::builder(config(crate::core::Compat::Strict))
        .clock(Clock::steady(WALL))
        .state(file.clone())
        .start(
            answers(|number| {
                if number < 500 && number.is_multiple_of(2) {
                    Outcome::failure("")
                } else {
                    Outcome::success("")
                }
            }),
            shutdown.clone(),
        );
    introduce(&manager, &pod("1", Kind::Readiness, fast));
    // 500 changes in ten seconds, then successes only.
    let (mut writes, mut last) = (0, content());
    for _ in 0..1000 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if content() != last {
            (writes, last) = (writes + 1, content());
        }
    }
    assert!((8..=12).contains(&writes), "{writes} writes in 10 s");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let calm = content();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(content(), calm, "written for nothing");
    shutdown.cancel();
    manager.stopped().await;
    assert_ne!(content(), calm, "written at the end");
    let text = |snapshot: &Snapshot| serde_json::to_string(snapshot).unwrap();
    assert_eq!(text(&file.load()), text(&manager.snapshot()));
}
