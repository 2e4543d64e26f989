//! When who is probed, in both modes.

use super::*;
use rstest::rstest;

fn every(seconds: u64) -> Probe {
    Probe {
        period: Duration::from_secs(seconds),
        ..probe()
    }
}

/// A moment before.
fn before(seconds: u64) -> Now {
    at(secs(seconds).mono.saturating_sub(Duration::from_nanos(1)))
}

fn tenths(made: &[(Duration, Kind)]) -> Vec<u64> {
    made.iter()
        .map(|(when, _)| (when.as_millis() / 100) as u64)
        .collect()
}

/// One liveness probe of period `seconds`, of a container that started at 100 s, as did the worker.
fn one(compat: Compat, probe: Probe) -> Engine {
    let mut engine = engine(compat);
    engine.add_pod(simple("p", &[(Kind::Liveness, probe)]), secs(100));
    engine.update_status("p", up("c://1", 100), secs(100));
    engine
}

#[test]
fn the_kubelet_probes_at_once_and_then_each_period() {
    let mut engine = one(Compat::Kubelet, every(10));
    assert_eq!(
        tenths(&drive(&mut engine, secs(135), well)),
        [1000, 1100, 1200, 1300]
    );
    assert_eq!(engine.due(), Some(secs(140).mono));
}

#[test]
fn the_kubelet_waits_for_the_first_tick_after_the_initial_delay() {
    let mut engine = one(
        Compat::Kubelet,
        Probe {
            initial_delay: Duration::from_secs(12),
            ..every(10)
        },
    );
    assert_eq!(tenths(&drive(&mut engine, secs(135), well)), [1200, 1300]);
}

#[test]
fn a_kubelet_that_has_just_started_spreads_its_first_probes() {
    let mut settings = config(Compat::Kubelet);
    settings.policy.started = secs(100);
    let mut engine = Engine::new(settings);
    for index in 0..1000 {
        let uid = format!("p{index}");
        engine.add_pod(simple(&uid, &[(Kind::Liveness, every(10))]), secs(100));
        engine.update_status(&uid, up("c://1", 100), secs(100));
    }
    let made = drive(&mut engine, before(120), well);
    assert_eq!(made.len(), 2000, "each twice in two periods");
    for second in 100..120 {
        let among = made.iter().filter(|(when, _)| when.as_secs() == second).count();
        assert!((60..140).contains(&among), "{among} of 1000 in second {second}");
    }
}

#[test]
fn a_long_attempt_leaves_one_tick_pending_in_the_kubelet_and_none_in_strict_mode() {
    for compat in [Compat::Kubelet, Compat::Strict] {
        let mut engine = one(compat, every(10));
        let attempt = engine.next_attempt(secs(100)).expect("due at once");
        assert!(
            attempts(&mut engine, secs(134)).is_empty(),
            "one attempt of a worker at a time"
        );
        engine.settle(attempt.ticket, Outcome::success(""), false, secs(134));
        let next: Vec<_> = attempts(&mut engine, secs(134));
        assert_eq!(next.len(), usize::from(compat == Compat::Kubelet));
        for attempt in next {
            assert_eq!(
                attempt.lag,
                Duration::ZERO,
                "the prober is not late, the probe is"
            );
            engine.settle(attempt.ticket, Outcome::success(""), false, secs(135));
            assert_eq!(engine.due(), Some(secs(140).mono), "the grid stays");
        }
        let due = engine.due().expect("there is a next");
        assert!(due > secs(134).mono && due <= secs(144).mono, "{due:?}");
    }
}

#[test]
fn a_manual_trigger_probes_at_once_and_starts_the_grid_anew() {
    let mut engine = engine(Compat::Kubelet);
    engine.add_pod(simple("p", &[(Kind::Readiness, every(10))]), secs(100));
    engine.update_status("p", up("c://1", 100), secs(100));
    drive(&mut engine, secs(103), badly);
    engine.update_status("p", up("c://1", 100), secs(104));
    assert_eq!(tenths(&drive(&mut engine, secs(116), badly)), [1040, 1140]);
}

