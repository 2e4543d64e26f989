//! Whatever is asked in whatever order, limits hold, nobody starves, and nothing is left.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

const PODS: usize = 5;

#[derive(Clone, Debug)]
enum Command {
    Add {
        pod: usize,
        probes: u8,
        exec: bool,
        period: u64,
    },
    Update {
        pod: usize,
        probes: u8,
        exec: bool,
        period: u64,
        deleting: bool,
    },
    Status {
        pod: usize,
        id: u8,
        state: u8,
        started: Option<bool>,
        phase: u8,
    },
    Quiet {
        pod: usize,
    },
    Remove {
        pod: usize,
    },
    Retain {
        pods: u8,
    },
    Run {
        most: usize,
    },
    Settle {
        which: usize,
        verdict: u8,
        starved: bool,
    },
    Pass {
        millis: u64,
    },
    Restart,
}

fn command() -> impl Strategy<Value = Command> {
    let pod = 0..PODS;
    prop_oneof![
        3 => (pod.clone(), any::<u8>(), any::<bool>(), 0..5000u64)
            .prop_map(|(pod, probes, exec, period)| Command::Add { pod, probes, exec, period }),
        2 => (pod.clone(), any::<u8>(), any::<bool>(), 0..5000u64, any::<bool>())
            .prop_map(|(pod, probes, exec, period, deleting)| Command::Update { pod, probes, exec, period, deleting }),
        5 => (pod.clone(), 0..3u8, 0..8u8, any::<Option<bool>>(), 0..12u8)
            .prop_map(|(pod, id, state, started, phase)| Command::Status { pod, id, state, started, phase }),
        1 => pod.clone().prop_map(|pod| Command::Quiet { pod }),
        1 => pod.prop_map(|pod| Command::Remove { pod }),
        1 => any::<u8>().prop_map(|pods| Command::Retain { pods }),
        8 => (1..20usize).prop_map(|most| Command::Run { most }),
        8 => (any::<usize>(), 0..4u8, any::<bool>())
            .prop_map(|(which, verdict, starved)| Command::Settle { which, verdict, starved }),
        5 => (0..6000u64).prop_map(|millis| Command::Pass { millis }),
        1 => Just(Command::Restart),
    ]
}

fn made(pod: usize, probes: u8, with_exec: bool, period: u64, deleting: bool) -> Arc<Pod> {
    let probe = Probe {
        period: Duration::from_millis(period),
        initial_delay: Duration::from_secs(u64::from(probes >> 6)),
        failure_threshold: 1 + u32::from(probes & 1),
        ..if with_exec { exec() } else { probe() }
    };
    let of = |bits: u8| -> Vec<_> {
        let kinds = Kind::ALL.into_iter().enumerate();
        let chosen = kinds.filter(|(bit, _)| bits >> bit & 1 == 1);
        chosen.map(|(_, kind)| (kind, probe.clone())).collect()
    };
    let containers = [
        container("main", Role::Regular, &of(probes)),
        container("side", Role::Sidecar, &of(probes >> 3)),
    ];
    let pod = super::pod(&format!("p{pod}"), containers);
    Arc::new(Pod {
        deleting,
        ..Pod::clone(&pod)
    })
}

struct Shell {
    engine: Engine,
    now: Duration,
    /// Attempts under way; whose worker has gone since has no key.
    running: Vec<(u64, bool, Option<Key>)>,
    /// What a subscriber has heard of whom.
    told: HashMap<Key, (Arc<str>, Reading)>,
}

impl Shell {
    fn forget(&mut self) {
        let engine = &self.engine;
        for (_, _, key) in &mut self.running {
            let lives = |key: &Key| engine.inspect().any(|seen| seen.running && seen.key == key);
            *key = key.take().filter(lives);
        }
    }

