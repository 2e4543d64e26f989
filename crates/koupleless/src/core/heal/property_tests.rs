//! Random worlds: bases that fill up, answers that are lost, replicas that are restarted. What must never
//! happen never does, and once the world is well again every healing ends.

use super::*;
use crate::core::budget::{Budget, Limit, Nodes, Verdict};
use jiff::Timestamp;
use proptest::prelude::*;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

const BASES: usize = 4;
const MAX: u64 = 1_000;
/// The shell's: no action is under way for longer.
const DEADLINE: Duration = Duration::from_secs(30);

/// One base as it is, and the machine that heals it.
struct Base {
    machine: Machine,
    /// And since when it is under way.
    pending: Option<(Action, Duration)>,
    tainted: bool,
    pods: usize,
    modules: usize,
    /// Metaspace that no uninstall gives back.
    leak: u64,
    pod: Option<u64>,
    uptime: Duration,
    silent: bool,
    /// The last inspection saw the taint and no pod that must leave.
    emptied: bool,
    /// And since then none has come.
    still_empty: bool,
}

/// What happens to a base.
#[derive(Clone, Debug)]
enum Step {
    Health(bool),
    Silence(bool),
    /// The action under way is carried out, or not, and its answer arrives, or not.
    Answer {
        done: bool,
        heard: bool,
    },
    Pods(usize),
    Evicts,
    Leak(u64),
    Restarts,
    ForgetsPod(bool),
    LosesTaint,
    /// Another replica heals it from now on.
    Restart,
    Time(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Health(true)),
        1 => Just(Step::Health(false)),
        1 => any::<bool>().prop_map(Step::Silence),
        6 => (prop::bool::weighted(0.8), prop::bool::weighted(0.9)).prop_map(|(done, heard)| Step::Answer { done, heard }),
        1 => (0..3_usize).prop_map(Step::Pods),
        2 => Just(Step::Evicts),
        2 => (0..1_000_u64).prop_map(Step::Leak),
        1 => Just(Step::Restarts),
        1 => any::<bool>().prop_map(Step::ForgetsPod),
        1 => Just(Step::LosesTaint),
        1 => Just(Step::Restart),
        5 => (1..400_u64).prop_map(Step::Time),
    ]
}

struct World {
    now: Duration,
    budget: Budget,
    limit: Limit,
    bases: Vec<Base>,
    pods: u64,
}

impl World {
    fn new(limit: u32) -> Self {
        let base = |_| Base {
            machine: Machine::new(Settings::default()),
            pending: None,
            tainted: false,
            pods: 2,
            modules: 2,
            leak: 0,
            pod: Some(0),
            uptime: Duration::from_secs(100),
            silent: false,
            emptied: false,
            still_empty: false,
        };
        Self {
            now: Duration::from_secs(1),
            budget: Budget::default(),
            limit: Limit::Bases(NonZeroU32::new(limit).expect("a limit of at least one")),
            bases: (0..BASES).map(base).collect(),
            pods: 0,
        }
    }

    fn on(&mut self, index: usize, input: Input) {
        let base = &mut self.bases[index];
        let output = base.machine.on(self.now, input);
        let Some(action) = output.action else {
            return;
        };
        assert_eq!(base.pending, None, "two actions of one base");
        assert!(!base.silent, "{action:?} of a silent base");
        base.pending = Some((action, self.now));
    }

    fn nodes(&self) -> Nodes {
        let nodes = self.bases.iter().enumerate();
        nodes
            .map(|(index, base)| (index.to_string(), base.tainted))
            .collect()
    }

    /// Carries an action out, as the shell does.
    fn carry_out(&mut self, index: usize, action: &Action) -> Answer {
        let (nodes, now) = (self.nodes(), self.now);
        let base = &mut self.bases[index];
        match action {
            Action::Acquire => {
                let now = Timestamp::from_second(now.as_secs() as i64).expect("in range");
                let name = index.to_string();
                match self.budget.acquire(&name, "x", now, self.limit, &nodes) {
                    Verdict::Granted => Answer::Done,
                    Verdict::Full(by) => Answer::Full(by.join(", ")),
                }
            }
            Action::Taint => {
                base.tainted = true;
                Answer::Done
            }
            Action::Inspect => {
                base.emptied = base.tainted && base.pods == 0;
                base.still_empty = base.emptied;
                Answer::Seen {
                    pods: base.pods,
                    tainted: base.tainted,
                }
            }
            Action::Uninstall => {
                assert!(base.emptied, "uninstalled before the drain");
                base.modules = 0;
                Answer::Left(0)
            }
            Action::Replace(_) => {
                assert!(base.emptied && base.still_empty, "replaced before the drain");
                base.restart();
                self.pods += 1;
                base.pod = Some(self.pods);
                Answer::Done
            }
            Action::Untaint => {
                (base.tainted, base.emptied) = (false, false);
                Answer::Done
            }
            Action::Release => {
                assert!(!base.tainted, "the permit is given back before the taint is gone");
                self.budget.release(&index.to_string());
                Answer::Done
            }
        }
    }

