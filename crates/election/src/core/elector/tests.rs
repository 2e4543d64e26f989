use super::*;
use proptest::prelude::*;
use rstest::rstest;
use std::collections::VecDeque;

const WALL: i64 = 1_790_000_000;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn now(at: Duration) -> Now {
    let wall = Timestamp::from_microsecond(WALL * 1_000_000 + at.as_micros() as i64).unwrap();
    Now {
        at,
        wall,
        random: 0.5,
    }
}

/// How the fake API treats a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Served,
    /// Nothing happens and the answer is an error.
    Refused,
    /// It happens, and the answer is lost.
    Unanswered,
    /// The answer stays out until somebody gives it by hand.
    Hanging,
}

/// One Lease behind an API that counts and can misbehave.
#[derive(Default)]
struct Api {
    lease: Option<Observation>,
    uids: u32,
    versions: u32,
    fates: VecDeque<Fate>,
    calls: Vec<&'static str>,
}

impl Api {
    fn holding(holder: &str, seconds: i32, transitions: i32) -> Self {
        let mut api = Self::default();
        api.put(Record {
            holder: holder.into(),
            lease_duration_seconds: seconds,
            transitions,
            ..Record::default()
        });
        api
    }

    /// A write by somebody else.
    fn put(&mut self, record: Record) {
        let uid = self.lease.as_ref().map_or_else(
            || {
                self.uids += 1;
                format!("uid-{}", self.uids)
            },
            |lease| lease.uid.clone(),
        );
        self.versions += 1;
        self.lease = Some(Observation {
            record,
            uid,
            version: self.versions.to_string(),
        });
    }

    fn holder(&self) -> &str {
        self.lease.as_ref().map_or("", |lease| &lease.record.holder)
    }

    fn transitions(&self) -> i32 {
        self.lease.as_ref().map_or(-1, |lease| lease.record.transitions)
    }

    /// The answer, or `None` when it is to come later.
    fn serve(&mut self, action: &Action) -> Option<Event> {
        let fate = self.fates.pop_front().unwrap_or(Fate::Served);
        let happens = matches!(fate, Fate::Served | Fate::Unanswered);
        let answer = match action {
            Action::Get => {
                self.calls.push("get");
                Event::Read(match &self.lease {
                    _ if fate != Fate::Served => ReadResult::Failed,
                    Some(lease) => ReadResult::Found(lease.clone()),
                    None => ReadResult::Missing,
                })
            }
            Action::Create(record) => {
                self.calls.push("create");
                let free = self.lease.is_none();
                if happens && free {
                    self.put(record.clone());
                }
                Event::Written(self.written(fate, free))
            }
            Action::Update { record, version } => {
                self.calls.push("update");
                let current = self.lease.as_ref().is_some_and(|lease| lease.version == *version);
                if happens && current {
                    self.put(record.clone());
                }
                Event::Written(self.written(fate, current))
            }
            Action::Wait { .. } | Action::Lost(_) | Action::Publish(_) => unreachable!("no request"),
        };
        (fate != Fate::Hanging).then_some(answer)
    }

    fn written(&self, fate: Fate, allowed: bool) -> WriteResult {
        match (fate, allowed, &self.lease) {
            (Fate::Served, true, Some(lease)) => WriteResult::Done(lease.clone()),
            (Fate::Served, ..) => WriteResult::Conflict,
            _ => WriteResult::Failed,
        }
    }
}

/// A candidate at the fake API, with virtual time and instant answers.
struct Scene {
    api: Api,
    elector: Elector,
    at: Duration,
    wake: Option<Duration>,
    losses: Vec<Loss>,
    states: Vec<State>,
}

impl Scene {
    fn new(api: Api, config: Config) -> Self {
        let elector = Elector::new(config).unwrap();
        Self {
            api,
            elector,
            at: ms(1_000_000),
            wake: None,
            losses: vec![],
            states: vec![],
        }
    }

