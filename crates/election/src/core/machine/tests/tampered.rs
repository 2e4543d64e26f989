//! Records that others have changed without taking them.

use super::*;

/// Until when the first write of a candidate opens the gate, if an admission webhook has changed it, and when
/// others may take the lock.
fn opened(change: impl FnOnce(&mut Record)) -> Option<(Duration, Duration)> {
    let mut machine = Machine::new(baz()).unwrap();
    let now = world::now(after(0), 0.0);
    assert!(machine.step(now, Event::Wake).contains(&Action::Get));
    let asked = machine.step(now, Event::Read(ReadResult::Missing));
    let record = asked.iter().find_map(|action| match action {
        Action::Create(record) => Some(record.clone()),
        _ => None,
    });
    let mut record = record.unwrap();
    change(&mut record);
    let observation = Observation {
        raw: record.raw(),
        record,
        uid: "u".into(),
        version: "1".into(),
    };
    let done = Event::Written(WriteResult::Done(observation));
    let actions = machine.step(world::now(after(10), 0.0), done);
    let valid_until = actions.iter().find_map(|action| match action {
        Action::OpenGate { valid_until, .. } => Some(*valid_until),
        _ => None,
    });
    valid_until.zip(machine.expires_at())
}

/// Others go by the duration that is stored, and so must we.
#[rstest]
#[case::as_asked(10, Some((7_000, 10_000)))]
#[case::longer(60, Some((7_000, 10_000)))]
#[case::shorter(1, Some((700, 1_000)))]
#[case::none(0, None)]
#[case::less_than_none(-5, None)]
fn a_lease_that_is_stored_shorter_proves_less(#[case] seconds: i32, #[case] until: Option<(u64, u64)>) {
    assert_eq!(
        opened(|record| record.lease_duration_seconds = seconds),
        until.map(|(valid, expires)| (after(valid), after(expires)))
    );
}

#[rstest]
#[case::another("bing")]
#[case::nobody("")]
fn a_write_that_came_to_name_somebody_else_opens_nothing(#[case] holder: &str) {
    assert_eq!(opened(|record| record.holder = holder.into()), None);
}

/// The token is another one, so the term is: the last one's work ends before anything of the next begins.
#[rstest]
fn another_term_of_ours_begins_after_the_last_ones_work_has_ended(#[values(false, true)] watches: bool) {
    let mut world = World::new(baz());
    world.me().watches = watches;
    world.me().drains_in = Some(ms(3_000));
    world.until(500);
    let first = world.me().machine.state().token().cloned().unwrap();
    let record = world.record();
    world.put(Record {
        transitions: 8,
        ..record
    });
    let at = if watches { 500 } else { 2_000 };
    world.until(at);
    assert_eq!(world.me().losses(), [(at, Loss::Reassigned)]);
    assert!(!world.me().leads());
    world.until(at + 2_999);
    assert!(!world.me().leads());
    world.until(20_000);
    let second = world.me().machine.state().token().cloned().unwrap();
    assert!(second.transitions > 8 && first.transitions == 0);
}

/// A take-over whose answer was lost, seen on the watch: nothing to wait for.
#[test]
fn a_lost_take_over_is_used_as_soon_as_it_is_seen() {
    let mut world = World::with(baz(), taken_by("", 1, 4));
    world.me().watches = true;
    world.fates = [Fate::Served, Fate::ReplyLost].into();
    world.until(1_000);
    assert!(world.me().leads());
    assert_eq!(world.transitions(), 5);
}

/// A timer that is early is set again, or nothing would ever happen any more.
#[test]
fn an_early_wake_is_asked_for_again() {
    let mut world = World::with(baz(), taken_by("bing", 10, 4));
    world.attempt();
    let wake = world.me().wake.take().unwrap();
    world.at = wake.saturating_sub(ms(1));
    world.send(Event::Wake);
    assert_eq!(world.me().wake, Some(wake));
}
