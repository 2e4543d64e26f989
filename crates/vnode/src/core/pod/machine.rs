//! The transition function of a pod.

use super::conditions::{Extra, Times};
use super::post::Posting;
use super::prober::Probing;
use super::record::Record;
use super::recorded;
use super::spec::{Role, Spec, specs};
use super::words::warning;
use super::{Action, Input};
use crate::core::Now;
use crate::provider::{ContainerId, Sandbox};
use evenkeel_probe::core::{Phase, RestartRule};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

/// What all pods of a fleet share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Scheme of container IDs.
    pub runtime: String,
    /// `status.hostIP` and `hostIPs`.
    pub host_addresses: Vec<std::net::IpAddr>,
    /// First delay before a container that ended starts again, doubled each time. Kubelet: 10 s.
    pub back_off: Duration,
    /// The most of it. Kubelet: 300 s (`CrashLoopBackOff`'s `maxContainerRestartPeriod`).
    pub back_off_max: Duration,
    /// How soon a status that somebody else has changed is put right. Kubelet: 10 s.
    pub reconcile: Duration,
    /// Conditions beside the kubelet's.
    pub conditions: Vec<Extra>,
    /// Whether a pod that cannot run here becomes Failed. Else it waits: a controller would replace a failed pod by one
    /// that fails likewise, for ever.
    pub fail_refused: bool,
}

/// A pod's state as far as it does not stand in the object. Small: an idle pod is to take 1 KiB at the most.
#[derive(Debug)]
pub struct Machine {
    pub(super) object: Object,
    pub(super) presence: Presence,
    pub(super) end: End,
    pub(super) call: Option<Call>,
    /// How often the present call has failed in a row, and when it is made again.
    pub(super) tries: u8,
    pub(super) due: Duration,
    /// All init containers are done, or were at some time.
    pub(super) initialised: bool,
    /// A rule wants all containers to run again: first all must end.
    pub(super) restarting_all: bool,
    /// Why the pod cannot be created at present.
    pub(super) hindrance: Option<Box<Hindrance>>,
    /// Digest of the last event about that, and how often in a row there was cause for it.
    pub(super) said: (u64, u32),
    /// What the status says.
    pub(super) phase: Phase,
    /// `status.startTime`, in seconds since 1970.
    pub(super) started_at: Option<i64>,
    /// Since when it ends, on the clock that does not jump.
    pub(super) ending: Option<Duration>,
    pub(super) records: Vec<Record>,
    pub(super) rules: Vec<(Arc<str>, Vec<RestartRule>)>,
    pub(super) since: Times,
    /// Digest of what the provider was told of labels, annotations, tolerations.
    pub(super) told: u64,
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

/// What there is of the pod at the provider.
#[derive(Debug)]
pub(super) enum Presence {
    /// Perhaps something: it must be asked.
    Unknown,
    /// Nothing that runs. With `remains` the provider may have something all the same, which is deleted with the pod.
    Absent { remains: bool },
    /// A sandbox, perhaps with containers.
    Up(Sandbox),
    /// Nothing any more; the last status still names the sandbox that there was.
    Removed(Sandbox),
}

impl Presence {
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self, Self::Up(_))
    }

    /// Whether the provider may have something of the pod.
    pub(super) fn is_held(&self) -> bool {
        match self {
            Self::Unknown | Self::Up(_) => true,
            Self::Absent { remains } => *remains,
            Self::Removed(_) => false,
        }
    }

    /// The pod's sandbox, or the one that it had.
    pub(super) fn sandbox(&self) -> Option<&Sandbox> {
        match self {
            Self::Up(sandbox) | Self::Removed(sandbox) => Some(sandbox),
            Self::Unknown | Self::Absent { .. } => None,
        }
    }

    /// The provider has nothing of the pod any more.
    pub(super) fn remove(&mut self) {
        let before = std::mem::replace(self, Self::Absent { remains: false });
        *self = Self::Removed(match before {
            Self::Up(sandbox) | Self::Removed(sandbox) => sandbox,
            Self::Unknown | Self::Absent { .. } => Sandbox::default(),
        });
    }
}

/// Whether and how the pod has ended, whatever its deletion has to say.
#[derive(Debug)]
pub(super) enum End {
    /// Not yet, as far as anybody knows.
    Open,
    /// It is going to end like this, whatever its containers do.
    Doomed(Box<Fate>),
    /// It has ended, which is final; with what doomed it, if anything did.
    Over(Phase, Option<Box<Fate>>),
    /// It was over before this process came, and is left alone.
    LeftAlone(Phase),
}