    /// Sends an event and serves the requests that follow.
    fn send(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in self.elector.step(now(self.at), event) {
                match action {
                    Action::Wait { until } => self.wake = Some(until),
                    Action::Lost(loss) => self.losses.push(loss),
                    Action::Publish(state) => self.states.push(state),
                    request => events.extend(self.api.serve(&request)),
                }
            }
        }
    }

    /// One attempt: sends the wake that is due, or the first one.
    fn attempt(&mut self) {
        self.at = self.at.max(self.wake.unwrap_or(self.at));
        self.wake = None;
        self.send(Event::Wake);
    }

    /// Lets time pass up to `end`, waking the elector when it wants to be.
    fn run_until(&mut self, end: Duration) {
        while let Some(next) = [self.wake, self.elector.valid_until()]
            .into_iter()
            .flatten()
            .min()
            && next <= end
        {
            self.at = self.at.max(next);
            if self.wake.is_some_and(|wake| wake <= self.at) {
                self.wake = None;
            }
            self.send(Event::Wake);
        }
        self.at = end;
    }

    fn leads(&self) -> bool {
        matches!(self.elector.state(), State::Leading { .. })
    }

    fn reported_leader(&self) -> Option<&str> {
        match self.elector.state() {
            State::Leading { .. } => Some(&self.elector.config.identity),
            State::Following { leader } => leader.as_deref(),
            State::Stopped => None,
        }
    }
}

/// Upstream's tests: identity `baz`, 10 s.
fn baz() -> Config {
    Config {
        lease_duration: ms(10_000),
        renew_deadline: ms(7_000),
        retry_period: ms(2_000),
        ..Config::new("ns", "lock", "baz")
    }
}

#[rstest]
#[case::from_no_object(Api::default(), true, 0, &["get", "create"])]
#[case::from_object_without_record(Api::holding("", 0, 0), true, 1, &["get", "update"])]
#[case::from_released(Api::holding("", 1, 4), true, 5, &["get", "update"])]
#[case::not_from_led(Api::holding("bing", 10, 3), false, 3, &["get"])]
#[case::from_led_without_duration(Api::holding("bing", 0, 0), true, 1, &["get", "update"])]
#[case::renew_own(Api::holding("baz", 10, 0), true, 0, &["get", "update"])]
#[case::renew_own_after_restart_without_a_transition(Api::holding("baz", 10, 6), true, 6, &["get", "update"])]
fn the_first_attempt(
    #[case] api: Api,
    #[case] success: bool,
    #[case] transitions: i32,
    #[case] calls: &[&str],
) {
    let before = api.holder().to_owned();
    let mut scene = Scene::new(api, baz());
    scene.attempt();
    assert_eq!(scene.leads(), success);
    let holder = if success { "baz" } else { &*before };
    assert_eq!(scene.api.holder(), holder);
    assert_eq!(scene.reported_leader(), Some(holder));
    assert_eq!(scene.api.transitions(), transitions);
    assert_eq!(scene.api.calls, calls);
}

#[test]
fn the_records_own_duration_decides_not_ours() {
    let mut scene = Scene::new(Api::holding("bing", 3, 0), baz());
    scene.attempt();
    let start = scene.at;
    assert!(!scene.leads());
    scene.run_until(start + ms(2_999));
    assert!(!scene.leads());
    // Not before 3 s, and not later than the spread of 200 ms after them.
    scene.run_until(start + ms(3_200));
    assert!(scene.leads());
    assert_eq!(scene.api.transitions(), 1);
}

#[test]
fn validity_counts_from_the_change_we_saw_not_from_remote_times() {
    for renewed in [0, WALL - 86_400, WALL + 86_400] {
        let mut api = Api::holding("bing", 10, 0);
        let mut record = api.lease.clone().unwrap().record;
        record.renew_time = Some(Timestamp::from_second(renewed).unwrap());
        api.put(record);
        let mut scene = Scene::new(api, baz());
        scene.attempt();
        let start = scene.at;
        scene.run_until(start + ms(9_999));
        assert!(!scene.leads(), "{renewed}");
        scene.run_until(start + ms(10_300));
        assert!(scene.leads(), "{renewed}");
    }
}