#[test]
fn triggers_while_an_attempt_runs_are_kept_as_one() {
    let mut engine = engine(Compat::Kubelet);
    engine.add_pod(simple("p", &[(Kind::Readiness, every(10))]), secs(100));
    engine.update_status("p", up("c://1", 100), secs(100));
    let attempt = engine.next_attempt(secs(100)).expect("due");
    for _ in 0..5 {
        engine.update_status("p", up("c://1", 100), secs(101));
    }
    assert!(engine.next_attempt(secs(101)).is_none());
    engine.settle(attempt.ticket, Outcome::failure(""), false, secs(102));
    assert_eq!(tenths(&drive(&mut engine, secs(115), badly)), [1020, 1120]);
}

#[test]
fn strict_mode_probes_exactly_after_the_delay_and_then_on_the_workers_own_grid() {
    let (mut engine, mut phases) = (engine(Compat::Strict), Vec::new());
    let delayed = Probe {
        initial_delay: Duration::from_millis(1500),
        ..every(10)
    };
    for index in 0..200 {
        let uid = format!("p{index}");
        engine.add_pod(simple(&uid, &[(Kind::Liveness, delayed.clone())]), secs(90));
        assert!(drive(&mut engine, before(100), well).is_empty());
        engine.update_status(&uid, up("c://1", 100), secs(100));
        let made = drive(&mut engine, secs(140), well);
        let whens: Vec<_> = made.iter().map(|(when, _)| *when).collect();
        let (first, second) = (whens[0], whens[1]);
        assert_eq!(first, Duration::from_millis(101_500));
        let gap = second.saturating_sub(first);
        assert!(gap >= 5 * SECOND && gap < 15 * SECOND, "{gap:?}");
        assert!(
            whens[1..].windows(2).all(|pair| pair[1] == pair[0] + 10 * SECOND),
            "{whens:?}"
        );
        phases.push(second.as_millis() % 10_000 / 1000);
        engine.remove_pod(&uid);
    }
    for second in 0..10 {
        assert!(
            phases.contains(&second),
            "no pod of 200 in second {second}: they are not spread"
        );
    }
}

#[test]
fn strict_mode_meets_a_new_container_at_once() {
    let mut engine = one(Compat::Strict, every(60));
    drive(&mut engine, secs(110), well);
    engine.update_status("p", up("c://1", 100), secs(111));
    assert!(
        drive(&mut engine, secs(111), well).is_empty(),
        "nothing has changed"
    );
    engine.update_status("p", up("c://2", 112), secs(112));
    assert_eq!(tenths(&drive(&mut engine, secs(113), well)), [1120]);
}

#[rstest]
#[case::older(10, false)]
#[case::taken_over(999, true)]
fn strict_mode_does_not_probe_everything_at_once_because_it_was_restarted(
    #[case] since: u64,
    #[case] taken_over: bool,
) {
    let mut seen = up("c://1", since);
    seen.containers[0].taken_over = taken_over;
    let mut settings = config(Compat::Strict);
    settings.policy.started = secs(1000);
    let mut engine = Engine::new(settings);
    for index in 0..100 {
        let uid = format!("p{index}");
        engine.add_pod(simple(&uid, &[(Kind::Liveness, every(10))]), secs(1000));
        engine.update_status(&uid, seen.clone(), secs(1000));
    }
    let made = drive(&mut engine, secs(1010), well);
    let first = made.iter().filter(|(when, _)| when.as_secs() == 1000).count();
    assert!(
        (100..=101).contains(&made.len()) && first < 30,
        "{first} of {}",
        made.len()
    );
}

