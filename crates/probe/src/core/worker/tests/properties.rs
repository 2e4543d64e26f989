//! What holds for any sequence of statuses, outcomes and times.

use super::*;
use crate::core::{RestartAction, RestartRule, Window};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

/// What happens to a worker next.
#[derive(Clone, Debug)]
enum Event {
    /// A round whose attempt, if there is one, ends like this.
    Round(Settled),
    /// The container is another one from now on.
    Container(u8),
    State(ContainerState),
    Started(Option<bool>),
    Phase(Phase),
    /// No status, or one.
    Known(bool),
    Deleting(bool),
    /// Both clocks, apart from each other.
    Clocks(Duration, Duration),
    /// The probe is changed in place.
    Thresholds(u32, u32),
}

fn settled() -> impl Strategy<Value = Settled> {
    prop_oneof![
        4 => Just(Settled::Result(Reading::Success)),
        6 => Just(Settled::Result(Reading::Failure)),
        1 => Just(Settled::Result(Reading::Unknown)),
        2 => Just(Settled::Error),
        1 => Just(Settled::Starved),
    ]
}

/// From the beginning to the end of time, mostly near [`NOW`].
fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        6 => (0_u64..60_000).prop_map(|later| ago(seconds(30)) + millis(later)),
        1 => Just(Duration::ZERO),
        1 => Just(Duration::MAX),
        1 => any::<u64>().prop_map(seconds),
    ]
}

