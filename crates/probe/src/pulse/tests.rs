use super::*;
use std::thread;

/// So long that no machine stalls for a quarter of it by itself.
const LONG: Duration = Duration::from_secs(120);
const NEVER: Duration = Duration::from_secs(600);

fn one_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

async fn wait(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

fn block(millis: u64) {
    thread::sleep(Duration::from_millis(millis));
}

#[test]
fn tolerance_is_a_quarter_of_the_timeout_and_at_least_25_ms() {
    let cases = [
        (0, 25),
        (1, 25),
        (100, 25),
        (101, 25),
        (104, 26),
        (1000, 250),
        (60_000, 15_000),
    ];
    for (timeout, expected) in cases {
        let tolerance = tolerance(Duration::from_millis(timeout)).as_millis();
        assert_eq!(tolerance, expected, "timeout {timeout} ms");
    }
}

#[test]
fn a_stall_of_the_runtime_is_seen_wherever_it_lies_in_the_attempt() {
    // Timeout 1 s: more than 250 ms are too many. What blocks the runtime stands beside the attempt, before
    // what the attempt waits for, or just before its end.
    one_thread().block_on(async {
        let beside = async {
            wait(60).await;
            block(400);
        };
        let ((ended, stalled), ()) = tokio::join!(watch(wait(600), Duration::from_secs(1), NEVER), beside);
        assert!(ended.is_some() && stalled, "beside");

        let first = async {
            block(400);
            wait(100).await;
        };
        assert!(
            watch(first, Duration::from_secs(1), NEVER).await.1,
            "at the start"
        );

        let last = async {
            wait(100).await;
            block(400);
        };
        assert!(watch(last, Duration::from_secs(1), NEVER).await.1, "at the end");

        let whole = async { block(400) };
        assert!(watch(whole, Duration::from_secs(1), NEVER).await.1, "all of it");
    });
}

#[test]
fn a_thread_that_is_kept_busy_is_a_stall_for_the_attempts_on_it() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let attempt = async {
        wait(20).await;
        tokio::spawn(async { block(400) });
        wait(50).await;
    };
    let (_, stalled) = runtime
        .block_on(runtime.spawn(watch(attempt, Duration::from_secs(1), NEVER)))
        .unwrap();
    assert!(stalled);
}

#[test]
fn an_attempt_that_gets_to_run_is_not_stalled_however_long_it_takes() {
    one_thread().block_on(async {
        let beside = async {
            wait(10).await;
            block(200);
        };
        let ((ended, stalled), ()) = tokio::join!(watch(wait(500), LONG, NEVER), beside);
        assert_eq!((ended, stalled), (Some(()), false));
    });
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_never_ends_is_given_up() {
    let began = Instant::now();
    let limit = Duration::from_secs(7);
    let (ended, stalled) = watch(std::future::pending::<()>(), Duration::from_secs(1), limit).await;
    assert_eq!((ended, stalled), (None, false));
    assert!(began.elapsed() >= limit && began.elapsed() < limit * 2);
}
