//! The transition function of a pod.

use super::calls::Calls;
use super::end::{End, Fate};
use super::post::Posting;
use super::presence::Presence;
use super::prober::Probing;
use super::record::Record;
use super::recorded;
use super::settings::Settings;
use super::spec::{Role, Spec, specs};
use super::transitions::Times;
use super::words::warning;
use super::{Action, Input};
use crate::core::Now;
use crate::core::reported::{ContainerId, Sandbox};
use evenkeel_probe::core::RestartRule;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// A pod's state as far as it does not stand in the object. Small: an idle pod is to take 1 KiB at the most.
#[derive(Debug)]
pub struct Machine {
    pub(super) object: Object,
    pub(super) presence: Presence,
    pub(super) end: End,
    pub(super) calls: Calls,
    /// All init containers are done, or were at some time.
    pub(super) initialised: bool,
    /// `status.startTime`, in seconds since 1970.
    pub(super) started_at: Option<i64>,
    pub(super) records: Vec<Record>,
    pub(super) rules: Vec<(Arc<str>, Vec<RestartRule>)>,
    pub(super) since: Times,
    /// Digest of the labels, annotations and tolerations that the provider knows.
    pub(super) known: Option<NonZeroU64>,
    /// The event about the pod as a whole that was recorded last.
    pub(super) repeated: Repeated,
    pub(super) posting: Posting,
    pub(super) probing: Probing,
    /// When the last step was.
    pub(super) stepped: Duration,
    /// The time that was asked for.
    pub(super) wake: Option<Duration>,
}

/// The pod's object at the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Present,
    Gone,
    /// It is gone and nothing is left to do: the machine has asked to be forgotten.
    Forgotten,
}

impl Machine {
    /// A pod that just came.
    pub fn new(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let phase = status
            .and_then(|status| status.phase.as_deref())
            .unwrap_or_default();
        let over = recorded::is_over(phase).then(|| recorded::phase(phase));
        let was_run = recorded::was_run(pod);
        let records = specs(pod);
        let records = records.iter().map(|spec| Record::new(spec.name, spec.role));
        Self {
            object: Object::Present,
            presence: if was_run && over.is_none() {
                Presence::Unknown
            } else {
                Presence::absent(was_run)
            },
            end: over.map_or(End::Open, End::LeftAlone),
            calls: Calls::default(),
            initialised: false,
            started_at: status
                .and_then(|status| status.start_time.as_ref())
                .map(|time| time.0.as_second()),
            records: records.collect(),
            rules: Vec::new(),
            since: Times::recorded(pod),
            known: None,
            repeated: Repeated::default(),
            posting: Posting::default(),
            probing: Probing::default(),
            stepped: Duration::ZERO,
            wake: None,
        }
    }

    /// Adds `restartPolicyRules`, by container: the typed pod does not have them. To be called before the
    /// first [`Machine::step`], for pods that have any; [`evenkeel_probe::manifest::pod`] reads them.
    #[must_use]
    pub fn with_rules(mut self, rules: Vec<(Arc<str>, Vec<RestartRule>)>) -> Self {
        self.rules = rules;
        self.rules.retain(|(_, rules)| !rules.is_empty());
        self
    }

    /// The pod was there already when this process began to serve its node: the provider is asked whether it
    /// runs, even if no status says so. A process may die between a start and the first status.
    #[must_use]
    pub fn found(mut self) -> Self {
        if matches!(self.presence, Presence::Absent { .. }) && self.end.over().is_none() {
            self.presence = Presence::Unknown;
        }
        self
    }

    /// Notes what happened to the pod and says what is to be done.
    pub fn step(&mut self, settings: &Settings, pod: &Pod, input: Input, now: Now) -> Vec<Action> {
        if self.object == Object::Forgotten {
            return Vec::new();
        }
        let specs = specs(pod);
        let world = World {
            settings,
            pod,
            specs: &specs,
            now,
        };
        let mut out = Vec::new();
        self.stepped = now.mono;
        self.follow(&world);
        self.note(&world, input, &mut out);
        self.plan(&world, &mut out);
        out
    }

    /// The status as it should be. Conditions that are not a kubelet's are not in it.
    pub fn status(&self, settings: &Settings, pod: &Pod, now: Now) -> PodStatus {
        let specs = specs(pod);
        self.build(&World {
            settings,
            pod,
            specs: &specs,
            now,
        })
    }

