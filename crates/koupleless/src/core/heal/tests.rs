//! Healings step by step.

use super::*;
use rstest::rstest;
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A reading of so many percent of 100 MiB.
fn percent(percent: u64) -> Reading {
    Reading {
        used: Some(percent * MIB),
        committed: Some(percent * MIB),
        max: Some(100 * MIB as i64),
        uptime: None,
    }
}

/// A machine with a clock, and what it asked for and told.
struct Healing {
    machine: Machine,
    now: Duration,
    asked: Option<Action>,
    scenes: Vec<Scene>,
    wake: Option<Duration>,
    finished: bool,
}

impl Healing {
    fn new() -> Self {
        let mut healing = Self {
            machine: Machine::new(Settings::default()),
            now: seconds(1_000),
            asked: None,
            scenes: Vec::new(),
            wake: None,
            finished: false,
        };
        healing.pod(Some("pod-1"));
        healing
    }

    fn on(&mut self, input: Input) -> &mut Self {
        let output = self.machine.on(self.now, input);
        if let Some(action) = output.action {
            assert_eq!(self.asked.replace(action), None, "one at a time");
        }
        self.scenes
            .extend(output.notes.into_iter().map(|note| note.scene));
        (self.wake, self.finished) = (output.wake, output.finished);
        self
    }

    fn pod(&mut self, uid: Option<&str>) -> &mut Self {
        let pod = uid.map(Arc::from);
        self.on(Input::Base { silent: false, pod })
    }

    fn silent(&mut self, silent: bool) -> &mut Self {
        let pod = Some(Arc::from("pod-1"));
        self.on(Input::Base { silent, pod })
    }

    fn reads(&mut self, times: usize, share: u64) -> &mut Self {
        for _ in 0..times {
            self.on(Input::Health(Some(percent(share))));
        }
        self
    }

    /// The action that is under way must be `action`; it is answered.
    #[track_caller]
    fn answers(&mut self, action: Action, answer: Answer) -> &mut Self {
        assert_eq!(self.asked.take(), Some(action));
        self.on(Input::Answer(answer))
    }

    #[track_caller]
    fn idle(&mut self) -> &mut Self {
        assert_eq!(self.asked, None);
        self
    }

    fn after(&mut self, time: u64) -> &mut Self {
        self.now += seconds(time);
        self.on(Input::Tick)
    }

    fn drained(&mut self) -> &mut Self {
        self.reads(3, 90)
            .answers(Action::Acquire, Answer::Done)
            .answers(Action::Taint, Answer::Done)
            .answers(Action::Inspect, seen(0))
    }

    fn emptied(&mut self) -> &mut Self {
        self.drained()
            .answers(Action::Uninstall, Answer::Left(0))
            .reads(3, 90)
            .after(60)
    }
}

fn seen(pods: usize) -> Answer {
    Answer::Seen { pods, tainted: true }
}

fn replace() -> Action {
    Action::Replace("pod-1".into())
}

fn failed() -> Answer {
    Answer::Failed("no".to_owned())
}

#[test]
fn a_base_is_tainted_drained_emptied_and_replaced() {
    let mut healing = Healing::new();
    healing.reads(2, 90).idle().reads(1, 85);
    healing
        .answers(Action::Acquire, Answer::Done)
        .answers(Action::Taint, Answer::Done)
        .answers(Action::Inspect, seen(2))
        .idle()
        .after(2)
        .answers(Action::Inspect, seen(0))
        .answers(Action::Uninstall, Answer::Left(0))
        .reads(3, 80)
        .idle()
        .after(60)
        .answers(Action::Inspect, seen(0))
        .answers(replace(), Answer::Done)
        .idle()
        .pod(Some("pod-2"))
        .answers(Action::Untaint, Answer::Done)
        .answers(Action::Release, Answer::Done)
        .idle();
    let scenes = [
        Scene::Overload,
        Scene::Begun,
        Scene::Drained,
        Scene::Uninstalled,
        Scene::Replacing,
        Scene::Ended,
    ];
    assert_eq!(healing.scenes, scenes);
    assert_eq!(*healing.machine.phase(), Phase::Well);
}

