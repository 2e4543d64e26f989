//! Inputs in any order, answers of any kind: what holds whatever happens.

use super::*;
use evenkeel_probe::core::{Kind, Reading, RestartAction, RestartRule};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Op {
    /// Something that was asked for is answered: well, or in one of the other ways.
    Answer(usize, u8),
    Advance(u64),
    Tick,
    Seen,
    Delete(i64),
    Gone,
    End(usize, i32),
    Probed(usize, u8, bool),
    Relabel(u8),
    Image(usize, u8),
    Debug,
    /// An answer to a question that nobody asked.
    Noise(u8),
    /// An old object comes once more.
    Stale,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => (0..4_usize, 0..7_u8).prop_map(|(which, how)| Op::Answer(which, how)),
        3 => (0..400_u64).prop_map(Op::Advance),
        3 => Just(Op::Tick),
        2 => Just(Op::Seen),
        1 => (0..40_i64).prop_map(Op::Delete),
        1 => Just(Op::Gone),
        4 => (0..4_usize, prop::sample::select(vec![0, 1, 42, 137])).prop_map(|(which, code)| Op::End(which, code)),
        2 => (0..4_usize, 0..3_u8, any::<bool>()).prop_map(|(which, kind, well)| Op::Probed(which, kind, well)),
        1 => (0..3_u8).prop_map(Op::Relabel),
        1 => (0..3_usize, 0..3_u8).prop_map(|(which, image)| Op::Image(which, image)),
        1 => Just(Op::Debug),
        2 => (0..8_u8).prop_map(Op::Noise),
        1 => Just(Op::Stale),
    ]
}

/// The world around a machine, and what it must never do.
struct World {
    bench: Bench,
    pending: Vec<Action>,
    /// Containers that run, by name: their IDs.
    live: BTreeMap<String, String>,
    counts: BTreeMap<String, i32>,
    last_phase: Option<String>,
    wake: Option<Duration>,
    gone: bool,
    forgotten: bool,
    starts: u32,
    /// Whether a second stop or post replaces the first.
    replaces: bool,
    stale: Pod,
}

const NAMES: [&str; 4] = ["one", "side", "web", "other"];

impl World {
    fn new(policy: &str, rules: bool, replaces: bool) -> Self {
        let probe = json!({"exec": {"command": ["x"]}, "terminationGracePeriodSeconds": 3});
        let pod = pod(&json!({
            "restartPolicy": policy,
            "initContainers": [
                {"name": "one", "image": "i0"},
                {"name": "side", "image": "i0", "restartPolicy": "Always", "startupProbe": probe}],
            "containers": [
                {"name": "web", "image": "i0", "livenessProbe": probe, "readinessProbe": probe, "restartPolicy": policy},
                {"name": "other", "image": "i0"}]}));
        let mut machine = Machine::new(&pod);
        if rules {
            machine = machine.with_rules(vec![(
                "web".into(),
                vec![RestartRule {
                    action: RestartAction::RestartAllContainers,
                    among: true,
                    values: vec![42],
                }],
            )]);
        }
        Self {
            stale: pod.clone(),
            bench: Bench::of(machine, pod),
            pending: Vec::new(),
            live: BTreeMap::new(),
            counts: BTreeMap::new(),
            last_phase: None,
            wake: None,
            gone: false,
            forgotten: false,
            starts: 0,
            replaces,
        }
    }

