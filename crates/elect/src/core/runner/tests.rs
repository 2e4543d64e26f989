//! Each script lists events with their times in milliseconds, and the actions that must follow.

use super::Action::{Destroy, Exit, Extend, Forward, Kill, Stop, Withdraw};
use super::*;
use rstest::rstest;

const GRACE: u64 = 20_000;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn token(transitions: i32) -> FencingToken {
    FencingToken {
        lease_uid: "u".into(),
        transitions,
    }
}

/// A term renewed at `at`, with 5/3/1 s: TERM at +3 s, KILL at +4.5 s, everything at +4.75 s.
fn renewed(at: u64) -> Deadlines {
    Deadlines::new(ms(at + 3_000), ms(at + 5_000))
}

fn leads(transitions: i32, at: u64) -> Event {
    Event::Leads {
        token: token(transitions),
        deadlines: renewed(at),
    }
}

fn start(transitions: i32, at: u64) -> Action {
    Action::Start {
        token: token(transitions),
        deadlines: renewed(at),
    }
}

fn without_grace(action: Action) -> Action {
    match action {
        Action::Start { token, deadlines } => Action::Start {
            token,
            deadlines: deadlines.without_grace(),
        },
        other => other,
    }
}

fn stop(signal: Signal, kill: u64) -> Action {
    let kill = ms(kill);
    Stop { signal, kill }
}

fn by_itself(code: i32) -> Event {
    let status = Status::Code(code);
    Event::Ended(Ended {
        status,
        stopped: false,
    })
}

fn stopped(status: Status) -> Event {
    Event::Ended(Ended {
        status,
        stopped: true,
    })
}

fn by(signal: Signal) -> Status {
    Status::Signal(signal as i32)
}

fn over(reason: StopReason) -> Event {
    Event::ElectionEnded(Some(reason))
}

const TERM: Signal = Signal::SIGTERM;
const INT: Signal = Signal::SIGINT;
const KILL: Signal = Signal::SIGKILL;
const GIVEN_BACK: StopReason = StopReason::Cancelled { drained: true };

/// Times in milliseconds.
type Script = Vec<(u64, Event, Vec<Action>)>;

