use super::*;
use crate::core::{Action, Config, Event, Machine, Now, ReadResult};
use crate::lock::memory::tests::TokioClock;
use crate::lock::{Fault, MemoryLock, Op, Rule};
use futures::StreamExt as _;
use jiff::Timestamp;
use rstest::rstest;
use std::time::Duration;

fn held_by(holder: &str) -> Record {
    Record {
        holder: holder.into(),
        lease_duration_seconds: 15,
        ..Record::default()
    }
}

/// Primary, secondary, and both as `me` sees them.
fn locks() -> (MemoryLock, MemoryLock, MultiLock) {
    let clock = TokioClock::new();
    let (primary, secondary) = (
        MemoryLock::new(clock.clone(), "primary"),
        MemoryLock::new(clock, "secondary"),
    );
    let multi = MultiLock::new(primary.clone(), secondary.clone(), "me");
    (primary, secondary, multi)
}

fn holder(lock: &MemoryLock) -> Option<String> {
    lock.peek().map(|seen| seen.record.holder)
}

#[rstest]
#[case::no_primary(None, Some("x"), None)]
#[case::nothing(None, None, None)]
#[case::old_candidate_holds_the_primary(Some("x"), None, Some("x"))]
#[case::nobody_holds_the_primary(Some(""), None, Some(""))]
#[case::ours_but_not_whole(Some("me"), None, None)]
#[case::agreed(Some("x"), Some("x"), Some("x"))]
#[case::agreed_on_us(Some("me"), Some("me"), Some("me"))]
#[case::disagreed(Some("x"), Some("y"), Some(UNKNOWN_LEADER))]
#[case::disagreed_with_us(Some("me"), Some("y"), Some(UNKNOWN_LEADER))]
#[case::released_by_halves(Some(""), Some("me"), Some(UNKNOWN_LEADER))]
#[tokio::test]
async fn who_holds_both(
    #[case] in_primary: Option<&str>,
    #[case] in_secondary: Option<&str>,
    #[case] expected: Option<&str>,
) {
    let (primary, secondary, multi) = locks();
    in_primary.map(|holder| primary.put(held_by(holder)));
    in_secondary.map(|holder| secondary.put(held_by(holder)));
    let seen = multi.get().await.unwrap();
    assert_eq!(seen.map(|seen| seen.record.holder).as_deref(), expected);
}

/// Somebody who knows only the secondary took it when both were free. It is renewed, and the primary is not.
#[tokio::test]
async fn who_renews_the_secondary_alone_is_not_overthrown() {
    let (primary, secondary, multi) = locks();
    let renewed = |holder: &str, second: i64| Record {
        renew_time: Some(Timestamp::from_microsecond(second * 1_000_000 + 1).unwrap()),
        ..held_by(holder)
    };
    primary.put(renewed("x", 0));
    let mut machine = Machine::new(Config::new("me")).unwrap();
    for second in 0..60_i64 {
        secondary.put(renewed("y", second));
        let at = Duration::from_secs(second.unsigned_abs());
        let wall = Timestamp::from_second(second).unwrap();
        let now = Now {
            at,
            wall,
            random: 0.0,
        };
        let mut actions = machine.step(now, Event::Wake);
        while let Some(action) = actions.pop() {
            assert!(
                !matches!(action, Action::Update { .. } | Action::Create(_)),
                "at {second}"
            );
            if action == Action::Get {
                let found = multi.get().await.unwrap().unwrap();
                actions.extend(machine.step(now, Event::Read(ReadResult::Found(found))));
            }
        }
    }
    assert_eq!(machine.observed().unwrap().0.holder, UNKNOWN_LEADER);
}

/// A clean release leaves a duration of one second. Whoever took the other lock since has to be waited for as
/// long as its own record says.
#[rstest]
#[tokio::test]
async fn where_they_disagree_the_longer_duration_and_the_later_term_count(
    #[values(false, true)] primary_was_released: bool,
) {
    let (primary, secondary, multi) = locks();
    let released = Record {
        lease_duration_seconds: 1,
        transitions: 4,
        ..held_by("")
    };
    let held = Record {
        lease_duration_seconds: 15,
        transitions: 5,
        ..held_by("y")
    };
    let (first, other) = if primary_was_released {
        (released, held)
    } else {
        (held, released)
    };
    primary.put(first);
    secondary.put(other);
    let seen = multi.get().await.unwrap().unwrap().record;
    assert_eq!(seen.holder, UNKNOWN_LEADER);
    assert_eq!((seen.lease_duration_seconds, seen.transitions), (15, 5));
}

