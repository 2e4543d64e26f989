//! Durations that cannot work.

use super::stage::{MachineClock, config, secs, stand, stand_with};
use evenkeel_election::clock::{Clock, SystemClock};
use evenkeel_election::lock::MemoryLock;
use evenkeel_election::{Compat, Config, Elector, State, StopReason};
use evenkeel_testkit::log::Log;
use rstest::rstest;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const MAX_SECONDS: u64 = i32::MAX as u64;

fn timing(lease: Duration, renew: Duration, retry: Duration) -> Config {
    Config {
        lease_duration: lease,
        renew_deadline: renew,
        retry_period: retry,
        ..config("me")
    }
}

const LEASE: &str = "leaseDuration must be greater than renewDeadline";
const RENEW: &str = "renewDeadline must be greater than retryPeriod*JitterFactor";
const ENDLESS: &str = "leaseDuration must be at most 2147483647 s, the largest leaseDurationSeconds";

#[rstest]
#[case::lease_equals_renew(timing(secs(3), secs(3), secs(1)), LEASE)]
#[case::lease_below_renew(timing(secs(2), secs(3), secs(1)), LEASE)]
#[case::lease_zero(timing(secs(0), secs(3), secs(1)), LEASE)]
#[case::all_zero(timing(secs(0), secs(0), secs(0)), LEASE)]
#[case::renew_equals_jittered_retry(timing(secs(15), secs(12), secs(10)), RENEW)]
#[case::renew_below_jittered_retry(timing(secs(5), secs(3), Duration::from_millis(2_501)), RENEW)]
#[case::renew_zero(timing(secs(5), secs(0), secs(1)), RENEW)]
#[case::retry_zero(timing(secs(5), secs(3), secs(0)), "retryPeriod must be greater than zero")]
#[case::more_than_int32(timing(secs(MAX_SECONDS + 1), secs(3), secs(1)), ENDLESS)]
#[case::a_nanosecond_more_than_int32(timing(Duration::new(MAX_SECONDS, 1), secs(3), secs(1)), ENDLESS)]
#[case::endless(timing(Duration::MAX, Duration::from_secs(u64::MAX), secs(1)), ENDLESS)]
#[case::endless_retry(timing(Duration::MAX, secs(3), Duration::MAX), RENEW)]
fn are_refused_by_the_configuration_and_by_the_elector(
    #[case] config: Config,
    #[case] text: &str,
    #[values(Compat::Evenkeel, Compat::ClientGo)] compat: Compat,
) {
    let config = Config { compat, ..config };
    assert_eq!(config.validate().unwrap_err().to_string(), text);
    let lock = MemoryLock::new(Arc::new(SystemClock), "me");
    let refused = Elector::new(lock.clone(), config).err().expect("it is refused");
    assert_eq!(refused.to_string(), text);
    assert_eq!(lock.ops(), [], "nothing is asked of the lock");
}

/// What is just allowed works: nothing overflows.
#[rstest]
#[case::longest(timing(secs(MAX_SECONDS), secs(MAX_SECONDS - 1), secs(1_700_000_000)), i32::MAX)]
#[case::shortest(
    timing(Duration::from_nanos(4), Duration::from_nanos(3), Duration::from_nanos(2)),
    1
)]
#[tokio::test(start_paused = true)]
async fn that_are_just_allowed_overflow_nothing(#[case] config: Config, #[case] on_the_wire: i32) {
    let clock = MachineClock::new();
    let lock = MemoryLock::new(Arc::clone(&clock) as Arc<dyn Clock>, "me");
    let leader = stand_with(lock.clone(), config.clone(), clock);
    leader.until("it leads", State::leads).await;
    let record = lock.peek().expect("a lock").record;
    assert_eq!(record.lease_duration_seconds, on_the_wire);
    let rival = Config {
        identity: "rival".into(),
        ..config
    };
    let follower = stand_with(lock.peer("rival"), rival, MachineClock::new());
    tokio::time::sleep(Duration::from_millis(20)).await;
    follower.stop().await;
    leader.stop().await;
}