#[test]
fn a_label_on_the_lease_is_no_renewal() {
    let mut scene = Scene::new(Api::holding("bing", 10, 0), baz());
    scene.attempt();
    let start = scene.at;
    for second in 1..10 {
        scene.run_until(start + ms(second * 1_000));
        let record = scene.api.lease.clone().unwrap().record;
        scene.api.put(record);
    }
    scene.run_until(start + ms(10_300));
    assert!(scene.leads());
}

#[test]
fn a_renewing_holder_keeps_its_lease() {
    let mut scene = Scene::new(Api::holding("bing", 10, 0), baz());
    scene.attempt();
    let start = scene.at;
    for second in 1..=60 {
        scene.run_until(start + ms(second * 1_000));
        let mut record = scene.api.lease.clone().unwrap().record;
        record.renew_time = Some(now(scene.at).wall);
        scene.api.put(record);
    }
    assert!(!scene.leads());
    assert!(!scene.api.calls.contains(&"update"));
    assert_eq!(
        scene.states,
        [State::Following {
            leader: Some("bing".into())
        }]
    );
}

#[rstest]
#[case::fast_path(&[], &["get", "create", "update", "update"])]
#[case::slow_path_after_the_fast_one(
    &[Fate::Served, Fate::Served, Fate::Served, Fate::Refused],
    &["get", "create", "update", "update", "get", "update", "update"],
)]
fn a_leader_renews_without_reading(#[case] fates: &[Fate], #[case] calls: &[&str]) {
    let mut scene = Scene::new(Api::default(), baz());
    scene.api.fates = fates.iter().copied().collect();
    while scene.api.calls.len() < calls.len() {
        scene.attempt();
        assert!(scene.leads());
    }
    assert_eq!(scene.api.calls, calls);
    assert_eq!(scene.states.len(), 1, "{:?}", scene.states);
}

#[test]
fn renewals_follow_each_other_at_the_retry_period() {
    let mut scene = Scene::new(Api::default(), baz());
    scene.attempt();
    let start = scene.at;
    let acquired = scene.api.lease.clone().unwrap().record.acquire_time;
    scene.run_until(start + ms(6_000));
    assert_eq!(scene.api.calls, ["get", "create", "update", "update", "update"]);
    let record = scene.api.lease.clone().unwrap().record;
    assert_eq!(record.acquire_time, acquired);
    assert_eq!(record.renew_time, Some(now(start + ms(6_000)).wall));
    assert_eq!(scene.elector.valid_until(), Some(start + ms(6_000 + 7_000)));
}

#[test]
fn a_leader_stops_when_the_deadline_from_its_last_request_is_over() {
    let mut scene = Scene::new(Api::default(), baz());
    scene.attempt();
    let start = scene.at;
    scene.api.fates = std::iter::repeat_n(Fate::Refused, 100).collect();
    scene.run_until(start + ms(6_999));
    assert!(scene.leads());
    scene.run_until(start + ms(7_000));
    assert!(!scene.leads());
    assert_eq!(scene.losses, [Loss::Deadline]);
    // It holds the record still, and takes up again, with the same token, when it can renew.
    scene.api.fates.clear();
    scene.run_until(start + ms(12_000));
    assert!(scene.leads());
    assert_eq!(scene.api.transitions(), 0);
    let token = FencingToken {
        lease_uid: "uid-1".into(),
        transitions: 0,
    };
    assert_eq!(
        scene.states,
        [
            State::Leading { token: token.clone() },
            State::Following {
                leader: Some("baz".into())
            },
            State::Leading { token }
        ]
    );
}

#[test]
fn a_hanging_request_does_not_hold_the_deadline() {
    let mut scene = Scene::new(Api::default(), baz());
    scene.attempt();
    let start = scene.at;
    scene.api.fates = [Fate::Hanging].into();
    scene.run_until(start + ms(7_000));
    assert_eq!(scene.losses, [Loss::Deadline]);
    assert!(!scene.leads());
}