#[tokio::test]
async fn raw_versions_and_uid_are_those_of_both() {
    let (primary, secondary, multi) = locks();
    secondary.put(held_by("x"));
    let first = primary.put(held_by("x"));
    let second = secondary.put(held_by("x"));
    let seen = multi.get().await.unwrap().unwrap();
    assert_eq!(seen.raw, format!("{},{}", first.raw, second.raw));
    assert_eq!(seen.version, r#"["1","2"]"#);
    assert_eq!(seen.uid, first.uid);

    let second = secondary.put(held_by("y"));
    let seen = multi.get().await.unwrap().unwrap();
    let unknown = held_by(UNKNOWN_LEADER).raw();
    assert_eq!(seen.raw, format!("{unknown},{}", second.raw));

    secondary.delete();
    let seen = multi.get().await.unwrap().unwrap();
    assert_eq!((seen.raw, seen.version.as_str()), (first.raw, r#"["1",null]"#));
}

#[tokio::test]
async fn the_primary_is_made_first() {
    let (primary, secondary, multi) = locks();
    let made = multi.create(held_by("me")).await.unwrap();
    assert_eq!(made.version, r#"["1","1"]"#);
    assert_eq!(
        (primary.ops(), secondary.ops()),
        (vec![Op::Create], vec![Op::Create])
    );
    assert_eq!(multi.get().await, Ok(Some(made)));

    let (primary, secondary, multi) = locks();
    primary.inject(Rule::new(Fault::LoseReply).times(1));
    assert!(multi.create(held_by("me")).await.is_err());
    assert_eq!(secondary.ops(), [], "not without the primary");
}

#[tokio::test]
async fn a_primary_of_ours_is_completed() {
    let (primary, secondary, multi) = locks();
    primary.put(Record {
        transitions: 7,
        ..held_by("me")
    });
    assert_eq!(multi.get().await, Ok(None));
    let wanted = Record {
        lease_duration_seconds: 16,
        ..held_by("me")
    };
    let made = multi.create(wanted).await.unwrap();
    assert_eq!(made.record.transitions, 7, "a token never goes back");
    for lock in [&primary, &secondary] {
        let record = lock.peek().unwrap().record;
        assert_eq!((&*record.holder, record.transitions), ("me", 7));
        assert_eq!(record.lease_duration_seconds, 16, "both are renewed");
    }
    let renewed = multi.update(held_by("me"), made.version).await.unwrap();
    assert_eq!(renewed.version, r#"["3","2"]"#);
}

// client-go goes on here, and both lead.
#[tokio::test]
async fn a_primary_that_an_old_candidate_made_meanwhile_is_its_own() {
    let (primary, secondary, multi) = locks();
    assert_eq!(multi.get().await, Ok(None));
    primary.put(held_by("old"));
    assert_eq!(multi.create(held_by("me")).await, Err(LockError::Conflict));
    assert_eq!(secondary.peek(), None);
    assert_eq!(multi.get().await.unwrap().unwrap().record.holder, "old");
}

#[tokio::test]
async fn a_secondary_that_exists_means_somebody_was_faster() {
    let (_, secondary, multi) = locks();
    secondary.put(held_by("new"));
    assert_eq!(multi.create(held_by("me")).await, Err(LockError::Conflict));
}

#[tokio::test]
async fn an_update_writes_the_primary_reads_the_secondary_and_writes_it() {
    let (primary, secondary, multi) = locks();
    let made = multi.create(held_by("me")).await.unwrap();
    let renewed = multi.update(held_by("me"), made.version).await.unwrap();
    assert_eq!(primary.ops(), [Op::Create, Op::Update]);
    assert_eq!(secondary.ops(), [Op::Create, Op::Get, Op::Update]);
    assert_eq!(renewed.version, r#"["2","2"]"#);
    // And no read is needed before the next.
    assert!(multi.update(held_by("me"), renewed.version).await.is_ok());
}

#[tokio::test]
async fn an_update_makes_a_missing_secondary() {
    let (primary, secondary, multi) = locks();
    primary.put(held_by("old"));
    let seen = multi.get().await.unwrap().unwrap();
    let taken = multi.update(held_by("me"), seen.version).await.unwrap();
    assert_eq!(secondary.ops(), [Op::Get, Op::Get, Op::Create]);
    assert_eq!(multi.get().await, Ok(Some(taken)));
}

#[tokio::test]
async fn an_update_that_the_primary_refuses_leaves_the_secondary_alone() {
    let (primary, secondary, multi) = locks();
    let made = multi.create(held_by("me")).await.unwrap();
    primary.put(held_by("old"));
    assert_eq!(
        multi.update(held_by("me"), made.version).await,
        Err(LockError::Conflict)
    );
    assert_eq!(secondary.ops(), [Op::Create]);
}

// client-go overwrites it, and both lead.
#[rstest]
#[case::that_was_there(true)]
#[case::that_is_new(false)]
#[tokio::test]
async fn a_secondary_that_a_new_candidate_took_meanwhile_is_not_overwritten(#[case] was_there: bool) {
    let (primary, secondary, multi) = locks();
    primary.put(held_by("dead"));
    if was_there {
        secondary.put(held_by("dead"));
    }
    let seen = multi.get().await.unwrap().unwrap();
    secondary.put(held_by("new"));
    assert_eq!(
        multi.update(held_by("me"), seen.version).await,
        Err(LockError::Conflict)
    );
    assert_eq!(holder(&secondary).as_deref(), Some("new"));
    assert_eq!(multi.get().await.unwrap().unwrap().record.holder, UNKNOWN_LEADER);
}

#[tokio::test]
async fn failures_of_either_are_failures() {
    let (primary, secondary, multi) = locks();
    let made = multi.create(held_by("me")).await.unwrap();
    let down = LockError::Unreachable("down".into());
    secondary.inject(Rule::new(Fault::Answer(down.clone())).times(2));
    assert_eq!(multi.get().await, Err(down.clone()));
    assert_eq!(multi.update(held_by("me"), made.version).await, Err(down.clone()));
    // Half-way: the primary is renewed, the secondary not. The next read tells what to go on from.
    let seen = multi.get().await.unwrap().unwrap();
    assert_eq!(
        (seen.record.holder.as_str(), seen.version.as_str()),
        ("me", r#"["2","1"]"#)
    );
    assert!(multi.update(held_by("me"), seen.version).await.is_ok());
    primary.inject(Rule::new(Fault::Answer(down.clone())));
    assert_eq!(multi.get().await, Err(down));
}

#[tokio::test]
async fn a_version_that_it_did_not_give_is_refused() {
    let (primary, _, multi) = locks();
    let LockError::Refused(text) = multi.update(held_by("me"), "5".into()).await.unwrap_err() else {
        panic!("not refused")
    };
    assert!(
        text.contains("version `5` is not of this pair of locks"),
        "{text}"
    );
    assert_eq!(primary.ops(), []);
}

#[tokio::test(start_paused = true)]
async fn it_speaks_for_both_and_is_called_after_the_primary() {
    let (primary, secondary, multi) = locks();
    multi.announce("me became leader".into()).await;
    assert_eq!(primary.announcements(), secondary.announcements());
    assert_eq!(primary.announcements().len(), 1);
    assert_eq!(multi.describe(), primary.describe());
    let mut changes = multi.changes();
    let change = tokio::time::timeout(Duration::from_secs(60), changes.next());
    assert!(change.await.is_err(), "it says nothing");
}

/// The recipe: X, then both, then Y. At each step old and new candidates agree on who holds it.
#[tokio::test]
async fn a_deployment_moves_from_one_lock_to_the_other() {
    let (old, new, multi) = locks();
    // First release: candidates on the primary only.
    let first = old.create(held_by("first")).await.unwrap();
    // Second: one on both sees it lead, and takes over once it has released.
    assert_eq!(multi.get().await.unwrap().unwrap().record.holder, "first");
    old.update(held_by(""), first.version).await.unwrap();
    let free = multi.get().await.unwrap().unwrap();
    let taken = multi.update(held_by("me"), free.version).await.unwrap();
    assert_eq!(old.get().await.unwrap().unwrap().record.holder, "me");
    // Third: one on the secondary only sees the same.
    assert_eq!(new.get().await.unwrap().unwrap().record.holder, "me");
    multi.update(held_by(""), taken.version).await.unwrap();
    let free = new.get().await.unwrap().unwrap();
    new.update(held_by("third"), free.version).await.unwrap();
    // While any candidate on both is left, it waits for the third.
    assert_eq!(multi.get().await.unwrap().unwrap().record.holder, UNKNOWN_LEADER);
}