    fn step(&mut self, input: Input) {
        if matches!(input, Input::Tick) {
            self.wake = None;
        }
        let actions = self.bench.step(input);
        let deleting = self.gone || self.bench.pod.metadata.deletion_timestamp.is_some();
        assert!(
            !self.forgotten || actions.is_empty(),
            "it is forgotten: {actions:?}"
        );
        for action in actions {
            match &action {
                Action::Start { container, .. } => {
                    assert!(!deleting, "a start while deleting");
                    assert!(
                        !self.live.contains_key(&**container),
                        "two instances of {container}"
                    );
                    let same = |asked: &&Action| matches!(asked, Action::Start { container: other, .. } if other == container);
                    assert_eq!(self.pending.iter().find(same), None, "two starts of {container}");
                }
                Action::Create | Action::Update => assert!(!deleting, "{action:?} while deleting"),
                Action::Post(status) => {
                    let phase = status.phase.clone().unwrap();
                    let over = |phase: &str| phase == "Failed" || phase == "Succeeded";
                    if let Some(last) = self.last_phase.as_deref().filter(|last| over(last)) {
                        assert_eq!(last, phase, "a terminal phase is final");
                    }
                    if over(&phase) {
                        assert!(self.live.is_empty(), "{phase} while {:?} run", self.live);
                    }
                    self.last_phase = Some(phase);
                }
                Action::Wake(delay) => {
                    self.wake = Some(self.bench.now.mono + *delay);
                    continue;
                }
                Action::Forget => {
                    self.forgotten = true;
                    continue;
                }
                Action::Record { .. } | Action::Probe(_) => continue,
                Action::Adopt | Action::Stop { .. } | Action::Delete | Action::Remove => {}
            }
            if self.replaces {
                self.pending.retain(|asked| match (asked, &action) {
                    (Action::Post(_), Action::Post(_)) => false,
                    (Action::Stop { container: one, .. }, Action::Stop { container: other, .. }) => {
                        one != other
                    }
                    _ => true,
                });
            }
            self.pending.push(action);
        }
        let calls = self.pending.iter().filter(|asked| {
            matches!(
                asked,
                Action::Adopt | Action::Create | Action::Update | Action::Delete | Action::Remove
            )
        });
        assert!(calls.count() <= 1, "{:?}", self.pending);
        if self.forgotten {
            return;
        }
        let status = self.bench.status();
        let lists = [status.container_statuses, status.init_container_statuses];
        for status in lists.into_iter().flatten().flatten() {
            let before = self
                .counts
                .insert(status.name.clone(), status.restart_count)
                .unwrap_or(0);
            assert!(status.restart_count >= before, "{} counts back", status.name);
        }
    }