    /// ID of a container's newest instance; with `previous`, of the one before it.
    pub fn container_id(&self, container: &str, previous: bool) -> Option<ContainerId> {
        let record = self.records.iter().find(|record| &*record.name == container)?;
        let ended = record.ended.as_deref().map(|ended| &ended.id);
        let older = record.older.as_deref().map(|ended| &ended.id);
        let id = match (record.run(), previous) {
            (Some(run), false) => Some(&run.id),
            (Some(_), true) | (None, false) => ended,
            // A container that waits to start again is asked for its last words as the previous one, too.
            (None, true) if record.wait.is_some() => ended,
            (None, true) => older,
        };
        id.filter(|id| !id.is_empty()).map(|id| ContainerId(id.clone()))
    }

    /// IDs of all containers' newest instances, by name.
    pub fn container_ids(&self) -> impl Iterator<Item = (&str, ContainerId)> {
        let records = self.records.iter();
        records.filter_map(|record| Some((&*record.name, self.container_id(&record.name, false)?)))
    }

    /// Addresses of the sandbox, once there is one.
    pub fn sandbox(&self) -> Option<&Sandbox> {
        self.presence.sandbox().filter(|_| self.presence.is_up())
    }

    /// Nothing is under way and nothing is due within a second: the shell may keep the object packed.
    pub fn is_settled(&self) -> bool {
        let soon = self.stepped.saturating_add(Duration::from_secs(1));
        self.calls.is_idle()
            && !self.posting.is_under_way()
            && self.records.iter().all(Record::is_at_rest)
            && self.wake.is_none_or(|at| at > soon)
    }

    /// A pod's containers are what its specification says: ephemeral ones come later.
    fn follow(&mut self, world: &World<'_>) {
        let same = self.records.len() == world.specs.len()
            && self
                .records
                .iter()
                .zip(world.specs)
                .all(|(record, spec)| *record.name == *spec.name);
        if same {
            return;
        }
        let mut old = std::mem::take(&mut self.records);
        for spec in world.specs {
            let known = old.iter().position(|record| *record.name == *spec.name);
            let record = known.map_or_else(
                || Record::new(spec.name, spec.role),
                |index| old.swap_remove(index),
            );
            self.records.push(record);
        }
    }

    /// Whether the object is gone from the API server.
    pub(super) fn is_gone(&self) -> bool {
        self.object != Object::Present
    }

    /// Whether nothing of it runs or is about to.
    pub(super) fn is_quiet(&self) -> bool {
        self.records.iter().all(Record::is_idle)
    }

    /// The pod ends from now on, unless it does already.
    pub(super) fn begin_to_end(&mut self, now: Duration) {
        if self.end.begin(now) {
            self.calls.begin_anew();
        }
    }

    /// The pod ends like this, unless it is ending in another way already.
    pub(super) fn doom(&mut self, fate: Fate, now: Duration) {
        self.begin_to_end(now);
        self.end.doom(fate);
    }

    /// Records an event about the pod that may have cause for ever: the first, second, fourth, eighth … time
    /// in a row.
    pub(super) fn record_repeated(&mut self, reason: &'static str, message: String, out: &mut Vec<Action>) {
        if self.repeated.count(reason, &message).is_power_of_two() {
            out.push(warning(None, reason, message));
        }
    }
}

/// Digest of an event, and how often in a row there was cause for it.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    digest: u64,
    times: u32,
}

impl Repeated {
    fn count(&mut self, reason: &str, message: &str) -> u32 {
        let mut hasher = DefaultHasher::new();
        (reason, message).hash(&mut hasher);
        let digest = hasher.finish();
        self.times = if self.digest == digest {
            self.times.saturating_add(1)
        } else {
            1
        };
        self.digest = digest;
        self.times
    }
}

/// What a step looks at.
#[derive(Clone, Copy)]
pub(super) struct World<'a> {
    pub(super) settings: &'a Settings,
    pub(super) pod: &'a Pod,
    pub(super) specs: &'a [Spec<'a>],
    pub(super) now: Now,
}

impl World<'_> {
    /// The object asks to be deleted.
    pub(super) fn is_deleting(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    /// A number in `[0, 1)` that is this pod's for this try: no two pods go in lockstep, and a replay comes
    /// to the same.
    pub(super) fn chance(&self, tries: u8) -> f64 {
        let mut hasher = DefaultHasher::new();
        (&self.pod.metadata.uid, tries).hash(&mut hasher);
        let bytes = hasher.finish().to_be_bytes();
        f64::from(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])) / (f64::from(u32::MAX) + 1.0)
    }

    pub(super) fn has_init(&self) -> bool {
        self.specs
            .iter()
            .any(|spec| matches!(spec.role, Role::Init | Role::Sidecar))
    }
}