#[rstest]
#[case::in_time(2_000, true)]
#[case::just_in_time(6_999, true)]
#[case::too_late(7_000, false)]
fn a_late_answer_proves_leadership_from_its_request_on(#[case] delay: u64, #[case] leads: bool) {
    let mut scene = Scene::new(Api::default(), baz());
    scene.api.fates = [Fate::Served, Fate::Hanging].into();
    scene.attempt();
    let start = scene.at;
    scene.at += ms(delay);
    let record = scene.elector.fresh(now(start), 0);
    scene.api.put(record);
    let answer = scene.api.lease.clone().unwrap();
    scene.send(Event::Written(WriteResult::Done(answer)));
    assert_eq!(scene.leads(), leads);
    if leads {
        assert_eq!(scene.elector.valid_until(), Some(start + ms(7_000)));
    }
}

#[test]
fn a_renewal_whose_answer_was_lost_is_found_again() {
    let mut scene = Scene::new(Api::default(), baz());
    scene.attempt();
    scene.api.fates = [Fate::Unanswered].into();
    scene.attempt();
    assert_eq!(scene.api.calls, ["get", "create", "update", "get", "update"]);
    assert!(scene.leads() && scene.losses.is_empty());
    assert_eq!(scene.states.len(), 1);
}

fn taken_by(holder: &str, transitions: i32) -> Record {
    Record {
        holder: holder.into(),
        lease_duration_seconds: 10,
        transitions,
        ..Record::default()
    }
}

#[test]
fn a_leader_that_sees_another_holder_stops_at_once() {
    let mut scene = Scene::new(Api::default(), baz());
    scene.attempt();
    scene.api.put(taken_by("bing", 1));
    scene.attempt();
    assert_eq!(scene.losses, [Loss::OtherHolder("bing".into())]);
    assert_eq!(scene.reported_leader(), Some("bing"));
    assert_eq!(scene.api.holder(), "bing");
}

#[test]
fn a_leader_whose_record_was_blanked_takes_a_new_token() {
    let mut scene = Scene::new(Api::default(), baz());
    scene.attempt();
    scene.api.put(taken_by("", 0));
    scene.attempt();
    assert_eq!(scene.losses, [Loss::Blanked]);
    let token = FencingToken {
        lease_uid: "uid-1".into(),
        transitions: 1,
    };
    assert_eq!(
        scene.states[1..],
        [State::Following { leader: None }, State::Leading { token }]
    );
}

#[rstest]
#[case::gone(false)]
#[case::another_object(true)]
fn a_leader_whose_lease_was_deleted_takes_a_new_token(#[case] recreated: bool) {
    let mut scene = Scene::new(Api::default(), baz());
    scene.attempt();
    scene.api.lease = None;
    if recreated {
        scene.api.put(taken_by("baz", 0));
    }
    scene.attempt();
    assert_eq!(scene.losses, [Loss::Deleted]);
    let token = FencingToken {
        lease_uid: "uid-2".into(),
        transitions: 0,
    };
    assert_eq!(scene.states.last(), Some(&State::Leading { token }));
    assert_eq!(scene.states.len(), 3, "the gap is seen: {:?}", scene.states);
}

#[test]
fn two_that_want_the_same_free_lease_do_not_both_get_it() {
    let mut scene = Scene::new(Api::holding("", 1, 0), baz());
    scene.api.fates = [Fate::Served, Fate::Hanging].into();
    scene.attempt();
    scene.api.put(taken_by("bing", 1));
    scene.send(Event::Written(WriteResult::Conflict));
    assert!(!scene.leads());
    scene.attempt();
    assert_eq!(scene.reported_leader(), Some("bing"));
    assert_eq!(scene.api.calls, ["get", "update", "get"]);
}

#[rstest]
#[case(0.0, 2_000)]
#[case(0.5, 3_200)]
#[case(0.999_999, 4_399)]
#[case(f64::NAN, 2_000)]
fn a_follower_waits_one_to_two_point_two_periods(#[case] random: f64, #[case] wait: u64) {
    let mut elector = Elector::new(baz()).unwrap();
    let when = Now {
        random,
        ..now(ms(50))
    };
    elector.step(when, Event::Wake);
    let actions = elector.step(when, Event::Read(ReadResult::Failed));
    let [Action::Wait { until }] = actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(until.as_millis() as u64, 50 + wait);
}

