//! Changes of the lock that come without asking.

use super::{Action, Machine, Now, Observation, Phase, newer};
use crate::core::state::Loss;

impl Machine {
    /// A change that we did not ask for, maybe older than what we know.
    pub(super) fn on_change(&mut self, now: Now, change: Option<Observation>, actions: &mut Vec<Action>) {
        let older = |observation: &Observation| {
            self.seen.as_ref().is_some_and(|seen| {
                seen.observation.uid == observation.uid
                    && (seen.observation.version == observation.version
                        || newer(&seen.observation.version, &observation.version))
            })
        };
        self.watched = Some(now.at);
        if change.as_ref().is_some_and(older) {
            return;
        }
        if self.has_term() {
            return self.on_change_in_term(now, change, actions);
        }
        let Phase::Waiting { until } = self.phase else {
            // While a request is under way its answer will tell; while work ends nothing is taken.
            if matches!(self.phase, Phase::Draining)
                && let Some(observation) = change
            {
                self.observe(now, observation);
            }
            return;
        };
        let Some(observation) = change else {
            return self.wait(until.min(self.spread(now, now.at)));
        };
        let record = observation.record.clone();
        let duplicate = self.is_duplicate(&observation);
        self.observe(now, observation);
        if duplicate {
            return self.end_as_duplicate(now, actions);
        }
        self.report(actions);
        // A coordinator's choice, a write of ours whose answer was lost, or what a predecessor left that has ended.
        let for_us = self.is_mine(&record) || self.sees_ended();
        let next = if record.holder.is_empty() || for_us {
            // Free to take, or given to us.
            until.min(self.spread(now, now.at))
        } else {
            self.next_question(now)
        };
        self.wait(next);
    }

    /// What a leader, or one that hopes to recover, makes of a change: a proof of loss ends it at once, anything else is
    /// looked into.
    pub(super) fn on_change_in_term(
        &mut self,
        now: Now,
        change: Option<Observation>,
        actions: &mut Vec<Action>,
    ) {
        let loss = match &change {
            Some(observation) if self.is_duplicate(observation) => Some(Loss::DuplicateIdentity),
            Some(observation) => self.loss_by(&observation.record, &observation.uid),
            None => Some(Loss::Deleted),
        };
        let proven = match (&change, &self.seen) {
            (Some(observation), Some(seen)) => newer(&observation.version, &seen.observation.version),
            _ => false,
        };
        match (loss, change) {
            (Some(Loss::DuplicateIdentity), Some(observation)) if proven => {
                self.observe(now, observation);
                self.abort(now, actions);
                self.end_as_duplicate(now, actions);
            }
            (Some(loss), Some(observation)) if proven => {
                self.observe(now, observation);
                self.abort(now, actions);
                self.lose(now, loss, actions);
                self.report(actions);
            }
            (loss, change) => {
                let asks = loss.is_some()
                    || change.is_some_and(|change| {
                        self.config.coordinated && !change.record.preferred_holder.is_empty()
                    });
                if asks && let Phase::Waiting { until } = self.phase {
                    self.wait(until.min(now.at));
                }
            }
        }
    }
}
