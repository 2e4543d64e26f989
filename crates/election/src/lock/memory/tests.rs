use super::*;
use jiff::Timestamp;
use rstest::rstest;
use tokio::time::{Instant, timeout};

/// tokio's clock, which stands still under `start_paused` until everybody waits.
pub(in crate::lock) struct TokioClock(Instant);

impl TokioClock {
    pub(in crate::lock) fn new() -> Arc<Self> {
        Arc::new(Self(Instant::now()))
    }
}

impl Clock for TokioClock {
    fn boot(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn random(&self) -> f64 {
        0.0
    }

    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep_until(self.0 + at).boxed()
    }
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn held_by(holder: &str) -> Record {
    Record {
        holder: holder.into(),
        ..Record::default()
    }
}

fn lock() -> MemoryLock {
    MemoryLock::new(TokioClock::new(), "me")
}

fn log(lock: &MemoryLock) -> Vec<String> {
    lock.calls().iter().map(ToString::to_string).collect()
}

fn holders(lock: &MemoryLock) -> Vec<(Duration, String, String)> {
    let line = |write: Write| {
        let holder = write
            .observation
            .map_or("(deleted)".into(), |seen| seen.record.holder);
        (write.at, write.by, holder)
    };
    lock.history().into_iter().map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn it_keeps_versions_like_an_api_server() {
    let lock = lock();
    assert_eq!(lock.get().await, Ok(None));
    assert_eq!(
        lock.update(held_by("me"), "1".into()).await,
        Err(LockError::Conflict)
    );
    let made = lock.create(held_by("me")).await.unwrap();
    assert_eq!((made.uid.as_str(), made.version.as_str()), ("uid-1", "1"));
    assert_eq!(made.raw, made.record.raw());
    assert_eq!(lock.create(held_by("you")).await, Err(LockError::Conflict));
    let renewed = lock.update(held_by("me"), made.version.clone()).await.unwrap();
    assert_ne!(renewed.version, made.version);
    assert_eq!(
        lock.update(held_by("you"), made.version).await,
        Err(LockError::Conflict)
    );
    assert_eq!(lock.get().await, Ok(Some(renewed)));
    assert!(lock.delete() && !lock.delete());
    let anew = lock.create(held_by("me")).await.unwrap();
    assert_eq!(anew.uid, "uid-2");
    let log = log(&lock).join(" ");
    let expected = "get(missing)@0ns update(conflict)@0ns create@0ns create(conflict)@0ns update@0ns \
        update(conflict)@0ns get@0ns create@0ns";
    assert_eq!(log, expected);
}

#[tokio::test(start_paused = true)]
async fn peers_share_the_register_and_nothing_else() {
    let lock = lock();
    let rival = lock.peer("rival");
    lock.inject(Rule::new(Fault::Answer(LockError::Refused("no".into()))));
    assert_eq!(lock.get().await, Err(LockError::Refused("no".into())));
    rival.create(held_by("rival")).await.unwrap();
    tokio::time::sleep(secs(1)).await;
    lock.put(held_by("admin"));
    lock.delete();
    assert_eq!(log(&lock), ["get(failed)@0ns"]);
    assert_eq!(log(&rival), ["create@0ns"]);
    let line = |at, by: &str, holder: &str| (secs(at), by.to_owned(), holder.to_owned());
    let expected = [
        line(0, "rival", "rival"),
        line(1, "me", "admin"),
        line(1, "me", "(deleted)"),
    ];
    assert_eq!(holders(&rival), expected);
}

#[tokio::test(start_paused = true)]
async fn from_a_time_on_every_request_hangs_until_healed() {
    let lock = lock();
    lock.inject(Rule::new(Fault::Hang).from(secs(5)).until(secs(20)));
    tokio::time::sleep(Duration::from_millis(4_999)).await;
    lock.create(held_by("me")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(timeout(secs(5), lock.get()).await.is_err());
    assert!(
        timeout(secs(5), lock.update(held_by("x"), "1".into()))
            .await
            .is_err()
    );
    lock.heal();
    assert_eq!(lock.get().await.unwrap().unwrap().record.holder, "me");
    let expected = [
        "create@4.999s",
        "get(no answer)@5s",
        "update(no answer)@10s",
        "get@15s",
    ];
    assert_eq!(log(&lock), expected);
}

#[rstest]
#[case::never_answered(Fault::HangAfterCommit, "update(no answer)@0ns")]
#[case::reply_lost(Fault::LoseReply, "update(failed)@0ns")]
#[tokio::test(start_paused = true)]
async fn a_write_can_be_done_without_the_writer_knowing(#[case] fault: Fault, #[case] logged: &str) {
    let lock = lock();
    let made = lock.put(held_by("nobody"));
    lock.inject(Rule::new(fault).on(Op::Update));
    let answer = timeout(secs(5), lock.update(held_by("me"), made.version)).await;
    assert!(!matches!(answer, Ok(Ok(_))), "{answer:?}");
    assert_eq!(lock.get().await.unwrap().unwrap().record.holder, "me");
    assert_eq!(log(&lock)[0], logged);
}

#[tokio::test(start_paused = true)]
async fn a_late_write_is_done_although_nobody_waits_for_it_any_more() {
    let lock = lock();
    let (before, after) = (secs(6), secs(1));
    lock.inject(Rule::new(Fault::Delay { before, after }).times(1));
    assert!(timeout(secs(5), lock.create(held_by("me"))).await.is_err());
    assert_eq!(lock.peek(), None);
    // In between somebody can be faster, so that the late one fails: here nobody is.
    tokio::time::sleep(secs(2)).await;
    assert_eq!(holders(&lock), [(secs(6), "me".into(), "me".into())]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_takes_as_long_as_it_says() {
    let lock = lock();
    let (before, after) = (secs(2), secs(1));
    lock.inject(Rule::new(Fault::Delay { before, after }));
    lock.create(held_by("me")).await.unwrap();
    assert_eq!(lock.now(), secs(3));
    assert_eq!(lock.history()[0].at, secs(2));
}

#[tokio::test(start_paused = true)]
async fn rules_count_what_they_are_for() {
    let lock = lock();
    lock.inject(Rule::new(Fault::Conflict).on(Op::Update).skip(1).times(1));
    let mut version = lock.create(held_by("me")).await.unwrap().version;
    for _ in 0..3 {
        if let Ok(done) = lock.update(held_by("me"), version.clone()).await {
            version = done.version;
        }
        lock.get().await.unwrap();
    }
    use Op::{Create, Get, Update};
    assert_eq!(lock.ops(), [Create, Update, Get, Update, Get, Update, Get]);
    let outcomes: Vec<_> = lock.calls().into_iter().filter_map(|call| call.outcome).collect();
    use Outcome::{Conflict, Done};
    assert_eq!(outcomes, [Done, Done, Done, Conflict, Done, Done, Done]);
}

#[tokio::test(start_paused = true)]
async fn the_first_rule_in_force_counts() {
    let lock = lock();
    lock.inject(Rule::new(Fault::Conflict).times(1));
    lock.inject(Rule::new(Fault::LoseReply).times(1));
    assert_eq!(lock.get().await, Err(LockError::Conflict));
    assert!(matches!(lock.get().await, Err(LockError::Unreachable(_))));
    assert_eq!(lock.get().await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn changes_come_by_themselves() {
    let lock = lock();
    let mut changes = lock.changes();
    assert_eq!(changes.next().await, Some(None), "as it is at the start");
    let made = lock.peer("rival").create(held_by("rival")).await.unwrap();
    assert_eq!(changes.next().await, Some(Some(made)));
    lock.delete();
    assert_eq!(changes.next().await, Some(None));
    assert!(timeout(secs(60), changes.next()).await.is_err());
    assert_eq!(lock.ops(), [], "a watch is no request");
}

#[tokio::test(start_paused = true)]
async fn a_partition_keeps_changes_back_until_it_ends() {
    let lock = lock();
    let rival = lock.peer("rival");
    let mut changes = lock.changes();
    changes.next().await;
    lock.inject(Rule::new(Fault::Hang).from(secs(5)).until(secs(20)));
    tokio::time::sleep(secs(8)).await;
    assert!(
        timeout(secs(2), lock.get()).await.is_err(),
        "requests meet it as well"
    );
    let made = rival.create(held_by("rival")).await.unwrap();
    let made = rival.update(held_by("rival again"), made.version).await.unwrap();
    assert_eq!(changes.next().await, Some(Some(made)), "the newest only");
    assert_eq!(lock.now(), secs(20));

    lock.inject(Rule::new(Fault::Hang));
    lock.delete();
    assert!(timeout(secs(60), changes.next()).await.is_err());
    lock.heal();
    assert_eq!(changes.next().await, Some(None));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_by_itself_does_not_silence_the_watch() {
    let lock = lock();
    lock.inject(Rule::new(Fault::Hang).on(Op::Get));
    assert_eq!(lock.changes().next().await, Some(None));
    assert!(
        timeout(secs(60), lock.without_watch().changes().next())
            .await
            .is_err()
    );
}

#[tokio::test(start_paused = true)]
async fn announcements_are_kept_with_their_times() {
    let lock = lock();
    tokio::time::sleep(secs(3)).await;
    lock.announce("me became leader".into()).await;
    let expected = Announcement {
        at: secs(3),
        message: "me became leader".into(),
    };
    assert_eq!(lock.announcements(), [expected]);
}
