//! What a Deployment reports: counts, availability, progress.

use super::{Rollout, available, counter, replicas, set_name};
use jiff::SignedDuration;
use k8s_openapi::{
    api::apps::v1::{DeploymentCondition, DeploymentStatus, ReplicaSet},
    apimachinery::pkg::apis::meta::v1::Time,
};

const PROGRESSING: &str = "Progressing";
const FAILURE: &str = "ReplicaFailure";
const COMPLETED: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

impl Rollout<'_> {
    pub(super) fn condition(&self, kind: &str) -> Option<&DeploymentCondition> {
        find(&self.status, kind)
    }

    /// Sets a condition. It stays as it is where its status and its reason do, and comes last otherwise.
    pub(super) fn set_condition(&mut self, kind: &str, value: &str, reason: &str, message: &str) {
        let now = Time(self.now);
        let mut condition = DeploymentCondition {
            type_: kind.to_owned(),
            status: value.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_update_time: Some(now.clone()),
            last_transition_time: Some(now),
        };
        if let Some(before) = self.condition(kind)
            && before.status == value
        {
            if before.reason.as_deref() == Some(reason) {
                return;
            }
            condition
                .last_transition_time
                .clone_from(&before.last_transition_time);
        }
        self.remove_condition(kind);
        self.status.conditions.get_or_insert_default().push(condition);
    }

    fn remove_condition(&mut self, kind: &str) {
        if let Some(all) = &mut self.status.conditions {
            all.retain(|condition| condition.type_ != kind);
        }
    }

    /// Says that the Deployment is paused, or is no longer, so that the time does not count as a roll-out's.
    pub(super) fn pause_or_resume(&mut self) {
        let reason = self
            .condition(PROGRESSING)
            .and_then(|condition| condition.reason.as_deref());
        if !self.has_deadline() || reason == Some(TIMED_OUT) {
            return;
        }
        let (paused, said) = (self.spec.paused == Some(true), reason == Some(PAUSED));
        if paused && !said {
            self.set_condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused");
        } else if !paused && said {
            self.set_condition(
                PROGRESSING,
                "Unknown",
                "DeploymentResumed",
                "Deployment is resumed",
            );
        }
    }

    /// The present counts, with the condition that follows from them.
    pub(super) fn counted(&mut self) -> DeploymentStatus {
        let sum = |of: &dyn Fn(&ReplicaSet) -> i32| self.sets.iter().map(of).sum::<i32>();
        let ready = sum(&|set| counter(set, |status| status.ready_replicas));
        let available = sum(&available);
        let unavailable = (sum(&replicas) - available).max(0);
        let replicas = sum(&|set| counter(set, |status| Some(status.replicas)));
        let updated = self.current.map_or(0, |index| {
            counter(&self.sets[index], |status| Some(status.replicas))
        });
        // A set that no controller has looked at has no terminating pods; one that does not say makes the sum
        // unknown.
        let terminating = self
            .sets
            .iter()
            .filter_map(|set| set.status.as_ref())
            .filter(|status| {
                status.terminating_replicas.is_some() || status.observed_generation.unwrap_or(0) != 0
            })
            .map(|status| status.terminating_replicas)
            .sum();
        let least = self.wanted - self.bounds().1;
        if available >= least {
            self.set_condition(
                "Available",
                "True",
                "MinimumReplicasAvailable",
                "Deployment has minimum availability.",
            );
        } else {
            self.set_condition(
                "Available",
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            );
        }
        let some = |number: i32| (number != 0).then_some(number);
        DeploymentStatus {
            observed_generation: self.deployment.metadata.generation,
            replicas: some(replicas),
            updated_replicas: some(updated),
            ready_replicas: some(ready),
            available_replicas: some(available),
            unavailable_replicas: some(unavailable),
            terminating_replicas: terminating,
            collision_count: self.status.collision_count,
            conditions: self.status.conditions.clone(),
        }
    }

    /// Whether all replicas are of the present template and available, and no others are left.
    pub(super) fn is_complete(&self, status: &DeploymentStatus) -> bool {
        status.updated_replicas.unwrap_or(0) == self.wanted
            && status.replicas.unwrap_or(0) == self.wanted
            && status.available_replicas.unwrap_or(0) == self.wanted
            && status.observed_generation.unwrap_or(0) >= self.deployment.metadata.generation.unwrap_or(0)
    }

    /// Counts, and says how the roll-out gets on.
    pub(super) fn progress(&mut self) {
        let before = self.status.clone();
        self.status = self.counted();
        let condition = find(&before, PROGRESSING);
        let settled = self.status.replicas == self.status.updated_replicas
            && condition.is_some_and(|condition| condition.reason.as_deref() == Some(COMPLETED));
        let about = self.current.map_or_else(
            || {
                let name = self.deployment.metadata.name.as_deref().unwrap_or_default();
                format!("Deployment \"{name}\"")
            },
            |index| format!("ReplicaSet \"{}\"", set_name(&self.sets[index])),
        );
        if !self.has_deadline() {
            self.remove_condition(PROGRESSING);
        } else if settled {
            // The last roll-out is over: what happens to pods since is no lack of progress.
        } else if self.is_complete(&self.status) {
            let message = format!("{about} has successfully progressed.");
            self.set_condition(PROGRESSING, "True", COMPLETED, &message);
        } else if advances(&before, &self.status) {
            // Each step is a new time, although nothing else of the condition changes.
            let since = condition
                .filter(|condition| condition.status == "True")
                .and_then(|condition| condition.last_transition_time.clone());
            self.remove_condition(PROGRESSING);
            let message = format!("{about} is progressing.");
            self.set_condition(PROGRESSING, "True", "ReplicaSetUpdated", &message);
            let last = self.status.conditions.iter_mut().flatten().last();
            if let (Some(condition), Some(since)) = (last, since) {
                condition.last_transition_time = Some(since);
            }
        } else if self.is_late() {
            let message = format!("{about} has timed out progressing.");
            self.set_condition(PROGRESSING, "False", TIMED_OUT, &message);
        }
        self.tell_failure();
    }

    fn is_late(&self) -> bool {
        let Some(condition) = self.condition(PROGRESSING) else {
            return false;
        };
        match condition.reason.as_deref() {
            Some(COMPLETED) => false,
            Some(TIMED_OUT) => true,
            _ => {
                let limit = i64::from(self.spec.progress_deadline_seconds.unwrap_or(0));
                let since = condition.last_update_time.as_ref();
                since.is_some_and(|since| self.now.duration_since(since.0) > SignedDuration::from_secs(limit))
            }
        }
    }

    /// Takes over what a ReplicaSet says about pods that it cannot make, of the current one first.
    fn tell_failure(&mut self) {
        let order = self.current.into_iter().chain(0..self.sets.len());
        let failure = order
            .filter_map(|index| self.sets[index].status.as_ref()?.conditions.as_ref())
            .flatten()
            .find(|condition| condition.type_ == FAILURE)
            .cloned();
        let Some(failure) = failure else {
            self.remove_condition(FAILURE);
            return;
        };
        let known = self.condition(FAILURE).is_some_and(|condition| {
            condition.status == failure.status && condition.reason == failure.reason
        });
        if !known {
            self.remove_condition(FAILURE);
            self.status
                .conditions
                .get_or_insert_default()
                .push(DeploymentCondition {
                    type_: FAILURE.to_owned(),
                    status: failure.status,
                    reason: failure.reason,
                    message: failure.message,
                    last_update_time: failure.last_transition_time.clone(),
                    last_transition_time: failure.last_transition_time,
                });
        }
    }
}

/// Whether more pods are new, or ready, or available than before, or fewer are old.
fn advances(before: &DeploymentStatus, now: &DeploymentStatus) -> bool {
    let counts = |status: &DeploymentStatus| {
        let number = |count: Option<i32>| count.unwrap_or(0);
        let updated = number(status.updated_replicas);
        [
            updated,
            updated - number(status.replicas),
            number(status.ready_replicas),
            number(status.available_replicas),
        ]
    };
    counts(now)
        .iter()
        .zip(counts(before))
        .any(|(now, before)| *now > before)
}

fn find<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    let mut all = status.conditions.iter().flatten();
    all.find(|condition| condition.type_ == kind)
}