    /// 0: well. Others are this or that fault.
    fn answer(&mut self, which: usize, how: u8) {
        if self.pending.is_empty() {
            return;
        }
        let action = self.pending.remove(which % self.pending.len());
        let kinds = [
            FaultKind::Later,
            FaultKind::Never,
            FaultKind::NotFound,
            FaultKind::Invalid,
        ];
        let bad = (how > 2).then(|| fault(kinds[usize::from(how - 3)], "Bad"));
        let input = match &action {
            Action::Start { container, .. } => {
                let trouble = match how {
                    1 => Some(Trouble::Config("no".to_owned())),
                    2 => Some(Trouble::Volume("no".to_owned())),
                    _ => bad.map(Trouble::Fault),
                };
                let result = if let Some(trouble) = trouble {
                    Err(trouble)
                } else {
                    self.starts += 1;
                    let id = format!("sim://{container}/{}", self.starts);
                    self.live.insert(container.to_string(), id.clone());
                    Ok(started(&id))
                };
                Input::Started {
                    container: container.clone(),
                    result,
                }
            }
            Action::Stop { container, id, .. } => {
                let result = match bad {
                    Some(bad) if bad.kind != FaultKind::NotFound => Err(bad),
                    other => {
                        if self.live.get(&**container).is_some_and(|live| **live == **id) {
                            self.live.remove(&**container);
                        }
                        other.map_or_else(|| Ok(exit(i32::from(how))), Err)
                    }
                };
                Input::Stopped {
                    container: container.clone(),
                    result,
                }
            }
            Action::Create => Input::Created(match (how, bad) {
                (2, _) => Err(Trouble::Volume("no".to_owned())),
                (_, Some(bad)) => Err(Trouble::Fault(bad)),
                _ => Ok(sandbox()),
            }),
            Action::Adopt => Input::Adopted(bad.map_or(Ok(None), Err)),
            Action::Update => Input::Updated(bad.map_or(Ok(()), Err)),
            Action::Delete => Input::Deleted(bad.map_or(Ok(()), Err)),
            Action::Remove => Input::Removed(how < 3),
            Action::Post(status) => Input::Posted(match how {
                5 => Posted::Overtaken,
                6 => Posted::Refused("no".to_owned()),
                _ => {
                    self.stale = self.bench.pod.clone();
                    Posted::Done(self.bench.write(status))
                }
            }),
            _ => return,
        };
        self.step(input);
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Answer(which, how) => self.answer(which, how),
            Op::Advance(seconds) => self.bench.wait(seconds),
            Op::Tick => self.step(Input::Tick),
            Op::Seen => self.step(Input::Seen),
            Op::Delete(grace) => {
                let before = self.bench.pod.metadata.deletion_grace_period_seconds;
                self.bench.delete(before.unwrap_or(grace).min(grace));
                self.step(Input::Seen);
            }
            Op::Gone => {
                self.gone = true;
                self.step(Input::Gone);
            }
            Op::End(which, code) => {
                if let Some(id) = self.live.remove(NAMES[which]) {
                    self.end(NAMES[which], &id, code);
                }
            }
            Op::Probed(which, kind, well) => {
                let id = self.live.get(NAMES[which]).cloned().unwrap_or_default();
                self.step(Input::Probed {
                    container: NAMES[which].into(),
                    id: id.into(),
                    kind: Kind::ALL[usize::from(kind)],
                    reading: if well { Reading::Success } else { Reading::Failure },
                });
            }
            Op::Relabel(value) => {
                self.bench.pod.metadata.labels = Some([("a".to_owned(), value.to_string())].into());
                self.bench.bump();
                self.step(Input::Seen);
            }
            Op::Image(which, image) => {
                let spec = self.bench.pod.spec.as_mut().unwrap();
                let init = spec.init_containers.as_mut().unwrap();
                let containers = [&mut init[1], &mut spec.containers[0]];
                let container = containers.into_iter().nth(which % 2).unwrap();
                container.image = Some(format!("i{image}"));
                self.bench.bump();
                self.step(Input::Seen);
            }
            Op::Debug => {
                let spec = self.bench.pod.spec.as_mut().unwrap();
                spec.ephemeral_containers =
                    Some(serde_json::from_value(json!([{"name": "debug", "image": "d"}])).unwrap());
                self.step(Input::Seen);
            }
            Op::Noise(which) => {
                let asked = |find: fn(&Action) -> bool| self.pending.iter().any(find);
                let input = match which {
                    0 if !asked(|action| matches!(action, Action::Adopt)) => Input::Adopted(Ok(None)),
                    1 if !asked(|action| matches!(action, Action::Create)) => Input::Created(Ok(sandbox())),
                    2 if !asked(|action| matches!(action, Action::Delete)) => Input::Deleted(Ok(())),
                    3 if !asked(|action| matches!(action, Action::Remove)) => Input::Removed(true),
                    4 if !asked(|action| matches!(action, Action::Stop { .. })) => Input::Stopped {
                        container: "web".into(),
                        result: Ok(exit(0)),
                    },
                    5 => Input::Started {
                        container: "nobody".into(),
                        result: Ok(started("sim://nobody/0")),
                    },
                    6 => Input::Observed {
                        container: "web".into(),
                        observed: Observed {
                            id: ContainerId("sim://web/old".into()),
                            doing: Doing::Ended(exit(1)),
                        },
                    },
                    _ => Input::Tick,
                };
                self.step(input);
            }
            Op::Stale => {
                if self.bench.pod.metadata.deletion_timestamp.is_some() {
                    return;
                }
                let mut stale = self.stale.clone();
                stale.spec = self.bench.pod.spec.clone();
                let new = std::mem::replace(&mut self.bench.pod, stale);
                self.step(Input::Seen);
                self.bench.pod = new;
                self.step(Input::Seen);
            }
        }
    }

    fn end(&mut self, name: &str, id: &str, code: i32) {
        self.step(Input::Observed {
            container: name.into(),
            observed: Observed {
                id: ContainerId(id.into()),
                doing: Doing::Ended(exit(code)),
            },
        });
    }

    /// Everything is answered well, and time goes by, until `done`. Who waits for nothing and is not done is
    /// stuck.
    fn fair(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..2000 {
            if done(self) {
                return;
            }
            if !self.pending.is_empty() {
                self.answer(0, 0);
                continue;
            }
            if let Some(id) = self.live.remove("one") {
                self.end("one", &id, 0);
                continue;
            }
            if let Some(id) = self.live.get("side").cloned() {
                self.step(Input::Probed {
                    container: "side".into(),
                    id: id.into(),
                    kind: Kind::Startup,
                    reading: Reading::Success,
                });
                if !self.pending.is_empty() || done(self) {
                    continue;
                }
            }
            let wake = self.wake.expect("somebody who waits has asked to be woken");
            let late = wake.saturating_sub(self.bench.now.mono);
            self.bench
                .wait(late.as_secs() + u64::from(late.subsec_nanos() > 0));
            self.step(Input::Tick);
        }
        panic!("never done: {:?}", self.bench.status());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_a_pod_is_run_rightly_and_ends(
        policy in prop::sample::select(vec!["Always", "OnFailure", "Never"]),
        rules in any::<bool>(),
        replaces in any::<bool>(),
        run in prop::collection::vec(op(), 0..80),
    ) {
        let mut world = World::new(policy, rules, replaces);
        world.step(Input::Seen);
        for op in &run {
            world.apply(op);
            if world.forgotten {
                return Ok(());
            }
        }
        if !world.gone && world.bench.pod.metadata.deletion_timestamp.is_none() {
            // It runs, or is over, and its status stands in the API server.
            world.fair(|world| {
                let status = world.bench.status();
                let over = matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"));
                let all = ["side", "web", "other"].iter().all(|name| world.live.contains_key(*name));
                let some_over = status.container_statuses.iter().flatten().any(|status| {
                    status.state.as_ref().is_some_and(|state| state.terminated.is_some())
                });
                let theirs = world.bench.pod.status.as_ref();
                let written = theirs.is_some_and(|theirs| {
                    theirs.phase == status.phase && theirs.container_statuses == status.container_statuses
                });
                world.pending.is_empty() && written && (over || all || some_over)
            });
            world.bench.delete(30);
            world.step(Input::Seen);
        }
        world.fair(|world| world.forgotten);
        prop_assert!(world.live.is_empty(), "left behind: {:?}", world.live);
    }

    /// No order of anything makes it panic, not even one that makes no sense.
    #[test]
    fn whatever_happens_to_a_recorded_pod_it_is_taken_over(
        policy in prop::sample::select(vec!["Always", "OnFailure", "Never"]),
        known in any::<bool>(),
        run in prop::collection::vec(op(), 0..40),
        then in prop::collection::vec(op(), 0..40),
    ) {
        let mut world = World::new(policy, false, true);
        world.step(Input::Seen);
        for op in &run {
            world.apply(op);
        }
        let mut pod = world.bench.pod.clone();
        pod.metadata.deletion_timestamp = None;
        let over = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let over = matches!(over, Some("Failed" | "Succeeded"));
        let machine = Machine::new(&pod).found();
        let mut next = World { bench: Bench::of(machine, pod), ..World::new(policy, false, true) };
        next.starts = 1000;
        next.bench.now = world.bench.now;
        next.live = if known { world.live.clone() } else { BTreeMap::new() };
        let containers = next.live.iter().map(|(name, id)| {
            let observed = Observed {
                id: ContainerId(id.as_str().into()),
                doing: Doing::Running { since: time(0) },
            };
            (name.clone(), observed)
        });
        let state = crate::core::reported::PodState { sandbox: sandbox(), containers: containers.collect() };
        if over {
            // Left alone: nothing of it is asked for.
            next.live.clear();
        }
        next.step(Input::Seen);
        if let Some(index) = next.pending.iter().position(|asked| matches!(asked, Action::Adopt)) {
            next.pending.remove(index);
            next.step(Input::Adopted(Ok(known.then_some(state))));
        }
        for op in &then {
            next.apply(op);
            if next.forgotten {
                return Ok(());
            }
        }
        if !next.gone {
            next.bench.delete(30);
            next.step(Input::Seen);
        }
        next.fair(|world| world.forgotten);
    }
}