#[rstest]
#[case::in_a_row(&[90, 90, 84, 90, 90], false)]
#[case::enough(&[90, 90, 84, 90, 90, 90], true)]
#[case::between_the_marks(&[84; 20], false)]
fn readings_must_be_high_in_a_row(#[case] shares: &[u64], #[case] heals: bool) {
    let mut healing = Healing::new();
    for share in shares {
        healing.reads(1, *share);
    }
    assert_eq!(healing.asked.is_some(), heals);
}

#[rstest]
#[case::no_limit(Reading { max: Some(-1), ..percent(90) }, Judgement::None)]
#[case::limit_absent(Reading { max: None, ..percent(90) }, Judgement::None)]
#[case::limit_of_zero(Reading { max: Some(0), ..percent(90) }, Judgement::None)]
#[case::used_absent(Reading { used: None, ..percent(90) }, Judgement::None)]
#[case::high(percent(85), Judgement::High)]
#[case::middle(percent(84), Judgement::Middle)]
#[case::still_middle(percent(70), Judgement::Middle)]
#[case::low(percent(69), Judgement::Low)]
#[case::absurd(Reading { used: Some(u64::MAX), max: Some(1), ..percent(0) }, Judgement::High)]
fn readings_are_judged(#[case] reading: Reading, #[case] judgement: Judgement) {
    assert_eq!(reading.judge(&Settings::default()), judgement);
}

#[test]
fn what_is_committed_can_be_the_measure() {
    let settings = Settings {
        measure: Measure::Committed,
        ..Settings::default()
    };
    let reading = Reading {
        used: Some(10 * MIB),
        ..percent(90)
    };
    assert_eq!(reading.judge(&settings), Judgement::High);
}

#[test]
fn a_base_that_cannot_measure_itself_keeps_its_last_reading() {
    let mut healing = Healing::new();
    healing.reads(2, 90);
    healing.on(Input::Health(None)).on(Input::Health(None)).idle();
    assert_eq!(healing.machine.last, Some(percent(90)));
    healing
        .reads(1, 90)
        .answers(Action::Acquire, Answer::Full("other".to_owned()));
}

#[test]
fn a_silent_base_is_left_alone_and_its_deadlines_wait() {
    let mut healing = Healing::new();
    healing.reads(2, 90).silent(true).reads(5, 90).idle();
    healing
        .silent(false)
        .answers(Action::Acquire, Answer::Done)
        .answers(Action::Taint, Answer::Done);
    healing
        .answers(Action::Inspect, seen(1))
        .silent(true)
        .after(10_000)
        .idle();
    healing
        .silent(false)
        .answers(Action::Inspect, seen(0))
        .answers(Action::Uninstall, failed());
}

#[test]
fn an_action_that_is_under_way_is_waited_for() {
    let mut healing = Healing::new();
    healing.reads(3, 90);
    assert_eq!(healing.asked, Some(Action::Acquire));
    healing.reads(10, 90).after(3_600).pod(Some("pod-2"));
    // It was granted late, and nobody needs it any more.
    healing
        .answers(Action::Acquire, Answer::Done)
        .answers(Action::Release, Answer::Done)
        .idle();
    assert_eq!(healing.scenes, [Scene::Overload]);
}

#[test]
fn without_a_place_in_the_budget_nothing_happens_and_it_is_told_once() {
    let mut healing = Healing::new();
    healing.reads(3, 90);
    for wait in [5, 10, 20, 40, 80, 160, 300, 300] {
        healing
            .answers(Action::Acquire, Answer::Full("vnode.b".to_owned()))
            .idle()
            .after(wait - 1)
            .idle()
            .after(1);
    }
    assert_eq!(healing.scenes, [Scene::Overload, Scene::Held]);
    healing
        .answers(Action::Acquire, Answer::Full("vnode.b".to_owned()))
        .reads(3, 50)
        .after(300)
        .idle();
    assert_eq!(*healing.machine.phase(), Phase::Well);
}