#[test]
fn an_answer_about_a_container_that_is_gone_counts_in_the_kubelet_alone() {
    for (compat, events) in [(Compat::Kubelet, 1), (Compat::Strict, 0)] {
        let mut engine = one(
            compat,
            Probe {
                failure_threshold: 1,
                ..every(10)
            },
        );
        let attempt = engine.next_attempt(secs(100)).expect("due");
        engine.update_status("p", up("c://2", 101), secs(101));
        engine.settle(attempt.ticket, Outcome::failure("gone"), false, secs(102));
        let notices = engine.drain();
        assert_eq!(
            notices
                .iter()
                .filter(|notice| matches!(notice, Notice::Event { .. }))
                .count(),
            events
        );
        let old = engine.reading("p", "c", Kind::Liveness, "c://1");
        let expected = if compat == Compat::Kubelet {
            Reading::Failure
        } else {
            Reading::Success
        };
        assert_eq!(old, Some(expected));
        assert_eq!(engine.reading("p", "c", Kind::Liveness, "c://2"), None);
        drive(&mut engine, secs(125), well);
        assert_eq!(
            engine.reading("p", "c", Kind::Liveness, "c://2"),
            Some(Reading::Success)
        );
    }
}

#[test]
fn a_starved_prober_says_nothing_in_strict_mode() {
    let mut engine = one(
        Compat::Strict,
        Probe {
            failure_threshold: 1,
            ..every(10)
        },
    );
    for (outcome, starved) in [
        (Outcome::failure("late"), true),
        (Outcome::error(Verdict::Unknown, "late"), true),
        (Outcome::success("late, but well"), false),
    ] {
        let due = at(engine.due().expect("a next").max(secs(100).mono));
        let attempt = engine.next_attempt(due).expect("due");
        engine.drain();
        engine.settle(attempt.ticket, outcome, true, due);
        let notices = engine.drain();
        let [
            Notice::Ended {
                outcome,
                starved: told,
                ..
            },
        ] = &notices[..]
        else {
            panic!("neither an event nor a change is expected: {notices:?}");
        };
        assert_eq!((*told, outcome.verdict == Verdict::Unknown), (starved, starved));
    }
    let tally = engine.inspect().next().expect("a worker").tally;
    assert_eq!(
        (tally.unknown, tally.failed, tally.errored, tally.successful),
        (2, 0, 0, 1)
    );
}

#[test]
fn extreme_times_neither_panic_nor_spin() {
    let most = Duration::new(u64::MAX, 999_999_999);
    let times = [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_secs(u64::MAX),
        most,
    ];
    for compat in [Compat::Kubelet, Compat::Strict] {
        for period in times {
            for initial_delay in times {
                for now in [
                    at(Duration::ZERO),
                    secs(100),
                    at(Duration::from_secs(u64::MAX)),
                    at(most),
                ] {
                    let mut engine = engine(compat);
                    let extreme = Probe {
                        period,
                        initial_delay,
                        timeout: most,
                        ..probe()
                    };
                    engine.add_pod(simple("p", &Kind::ALL.map(|kind| (kind, extreme.clone()))), now);
                    engine.update_status("p", up("c://1", 0), now);
                    for _ in 0..50 {
                        let Some(due) = engine.due() else { break };
                        let then = at(due.max(now.mono));
                        let Some(attempt) = engine.next_attempt(then) else {
                            assert!(
                                engine.due().is_none_or(|next| next > then.mono),
                                "due() must move on"
                            );
                            continue;
                        };
                        engine.settle(attempt.ticket, Outcome::success(""), false, then);
                    }
                    engine.remove_pod("p");
                    assert_empty(&engine);
                }
            }
        }
    }
}

#[test]
fn a_status_alone_costs_no_memory_to_speak_of() {
    assert!(size_of::<Slot>() < 768, "{} bytes", size_of::<Slot>());
}

