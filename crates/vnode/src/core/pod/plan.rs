//! What is to be done about the pod as a whole.

use super::Action;
use super::calls::Call;
use super::end::{End, Fate};
use super::machine::{Machine, Object, World};
use super::presence::Presence;
use super::record::{Life, Stop};
use super::recorded;
use super::spec::{Role, Spec, seconds_of};
use super::words::note;
use evenkeel_api::names::events::KILLING;
use evenkeel_api::names::pods::DEADLINE;
use evenkeel_probe::core::{LEAST_GRACE, Phase};
use k8s_openapi::api::core::v1::Pod;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;
use std::time::Duration;

/// What a kubelet gives a pod at the least, even one that is deleted by force; each of its containers has
/// [`LEAST_GRACE`].
const LEAST_POD_GRACE: Duration = Duration::from_secs(1);

impl Machine {
    /// Looks at everything and says what is to be done that is not under way.
    pub(super) fn plan(&mut self, world: &World<'_>, out: &mut Vec<Action>) {
        self.heed_others(world);
        self.keep_deadline(world, out);
        self.notice_the_end(world);
        if self.is_ending(world) {
            self.end(world, out);
        } else {
            self.advance(world, out);
        }
        self.post(world, out);
        if self.is_ending(world) {
            self.leave(world, out);
        }
        self.notify_prober(world, out);
        if self.object == Object::Forgotten {
            out.push(Action::Forget);
            return;
        }
        self.set_wake(world, out);
    }

    /// Whether the pod is to end, or has.
    pub(super) fn is_ending(&self, world: &World<'_>) -> bool {
        self.is_gone() || !matches!(self.end, End::Open) || world.is_deleting()
    }

    /// Somebody else has ended the pod: the API server's terminal phase is final.
    fn heed_others(&mut self, world: &World<'_>) {
        let Some(status) = &world.pod.status else { return };
        let theirs = status.phase.as_deref().unwrap_or_default();
        if !recorded::is_over(theirs) || self.posting.is_older(world.pod) {
            return;
        }
        let theirs = recorded::phase(theirs);
        if self.end.over() == Some(theirs) {
            return;
        }
        self.begin_to_end(world.now.mono);
        self.end.overrule(Fate {
            phase: theirs,
            reason: status.reason.clone().unwrap_or_default(),
            message: status.message.clone().unwrap_or_default(),
        });
    }

    /// When `activeDeadlineSeconds` are over, on the wall clock in seconds.
    fn deadline(&self, world: &World<'_>) -> Option<i64> {
        let seconds = world.pod.spec.as_ref()?.active_deadline_seconds?;
        Some(self.started_at?.saturating_add(seconds))
    }

    fn keep_deadline(&mut self, world: &World<'_>, out: &mut Vec<Action>) {
        let wall = i64::try_from(world.now.wall.as_secs()).unwrap_or(i64::MAX);
        if !self.presence.is_unknown() && !matches!(self.end, End::LeftAlone(_)) {
            self.started_at.get_or_insert(wall);
        }
        let over = self.deadline(world).is_some_and(|deadline| deadline <= wall);
        if !over || self.is_ending(world) || self.presence.is_unknown() {
            return;
        }
        let message = "Pod was active on the node longer than the specified deadline";
        out.push(note(None, DEADLINE, message.to_owned()));
        let fate = Fate {
            phase: Phase::Failed,
            reason: DEADLINE.to_owned(),
            message: message.to_owned(),
        };
        self.doom(fate, world.now.mono);
    }

    /// Containers that are done for good end the pod.
    fn notice_the_end(&mut self, world: &World<'_>) {
        if self.is_ending(world) || self.presence.is_unknown() {
            return;
        }
        if let Some(phase) = self.finished(world) {
            let fate = Fate {
                phase,
                reason: String::new(),
                message: String::new(),
            };
            self.doom(fate, world.now.mono);
        }
    }

