//! Whose fault is it? In real time, on one thread that somebody blocks.

use super::*;
use crate::core::Compat;

/// So long that a slow machine does not count as starved by itself.
const CALM: Duration = Duration::from_secs(120);

/// What is published, and what was counted (successful, failed, unknown), after one attempt: while it waits,
/// its thread is blocked for 400 ms or not; timeout as given.
fn one_attempt(
    compat: Compat,
    blocked: bool,
    timeout: Duration,
    outcome: Outcome,
) -> (Option<Reading>, [u64; 3]) {
    let prober = Fake(move |_: &Attempt| {
        let outcome = outcome.clone();
        async move {
            if blocked {
                tokio::spawn(async { std::thread::sleep(Duration::from_millis(400)) });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            outcome
        }
        .boxed()
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let probe = Probe { timeout, ..probe() };
        let (manager, shutdown) = start(config(compat), prober, &pod("1", Kind::Liveness, probe));
        let mut notices = manager.notices();
        let ended = async { while !matches!(&*notices.recv().await.unwrap(), Notice::Ended { .. }) {} };
        evenkeel_testkit::ends("it ends", ended).await;
        shutdown.cancel();
        manager.stopped().await;
        let sample = manager.shared.sample();
        let tally = &sample.rows[0].tally;
        (
            reading(&manager, "1", Kind::Liveness),
            [tally.successful, tally.failed, tally.unknown],
        )
    })
}

#[test]
fn a_starved_prober_says_nothing_about_a_container_unless_it_works() {
    let second = Duration::from_secs(1);
    let failure = || Outcome::failure("i/o timeout");
    let error = || Outcome::error(Verdict::Unknown, "no answer");
    let success = || Outcome::success("");
    let (up, down) = (Some(Reading::Success), Some(Reading::Failure));
    for (what, compat, blocked, timeout, outcome, published, counted) in [
        (
            "failed, starved",
            Compat::Strict,
            true,
            second,
            failure(),
            up,
            [0, 0, 1],
        ),
        (
            "error, starved",
            Compat::Strict,
            true,
            second,
            error(),
            up,
            [0, 0, 1],
        ),
        (
            "works, starved",
            Compat::Strict,
            true,
            second,
            success(),
            up,
            [1, 0, 0],
        ),
        (
            "failed, not starved",
            Compat::Strict,
            false,
            CALM,
            failure(),
            down,
            [0, 1, 0],
        ),
        (
            "failed, blocked for little",
            Compat::Strict,
            true,
            CALM,
            failure(),
            down,
            [0, 1, 0],
        ),
        (
            "a kubelet does not look",
            Compat::Kubelet,
            true,
            second,
            failure(),
            down,
            [0, 1, 0],
        ),
    ] {
        let found = one_attempt(compat, blocked, timeout, outcome);
        assert_eq!(found, (published, counted), "{what}");
    }
}
