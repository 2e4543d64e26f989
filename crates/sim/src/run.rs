//! Runs: one seed, one script, and how a failing one becomes small.

use crate::groups::script;
use crate::ledger::{Broken, Ledger, Numbers};
use crate::script::{Fault, Group, Level, Network, SECOND, Script, WARM_UP};
use crate::sim::Sim;
use std::fmt;

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The first broken promise.
    pub broken: Option<Broken>,
    pub numbers: Numbers,
}

/// A script that fails, as small as it was made.
#[derive(Debug)]
pub struct Failure {
    /// The script of the seed, made small.
    pub script: Script,
    /// What it breaks.
    pub broken: Broken,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.broken)?;
        writeln!(f, "{}", self.script)?;
        write!(
            f,
            "replay: EVENKEEL_SIM_GROUP={} EVENKEEL_SIM_SEED={} cargo test -p evenkeel-sim -- --nocapture",
            self.script.group.name(),
            self.script.seed
        )
    }
}

/// Plays the script of a seed.
pub fn run(group: Group, seed: u64) -> Outcome {
    play(&script(group, seed))
}

/// Plays a script. Where the script promises to be no worse than stock Kubernetes, it is played a second time
/// without our parts, and the two runs are compared.
pub fn play(script: &Script) -> Outcome {
    let (mut ledger, _) = Sim::new(script.clone(), script.group.level()).play();
    if !ledger.is_broken() && is_compared(script.group) {
        let (stock, _) = control(script);
        ledger.compare(&stock);
    }
    Outcome {
        broken: ledger.broken.first().cloned(),
        numbers: ledger.numbers(),
    }
}

/// The run of a script with its trace.
pub fn trace(script: &Script) -> Vec<String> {
    Sim::new(script.clone(), script.group.level()).traced().play().1
}

fn is_compared(group: Group) -> bool {
    matches!(
        group,
        Group::NeverLaterThanStock | Group::StockQueue | Group::PowerOff | Group::IsolatedThenDead
    )
}

/// The same faults with stock Kubernetes alone.
fn control(script: &Script) -> (Ledger, Vec<String>) {
    let mut sim = Sim::new(script.clone(), Level::Stock);
    sim.ledger.promises_nothing();
    sim.play()
}

/// Makes a failing script small: steps are left out and times made shorter for as long as the same promise
/// breaks.
pub fn shrink(script: &Script) -> Option<Failure> {
    let broken = play(script).broken?;
    let mut best = Failure {
        script: script.clone(),
        broken,
    };
    let mut tries = 0;
    while let Some(smaller) = candidates(&best.script).into_iter().find_map(|candidate| {
        tries += 1;
        if tries > 120 {
            return None;
        }
        let broken = play(&candidate).broken?;
        (broken.promise == best.broken.promise).then_some(Failure {
            script: candidate,
            broken,
        })
    }) {
        best = smaller;
    }
    Some(best)
}

/// The same with a better network, better clocks, or with a fault that touches fewer nodes.
fn calmer(script: &Script) -> Vec<Script> {
    let mut list = Vec::new();
    let mut with = |change: fn(&mut Script)| {
        let mut one = script.clone();
        change(&mut one);
        if one != *script {
            list.push(one);
        }
    };
    with(|script| {
        script.network = Network {
            latency: script.network.latency,
            ..Network::default()
        };
    });
    with(|script| script.network.lost = 0);
    with(|script| (script.network.doubled, script.network.delayed) = (0, 0));
    with(|script| script.network.corrupted = 0);
    with(|script| script.network.bursts = None);
    with(|script| script.network.latency = (1, 5));
    with(|script| script.drift = 0);
    with(|script| script.replicas_apart = 0);
    with(|script| script.mixed_versions = false);
    for (index, step) in script.steps.iter().enumerate() {
        for fault in smaller(&step.fault) {
            let mut one = script.clone();
            if let Some(step) = one.steps.get_mut(index) {
                step.fault = fault;
            }
            list.push(one);
        }
    }
    list
}

/// The fault with one node less on either side.
fn smaller(fault: &Fault) -> Vec<Fault> {
    let without = |nodes: &[usize]| -> Vec<Vec<usize>> {
        let all = |skip: usize| nodes.iter().copied().filter(|node| *node != skip).collect();
        if nodes.len() < 2 {
            return Vec::new();
        }
        nodes.iter().map(|node| all(*node)).collect()
    };
    match fault {
        Fault::SplitLan(few) => without(few).into_iter().map(Fault::SplitLan).collect(),
        Fault::CutOneWay(from, to) => {
            let fewer = without(from)
                .into_iter()
                .map(|from| Fault::CutOneWay(from, to.clone()));
            fewer
                .chain(
                    without(to)
                        .into_iter()
                        .map(|to| Fault::CutOneWay(from.clone(), to)),
                )
                .collect()
        }
        _ => Vec::new(),
    }
}

fn candidates(script: &Script) -> Vec<Script> {
    let mut list = Vec::new();
    for index in 0..script.steps.len() {
        let mut one = script.clone();
        one.steps.remove(index);
        list.push(one);
    }
    list.extend(calmer(script));
    for index in 0..script.steps.len() {
        let Some(step) = script.steps.get(index) else {
            continue;
        };
        let mut shorter = |at: u64, lasts: u64| {
            if (at, lasts) != (step.at, step.lasts) {
                let mut one = script.clone();
                if let Some(step) = one.steps.get_mut(index) {
                    (step.at, step.lasts) = (at, lasts);
                }
                list.push(one);
            }
        };
        let half = (step.lasts / 2 / SECOND * SECOND).max(SECOND);
        if step.lasts > 2 * SECOND && !matches!(step.fault, Fault::ApiDown { .. }) {
            shorter(step.at, half);
            shorter(step.at, step.lasts / SECOND * SECOND);
        }
        if step.at % SECOND != 0 {
            shorter(step.at / SECOND * SECOND, step.lasts);
        }
        let sooner = WARM_UP + (step.at.saturating_sub(WARM_UP)) / 2 / SECOND * SECOND;
        if step.at > WARM_UP + 4 * SECOND {
            shorter(sooner, step.lasts);
        }
    }
    list
}