    fn advance(&mut self, world: &World<'_>, out: &mut Vec<Action>) {
        let ready = self.calls.is_ready(world.now.mono);
        match self.presence {
            Presence::Unknown if ready => self.request_with_metadata(Call::Adopt, world, out),
            Presence::Absent { .. } if ready => self.request_with_metadata(Call::Create, world, out),
            Presence::Up { .. } => {
                if ready && self.known != Some(metadata(world.pod)) {
                    self.request_with_metadata(Call::Update, world, out);
                }
                self.run_containers(world, out);
            }
            Presence::Unknown | Presence::Absent { .. } | Presence::Removed { .. } => {}
        }
    }

    /// Requests something that lets the provider know the pod's labels, annotations and tolerations.
    fn request_with_metadata(&mut self, call: Call, world: &World<'_>, out: &mut Vec<Action>) {
        self.known = Some(metadata(world.pod));
        self.request(call, out);
    }

    fn request(&mut self, call: Call, out: &mut Vec<Action>) {
        self.calls.begin(call);
        out.push(match call {
            Call::Adopt => Action::Adopt,
            Call::Create => Action::Create,
            Call::Update => Action::Update,
            Call::Delete => Action::Delete,
            Call::Remove => Action::Remove,
        });
    }

    /// Ends what runs: regular containers at once, sidecars after them in reverse order.
    fn end(&mut self, world: &World<'_>, out: &mut Vec<Action>) {
        let now = world.now.mono;
        self.begin_to_end(now);
        if self.presence.is_unknown() && !self.is_gone() {
            if self.calls.is_ready(now) {
                self.request_with_metadata(Call::Adopt, world, out);
            }
            return;
        }
        self.presence.restart_all(false);
        let others = self
            .records
            .iter()
            .all(|record| record.role == Role::Sidecar || record.is_idle());
        for index in (0..self.records.len()).rev() {
            let sidecar = self.records[index].role == Role::Sidecar;
            if !sidecar {
                self.stop_for_good(index, world, out);
            } else if others {
                self.stop_for_good(index, world, out);
                if !self.records[index].is_idle() {
                    break;
                }
            }
        }
        if self.is_quiet() && !self.calls.is_under_way(Call::Create) && self.end.over().is_none() {
            self.end.conclude(self.last_phase());
        }
    }

    /// Time between TERM and KILL for the pod. A pod that was deleted by force, or whose deletion nobody saw,
    /// has it all the same: its containers know nothing of how it was deleted.
    fn grace(world: &World<'_>) -> Duration {
        let metadata = world.pod.metadata.deletion_grace_period_seconds;
        let deletion = metadata.filter(|_| world.is_deleting());
        let own = world
            .pod
            .spec
            .as_ref()
            .and_then(|spec| spec.termination_grace_period_seconds);
        seconds_of(deletion.or(own).unwrap_or(30)).max(LEAST_POD_GRACE)
    }

    fn stop_for_good(&mut self, index: usize, world: &World<'_>, out: &mut Vec<Action>) {
        let pod_grace = Self::grace(world);
        let now = world.now.mono;
        let gone_by = now.saturating_sub(self.end.since().unwrap_or(now));
        let grace = pod_grace.saturating_sub(gone_by).max(LEAST_GRACE);
        let record = &mut self.records[index];
        let name = record.name.clone();
        let Life::Running(run) = &mut record.life else {
            return;
        };
        let first = run.stop.is_none();
        let stop = run.stop.get_or_insert_with(|| {
            Box::new(Stop {
                asked: false,
                pod_grace: None,
                grace,
                tries: 0,
                due: now,
            })
        });
        let hurry = match stop.pod_grace {
            Some(before) => pod_grace < before,
            // It is being killed already: in time, or not.
            None => stop.asked && grace < stop.grace,
        };
        if hurry {
            stop.due = now;
        } else if stop.asked || stop.due > now {
            return;
        }
        stop.grace = stop.grace.min(grace);
        stop.pod_grace = Some(pod_grace);
        stop.asked = true;
        let (id, grace) = (run.id.clone(), stop.grace);
        if first {
            out.push(note(
                Some(name.clone()),
                KILLING,
                format!("Stopping container {name}"),
            ));
        }
        out.push(Action::Stop {
            container: name,
            id,
            grace,
        });
    }

