//! What a candidate makes of a lock that is not there, and of a record under its name: both were found by
//! simulation.

use super::world::{after, now, taken_by};
use super::*;
use rstest::rstest;

fn found(record: Record, version: &str) -> Event {
    Event::Read(ReadResult::Found(Observation {
        record,
        uid: "1".into(),
        version: version.into(),
        raw: String::new(),
    }))
}

fn asks(machine: &mut Machine, millis: u64) -> Vec<Action> {
    machine.step(now(after(millis), 0.0), Event::Wake)
}

/// Its holder may not know yet, and may write until its deadline: a follower that knew the lock leaves its
/// absence alone for as long as it would a holder.
#[rstest]
#[case::held(taken_by("b", 5, 0), 5_000)]
#[case::held_for_longer(taken_by("b", 7, 0), 7_000)]
#[case::released_when_last_seen(taken_by("", 1, 0), 5_000)]
#[case::held_for_an_age(taken_by("b", 86_400, 0), 600_000)]
fn a_deleted_lock_is_made_anew_only_after_the_time_of_a_record(#[case] known: Record, #[case] waits: u64) {
    let mut machine = Machine::new(Config::new("a")).unwrap();
    asks(&mut machine, 0);
    machine.step(now(after(10), 0.0), found(known, "1"));
    // A released record is taken at once; that write comes too late.
    machine.step(now(after(20), 0.0), Event::Written(WriteResult::Conflict));
    machine.step(now(after(30), 0.0), Event::Seen(None));
    for at in (30..20_000).step_by(100) {
        if asks(&mut machine, at).contains(&Action::Get) {
            let missed = at + 10;
            machine.step(now(after(missed), 0.0), Event::Read(ReadResult::Missing));
            let early = asks(&mut machine, missed + waits - 1);
            assert!(matches!(early.as_slice(), [Action::Wait { .. }]), "{early:?}");
            assert!(asks(&mut machine, missed + waits).contains(&Action::Get));
            let actions = machine.step(
                now(after(missed + waits + 1), 0.0),
                Event::Read(ReadResult::Missing),
            );
            assert!(
                matches!(actions.as_slice(), [Action::Create(_), ..]),
                "{actions:?}"
            );
            return;
        }
    }
    panic!("it never looks");
}

/// A process that never saw the lock makes it at once.
#[test]
fn a_newcomer_makes_the_lock_at_once() {
    let mut machine = Machine::new(Config::new("a")).unwrap();
    asks(&mut machine, 0);
    let actions = machine.step(now(after(1), 0.0), Event::Read(ReadResult::Missing));
    assert!(matches!(actions.first(), Some(Action::Create(_))), "{actions:?}");
}

/// Another process may have taken the lock over under our name: that is not ours to give back.
#[rstest]
#[case::its_own(false)]
#[case::of_another_process_under_its_name(true)]
fn only_an_own_write_is_released(#[case] foreign: bool) {
    let mut machine = Machine::new(Config::new("a")).unwrap();
    asks(&mut machine, 0);
    let actions = machine.step(now(after(1), 0.0), Event::Read(ReadResult::Missing));
    let Some(Action::Create(ours)) = actions.into_iter().next() else {
        panic!("no create")
    };
    let Event::Read(ReadResult::Found(done)) = found(ours.clone(), "1") else {
        panic!("no record")
    };
    machine.step(now(after(2), 0.0), Event::Written(WriteResult::Done(done)));
    assert!(machine.state().leads());
    machine.step(now(after(500), 0.0), Event::Cancel);
    let actions = machine.step(now(after(600), 0.0), Event::Drained);
    assert!(actions.contains(&Action::Get), "{actions:?}");
    let stands = Record {
        renew_time: foreign.then(|| now(after(550), 0.0).wall).or(ours.renew_time),
        ..ours
    };
    let actions = machine.step(now(after(610), 0.0), found(stands, "2"));
    let releases =
        |action: &Action| matches!(action, Action::Update { record, .. } if record.holder.is_empty());
    assert_eq!(actions.iter().any(releases), !foreign, "{actions:?}");
}