#[test]
fn a_failing_leader_tries_each_period_and_at_once_after_a_slow_failure() {
    let mut scene = Scene::new(Api::default(), baz());
    scene.attempt();
    scene.api.fates = [Fate::Refused, Fate::Hanging].into();
    scene.attempt();
    let began = scene.at;
    scene.at += ms(3_500);
    scene.send(Event::Read(ReadResult::Failed));
    assert_eq!(scene.wake, Some(began + ms(3_500)));
    scene.api.fates = [Fate::Refused, Fate::Refused].into();
    scene.attempt();
    assert_eq!(scene.wake, Some(began + ms(3_500 + 2_000)));
}

#[test]
fn a_release_seen_on_the_watch_is_taken_at_once() {
    let mut scene = Scene::new(Api::holding("bing", 10, 4), baz());
    scene.attempt();
    scene.api.put(taken_by("", 4));
    scene.at += ms(100);
    let seen = scene.at;
    scene.send(Event::Seen(scene.api.lease.clone()));
    assert!(scene.wake.unwrap() <= seen + ms(200), "{:?}", scene.wake);
    scene.attempt();
    assert!(scene.leads());
    assert_eq!(scene.api.transitions(), 5);
}

#[test]
fn a_deletion_seen_on_the_watch_is_checked_at_once() {
    let mut scene = Scene::new(Api::holding("bing", 10, 4), baz());
    scene.attempt();
    scene.send(Event::Seen(None));
    let seen = scene.at;
    scene.attempt();
    assert!(scene.at <= seen + ms(200));
    // It was not deleted after all: the watch is only a hint.
    assert!(!scene.leads());
    assert_eq!(scene.api.calls, ["get", "get"]);
}

#[test]
fn a_healthy_watch_replaces_polling_and_a_silent_one_does_not_delay_the_take_over() {
    let mut scene = Scene::new(Api::holding("bing", 10, 0), baz());
    scene.attempt();
    let mut last_change = scene.at;
    for _ in 0..30 {
        last_change = scene.at;
        let mut record = scene.api.lease.clone().unwrap().record;
        record.renew_time = Some(now(scene.at).wall);
        scene.api.put(record);
        scene.send(Event::Seen(scene.api.lease.clone()));
        let next = scene.at + ms(1_000);
        scene.run_until(next);
    }
    assert_eq!(scene.api.calls, ["get"]);
    scene.run_until(last_change + ms(9_999));
    assert!(!scene.leads());
    scene.run_until(last_change + ms(10_200));
    assert!(scene.leads());
}

#[test]
fn a_stale_watch_takes_nothing_from_a_leader() {
    let mut scene = Scene::new(Api::holding("bing", 1, 0), baz());
    scene.attempt();
    let old = scene.api.lease.clone();
    scene.attempt();
    assert!(scene.leads());
    scene.send(Event::Seen(old));
    scene.send(Event::Seen(None));
    scene.attempt();
    assert!(scene.leads() && scene.losses.is_empty());
}

#[test]
fn a_clean_stop_reads_and_then_releases() {
    let mut scene = Scene::new(Api::holding("", 1, 7), baz());
    scene.attempt();
    scene.send(Event::Cancel);
    assert_eq!(scene.api.calls, ["get", "update", "get", "update"]);
    let record = &scene.api.lease.as_ref().unwrap().record;
    assert_eq!(
        (
            record.holder.as_str(),
            record.lease_duration_seconds,
            record.transitions
        ),
        ("", 1, 8)
    );
    assert_eq!(scene.losses, [Loss::Cancelled]);
    // Nobody may think it leads while the Lease is given back.
    let following = State::Following {
        leader: Some("baz".into()),
    };
    assert_eq!(scene.states[1..], [following, State::Stopped]);
    scene.send(Event::Wake);
    scene.send(Event::Cancel);
    assert_eq!(scene.api.calls.len(), 4);
}