    /// Once nothing runs: the pod leaves the provider, then the API server, if it is to.
    fn leave(&mut self, world: &World<'_>, out: &mut Vec<Action>) {
        if !self.is_quiet() || !self.calls.is_idle() || !(self.is_gone() || world.is_deleting()) {
            return;
        }
        let due = self.calls.is_ready(world.now.mono);
        if self.presence.is_unknown() && !self.is_gone() {
            return;
        }
        if self.presence.is_held() {
            if due {
                self.request(Call::Delete, out);
            }
            return;
        }
        self.presence.remove();
        if self.is_gone() {
            self.object = Object::Forgotten;
        } else if due && !self.posting.is_under_way() {
            self.request(Call::Remove, out);
        }
    }

    /// Writes the status if it is not what the object shows.
    fn post(&mut self, world: &World<'_>, out: &mut Vec<Action>) {
        if matches!(self.end, End::LeftAlone(_)) || self.is_gone() || self.presence.is_unknown() {
            return;
        }
        (_, self.since) = self.conditions(world, self.present_phase(world));
        let status = self.build(world);
        let (reconcile, now) = (world.settings.reconcile, world.now.mono);
        if self.posting.is_to_be_written(&status, world.pod, reconcile, now) {
            out.push(Action::Post(Box::new(status)));
        }
    }

    /// Reports to the prober what has changed. Pods without probes do not concern it.
    fn notify_prober(&mut self, world: &World<'_>, out: &mut Vec<Action>) {
        let ending = self.is_ending(world);
        let over =
            self.object == Object::Forgotten || (ending && self.is_quiet() && self.end.over().is_some());
        let mut probing = std::mem::take(&mut self.probing);
        if over {
            probing.forget(out);
        } else if world.specs.iter().any(Spec::has_probes) && self.presence.is_up() {
            probing.update(world.pod, ending, || self.probed(world), out);
        }
        self.probing = probing;
    }

    /// Requests to be woken when the next thing is due.
    fn set_wake(&mut self, world: &World<'_>, out: &mut Vec<Action>) {
        let now = world.now;
        let mut due = Vec::from_iter(self.calls.due());
        let ending = self.is_ending(world);
        for record in &self.records {
            match &record.life {
                Life::Idle if !ending => due.extend(record.wait.as_ref().map(|wait| wait.due)),
                Life::Running(run) => {
                    due.extend(run.stop.as_ref().filter(|stop| !stop.asked).map(|stop| stop.due));
                }
                Life::Idle | Life::Starting(_) => {}
            }
        }
        if let Some(deadline) = self.deadline(world).filter(|_| !ending) {
            let deadline = seconds_of(deadline);
            due.push(now.mono.saturating_add(deadline.saturating_sub(now.wall)));
        }
        if !matches!(self.end, End::LeftAlone(_)) && !self.is_gone() {
            due.extend(self.posting.due());
        }
        let next = due.into_iter().filter(|due| *due > now.mono).min();
        if let Some(next) = next.filter(|next| self.wake != Some(*next)) {
            out.push(Action::Wake(next.saturating_sub(now.mono)));
            self.wake = Some(next);
        }
    }
}

/// Digest of what may change of a pod that runs, but for its containers.
fn metadata(pod: &Pod) -> NonZeroU64 {
    let mut hasher = DefaultHasher::new();
    pod.metadata.labels.hash(&mut hasher);
    pod.metadata.annotations.hash(&mut hasher);
    for toleration in pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten()) {
        toleration.key.hash(&mut hasher);
        toleration.operator.hash(&mut hasher);
        toleration.value.hash(&mut hasher);
        toleration.effect.hash(&mut hasher);
        toleration.toleration_seconds.hash(&mut hasher);
    }
    NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MIN)
}