    fn run(&mut self, most: usize) -> Result<(), TestCaseError> {
        for _ in 0..most {
            let Some(attempt) = self.engine.next_attempt(at(self.now)) else {
                let due = self.engine.due();
                prop_assert!(
                    due.is_none_or(|due| due > self.now),
                    "due {due:?} at {:?}",
                    self.now
                );
                break;
            };
            let twice = self
                .running
                .iter()
                .any(|(_, _, key)| key.as_ref() == Some(&attempt.key));
            prop_assert!(!twice, "two attempts of {}", attempt.key);
            let exec = matches!(attempt.probe.handler, Handler::Exec { .. });
            self.running.push((attempt.ticket, exec, Some(attempt.key)));
            let execs = self.running.iter().filter(|(_, exec, _)| *exec).count();
            prop_assert!(
                self.running.len() <= 4 && execs <= 2,
                "limits: {:?}",
                self.running
            );
        }
        Ok(())
    }

    fn settle(&mut self, which: usize, verdict: u8, starved: bool) {
        if self.running.is_empty() {
            return;
        }
        let (ticket, ..) = self.running.swap_remove(which % self.running.len());
        let outcome = match verdict {
            0 => Outcome::success("s"),
            1 => Outcome::warning("w"),
            2 => Outcome::failure("f"),
            _ => Outcome::error(Verdict::Unknown, "e"),
        };
        self.engine.settle(ticket, outcome.clone(), starved, at(self.now));
        self.engine.settle(ticket, outcome, starved, at(self.now));
    }

    /// Whoever waits now gets to run, or waits no longer, within as many turns as workers can wait.
    fn nobody_starves(&mut self) -> Result<(), TestCaseError> {
        let waiting = |engine: &Engine| -> HashSet<Key> {
            let ready = engine
                .workers
                .iter()
                .filter(|slot| matches!(slot.state, State::Ready { .. }));
            ready.map(|slot| slot.key.clone()).collect()
        };
        // Promotes what is due.
        self.run(1)?;
        let mut left = waiting(&self.engine);
        // Two lines, in each of which a pod has at most its six workers, and what runs at first.
        let turns = 2 * 6 * PODS + self.running.len();
        for _ in 0..turns {
            self.settle(0, 0, false);
            self.run(1)?;
            let still = waiting(&self.engine);
            left.retain(|key| {
                still.contains(key) && !self.running.iter().any(|(_, _, ran)| ran.as_ref() == Some(key))
            });
        }
        prop_assert!(left.is_empty(), "{left:?} wait after {turns} turns");
        Ok(())
    }

    /// Who hears all notices knows what is published, and of nobody who has stopped.
    fn listen(&mut self) -> Result<(), TestCaseError> {
        for notice in self.engine.drain() {
            match notice {
                Notice::Published {
                    key,
                    container_id,
                    reading,
                    ..
                } => {
                    self.told.insert(key, (container_id, reading));
                }
                Notice::Stopped { key } => {
                    self.told.remove(&key);
                }
                Notice::Ended { .. } | Notice::Event { .. } => {}
            }
        }
        for slot in self.engine.workers.iter().filter(|slot| !slot.untold) {
            let published = slot.worker.container_id().cloned().zip(slot.worker.published());
            if published.is_some() {
                prop_assert_eq!(self.told.get(&slot.key), published.as_ref(), "{}", slot.key);
            }
        }
        let living: HashSet<&Key> = self.engine.workers.iter().map(|slot| &slot.key).collect();
        prop_assert!(self.told.keys().all(|key| living.contains(key)));
        Ok(())
    }

    /// Whatever happened before: each worker probes a new container, and is left a reading of it.
    fn everybody_probes_a_new_container(&mut self) -> Result<(), TestCaseError> {
        while !self.running.is_empty() {
            self.settle(0, 2, false);
        }
        self.now += Duration::from_secs(20);
        let now = at(self.now);
        let state = ContainerState::Running { started_at: now.wall };
        for pod in 0..PODS {
            let of = |name: &str| in_state(name, "c://fresh", state);
            self.engine
                .update_status(&format!("p{pod}"), status([of("main"), of("side")]), now);
        }
        let mut probed: HashSet<Key> = HashSet::new();
        // The longest delay, two periods for each of two kinds in a row, and some for turns.
        let end = self.now + Duration::from_secs(40);
        for _ in 0..100_000 {
            while let Some(attempt) = self.engine.next_attempt(at(self.now)) {
                probed.insert(attempt.key);
                self.engine
                    .settle(attempt.ticket, Outcome::success(""), false, at(self.now));
            }
            let Some(due) = self.engine.due().filter(|due| *due <= end) else {
                break;
            };
            self.now = due.max(self.now);
        }
        self.listen()?;
        for seen in self.engine.inspect() {
            if seen.pod.deleting {
                continue;
            }
            prop_assert!(probed.contains(seen.key), "{} was not probed", seen.key);
            prop_assert_eq!(
                self.engine
                    .reading(&seen.key.pod, &seen.key.container, seen.key.kind, "c://fresh"),
                Some(Reading::Success),
                "{}",
                seen.key
            );
        }
        Ok(())
    }