impl End {
    /// How the pod has ended.
    pub(super) fn over(&self) -> Option<Phase> {
        match self {
            Self::Open | Self::Doomed(_) => None,
            Self::Over(phase, _) | Self::LeftAlone(phase) => Some(*phase),
        }
    }

    /// What dooms or doomed the pod.
    pub(super) fn fate(&self) -> Option<&Fate> {
        match self {
            Self::Doomed(fate) | Self::Over(_, Some(fate)) => Some(fate),
            Self::Open | Self::Over(_, None) | Self::LeftAlone(_) => None,
        }
    }

    /// The pod ends this way, unless it is ending in another already.
    pub(super) fn doom(&mut self, fate: Fate) {
        if matches!(self, Self::Open) {
            *self = Self::Doomed(Box::new(fate));
        }
    }

    /// Somebody else has ended the pod like this.
    pub(super) fn overrule(&mut self, fate: Fate) {
        *self = match self {
            Self::Open | Self::Doomed(_) => Self::Doomed(Box::new(fate)),
            Self::Over(..) => Self::Over(fate.phase, Some(Box::new(fate))),
            Self::LeftAlone(phase) => Self::LeftAlone(*phase),
        };
    }

    /// Nothing of the pod runs any more.
    pub(super) fn conclude(&mut self, phase: Phase) {
        *self = match std::mem::replace(self, Self::Open) {
            Self::Open => Self::Over(phase, None),
            Self::Doomed(fate) => Self::Over(phase, Some(fate)),
            over @ (Self::Over(..) | Self::LeftAlone(_)) => over,
        };
    }
}

/// A question about the pod as a whole that is not answered yet. There is one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Adopt,
    Create,
    Update,
    Delete,
    Remove,
}

/// Why a pod cannot be created.
#[derive(Debug)]
pub(super) struct Hindrance {
    /// What its containers wait for; none: what they always wait for at first.
    pub(super) reason: Option<String>,
    pub(super) message: String,
}

/// How a pod is going to end, whatever its containers do.
#[derive(Debug)]
pub(super) struct Fate {
    pub(super) phase: Phase,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Machine {
    /// A pod that just came.
    pub fn new(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let recorded = status
            .and_then(|status| status.phase.as_deref())
            .unwrap_or_default();
        let over = recorded::is_over(recorded).then(|| super::phase::parse(recorded));
        let was_run = recorded::was_run(pod);
        let records = specs(pod);
        let records = records.iter().map(|spec| Record::new(spec.name, spec.role));
        Self {
            object: Object::Present,
            presence: if was_run && over.is_none() {
                Presence::Unknown
            } else {
                Presence::Absent { remains: was_run }
            },
            end: over.map_or(End::Open, End::LeftAlone),
            call: None,
            tries: 0,
            due: Duration::ZERO,
            initialised: false,
            restarting_all: false,
            hindrance: None,
            said: (0, 0),
            phase: over.unwrap_or_default(),
            started_at: status
                .and_then(|status| status.start_time.as_ref())
                .map(|time| time.0.as_second()),
            ending: None,
            records: records.collect(),
            rules: Vec::new(),
            since: Times::recorded(pod),
            told: 0,
            posting: Posting::default(),
            probing: Probing::default(),
            stepped: Duration::ZERO,
            wake: None,
        }
    }

    /// Tells the machine of `restartPolicyRules`, by container: the typed pod does not have them. To be called before the
    /// first [`Machine::step`], for pods that have any; [`evenkeel_probe::manifest::pod`] reads them.
    #[must_use]
    pub fn with_rules(mut self, rules: Vec<(Arc<str>, Vec<RestartRule>)>) -> Self {
        self.rules = rules;
        self.rules.retain(|(_, rules)| !rules.is_empty());
        self
    }

    /// The pod was there already when this process began to serve its node: the provider is asked whether it runs, even if
    /// no status says so. A process may die between a start and the first status.
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
        self.call.is_none()
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

    /// Records an event about the pod that may have cause for ever: the first, second, fourth, eighth … time in a row.
    pub(super) fn say(&mut self, reason: &'static str, message: String, out: &mut Vec<Action>) {
        let mut hasher = DefaultHasher::new();
        (reason, &message).hash(&mut hasher);
        let digest = hasher.finish();
        let times = match self.said {
            (same, times) if same == digest => times.saturating_add(1),
            _ => 1,
        };
        self.said = (digest, times);
        if times.is_power_of_two() {
            out.push(warning(None, reason, message));
        }
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

    /// A number in `[0, 1)` that is this pod's for this try: no two pods go in lockstep, and a replay comes to the same.
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