    fn step(&mut self, index: usize, step: &Step) {
        match step {
            Step::Health(known) => {
                let base = &self.bases[index];
                if !base.silent {
                    let reading = known.then(|| base.reading());
                    self.on(index, Input::Health(reading));
                }
            }
            Step::Silence(silent) => {
                self.bases[index].silent = *silent;
                self.report(index);
            }
            Step::Answer { done, heard } => {
                let Some((action, _)) = self.bases[index].pending.take() else {
                    return;
                };
                // What is silent may still have been asked before it was.
                let answer = if *done {
                    self.carry_out(index, &action)
                } else {
                    Answer::Failed("no".to_owned())
                };
                let answer = if *heard {
                    answer
                } else {
                    Answer::Failed("lost".to_owned())
                };
                self.report(index);
                self.on(index, Input::Answer(answer));
            }
            Step::Pods(pods) => {
                let base = &mut self.bases[index];
                if !base.tainted {
                    base.pods = *pods;
                    base.modules = base.modules.max(*pods);
                    // One that comes while the eviction is under way cannot be known.
                    let replaces = matches!(base.pending, Some((Action::Replace(_), _)));
                    base.still_empty &= *pods == 0 || replaces;
                }
            }
            Step::Evicts => {
                let base = &mut self.bases[index];
                if base.tainted {
                    base.pods = base.pods.saturating_sub(1);
                }
            }
            Step::Leak(leak) => self.bases[index].leak = *leak,
            Step::Restarts => {
                self.bases[index].restart();
                self.report(index);
            }
            Step::ForgetsPod(known) => {
                let pods = self.pods;
                let base = &mut self.bases[index];
                base.pod = known.then_some(base.pod.unwrap_or(pods));
                self.report(index);
            }
            Step::LosesTaint => {
                self.bases[index].tainted = false;
            }
            Step::Restart => {
                let base = &mut self.bases[index];
                base.machine = Machine::new(Settings::default());
                base.pending = None;
                let tainted = base.tainted;
                self.report(index);
                self.on(index, Input::Found { tainted });
            }
            Step::Time(seconds) => {
                let time = Duration::from_secs(*seconds);
                self.now += time;
                for index in 0..BASES {
                    self.bases[index].uptime += time;
                    let is_late =
                        |(_, since): &mut (Action, Duration)| self.now.saturating_sub(*since) > DEADLINE;
                    let late = self.bases[index].pending.take_if(is_late);
                    let input =
                        late.map_or(Input::Tick, |_| Input::Answer(Answer::Failed("late".to_owned())));
                    self.on(index, input);
                }
            }
        }
        let tainted = self.bases.iter().filter(|base| base.tainted).count();
        let permits = self.limit.of(BASES);
        assert!(tainted <= permits, "{tainted} bases tainted, {permits} may be");
    }

    fn report(&mut self, index: usize) {
        let base = &self.bases[index];
        let (silent, pod) = (base.silent, base.pod.map(|pod| Arc::from(pod.to_string())));
        self.on(index, Input::Base { silent, pod });
    }

    fn ended(&self) -> bool {
        self.budget.is_empty()
            && self
                .bases
                .iter()
                .all(|base| !base.tainted && *base.machine.phase() == Phase::Well)
    }
}

impl Base {
    fn restart(&mut self) {
        (self.leak, self.modules, self.uptime) = (0, 0, Duration::ZERO);
    }

    fn reading(&self) -> Reading {
        let used = self.leak + 100 * self.modules as u64;
        Reading {
            used: Some(used),
            committed: Some(used),
            max: Some(MAX as i64),
            uptime: Some(self.uptime),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_replaced_undrained_nor_over_budget_and_every_healing_ends(
        limit in 1..=3_u32,
        steps in prop::collection::vec((0..BASES, step()), 0..400),
    ) {
        let mut world = World::new(limit);
        for index in 0..BASES {
            world.report(index);
        }
        for (index, step) in &steps {
            world.step(*index, step);
        }
        // From here on the cluster works, no base leaks, and somebody restarts those whose pod nobody knows.
        for index in 0..BASES {
            world.step(index, &Step::Silence(false));
        }
        let mut rounds = 0;
        while !world.ended() {
            rounds += 1;
            prop_assert!(rounds < 2_000, "a healing does not end: {:?}", world.bases[0].machine);
            for index in 0..BASES {
                if *world.bases[index].machine.phase() == Phase::Spent {
                    world.step(index, &Step::Restarts);
                }
                world.step(index, &Step::Evicts);
                world.step(index, &Step::Health(true));
                world.step(index, &Step::Answer { done: true, heard: true });
                if !world.bases[index].tainted {
                    world.step(index, &Step::Leak(0));
                }
            }
            world.step(0, &Step::Time(10));
            let now = Timestamp::from_second(world.now.as_secs() as i64).expect("in range");
            let nodes = world.nodes();
            world.budget.expire(now, &nodes);
        }
    }
}
