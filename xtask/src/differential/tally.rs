//! What was asked for in a run, by kind and verb.

use super::case::Case;
use super::server::Answer;
use std::collections::BTreeMap;
use std::fmt;

/// Requests that were answered.
#[derive(Default)]
pub(super) struct Tally {
    requests: u64,
    refused: u64,
    /// Of cases with three steps or more.
    in_sequences: u64,
    writes: BTreeMap<(String, String), u64>,
}

impl Tally {
    /// Counts the requests of a case with the real server's answers.
    pub(super) fn count(&mut self, case: &Case, real: &[Answer]) {
        const SEQUENCE: usize = 3;
        for (step, answer) in case.steps.iter().zip(real) {
            self.requests += 1;
            self.refused += u64::from(answer.status >= 400);
            self.in_sequences += u64::from(case.steps.len() >= SEQUENCE);
            if step.method != "GET" {
                let write = (case.kind.clone(), step.method.to_owned());
                *self.writes.entry(write).or_default() += 1;
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |part: u64| part * 100 / self.requests.max(1);
        writeln!(
            f,
            "{} requests, {} % refused, {} % in cases of three steps or more",
            self.requests,
            share(self.refused),
            share(self.in_sequences)
        )?;
        let mut writes: Vec<_> = self.writes.iter().collect();
        writes.sort_by_key(|(_, count)| **count);
        for ((kind, method), count) in writes.into_iter().take(5) {
            writeln!(f, "fewest: {count} x {method} {kind}")?;
        }
        Ok(())
    }
}