#[rstest]
#[case::conflict_is_retried(&[Fate::Served, Fate::Unanswered], "baz", &["get", "update"])]
#[case::read_fails(&[Fate::Refused], "baz", &["get"])]
#[case::write_fails(&[Fate::Served, Fate::Refused], "baz", &["get", "update"])]
fn a_release_that_fails_ends_all_the_same(
    #[case] fates: &[Fate],
    #[case] holder: &str,
    #[case] calls: &[&str],
) {
    let mut scene = Scene::new(Api::default(), baz());
    scene.attempt();
    scene.api.calls.clear();
    scene.api.fates = fates.iter().copied().collect();
    scene.send(Event::Cancel);
    assert_eq!(scene.elector.state(), &State::Stopped);
    assert_eq!(scene.api.calls, calls);
    let expected = if fates.contains(&Fate::Unanswered) {
        ""
    } else {
        holder
    };
    assert_eq!(scene.api.holder(), expected);
}

#[test]
fn a_release_is_retried_after_a_conflict() {
    let mut scene = Scene::new(Api::default(), baz());
    scene.attempt();
    scene.api.calls.clear();
    scene.api.fates = [Fate::Served, Fate::Hanging].into();
    scene.send(Event::Cancel);
    // A label was put on the Lease between our read and our write.
    let record = scene.api.lease.clone().unwrap().record;
    scene.api.put(record);
    scene.send(Event::Written(WriteResult::Conflict));
    assert_eq!(scene.api.calls, ["get", "update", "get", "update"]);
    assert_eq!(scene.api.holder(), "");
    assert_eq!(scene.elector.state(), &State::Stopped);
}

#[test]
fn the_record_of_another_is_never_released() {
    let mut scene = Scene::new(Api::default(), baz());
    scene.attempt();
    scene.api.put(taken_by("bing", 1));
    scene.send(Event::Cancel);
    assert_eq!(scene.api.holder(), "bing");
    assert_eq!(scene.elector.state(), &State::Stopped);
    assert_eq!(scene.api.calls, ["get", "create", "get"]);
}

#[rstest]
#[case::during_an_update(Fate::Hanging)]
fn a_stop_in_the_middle_of_a_write_still_releases(#[case] fate: Fate) {
    let mut scene = Scene::new(Api::default(), baz());
    scene.attempt();
    scene.api.fates = [fate].into();
    scene.attempt();
    scene.send(Event::Cancel);
    assert_eq!(scene.api.calls, ["get", "create", "update", "get", "update"]);
    assert_eq!(scene.api.holder(), "");
}

#[test]
fn a_stop_in_the_middle_of_a_read_releases_what_is_held() {
    let mut scene = Scene::new(Api::default(), baz());
    scene.attempt();
    scene.api.fates = [Fate::Refused, Fate::Hanging].into();
    scene.attempt();
    scene.send(Event::Cancel);
    assert_eq!(scene.api.holder(), "");
    assert_eq!(scene.elector.state(), &State::Stopped);
}

#[test]
fn a_release_into_silence_ends_at_the_renew_deadline() {
    let mut scene = Scene::new(Api::default(), baz());
    scene.attempt();
    scene.api.fates = [Fate::Hanging].into();
    scene.send(Event::Cancel);
    let start = scene.at;
    scene.run_until(start + ms(6_999));
    assert_ne!(scene.elector.state(), &State::Stopped);
    scene.run_until(start + ms(7_000));
    assert_eq!(scene.elector.state(), &State::Stopped);
}

#[rstest]
#[case::a_follower(Api::holding("bing", 10, 0), true)]
#[case::not_asked_for(Api::default(), false)]
fn nothing_is_released(#[case] api: Api, #[case] release: bool) {
    let mut scene = Scene::new(
        api,
        Config {
            release_on_cancel: release,
            ..baz()
        },
    );
    scene.attempt();
    let holder = scene.api.holder().to_owned();
    let calls = scene.api.calls.len();
    scene.send(Event::Cancel);
    assert_eq!((scene.api.holder(), scene.api.calls.len()), (&*holder, calls));
    assert_eq!(scene.elector.state(), &State::Stopped);
}