#[test]
fn metaspace_that_comes_back_ends_it_at_any_step() {
    let mut healing = Healing::new();
    healing
        .drained()
        .answers(Action::Uninstall, Answer::Left(0))
        .reads(2, 60)
        .idle()
        .reads(1, 69);
    healing
        .answers(Action::Untaint, failed())
        .idle()
        .after(5)
        .answers(Action::Untaint, Answer::Done)
        .answers(Action::Release, Answer::Done);
    assert_eq!(
        healing.scenes[3..],
        [Scene::Uninstalled, Scene::Held, Scene::Ended]
    );
    // It is left alone for a while.
    healing.reads(5, 90).idle().after(600);
    assert_eq!(healing.asked, Some(Action::Acquire));
}

#[test]
fn readings_of_before_the_uninstall_do_not_show_that_it_helped() {
    let mut healing = Healing::new();
    healing
        .drained()
        .reads(2, 60)
        .answers(Action::Uninstall, Answer::Left(0))
        .reads(1, 60)
        .idle();
}

#[test]
fn pods_that_do_not_leave_end_it_and_the_taint_goes() {
    let mut healing = Healing::new();
    healing
        .reads(3, 90)
        .answers(Action::Acquire, Answer::Done)
        .answers(Action::Taint, Answer::Done);
    for _ in 0..150 {
        healing.answers(Action::Inspect, seen(1)).after(2);
    }
    healing
        .answers(Action::Untaint, Answer::Done)
        .answers(Action::Release, Answer::Done)
        .idle();
    assert_eq!(healing.scenes, [Scene::Overload, Scene::Begun, Scene::GaveUp]);
}

#[test]
fn a_look_that_fails_shows_nothing() {
    let mut healing = Healing::new();
    healing
        .reads(3, 90)
        .answers(Action::Acquire, Answer::Done)
        .answers(Action::Taint, Answer::Done);
    healing.answers(Action::Inspect, failed()).idle();
    assert!(matches!(
        healing.machine.phase(),
        Phase::Draining { pods: None, .. }
    ));
}

#[test]
fn a_taint_that_somebody_took_off_is_set_again_before_anything_else() {
    let mut healing = Healing::new();
    let untainted = Answer::Seen {
        pods: 0,
        tainted: false,
    };
    healing
        .reads(3, 90)
        .answers(Action::Acquire, Answer::Done)
        .answers(Action::Taint, Answer::Done)
        .answers(Action::Inspect, untainted)
        .answers(Action::Taint, Answer::Done)
        .answers(Action::Inspect, seen(0))
        .answers(Action::Uninstall, Answer::Left(0));
}

#[test]
fn a_taint_that_cannot_be_set_gives_way_after_two_minutes() {
    let mut healing = Healing::new();
    healing.reads(3, 90).answers(Action::Acquire, Answer::Done);
    for wait in [5, 10, 20, 40, 80] {
        healing.answers(Action::Taint, failed()).after(wait);
    }
    // The permit is confirmed before anybody else could have it.
    healing
        .answers(Action::Acquire, Answer::Done)
        .answers(Action::Taint, Answer::Done);
}

#[test]
fn modules_that_cannot_be_uninstalled_do_not_stop_it() {
    let mut healing = Healing::new();
    healing.drained();
    for wait in [5, 10, 20, 40, 80] {
        healing.answers(Action::Uninstall, Answer::Left(1)).after(wait);
    }
    assert!(matches!(healing.machine.phase(), Phase::Settling { .. }));
}

#[test]
fn a_refused_eviction_is_asked_for_again_after_another_look() {
    let mut healing = Healing::new();
    healing
        .emptied()
        .answers(Action::Inspect, seen(0))
        .answers(replace(), Answer::Refused("budget".to_owned()));
    healing
        .idle()
        .after(5)
        .answers(Action::Inspect, seen(0))
        .answers(replace(), Answer::Refused("budget".to_owned()));
    healing.idle().after(5).idle().after(5);
    healing
        .answers(Action::Inspect, seen(0))
        .answers(replace(), Answer::Done);
    assert_eq!(healing.scenes[4..], [Scene::Held, Scene::Replacing]);
}