    fn obey(&mut self, command: Command) -> Result<(), TestCaseError> {
        let now = at(self.now);
        match command {
            Command::Add {
                pod,
                probes,
                exec,
                period,
            } => {
                self.engine.add_pod(made(pod, probes, exec, period, false), now);
            }
            Command::Update {
                pod,
                probes,
                exec,
                period,
                deleting,
            } => {
                self.engine
                    .update_pod(made(pod, probes, exec, period, deleting), now);
            }
            Command::Status {
                pod,
                id,
                state,
                started,
                phase,
            } => {
                let state = match state {
                    0 => ContainerState::Waiting,
                    1 => ContainerState::Terminated { exit_code: 1 },
                    _ => ContainerState::Running { started_at: now.wall },
                };
                let of = |name: &str| ContainerStatus {
                    started,
                    ..in_state(name, &format!("c://{id}"), state)
                };
                let phase = if phase == 0 { Phase::Failed } else { Phase::Running };
                let seen = PodStatus {
                    phase,
                    ..status([of("main"), of("side")])
                };
                self.engine.update_status(&format!("p{pod}"), seen, now);
            }
            Command::Quiet { pod } => self.engine.stop_liveness_and_startup(&format!("p{pod}")),
            Command::Remove { pod } => self.engine.remove_pod(&format!("p{pod}")),
            Command::Retain { pods } => {
                let desired = (0..PODS).filter(|pod| pods >> pod & 1 == 1);
                self.engine
                    .retain_pods(&desired.map(|pod| format!("p{pod}").into()).collect());
            }
            Command::Run { most } => self.run(most)?,
            Command::Settle {
                which,
                verdict,
                starved,
            } => self.settle(which, verdict, starved),
            Command::Pass { millis } => self.now += Duration::from_millis(millis),
            Command::Restart => {
                let snapshot = self.engine.snapshot();
                let config = self.engine.config;
                self.engine = Engine::new(config);
                self.engine.restore(snapshot);
                self.running.clear();
                self.told.clear();
            }
        }
        self.forget();
        self.listen()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn limits_hold_nobody_starves_and_nothing_is_left(
        strict: bool,
        commands in vec(command(), 1..120),
    ) {
        let compat = if strict { Compat::Strict } else { Compat::Kubelet };
        let settings = Config { concurrency: 4, exec_concurrency: 2, ..config(compat) };
        let mut shell = Shell { engine: Engine::new(settings), now: Duration::ZERO, running: Vec::new(), told: HashMap::new() };
        for command in commands {
            shell.obey(command)?;
        }
        shell.nobody_starves()?;
        while !shell.running.is_empty() {
            shell.settle(0, 0, false);
        }
        shell.engine.retain_pods(&[].into());
        assert_empty(&shell.engine);
        prop_assert!(shell.engine.execs == 0 && shell.engine.due().is_none());
    }

    #[test]
    fn whatever_happened_everybody_probes_a_new_container(
        strict: bool,
        commands in vec(command(), 1..120),
    ) {
        let compat = if strict { Compat::Strict } else { Compat::Kubelet };
        let settings = Config { concurrency: 4, exec_concurrency: 2, ..config(compat) };
        let mut shell = Shell { engine: Engine::new(settings), now: Duration::ZERO, running: Vec::new(), told: HashMap::new() };
        for command in commands {
            shell.obey(command)?;
        }
        shell.everybody_probes_a_new_container()?;
    }
}