#[test]
fn the_last_transition_count_does_not_overflow() {
    let mut scene = Scene::new(Api::holding("", 1, i32::MAX), baz());
    scene.attempt();
    assert!(scene.leads());
    assert_eq!(scene.api.transitions(), i32::MAX);
}

/// Two candidates, one register, any order of delays, losses and wakes: never two leaders.
#[derive(Clone, Debug)]
enum Step {
    /// Time passes for both.
    Pass(u64),
    /// The candidate's pending request reaches the API.
    Reach(usize),
    /// The candidate's pending answer arrives; `false`: it is lost.
    Answer(usize, bool),
    /// The candidate is woken.
    Wake(usize),
    /// The candidate is woken, and what it asks is answered at once.
    Attempt(usize),
    /// The candidate is told to stop, and a new one starts in its place.
    Restart(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0..2_usize;
    // A coarse grid, so that moments meet; whole attempts, so that candidates get somewhere.
    let pass = prop::sample::select(vec![50, 500, 1_000, 2_500, 5_000]);
    let step = prop_oneof![
        3 => pass.prop_map(Step::Pass),
        3 => who.clone().prop_map(Step::Attempt),
        2 => who.clone().prop_map(Step::Reach),
        2 => (who.clone(), prop::bool::weighted(0.8)).prop_map(|(who, arrives)| Step::Answer(who, arrives)),
        2 => who.clone().prop_map(Step::Wake),
        1 => who.prop_map(Step::Restart),
    ];
    prop::collection::vec(step, 20..120)
}

struct Rival {
    elector: Elector,
    request: Option<Action>,
    answer: Option<Event>,
}

impl Rival {
    fn new(identity: &str) -> Self {
        let elector = Elector::new(Config {
            identity: identity.into(),
            ..baz()
        })
        .unwrap();
        Self {
            elector,
            request: None,
            answer: None,
        }
    }

    fn send(&mut self, at: Duration, event: Event) {
        for action in self.elector.step(now(at), event) {
            if matches!(action, Action::Get | Action::Create(_) | Action::Update { .. }) {
                self.request = Some(action);
                self.answer = None;
            }
        }
    }

    fn leads(&self, at: Duration) -> bool {
        self.elector.valid_until().is_some_and(|until| at < until)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]
    #[test]
    fn two_candidates_never_lead_at_once(steps in steps()) {
        let mut api = Api::default();
        let mut at = ms(1_000_000);
        let mut names = 2;
        let mut rivals = [Rival::new("c0"), Rival::new("c1")];
        for step in steps {
            match step {
                Step::Pass(millis) => at += ms(millis),
                Step::Reach(who) => {
                    if let Some(request) = rivals[who].request.take() {
                        rivals[who].answer = api.serve(&request);
                    }
                }
                Step::Answer(who, arrives) => {
                    if let Some(answer) = rivals[who].answer.take() {
                        let event = match answer {
                            answer if arrives => answer,
                            Event::Read(_) => Event::Read(ReadResult::Failed),
                            _ => Event::Written(WriteResult::Failed),
                        };
                        rivals[who].send(at, event);
                    }
                }
                Step::Wake(who) => rivals[who].send(at, Event::Wake),
                Step::Attempt(who) => {
                    rivals[who].send(at, Event::Wake);
                    while let Some(request) = rivals[who].request.take() {
                        let answer = api.serve(&request).expect("every fate is Served");
                        rivals[who].send(at, answer);
                    }
                }
                Step::Restart(who) => {
                    rivals[who] = Rival::new(&format!("c{names}"));
                    names += 1;
                }
            }
            prop_assert!(!(rivals[0].leads(at) && rivals[1].leads(at)), "two leaders at {at:?}");
            for rival in &rivals {
                if rival.leads(at) {
                    prop_assert_eq!(&rival.elector.config.identity, api.holder());
                }
            }
        }
    }
}
