//! S16 and S6 on two whole candidates.

use super::stage::{Setting, Stage, client_go, ms, ours};
use evenkeel_election::lock::Fault;
use evenkeel_election::{Config, Loss, StopReason};
use rstest::rstest;

type Rules = fn(&str) -> Config;

fn setting(config: Config, random: f64) -> Setting {
    Setting {
        random,
        ..config.into()
    }
}

/// To this time, in steps of 10 ms: at none of them are both gates open. Returns when `b`'s opened first.
async fn sampled(a: &Stage, b: &Stage, until: u64) -> Option<u64> {
    let mut opened = None;
    for millis in (0..=until).step_by(10) {
        a.until(millis).await;
        assert!(
            !(a.gate.is_open() && b.gate.is_open()),
            "both open at {millis} ms"
        );
        if opened.is_none() && b.gate.is_open() {
            opened = Some(millis);
        }
    }
    opened
}

/// S16: it outlasts the lease. The standby leads within [19, 27.9] s, and the old holder ends when it sees
/// that (S6).
#[rstest]
#[tokio::test(start_paused = true)]
async fn s16_the_partition_outlasts_the_lease(
    #[values(client_go as Rules, ours as Rules)] config: Rules,
    #[values(0.0, 0.5, 0.999_999)] random: f64,
) {
    let mut a = Stage::new(setting(config("a"), random)).away(60_000, Fault::Hang);
    a.until(0).await;
    let b = a.rival(setting(config("b"), random));
    let opened = sampled(&a, &b, 80_000).await.expect("the standby leads");
    assert!((19_000..=27_900).contains(&opened), "{opened}");
    let (ends, reason) = a.ended().await;
    assert_eq!(reason, StopReason::Lost(Loss::OtherHolder("b".into())));
    assert!((60_000..=70_000).contains(&ends), "{ends}");
    let late = a
        .lock
        .history()
        .into_iter()
        .filter(|write| write.by == "a" && write.at >= ms(25_000));
    assert_eq!(late.count(), 0, "no write of the old holder");
    assert_eq!(b.holder(), "b");
}
