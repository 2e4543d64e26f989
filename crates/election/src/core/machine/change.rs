//! Changes of the lock that a watch delivers.

use super::{Action, Machine, Now, Observation, Phase, newer};
use crate::core::state::Loss;

impl Machine {
    /// Handles a change, which may be older than what the machine knows.
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
            // The answer to a request under way will show the change, and while work ends the lock is not
            // taken.
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
        // The lock is ours: a coordinator chose us, or the answer to our write was lost, or its holder was a
        // predecessor that has ended.
        let for_us = self.is_mine(&record) || self.sees_ended();
        let is_news = self.seen.as_ref().is_some_and(|seen| seen.at == now.at);
        let next = if record.holder.is_empty() || for_us {
            // The lock can be taken now.
            until.min(self.spread(now, now.at))
        } else if !is_news {
            // Somebody else's write moves nothing, or a dead leader's Lease that is written often would never
            // be taken.
            until
        } else {
            self.next_attempt(now)
        };
        self.wait(next);
    }

    /// Handles a change in a term. A change that proves a loss ends the term at once; a doubtful one causes a
    /// read.
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
                let doubtful = loss.is_some()
                    || change.is_some_and(|change| {
                        self.config.coordinated && !change.record.preferred_holder.is_empty()
                    });
                if doubtful && let Phase::Waiting { until } = self.phase {
                    self.wait(until.min(now.at));
                }
            }
        }
    }
}