#[test]
fn after_a_silence_there_is_another_look_before_the_base_goes() {
    let mut healing = Healing::new();
    healing
        .emptied()
        .silent(true)
        .answers(Action::Inspect, seen(0))
        .idle()
        .silent(false)
        .answers(Action::Inspect, seen(0))
        .answers(replace(), Answer::Done);
}

#[test]
fn pods_that_came_meanwhile_are_drained_before_the_base_goes() {
    let mut healing = Healing::new();
    healing
        .emptied()
        .answers(Action::Inspect, seen(1))
        .answers(Action::Inspect, seen(0))
        .answers(Action::Uninstall, Answer::Left(0));
}

#[test]
fn an_evicted_pod_that_stays_is_evicted_again() {
    let mut healing = Healing::new();
    healing
        .emptied()
        .answers(Action::Inspect, seen(0))
        .answers(replace(), Answer::Done)
        .after(300)
        .answers(Action::Inspect, seen(0))
        .answers(replace(), Answer::NoPod)
        .idle();
}

#[test]
fn a_base_without_a_known_pod_ends_empty_and_tainted_until_it_is_restarted() {
    let mut healing = Healing::new();
    healing.pod(None).emptied().idle();
    assert_eq!(*healing.machine.phase(), Phase::Spent);
    assert_eq!(healing.scenes.last(), Some(&Scene::Held));
    let uptime = |uptime| {
        let uptime = Some(seconds(uptime));
        Input::Health(Some(Reading {
            uptime,
            ..percent(90)
        }))
    };
    healing
        .on(uptime(500))
        .on(uptime(510))
        .idle()
        .on(uptime(3))
        .answers(Action::Untaint, Answer::Done);
}

#[test]
fn a_pod_that_becomes_known_is_evicted() {
    let mut healing = Healing::new();
    healing
        .pod(None)
        .emptied()
        .idle()
        .pod(Some("pod-1"))
        .answers(Action::Inspect, seen(0))
        .answers(replace(), Answer::Done);
}

#[test]
fn a_base_that_says_nothing_of_its_metaspace_is_not_replaced() {
    let mut healing = Healing::new();
    healing
        .drained()
        .answers(Action::Uninstall, Answer::Left(0))
        .on(Input::Health(None))
        .after(3_600)
        .idle()
        .reads(3, 75)
        .answers(Action::Inspect, seen(0));
}

#[rstest]
#[case::overloaded_still(90, Action::Acquire)]
#[case::not_any_more(80, Action::Untaint)]
#[case::well(50, Action::Untaint)]
fn a_taint_that_is_found_is_judged_by_readings(#[case] share: u64, #[case] action: Action) {
    let mut healing = Healing::new();
    healing
        .on(Input::Found { tainted: true })
        .reads(2, share)
        .idle()
        .reads(1, share);
    assert_eq!(healing.asked, Some(action));
}

#[test]
fn a_node_that_vanishes_gives_its_place_back() {
    let mut healing = Healing::new();
    healing
        .drained()
        .on(Input::Gone)
        .answers(Action::Uninstall, failed())
        .answers(Action::Release, failed());
    assert!(!healing.finished);
    healing.after(5).answers(Action::Release, Answer::Done);
    assert!(healing.finished);
    assert!(Healing::new().on(Input::Gone).finished);
}

#[rstest]
#[case(70, 70)]
#[case(0, 85)]
#[case(70, 101)]
fn marks_that_cannot_work_are_refused(#[case] low: u8, #[case] high: u8) {
    let settings = Settings {
        high,
        low,
        ..Settings::default()
    };
    assert_eq!(settings.validate(), Err(SettingsError::Marks { low, high }));
    assert_eq!(Settings::default().validate(), Ok(()));
}
