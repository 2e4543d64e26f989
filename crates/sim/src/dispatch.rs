//! Which actions of a plan are begun: a simple model of the shell's dispatcher, with its times.

use crate::event::Acted;
use evenkeel_failover_rules::planner::action::Action;
use std::collections::{BTreeMap, BTreeSet};

/// What was done is not done again for this long, while the watch catches up.
const ECHO: u64 = 3_000;
/// First and longest pause after a failure.
const BACK_OFF: (u64, u64) = (250, 10_000);

#[derive(Debug, Default)]
pub(crate) struct Dispatch {
    under_way: BTreeSet<String>,
    done: BTreeMap<String, (Action, u64)>,
    failing: BTreeMap<String, (u64, u64)>,
}

impl Dispatch {
    pub(crate) fn admit(&mut self, action: &Action, now: u64) -> bool {
        let key = action.key();
        let same = |done: &Action| match (done, action) {
            (Action::Evict { .. }, Action::Evict { .. }) => true,
            _ => done == action,
        };
        let echo = self
            .done
            .get(&key)
            .is_some_and(|(done, at)| now - at < ECHO && same(done));
        let resting = self.failing.get(&key).is_some_and(|(until, _)| now < *until);
        !echo && !resting && self.under_way.insert(key)
    }

    pub(crate) fn ended(&mut self, action: Action, acted: Option<&Acted>, now: u64) {
        let key = action.key();
        self.under_way.remove(&key);
        if acted == Some(&Acted::Done) {
            self.failing.remove(&key);
            self.done.insert(key, (action, now));
            return;
        }
        let pause = match (acted, self.failing.get(&key)) {
            (Some(Acted::Stale), _) | (_, None) => BACK_OFF.0,
            (_, Some((_, pause))) => (pause * 2).min(BACK_OFF.1),
        };
        self.failing.insert(key, (now + pause, pause));
    }

    pub(crate) fn prune(&mut self, now: u64) {
        self.done.retain(|_, (_, at)| now - *at < ECHO);
        self.failing
            .retain(|_, (until, pause)| now.saturating_sub(*until) < 2 * *pause);
    }
}
