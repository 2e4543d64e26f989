//! The breadth-first search over all states of a model.

use super::step::Trace;
use super::{Model, State, Step, Violation};
use evenkeel_election::core::ConfigError;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// States seen, but for names. Told apart by a hash of 64 bits: at ten million states the odds that two
    /// share one are one to 370 000.
    pub states: usize,
    /// Steps that were taken, from all states.
    pub steps: usize,
    /// Steps of the longest script that was searched. If less than [`Model::depth`], there are no further
    /// states.
    pub depth: u32,
    /// How often a gate opened after that of another candidate. If zero, the search checked nothing.
    pub take_overs: usize,
    /// The first violation that was found.
    pub found: Option<Found>,
}

/// A violation, and a shortest script that leads to it.
#[derive(Clone, Debug)]
pub struct Found {
    /// The rule that was violated.
    pub violation: Violation,
    /// The script.
    pub trace: Trace,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            states,
            steps,
            depth,
            take_overs,
            found,
        } = self;
        write!(
            f,
            "{states} states, {steps} steps, {take_overs} take-overs, depth {depth}"
        )?;
        match found {
            Some(Found { violation, trace }) => write!(f, ": {violation}\n{trace}"),
            None => f.write_str(": nothing found"),
        }
    }
}

/// The step by which each state was first reached, and the state before it.
type Origins = HashMap<u64, Option<(u64, Step)>>;

/// Visits every state within the model's depth, and stops at the first violation.
pub fn search(model: &Model) -> Result<Outcome, ConfigError> {
    let start = model.start()?;
    let all = State::steps(model);
    let mut origins = Origins::new();
    origins.insert(fingerprint(&start), None);
    let mut frontier = vec![start];
    let mut outcome = Outcome {
        states: 1,
        steps: 0,
        depth: 0,
        take_overs: 0,
        found: None,
    };
    while !frontier.is_empty() && outcome.depth < model.depth {
        outcome.depth += 1;
        let mut next = Vec::new();
        for state in std::mem::take(&mut frontier) {
            let from = fingerprint(&state);
            for step in &all {
                match state.after(*step, model) {
                    None => {}
                    Some(Err(violation)) => {
                        let steps = script(&origins, from, *step);
                        let trace = Trace::new(steps, model.clone());
                        outcome.found = Some(Found { violation, trace });
                        return Ok(outcome);
                    }
                    Some(Ok(after)) => {
                        outcome.steps += 1;
                        let to = fingerprint(&after);
                        if let std::collections::hash_map::Entry::Vacant(place) = origins.entry(to) {
                            place.insert(Some((from, *step)));
                            outcome.take_overs += usize::from(after.took_over(&state));
                            next.push(after);
                        }
                    }
                }
            }
        }
        frontier = next;
        outcome.states = origins.len();
    }
    Ok(outcome)
}

fn fingerprint(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

fn script(origins: &Origins, last: u64, step: Step) -> Vec<Step> {
    let mut steps = vec![step];
    let mut at = last;
    while let Some(Some((before, step))) = origins.get(&at) {
        steps.push(*step);
        at = *before;
    }
    steps.reverse();
    steps
}
