//! Each script lists what happens to a keeper, and which signals it must send.

use super::SignalAction::{All, KillAll, Main};
use super::*;
use rstest::rstest;

const GRACE: u64 = 5_000;
const INT: i32 = 2;
const HUP: i32 = 1;
const KILL: Status = Status::Signal(9);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// TERM at +3 s, KILL at +4.5 s.
fn lease(at: u64) -> Deadlines {
    Deadlines::new(ms(at + 3_000), ms(at + 5_000))
}

fn until(at: u64) -> Event {
    Event::Order(Order::Until(lease(at)))
}

fn stop(signal: i32, kill: u64) -> Event {
    let kill = ms(kill);
    Event::Order(Order::Stop { signal, kill })
}

fn code(code: i32) -> Status {
    Status::Code(code)
}

type Script = Vec<(u64, Event, Vec<SignalAction>)>;

#[rstest]
#[case::no_news_is_bad_news(vec![
    (2_999, Event::Wake, vec![]),
    (3_000, Event::Wake, vec![All(TERM)]),
    (4_499, Event::Wake, vec![]),
    (4_500, Event::Wake, vec![KillAll]),
    (4_501, Event::MainEnded(KILL), vec![KillAll]),
], KILL, true)]
#[case::without_grace_the_first_word_is_the_last(vec![
    (1_000, Event::Order(Order::Until(lease(1_000).without_grace())), vec![]),
    (3_999, Event::Wake, vec![]),
    (4_000, Event::Wake, vec![KillAll]),
], Status::NotStarted, true)]
#[case::renewals_keep_it_running(vec![
    (1_000, until(1_000), vec![]),
    (3_000, Event::Wake, vec![]),
    (3_500, until(3_500), vec![]),
    (6_499, Event::Wake, vec![]),
    (6_500, Event::Wake, vec![All(TERM)]),
    (6_600, Event::MainEnded(code(0)), vec![]),
], code(0), true)]
#[case::a_keeper_that_slept_through_everything_kills_at_once(vec![
    (60_000, Event::Wake, vec![KillAll]),
    (60_000, Event::MainEnded(KILL), vec![KillAll]),
    (60_001, Event::OtherEnded, vec![KillAll]),
], KILL, true)]
#[case::a_renewal_that_comes_too_late_does_not_save_it(vec![
    (3_000, Event::Wake, vec![All(TERM)]),
    (3_100, until(3_050), vec![]),
    (4_500, Event::Wake, vec![KillAll]),
], Status::NotStarted, true)]
#[case::a_stop_that_was_asked_for_drains_while_renewals_come(vec![
    (500, stop(INT, 10_500), vec![All(INT)]),
    (3_000, until(3_000), vec![]),
    (6_000, until(6_000), vec![]),
    (10_499, Event::Wake, vec![]),
    (10_500, Event::Wake, vec![KillAll]),
], Status::NotStarted, true)]
#[case::but_not_past_the_lease(vec![
    (500, stop(INT, 10_500), vec![All(INT)]),
    (4_500, Event::Wake, vec![KillAll]),
], Status::NotStarted, true)]
#[case::a_second_stop_only_brings_the_end_forward(vec![
    (500, stop(INT, 4_000), vec![All(INT)]),
    (600, stop(TERM, 2_000), vec![]),
    (700, stop(TERM, 9_000), vec![]),
    (1_999, Event::Wake, vec![]),
    (2_000, Event::Wake, vec![KillAll]),
], Status::NotStarted, true)]
#[case::kill_at_once(vec![
    (500, Event::Order(Order::Kill), vec![KillAll]),
    (500, Event::MainEnded(KILL), vec![KillAll]),
], KILL, true)]
#[case::a_runner_that_is_gone(vec![
    (500, Event::RunnerGone, vec![All(TERM)]),
    (4_499, Event::Wake, vec![]),
    (4_500, Event::Wake, vec![KillAll]),
], Status::NotStarted, true)]
#[case::signals_pass_to_the_main_process_while_it_lives(vec![
    (100, Event::Order(Order::Forward(HUP)), vec![Main(HUP)]),
    (200, Event::MainEnded(code(3)), vec![All(TERM)]),
    (300, Event::Order(Order::Forward(HUP)), vec![]),
], code(3), false)]
#[case::what_outlives_the_main_process_is_ended(vec![
    (200, Event::MainEnded(code(0)), vec![All(TERM)]),
    (2_000, until(2_000), vec![]),
    (4_000, until(4_000), vec![]),
    (5_199, Event::Wake, vec![]),
    (5_200, Event::Wake, vec![KillAll]),
    (5_201, Event::OtherEnded, vec![KillAll]),
], code(0), false)]
#[case::a_keeper_that_is_told_to_end(vec![
    (100, Event::Terminated, vec![All(TERM)]),
    (200, Event::OtherEnded, vec![]),
    (300, Event::MainEnded(Status::Signal(15)), vec![]),
], Status::Signal(15), true)]
fn the_keeper_acts_by_the_script(#[case] script: Script, #[case] status: Status, #[case] stopped: bool) {
    let mut deadline = CommandDeadline::new(lease(0), ms(GRACE));
    for (number, (at, event, expected)) in script.into_iter().enumerate() {
        let shown = format!("step {number}, at {at} ms: {event:?}");
        assert_eq!(deadline.step(ms(at), event), expected, "{shown}");
    }
    assert_eq!(deadline.ended(), Ended { status, stopped });
}