/// The bound of a request is the caller's. None at all must not overflow a clock.
#[tokio::test(start_paused = true)]
async fn of_requests_may_be_endless() {
    let log = Log::capture();
    let clock = MachineClock::new();
    let lock = MemoryLock::new(Arc::clone(&clock) as Arc<dyn Clock>, "me");
    let stop = CancellationToken::new();
    let election = Elector::new(lock, config("me"))
        .unwrap()
        .with_clock(clock)
        .with_request_timeout(Duration::MAX)
        .run(stop.clone());
    election.watch().wait_for(State::leads).await.unwrap();
    tokio::time::sleep(secs(10)).await;
    stop.cancel();
    assert_eq!(
        election.stopped().await,
        Some(StopReason::Cancelled { drained: true })
    );
    assert_eq!(log.with(&["ERROR"]), [] as [String; 0], "its task did not die");
}

#[tokio::test(start_paused = true)]
async fn that_are_fine_are_not_complained_of() {
    let log = Log::capture();
    let clock = MachineClock::new();
    let leader = stand(MemoryLock::new(clock, "me"), "me");
    leader.leads().await;
    leader.stop().await;
    assert!(log.warnings().is_empty(), "{:?}", log.warnings());
}

#[cfg(feature = "flags")]
mod flags {
    use clap::Parser as _;
    use evenkeel_election::Config;
    use evenkeel_election::flags::{Defaults, LeaderElectArgs};
    use rstest::rstest;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        elect: LeaderElectArgs,
    }

    /// What a process says before it exits.
    fn refusal(flags: &[&str]) -> String {
        let flags = flags.iter().map(|flag| format!("--leader-elect-{flag}"));
        let cli = match Cli::try_parse_from(std::iter::once("test".to_owned()).chain(flags)) {
            Ok(cli) => cli,
            Err(error) => return error.to_string(),
        };
        let defaults = Defaults {
            namespace: "ours".into(),
            name: "controller".into(),
            config: Config::new("me"),
        };
        cli.elect
            .resolve(defaults)
            .expect_err("it is refused")
            .to_string()
    }

    #[rstest]
    #[case::lease_zero(&["lease-duration=0s"], &["--leader-elect-lease-duration", "must be greater than zero"])]
    #[case::renew_zero(&["renew-deadline=0s"], &["--leader-elect-renew-deadline", "must be greater than zero"])]
    #[case::retry_zero(&["retry-period=0"], &["--leader-elect-retry-period", "must be greater than zero"])]
    #[case::lease_negative(&["lease-duration=-5s"], &["--leader-elect-lease-duration", "is negative", "such as 50s"])]
    #[case::renew_negative(&["renew-deadline=-5s"], &["--leader-elect-renew-deadline", "is negative", "such as 50s"])]
    #[case::retry_negative(&["retry-period=-5s"], &["--leader-elect-retry-period", "is negative", "such as 50s"])]
    #[case::recovery_negative(&["recovery-deadline=-1m"], &["--leader-elect-recovery-deadline", "is negative"])]
    #[case::lease_unitless(&["lease-duration=15"], &["--leader-elect-lease-duration", "has no unit", "such as 50s"])]
    #[case::renew_unitless(&["renew-deadline=10"], &["--leader-elect-renew-deadline", "has no unit", "such as 50s"])]
    #[case::retry_unitless(&["retry-period=2"], &["--leader-elect-retry-period", "has no unit", "such as 50s"])]
    #[case::word(&["retry-period=soon"], &["--leader-elect-retry-period", "is not a duration such as 50s"])]
    #[case::nothing(&["retry-period="], &["--leader-elect-retry-period"])]
    #[case::more_than_any(&["lease-duration=99999999999999999999h"], &["--leader-elect-lease-duration",
        "is not a duration"])]
    #[case::lease_equals_renew(&["lease-duration=10s", "renew-deadline=10s"],
        &["--leader-elect-lease-duration", "must be greater than the renew deadline"])]
    #[case::lease_below_renew(&["renew-deadline=6s"],
        &["--leader-elect-lease-duration", "must be greater than the renew deadline"])]
    #[case::renew_equals_jittered_retry(&["lease-duration=15s", "renew-deadline=12s", "retry-period=10s"],
        &["--leader-elect", "renewDeadline must be greater than retryPeriod*JitterFactor"])]
    #[case::more_than_int32(&["lease-duration=600000h"],
        &["--leader-elect", "leaseDuration must be at most 2147483647 s"])]
    fn are_refused_by_name(#[case] flags: &[&str], #[case] words: &[&str]) {
        let text = refusal(flags);
        assert!(
            words.iter().all(|word| text.contains(word)),
            "{words:?} in: {text}"
        );
    }
}