#[rstest]
#[case::a_follower_runs_nothing(OnLost::Exit, vec![
    (0, Event::Follows, vec![]),
    (1, Event::Wake, vec![]),
    (2, Event::Signal(Signal::SIGHUP), vec![]),
])]
#[case::a_command_that_ends_by_itself_ends_the_runner(OnLost::Exit, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (1_000, leads(0, 1_000), vec![Extend(renewed(1_000))]),
    (1_001, leads(0, 1_000), vec![]),
    (1_500, by_itself(7), vec![Withdraw]),
    (1_600, over(GIVEN_BACK), vec![Exit(7)]),
    (1_700, Event::Wake, vec![]),
])]
#[case::so_does_one_ended_by_a_signal_of_somebody_else(OnLost::Stop, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (1_500, Event::Ended(Ended { status: by(Signal::SIGSEGV), stopped: false }), vec![Withdraw]),
    (1_600, over(GIVEN_BACK), vec![Exit(139)]),
])]
#[case::exit_at_a_loss(OnLost::Exit, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (3_000, Event::Follows, vec![stop(TERM, 4_500)]),
    (3_001, over(StopReason::Lost(Loss::Deadline)), vec![]),
    (3_500, stopped(by(TERM)), vec![Exit(LOST)]),
])]
#[case::exit_at_a_loss_that_the_keeper_saw_first(OnLost::Exit, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (3_100, stopped(by(TERM)), vec![Withdraw]),
    (3_200, Event::Follows, vec![]),
    (3_201, over(StopReason::Lost(Loss::Deadline)), vec![Exit(LOST)]),
])]
#[case::stop_and_campaign(OnLost::Stop, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (3_000, Event::Follows, vec![stop(TERM, 4_500)]),
    (4_600, stopped(by(KILL)), vec![]),
    (9_000, leads(1, 9_000), vec![start(1, 9_000)]),
])]
#[case::kill_and_campaign(OnLost::Kill, vec![
    (0, leads(0, 0), vec![without_grace(start(0, 0))]),
    (500, leads(0, 500), vec![Extend(renewed(500).without_grace())]),
    (3_500, Event::Follows, vec![Kill]),
    (3_510, stopped(by(KILL)), vec![]),
    (9_000, leads(1, 9_000), vec![without_grace(start(1, 9_000))]),
])]
#[case::a_killed_command_is_destroyed_no_later_than_a_stopped_one(OnLost::Kill, vec![
    (0, leads(0, 0), vec![without_grace(start(0, 0))]),
    (3_000, Event::Follows, vec![Kill]),
    (4_749, Event::Wake, vec![]),
    (4_750, Event::Wake, vec![Destroy]),
])]
#[case::another_holder_leaves_no_more_time_than_the_deadline_would(OnLost::Stop, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (500, Event::Follows, vec![stop(TERM, 2_000)]),
])]
#[case::recovered_while_it_ends_starts_anew_after_the_end(OnLost::Stop, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (3_000, Event::Follows, vec![stop(TERM, 4_500)]),
    (3_400, leads(0, 3_400), vec![]),
    (4_000, leads(0, 4_000), vec![]),
    (4_510, stopped(by(KILL)), vec![start(0, 4_000)]),
    (5_000, leads(0, 5_000), vec![Extend(renewed(5_000))]),
])]
#[case::a_new_term_without_word_of_the_old_ones_end(OnLost::Stop, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (2_000, leads(2, 2_000), vec![stop(TERM, 3_500)]),
    (2_100, stopped(Status::Code(0)), vec![start(2, 2_000)]),
])]
#[case::a_term_without_time_left_starts_nothing(OnLost::Stop, vec![
    (3_000, leads(0, 0), vec![]),
    (3_100, leads(0, 3_050), vec![start(0, 3_050)]),
])]
#[case::the_keeper_missed_a_renewal_that_came(OnLost::Stop, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (2_990, leads(0, 2_990), vec![Extend(renewed(2_990))]),
    (3_100, stopped(by(TERM)), vec![start(0, 2_990)]),
])]
#[case::asked_to_stop_while_following(OnLost::Exit, vec![
    (0, Event::Follows, vec![]),
    (1, Event::Signal(TERM), vec![Withdraw]),
    (2, over(GIVEN_BACK), vec![Exit(0)]),
])]
#[case::asked_to_stop_it_drains_while_it_leads(OnLost::Exit, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (500, Event::Signal(INT), vec![stop(INT, 500 + GRACE)]),
    (1_000, leads(0, 1_000), vec![Extend(renewed(1_000))]),
    (2_000, leads(0, 2_000), vec![Extend(renewed(2_000))]),
    (2_500, stopped(by(INT)), vec![Withdraw]),
    (2_600, over(GIVEN_BACK), vec![Exit(0)]),
])]
#[case::the_commands_own_code_tells_of_a_bad_end(OnLost::Exit, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (500, Event::Signal(TERM), vec![stop(TERM, 500 + GRACE)]),
    (600, stopped(Status::Code(4)), vec![Withdraw]),
    (700, over(GIVEN_BACK), vec![Exit(4)]),
])]
#[case::a_command_that_had_to_be_killed_tells(OnLost::Exit, vec![
    (0, leads(0, 19_000), vec![start(0, 19_000)]),
    (500, Event::Signal(TERM), vec![stop(TERM, 500 + GRACE)]),
    (20_600, stopped(by(KILL)), vec![Withdraw]),
    (20_700, over(GIVEN_BACK), vec![Exit(137)]),
])]
#[case::lost_while_it_drains(OnLost::Stop, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (500, Event::Signal(TERM), vec![stop(TERM, 500 + GRACE)]),
    (3_000, Event::Follows, vec![stop(TERM, 4_500)]),
    (3_100, leads(1, 3_100), vec![]),
    (4_500, stopped(by(KILL)), vec![Withdraw]),
    (4_600, over(GIVEN_BACK), vec![Exit(137)]),
])]
#[case::asked_while_it_ends_for_a_loss(OnLost::Stop, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (3_000, Event::Follows, vec![stop(TERM, 4_500)]),
    (3_100, Event::Signal(TERM), vec![]),
    (3_200, stopped(by(TERM)), vec![Withdraw]),
    (3_300, over(GIVEN_BACK), vec![Exit(0)]),
])]
#[case::a_second_signal_kills(OnLost::Exit, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (500, Event::Signal(TERM), vec![stop(TERM, 500 + GRACE)]),
    (600, Event::Signal(INT), vec![Kill]),
    (610, stopped(by(KILL)), vec![Exit(130)]),
])]
#[case::a_second_signal_does_not_wait_for_the_release(OnLost::Exit, vec![
    (0, Event::Signal(TERM), vec![Withdraw]),
    (10, Event::Signal(TERM), vec![Exit(143)]),
])]
#[case::the_first_signal_waits_for_the_release(OnLost::Exit, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (500, by_itself(0), vec![Withdraw]),
    (510, Event::Signal(TERM), vec![]),
    (600, over(GIVEN_BACK), vec![Exit(0)]),
])]
#[case::and_the_second_one_does_not(OnLost::Exit, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (500, by_itself(0), vec![Withdraw]),
    (510, Event::Signal(TERM), vec![]),
    (520, Event::Signal(INT), vec![Exit(130)]),
])]
#[case::other_signals_pass(OnLost::Exit, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (1, Event::Signal(Signal::SIGHUP), vec![Forward(Signal::SIGHUP)]),
    (2, Event::Signal(Signal::SIGQUIT), vec![Forward(Signal::SIGQUIT)]),
    (3, Event::Signal(TERM), vec![stop(TERM, 3 + GRACE)]),
    (4, Event::Signal(Signal::SIGUSR1), vec![Forward(Signal::SIGUSR1)]),
])]
#[case::a_twin_ends_it_for_good(OnLost::Stop, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (500, Event::Follows, vec![stop(TERM, 2_000)]),
    (501, over(StopReason::DuplicateIdentity), vec![]),
    (600, stopped(by(TERM)), vec![Exit(DUPLICATE)]),
])]
#[case::a_twin_that_is_named_after_the_commands_end(OnLost::Exit, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (500, Event::Follows, vec![stop(TERM, 2_000)]),
    (600, stopped(by(TERM)), vec![Withdraw]),
    (610, over(StopReason::DuplicateIdentity), vec![Exit(DUPLICATE)]),
])]
#[case::a_twin_of_a_follower(OnLost::Exit, vec![
    (0, over(StopReason::DuplicateIdentity), vec![Exit(DUPLICATE)]),
])]
#[case::an_election_that_ends_without_a_word(OnLost::Stop, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (500, over(StopReason::RecoveryDeadline), vec![stop(TERM, 2_000)]),
    (600, stopped(Status::Code(0)), vec![Exit(LOST)]),
])]
#[case::a_candidate_that_dies_of_a_defect(OnLost::Stop, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (500, Event::ElectionEnded(None), vec![stop(TERM, 2_000)]),
    (600, stopped(Status::Code(0)), vec![Exit(FAILED)]),
])]
#[case::a_keeper_that_was_killed(OnLost::Stop, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (500, Event::KeeperGone, vec![Withdraw]),
    (600, over(GIVEN_BACK), vec![Exit(FAILED)]),
])]
#[case::a_keeper_that_sleeps_is_destroyed_before_the_lease_is_free(OnLost::Stop, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (3_000, Event::Follows, vec![stop(TERM, 4_500)]),
    (4_749, Event::Wake, vec![]),
    (4_750, Event::Wake, vec![Destroy]),
    (4_751, Event::Wake, vec![]),
    (4_760, Event::KeeperGone, vec![]),
    (9_000, leads(1, 9_000), vec![start(1, 9_000)]),
])]
#[case::so_is_one_without_word_of_the_election(OnLost::Exit, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (4_750, Event::Wake, vec![Destroy]),
    (4_760, Event::KeeperGone, vec![Withdraw]),
    (4_770, over(StopReason::Lost(Loss::Deadline)), vec![Exit(LOST)]),
])]
#[case::so_is_one_that_does_not_kill_at_a_second_signal(OnLost::Exit, vec![
    (0, leads(0, 0), vec![start(0, 0)]),
    (100, Event::Signal(TERM), vec![stop(TERM, 100 + GRACE)]),
    (200, Event::Signal(TERM), vec![Kill]),
    (449, Event::Wake, vec![]),
    (450, Event::Wake, vec![Destroy]),
    (460, Event::KeeperGone, vec![Exit(143)]),
])]
fn the_runner_acts_by_the_script(#[case] on_lost: OnLost, #[case] script: Script) {
    let mut runner = Runner::new(on_lost, ms(GRACE));
    for (number, (at, event, expected)) in script.into_iter().enumerate() {
        let shown = format!("step {number}, at {at} ms: {event:?}");
        assert_eq!(runner.step(ms(at), event), expected, "{shown}");
    }
}

#[test]
fn it_wants_to_be_woken_while_a_command_runs() {
    let mut runner = Runner::new(OnLost::Stop, ms(GRACE));
    assert_eq!(runner.wake_at(), None);
    runner.step(ms(0), leads(0, 0));
    assert_eq!(runner.wake_at(), Some(ms(4_750)));
    runner.step(ms(1_000), leads(0, 1_000));
    assert_eq!(runner.wake_at(), Some(ms(5_750)));
    runner.step(ms(5_750), Event::Wake);
    assert_eq!(runner.wake_at(), None);
}