fn state() -> impl Strategy<Value = ContainerState> {
    prop_oneof![
        5 => time().prop_map(running),
        1 => Just(ContainerState::Waiting),
        1 => (0..3).prop_map(|exit_code| ContainerState::Terminated { exit_code }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        30 => settled().prop_map(Event::Round),
        3 => (0_u8..4).prop_map(Event::Container),
        2 => state().prop_map(Event::State),
        1 => prop::option::of(any::<bool>()).prop_map(Event::Started),
        1 => prop::sample::select(vec![Phase::Pending, Phase::Running, Phase::Running, Phase::Unknown])
            .prop_map(Event::Phase),
        1 => any::<bool>().prop_map(Event::Known),
        1 => prop::bool::weighted(0.3).prop_map(Event::Deleting),
        2 => (time(), time()).prop_map(|(mono, wall)| Event::Clocks(mono, wall)),
        1 => (thresholds(), thresholds()).prop_map(|(success, failure)| Event::Thresholds(success, failure)),
    ]
}

fn thresholds() -> impl Strategy<Value = u32> {
    prop_oneof![10 => 1_u32..4, 1 => Just(0), 1 => any::<u32>()]
}

/// Which worker, under which rules, and how its world looks at first.
#[derive(Clone, Debug)]
struct Setting {
    kind: Kind,
    compat: Compat,
    gate: bool,
    sidecar: bool,
    policy: RestartPolicy,
    delay: Duration,
    success: u32,
    failure: u32,
    errors: Option<u32>,
    window: Option<(u32, u32)>,
}

impl Setting {
    fn bench(&self) -> Bench {
        let mut bench = Bench::new(self.kind).thresholds(self.success, self.failure);
        bench.policy.compat = self.compat;
        bench.policy.change_status_on_restart = self.gate;
        bench.pod.restart_policy = self.policy;
        if self.sidecar {
            (bench.container.role, bench.container.restart_policy) =
                (Role::Sidecar, Some(RestartPolicy::Always));
        }
        bench.container.restart_rules = vec![RestartRule {
            action: RestartAction::RestartAllContainers,
            among: true,
            values: vec![2],
        }];
        bench.pod.containers = vec![Arc::new(bench.container.clone())];
        bench.probe.initial_delay = self.delay;
        bench.probe.extras.error_threshold = self.errors;
        bench.probe.extras.window = self.window.map(|(failures, of)| Window { failures, of });
        bench
    }
}

fn settings() -> impl Strategy<Value = Setting> {
    let kind = prop::sample::select(Kind::ALL.to_vec());
    let compat = prop::sample::select(vec![Compat::Kubelet, Compat::Strict]);
    let policy = prop::sample::select(vec![
        RestartPolicy::Always,
        RestartPolicy::OnFailure,
        RestartPolicy::Never,
    ]);
    let delay = prop_oneof![
        4 => Just(Duration::ZERO),
        2 => (0_u64..20_000).prop_map(millis),
        1 => Just(Duration::MAX),
    ];
    let of = prop_oneof![5 => 0_u32..8, 1 => Just(64), 1 => any::<u32>()];
    let window = prop::option::of((thresholds(), of));
    let rules = (kind, compat, any::<bool>(), any::<bool>(), policy);
    let probe = (
        delay,
        thresholds(),
        thresholds(),
        prop::option::of(thresholds()),
        window,
    );
    (rules, probe).prop_map(|(rules, (delay, success, failure, errors, window))| {
        let (kind, compat, gate, sidecar, policy) = rules;
        Setting {
            kind,
            compat,
            gate,
            sidecar,
            policy,
            delay,
            success,
            failure,
            errors,
            window,
        }
    })
}

impl Bench {
    /// What an event comes to: the step, and what was settled, for a round.
    fn apply(&mut self, event: &Event) -> Option<(Step, Option<Settled>)> {
        match *event {
            Event::Round(settled) => {
                let step = self.tick();
                let attempt = (step == Step::Probe).then_some(settled);
                if let Some(settled) = attempt {
                    self.settle(settled);
                }
                return Some((step, attempt));
            }
            Event::Known(false) => self.status = None,
            Event::Known(true) => {
                let started = self.worker.kind() != Kind::Startup;
                self.status
                    .get_or_insert_with(|| status(running(NOW.wall), started));
            }
            Event::Deleting(deleting) => self.pod.deleting = deleting,
            Event::Clocks(mono, wall) => self.now = Now { mono, wall },
            Event::Thresholds(success, failure) => {
                (self.probe.success_threshold, self.probe.failure_threshold) = (success, failure);
                self.worker.reset_run();
            }
            Event::Container(_) | Event::State(_) | Event::Started(_) | Event::Phase(_) => {
                let Some(status) = &mut self.status else {
                    return None;
                };
                let container = &mut status.containers[0];
                match *event {
                    Event::Container(number) => container.id = format!("test://{number}").into(),
                    Event::State(state) => container.state = state,
                    Event::Started(started) => container.started = started,
                    Event::Phase(phase) => status.phase = phase,
                    _ => {}
                }
            }
        }
        None
    }
}

/// Results in a row, counted apart from the worker.
#[derive(Default)]
struct Row {
    results: Vec<Reading>,
}

impl Row {
    fn ends_with(&self, reading: Reading) -> usize {
        self.results
            .iter()
            .rev()
            .take_while(|result| **result == reading)
            .count()
    }
}

/// What may be published after a round under the kubelet's rules.
fn kubelet_rules(
    before: &Worker,
    bench: &Bench,
    (step, settled): (Step, Option<Settled>),
    row: &Row,
) -> Result<(), TestCaseError> {
    let (worker, probe) = (&bench.worker, &bench.probe);
    prop_assert!(!matches!(step, Step::Until(_)), "no exact times");
    let met = worker.container_id() != before.container_id();
    if before.on_hold() && !met {
        prop_assert_eq!(settled, None, "on hold, and yet probed");
        prop_assert_eq!(before, worker);
    }
    if worker.on_hold() && (met || !before.on_hold()) {
        prop_assert!(settled.is_some(), "on hold without an attempt");
        let failed = worker.kind() == Kind::Liveness && worker.published() == FAILURE;
        prop_assert!(failed || worker.kind() == Kind::Startup);
        prop_assert_eq!(worker.run().1, 0);
    }
    if let Some(Settled::Result(result)) = settled {
        let threshold = match result {
            Reading::Success => probe.success_threshold,
            Reading::Failure => probe.failure_threshold,
            Reading::Unknown => u32::MAX,
        };
        let reached = row.ends_with(result) >= threshold as usize;
        prop_assert!(
            !reached || worker.published() == Some(result),
            "reached, and not published"
        );
    }
    let initial = bench.worker.initial();
    match (worker.published(), settled) {
        (published, _) if published == before.published() && !met => {}
        (Some(Reading::Success), Some(Settled::Result(Reading::Success))) => {
            let run = row.ends_with(Reading::Success);
            prop_assert!(run >= probe.success_threshold as usize || initial == Reading::Success && met);
        }
        (Some(Reading::Failure), Some(Settled::Result(Reading::Failure))) => {
            let run = row.ends_with(Reading::Failure);
            prop_assert!(run >= probe.failure_threshold as usize || initial == Reading::Failure && met);
        }
        (Some(Reading::Success), None) if step == Step::Stop => {
            prop_assert!(bench.pod.deleting && worker.kind() != Kind::Readiness);
        }
        (Some(Reading::Failure), None) if !(met && initial == Reading::Failure) => {
            let state = bench.status.as_ref().map(|status| status.containers[0].state);
            prop_assert!(state.is_some_and(|state| !state.is_running()));
        }
        (Some(Reading::Success), _) if met && bench.container.role == Role::Sidecar => {}
        (published, _) if met => prop_assert!(published.is_none() || published == Some(initial)),
        (published, settled) => {
            prop_assert!(false, "{published:?} after {settled:?}");
        }
    }
    Ok(())
}

/// What may happen in a round under ours.
fn strict_rules(
    before: &Worker,
    bench: &Bench,
    (step, settled): (Step, Option<Settled>),
) -> Result<(), TestCaseError> {
    let worker = &bench.worker;
    let met = worker.container_id() != before.container_id();
    if let Step::Until(due) = step {
        prop_assert!(due > bench.now.mono);
    }
    if before.on_hold() && !met {
        prop_assert_eq!(before, worker);
    }
    match settled {
        Some(Settled::Error) => {
            prop_assert!(!worker.on_hold(), "held by an error");
            let fails = worker.published() == FAILURE;
            prop_assert!(
                !fails || before.published() == FAILURE || met,
                "an error became a failure"
            );
        }
        Some(Settled::Starved) if !met => prop_assert_eq!(worker.run(), before.run()),
        _ => {}
    }
    Ok(())
}

/// Written down and read again.
fn reread(worker: &Worker) -> Worker {
    serde_json::from_str(&serde_json::to_string(worker).unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Nothing is published, held or probed but by the rules; and nothing panics.
    #[test]
    fn a_worker_keeps_to_the_rules(
        setting in settings(),
        events in prop::collection::vec(event(), 0..60),
    ) {
        let mut bench = setting.bench();
        let mut row = Row::default();
        for event in &events {
            let before = bench.worker.clone();
            let Some(round) = bench.apply(event) else {
                if matches!(event, Event::Thresholds(..)) {
                    row.results.clear();
                }
                continue;
            };
            if let Some(Settled::Result(result)) = round.1 {
                row.results.push(result);
            }
            match setting.compat {
                Compat::Kubelet => kubelet_rules(&before, &bench, round, &row)?,
                Compat::Strict => strict_rules(&before, &bench, round)?,
            }
            if bench.worker.on_hold() {
                // A run that led to a hold is over.
                row.results.clear();
            }
        }
    }

    /// A worker that is written down in mid-life and read by the next prober goes on as it would have.
    #[test]
    fn a_worker_survives_its_prober(
        setting in settings(),
        events in prop::collection::vec(event(), 0..60),
        cut in 0_usize..60,
    ) {
        let mut one = setting.bench();
        let mut other = setting.bench();
        for (at, event) in events.iter().enumerate() {
            if at == cut {
                other.worker = reread(&other.worker);
            }
            if setting.compat == Compat::Strict && matches!(event, Event::Clocks(..)) {
                // When the container was first seen to run is not kept, and read again from another wall
                // clock.
                continue;
            }
            let rounds = (one.apply(event), other.apply(event));
            prop_assert_eq!(rounds.0, rounds.1);
            one.worker.met = None;
            other.worker.met = None;
            prop_assert_eq!(&one.worker, &other.worker);
        }
    }

    /// Whatever stands in a file that claims to be a worker's, it is refused or makes a worker that does not
    /// panic.
    #[test]
    fn a_spoilt_worker_does_not_panic(
        setting in settings(),
        counters in (any::<u32>(), any::<u32>(), any::<u64>(), any::<u32>()),
        events in prop::collection::vec(event(), 0..30),
    ) {
        let mut bench = setting.bench();
        let (run, errors, failures, seen) = counters;
        bench.tick();
        bench.worker = Worker { run, errors, failures, seen, ..bench.worker };
        bench.worker = reread(&bench.worker);
        for event in &events {
            bench.apply(event);
        }
        // Numbers that are about to overflow.
        bench.worker = Worker { run: u32::MAX, errors: u32::MAX, seen: u32::MAX, ..bench.worker };
        for settled in [Settled::Error, Settled::Result(Reading::Failure), Settled::Result(Reading::Failure)] {
            bench.settle(settled);
        }
    }
}

/// The generators reach what they are to test: without this, a property could hold for want of cases.
#[test]
fn the_sequences_reach_every_end() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut held, mut lifted, mut stopped, mut waited, mut unknown) = (0, 0, 0, 0, 0);
    for _ in 0..600 {
        let mut bench = settings().new_tree(&mut runner).unwrap().current().bench();
        let events = prop::collection::vec(event(), 60)
            .new_tree(&mut runner)
            .unwrap()
            .current();
        for event in &events {
            let before = bench.worker.clone();
            let Some((step, settled)) = bench.apply(event) else {
                continue;
            };
            let now = bench.worker.on_hold();
            held += usize::from(now && !before.on_hold());
            lifted += usize::from(!now && before.on_hold());
            stopped += usize::from(step == Step::Stop);
            waited += usize::from(matches!(step, Step::Until(_)));
            let errs = settled == Some(Settled::Error);
            unknown += usize::from(errs && bench.published() == UNKNOWN && before.published() != UNKNOWN);
        }
    }
    for (what, count) in [
        ("held", held),
        ("lifted", lifted),
        ("stopped", stopped),
        ("waited", waited),
        ("unknown", unknown),
    ] {
        assert!(count > 20, "{what}: {count}");
    }
}