#[test]
fn news_of_a_container_do_not_hasten_its_failures() {
    let mut engine = engine(Compat::Strict);
    engine.add_pod(simple("p", &[(Kind::Liveness, probe())]), secs(100));
    let mut made = Vec::new();
    for (millis, address, phase) in [
        (0, None, Phase::Pending),
        (10, Some([10, 0, 0, 1].into()), Phase::Pending),
        (20, Some([10, 0, 0, 1].into()), Phase::Running),
        (30, Some([10, 0, 0, 2].into()), Phase::Running),
    ] {
        let now = at(secs(100).mono + Duration::from_millis(millis));
        let seen = PodStatus {
            phase,
            address,
            ..up("c://1", 100)
        };
        engine.update_status("p", seen, now);
        made.extend(drive(&mut engine, now, badly));
    }
    assert_eq!(
        made,
        [(secs(100).mono, Kind::Liveness)],
        "the first at once, the others in their time"
    );
    made.extend(drive(&mut engine, secs(140), badly));
    assert_eq!(made.len(), 3);
    for two in made.windows(2) {
        assert!(two[1].0 >= two[0].0 + 5 * SECOND, "{made:?}");
    }
}

#[test]
fn news_during_an_attempt_do_not_hasten_the_next() {
    let mut engine = engine(Compat::Strict);
    engine.add_pod(simple("p", &[(Kind::Liveness, probe())]), secs(100));
    let pending = PodStatus {
        phase: Phase::Pending,
        ..up("c://1", 100)
    };
    engine.update_status("p", pending, secs(100));
    let attempt = engine.next_attempt(secs(100)).expect("the first");
    engine.update_status("p", up("c://1", 100), secs(100));
    engine.settle(attempt.ticket, Outcome::failure(""), false, secs(101));
    assert_eq!(engine.next_attempt(secs(101)).map(|attempt| attempt.key), None);
    assert!(engine.due().is_some_and(|due| due > secs(104).mono));
}

#[test]
fn a_container_is_new_whatever_the_wall_clock_showed_when_the_prober_started() {
    // A machine whose clock was two hours ahead, until it was corrected.
    let hours = Duration::from_secs(7200);
    let mut settings = config(Compat::Strict);
    settings.policy.started = Now {
        mono: secs(90).mono,
        wall: secs(90).wall + hours,
    };
    let mut engine = Engine::new(settings);
    let delayed = Probe {
        initial_delay: 3 * SECOND,
        ..probe()
    };
    engine.add_pod(simple("p", &[(Kind::Liveness, delayed)]), secs(100));
    engine.update_status("p", up("c://1", 100), secs(101));
    let made = drive(&mut engine, secs(104), well);
    assert_eq!(
        published(&engine.drain()).first().map(|row| row.1),
        Some(Reading::Success),
        "a new container has its initial reading"
    );
    assert_eq!(
        made,
        [(secs(103).mono, Kind::Liveness)],
        "exactly when its delay is over"
    );
}

#[test]
fn after_the_last_attempt_nothing_is_due_at_that_time() {
    let mut settings = config(Compat::Kubelet);
    settings.policy.started = secs(100);
    settings.concurrency = 1;
    let mut engine = Engine::new(settings);
    engine.add_pod(simple("other", &[(Kind::Liveness, every(1))]), secs(100));
    engine.update_status("other", up("c://1", 100), secs(100));
    let attempt = engine.next_attempt(secs(101)).expect("it takes the place");
    // Asked for while it sleeps, it lines up, and its container ends before its turn comes.
    engine.add_pod(simple("p", &[(Kind::Readiness, every(60))]), secs(102));
    engine.update_status("p", up("c://1", 100), secs(102));
    assert_eq!(engine.next_attempt(secs(170)).map(|attempt| attempt.key), None);
    let waiting = in_state("c", "c://1", ContainerState::Waiting);
    engine.update_status("p", status([waiting]), secs(170));
    engine.remove_pod("other");
    engine.settle(attempt.ticket, Outcome::success(""), false, secs(170));
    assert_eq!(engine.next_attempt(secs(170)).map(|attempt| attempt.key), None);
    assert!(engine.due() > Some(secs(170).mono), "{:?}", engine.due());
}
