//! What holds for any sequence of events.

use super::*;
use proptest::prelude::*;

/// What a record says, in a few words that meet each other often.
#[derive(Clone, Debug)]
struct Written {
    holder: &'static str,
    seconds: i32,
    /// `None`: what we wrote last, if anything.
    renewed: Option<i64>,
    uid: &'static str,
    version: Version,
    preferred: &'static str,
}

#[derive(Clone, Debug)]
enum Version {
    Newer,
    Older,
    Opaque,
}

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    /// Time passes to the next wake-up, which is delivered.
    Sleep,
    Wake,
    /// What we asked is done as asked.
    Done,
    Found(Written),
    Missing,
    /// Error or conflict.
    Refused(bool),
    /// The write is answered with something else than was written.
    Changed(Written),
    Seen(Option<Written>),
    Drained,
    HandOver,
    Cancel,
}

fn written() -> impl Strategy<Value = Written> {
    let holder = prop::sample::select(vec!["", "me", "me", "other"]);
    let seconds = prop::sample::select(vec![-1, 0, 1, 5, 15, i32::MAX]);
    let renewed = prop::option::of(0..3_i64);
    let uid = prop::sample::select(vec!["u", "u", "u", "v"]);
    let version =
        prop_oneof![3 => Just(Version::Newer), 1 => Just(Version::Older), 1 => Just(Version::Opaque)];
    let preferred = prop::sample::select(vec!["", "", "other"]);
    (holder, seconds, renewed, uid, version, preferred).prop_map(
        |(holder, seconds, renewed, uid, version, preferred)| Written {
            holder,
            seconds,
            renewed,
            uid,
            version,
            preferred,
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pass = prop::sample::select(vec![0, 1, 500, 1_000, 1_500, 2_500, 5_000, 15_000, 100_000]);
    let step = prop_oneof![
        4 => pass.prop_map(Step::Pass),
        6 => Just(Step::Sleep),
        2 => Just(Step::Wake),
        10 => Just(Step::Done),
        3 => written().prop_map(Step::Found),
        1 => Just(Step::Missing),
        3 => any::<bool>().prop_map(Step::Refused),
        1 => written().prop_map(Step::Changed),
        2 => prop::option::weighted(0.8, written()).prop_map(Step::Seen),
        2 => Just(Step::Drained),
        1 => Just(Step::HandOver),
        1 => prop::bool::weighted(0.4).prop_map(|cancel| if cancel { Step::Cancel } else { Step::Wake }),
    ];
    prop::collection::vec(step, 1..120)
}

fn configs() -> impl Strategy<Value = Config> {
    let on_loss = prop::sample::select(vec![OnLoss::Stop, OnLoss::Recover, OnLoss::Campaign]);
    let deadline = prop::option::of(prop::sample::select(vec![0, 1_000, 4_000, 60_000]));
    (any::<[bool; 3]>(), on_loss, deadline).prop_map(
        |([client_go, release, coordinated], on_loss, deadline)| Config {
            compat: if client_go {
                Compat::ClientGo
            } else {
                Compat::Evenkeel
            },
            release_on_cancel: release,
            coordinated: coordinated && on_loss != OnLoss::Recover,
            on_loss,
            recovery_deadline: deadline.map(ms),
            ..Config::new("me")
        },
    )
}

/// The shell, as far as the machine relies on it, and what it must never see.
#[derive(Clone)]
struct Shell {
    machine: Machine,
    at: Duration,
    random: f64,
    versions: u64,
    request: Option<Action>,
    /// When the last write was asked for.
    wrote: Duration,
    last_renewal: Option<Timestamp>,
    wake: Option<Duration>,
    draining: bool,
    gate: Option<Duration>,
    leader: bool,
    stopped: bool,
}

impl Shell {
    fn new(config: Config) -> Self {
        Self {
            machine: Machine::new(config).unwrap(),
            at: after(0),
            random: 0.5,
            versions: 100,
            request: None,
            wrote: Duration::ZERO,
            last_renewal: None,
            wake: Some(Duration::ZERO),
            draining: false,
            gate: None,
            leader: false,
            stopped: false,
        }
    }

    fn observation(&mut self, written: &Written) -> Observation {
        self.versions += 1;
        let time = |micros| Timestamp::from_microsecond(1_700_000_000_000_000 + micros).unwrap();
        let record = Record {
            renew_time: written.renewed.map(time).or(self.last_renewal),
            preferred_holder: written.preferred.into(),
            ..taken_by(written.holder, written.seconds, 1)
        };
        self.place(record, written.uid, &written.version)
    }

    fn place(&self, record: Record, uid: &str, version: &Version) -> Observation {
        let version = match version {
            Version::Newer => self.versions.to_string(),
            Version::Older => "1".to_owned(),
            Version::Opaque => format!("v{}", self.versions),
        };
        let (uid, raw) = (uid.to_owned(), record.raw());
        Observation {
            record,
            uid,
            version,
            raw,
        }
    }

    /// The event, if it can happen now; in a loose shell anything can.
    fn event(&mut self, step: &Step, loose: bool) -> Option<Event> {
        let reads = loose || matches!(self.request, Some(Action::Get));
        let writes = loose || matches!(self.request, Some(Action::Create(_) | Action::Update { .. }));
        Some(match step {
            Step::Pass(millis) => {
                self.at += ms(*millis);
                return None;
            }
            Step::Sleep => {
                self.at = self.at.max(self.wake.filter(|at| *at < after(1_000_000_000))?);
                Event::Wake
            }
            Step::Wake => Event::Wake,
            Step::Done => {
                self.versions += 1;
                let record = match &self.request {
                    Some(Action::Create(record) | Action::Update { record, .. }) => record.clone(),
                    _ => return None,
                };
                Event::Written(WriteResult::Done(self.place(record, "u", &Version::Newer)))
            }
            Step::Found(written) if reads => Event::Read(ReadResult::Found(self.observation(written))),
            Step::Missing if reads => Event::Read(ReadResult::Missing),
            Step::Refused(_) if reads => Event::Read(ReadResult::Failed),
            Step::Refused(true) if writes => Event::Written(WriteResult::Conflict),
            Step::Refused(false) if writes => Event::Written(WriteResult::Failed),
            Step::Changed(written) if writes => Event::Written(WriteResult::Done(self.observation(written))),
            Step::Seen(written) => {
                let change = written.as_ref().map(|written| self.observation(written));
                Event::Seen(change)
            }
            Step::Drained if loose || std::mem::take(&mut self.draining) => Event::Drained,
            Step::HandOver => Event::StepDown,
            Step::Cancel => Event::Cancel,
            _ => return None,
        })
    }

    fn send(&mut self, event: Event, loose: bool) -> Result<(), TestCaseError> {
        if matches!(event, Event::Read(_) | Event::Written(_)) {
            self.request = None;
        }
        if event == Event::Wake && self.wake.is_some_and(|at| at <= self.at) {
            self.wake = None;
        }
        let now = world::now(self.at, self.random);
        self.random = (self.random * 7.3 + 0.1).fract();
        let actions = self.machine.step(now, event);
        prop_assert!(!self.stopped || actions.is_empty(), "after the end: {actions:?}");
        for action in actions {
            self.act(action, loose)?;
        }
        prop_assert_eq!(self.gate.is_some(), self.machine.state().leads());
        if !loose {
            let alive = self.stopped || self.request.is_some() || self.wake.is_some() || self.draining;
            prop_assert!(alive, "stuck: {:?}", self.machine);
        }
        Ok(())
    }

    fn act(&mut self, action: Action, loose: bool) -> Result<(), TestCaseError> {
        let ours = self.machine.config().compat == Compat::Evenkeel;
        match &action {
            Action::Get | Action::Create(_) | Action::Update { .. } => {
                prop_assert!(
                    loose || self.request.is_none(),
                    "{action:?} beside {:?}",
                    self.request
                );
                if let Action::Create(record) | Action::Update { record, .. } = &action {
                    self.wrote = self.at;
                    self.last_renewal = record.renew_time;
                    prop_assert!(["", "me"].contains(&&*record.holder));
                    let released = record.holder.is_empty();
                    prop_assert!(!(released && self.gate.is_some()), "released while leading");
                    prop_assert!(
                        loose || !ours || !(released && self.draining),
                        "released while work runs"
                    );
                }
                self.request = Some(action);
            }
            Action::Abort => self.request = None,
            Action::Wait { until } => self.wake = Some(*until),
            Action::OpenGate { valid_until, .. } => {
                prop_assert!(self.at < *valid_until, "opened after its end");
                prop_assert!(
                    !ours || loose || *valid_until <= self.wrote + self.machine.config().renew_deadline
                );
                prop_assert!(
                    loose || self.gate.is_some() || !self.draining,
                    "a term begins while the last one's work runs"
                );
                self.gate = Some(*valid_until);
            }
            Action::CloseGate => self.gate = None,
            Action::Drain => {
                prop_assert!(loose || !self.draining, "told to end twice");
                self.draining = true;
            }
            Action::Announce(what) => {
                let became = *what == Announcement::BecameLeader;
                prop_assert!(became != self.leader, "announced twice: {what:?}");
                self.leader = became;
            }
            Action::Publish(State::Stopped { .. }) => {
                prop_assert!(self.gate.is_none());
                self.stopped = true;
            }
            Action::Publish(_) | Action::Lost(_) | Action::CountSlowPath | Action::NewLeader(_) => {}
        }
        Ok(())
    }

    /// Wake-ups that are due come to an end: a request, a later time, or nothing.
    fn settles(mut self) -> Result<(), TestCaseError> {
        for _ in 0..4 {
            if self.request.is_some() || self.wake.is_none_or(|at| at > self.at) {
                return Ok(());
            }
            self.send(Event::Wake, false)?;
        }
        prop_assert!(false, "woken again and again: {:?}", self.machine);
        Ok(())
    }
}

proptest! {
    #[test]
    fn a_machine_with_a_shell_that_keeps_to_the_rules(config in configs(), steps in steps()) {
        let mut shell = Shell::new(config);
        for step in &steps {
            if let Some(event) = shell.event(step, false) {
                shell.send(event, false)?;
                shell.clone().settles()?;
            }
        }
    }

    /// Answers to nothing, ends of no work: the machine keeps its own rules all the same.
    #[test]
    fn a_machine_with_a_shell_that_does_not(config in configs(), steps in steps()) {
        let mut shell = Shell::new(config);
        for step in &steps {
            if let Some(event) = shell.event(step, true) {
                shell.send(event, true)?;
            }
        }
    }
}

/// The generators reach what they are to test: without this, a property could hold for want of cases.
#[test]
fn the_sequences_reach_every_state() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut led, mut recovered, mut lost, mut drained, mut campaigned) = (0, 0, 0, 0, 0);
    for _ in 0..400 {
        let config = configs().new_tree(&mut runner).unwrap().current();
        let steps = steps().new_tree(&mut runner).unwrap().current();
        let mut shell = Shell::new(config);
        for step in &steps {
            let Some(event) = shell.event(step, false) else {
                continue;
            };
            let before = shell.machine.state().clone();
            let ends = event == Event::Drained;
            shell.send(event, false).unwrap();
            let state = shell.machine.state();
            led += usize::from(matches!(state, State::Leading { .. }) && !before.leads());
            recovered += usize::from(matches!(state, State::Recovered { .. }) && !before.leads());
            lost += usize::from(matches!(state, State::Lost { .. }));
            drained += usize::from(ends);
            campaigned += usize::from(before.leads() && matches!(state, State::Following { .. }));
        }
    }
    for (what, count) in [
        ("led", led),
        ("recovered", recovered),
        ("lost", lost),
        ("drained", drained),
        ("campaigned", campaigned),
    ] {
        assert!(count > 10, "{what}: {count}");
    }
}
