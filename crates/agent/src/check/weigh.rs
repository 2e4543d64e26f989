//! What is made of the outcomes of several plugins.

use super::outcome::{Failure, Outcome};
use super::parameters::{CheckSettingsError, UNIT, millionths};
use super::plugin::{Plugin, Suspect};
use evenkeel_zone::engine::CheckResult;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Beyond its time a plugin has this long to end by itself.
const GRACE: Duration = Duration::from_millis(20);

/// A plugin as it is used.
#[derive(Clone)]
pub(super) struct Weighed {
    pub(super) name: String,
    pub(super) plugin: Arc<dyn Plugin>,
    /// In millionths.
    pub(super) weight: u32,
    pub(super) attempts: u32,
    /// Of one attempt; `None`: nobody says it.
    pub(super) timeout: Option<Duration>,
}

impl fmt::Debug for Weighed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            weight,
            attempts,
            timeout,
            ..
        } = self;
        write!(f, "{name}: {weight} millionths, {attempts} of {timeout:?}")
    }
}

impl Weighed {
    /// Attempts until something answers, or until `end`: a round may leave less time than the attempts take.
    /// Where nobody says how long each of them takes, a new one begins while the former ones still wait: a
    /// packet may be lost, and an answer may be late.
    pub(super) async fn run(&self, suspect: &Suspect, end: Instant) -> Outcome {
        let begun = Instant::now();
        let all = end.saturating_duration_since(begun);
        let every = self.timeout.unwrap_or(all / self.attempts);
        let mut attempts: FuturesUnordered<_> = (0..self.attempts)
            .map(|number| async move {
                let at = begun + every * number;
                tokio::time::sleep_until(at).await;
                let until = self.timeout.map_or(end, |timeout| end.min(at + timeout));
                let within = until.saturating_duration_since(at);
                let attempt = self.plugin.attempt(suspect, within);
                let ended = tokio::time::timeout(within + GRACE, attempt).await;
                ended.unwrap_or(Outcome::Failed(Failure::Timeout))
            })
            .collect();
        let mut outcome = Outcome::Failed(Failure::Timeout);
        while let Some(ended) = attempts.next().await {
            outcome = ended;
            if outcome.answers() {
                break;
            }
        }
        outcome
    }

    /// What an answer is worth, in millionths of a point.
    fn points(&self) -> u64 {
        100 * u64::from(self.weight)
    }
}

/// What an agent cannot check.
pub(crate) struct Lacking {
    /// How many of its plugins it cannot run.
    pub(crate) plugins: usize,
    /// Why, what they need, and what becomes of its votes; `None`: it can run all.
    pub(crate) problem: Option<String>,
}

/// How suspects are checked.
#[derive(Clone, Debug)]
pub struct Checks {
    pub(super) plugins: Arc<[Weighed]>,
    /// In millionths of a point.
    line: u64,
}

impl Checks {
    pub(super) fn new(plugins: Vec<Weighed>, line: f64) -> Result<Self, CheckSettingsError> {
        let refuse = |reason| CheckSettingsError::of("--check-score-line", reason);
        let most = 100 * u64::from(UNIT);
        let points = millionths(line).map(u64::from);
        let points = points.filter(|points| (1..=most).contains(points));
        let points = points.ok_or_else(|| refuse(format!("{line}: give more than 0, at most 100")))?;
        let sum: u64 = plugins.iter().map(Weighed::points).sum();
        if sum < points {
            return Err(refuse(format!(
                "{line}: all checks together reach {} points: lower it, or raise the weights of --check",
                sum as f64 / f64::from(UNIT)
            )));
        }
        Ok(Self {
            plugins: plugins.into(),
            line: points,
        })
    }

    /// Whether a plugin of this name is among them.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.plugins.iter().any(|plugin| plugin.name == name)
    }

    /// The plugins that this process cannot run.
    pub(crate) fn lacking(&self) -> Lacking {
        let (mut whys, mut left) = (Vec::new(), 0);
        for plugin in &*self.plugins {
            match plugin.plugin.lacks() {
                Some(why) => whys.push(format!("{}: {why}", plugin.name)),
                None => left += plugin.points(),
            }
        }
        let plugins = whys.len();
        if left < self.line {
            whys.push("what is left does not reach the score line: this agent votes no node dead".to_owned());
        }
        Lacking {
            plugins,
            problem: Some(whys.join("; ")).filter(|text| !text.is_empty()),
        }
    }

    /// Runs all plugins at the same time, and weighs what they found.
    pub(crate) async fn check(&self, suspect: &Suspect, within: Duration) -> CheckResult {
        let end = Instant::now() + within;
        let runs = self.plugins.iter().map(|plugin| plugin.run(suspect, end));
        let outcomes = futures::future::join_all(runs).await;
        let result = self.weigh(&outcomes);
        tracing::debug!(node = suspect.node, checks = ?self.plugins, ?outcomes, ?result, "checked");
        result
    }

    /// Of the outcome of each plugin.
    fn weigh(&self, outcomes: &[Outcome]) -> CheckResult {
        if outcomes.iter().any(Outcome::proves_life) {
            return CheckResult::Identity;
        }
        let (mut made, mut answered) = (0, 0);
        for (plugin, outcome) in self.plugins.iter().zip(outcomes) {
            if !outcome.is_ours() {
                made += plugin.points();
            }
            if outcome.answers() {
                answered += plugin.points();
            }
        }
        match () {
            () if made < self.line => CheckResult::Unavailable,
            () if answered < self.line => CheckResult::Failed,
            () => CheckResult::Inconclusive,
        }
    }
}

#[cfg(test)]
mod tests;
