//! The transition function.

use super::object::{Parts, conditions, fingerprints, number, says_ready, time};
use super::packed::{Health, Template};
use super::pinging::Pinging;
use super::{Action, Input, Refused, Settings};
use crate::core::reported::{Fault, NodeHealth, NodeTemplate};
use crate::core::{Now, lease, merge};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// Pause after the first write in a row that failed, doubled with each further one …
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// … up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(7);
/// Between two corrections of what others write, doubled with each in a row, up to the time between reports.
/// Who has written nothing for that long begins anew.
const FIRST_CORRECTION: Duration = Duration::from_secs(1);
/// What is kept of a provider's words about a failed ping.
const LONGEST_COMPLAINT: usize = 256;

/// A node's state. At most about 2 KiB: nothing that the API server has is kept, and what the provider said
/// is packed.
#[derive(Debug)]
pub struct Machine {
    name: Box<str>,
    template: Template,
    /// As of the last ping that went well.
    health: Health,
    /// Why the last ping did not.
    unwell: Option<Box<str>>,
    address: Option<SocketAddr>,
    uid: Option<Box<str>>,
    phase: Phase,
    /// The Node is to be read: it may not be what we wrote.
    is_stale: bool,
    /// The newest version of the Node that has what we wrote.
    version: u64,
    /// A newer one, this, has something else: when it is put right.
    amiss: Option<(Duration, u64)>,
    /// When that was done last, and how often in a row.
    corrected: Option<(Duration, u8)>,
    pinging: Pinging,
    lease: lease::Machine,
    /// What is wanted now.
    wanted: Prints,
    /// What the API server has of it.
    written: Prints,
    /// The conditions that the API server has.
    known: Box<[Known]>,
    /// What `Ready` said last on the Node.
    ready: Option<bool>,
    /// Writes that failed in a row.
    failures: u8,
    /// State of the spread: chance that is the same for the same node and inputs.
    chance: u64,
}

/// Where it stands with its Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not ours yet.
    Idle,
    /// The next thing is a registration, once its health is known.
    Unregistered,
    /// A write is under way, of what was wanted when it began.
    Writing { is_post: bool, prints: Prints },
    /// A write has failed.
    Pausing { until: Duration },
    /// Written; next time at the latest then.
    Settled { report: Duration },
}

/// Fingerprints of what a Node says: see [`fingerprints`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Prints {
    shape: u64,
    values: u64,
}

/// A condition that the API server has.
#[derive(Clone, Copy, Debug)]
struct Known {
    kind: u64,
    status: u64,
    /// Of its last transition, seconds since the epoch.
    since: i64,
}

impl Machine {
    /// A node that is not ours yet.
    pub fn new(name: &str, template: NodeTemplate) -> Self {
        Self {
            name: name.into(),
            template: Template::of(&template),
            health: Health::default(),
            unwell: None,
            address: None,
            uid: None,
            phase: Phase::Idle,
            is_stale: false,
            version: 0,
            amiss: None,
            corrected: None,
            pinging: Pinging::default(),
            lease: lease::Machine::new(),
            wanted: Prints::default(),
            written: Prints::default(),
            known: Box::default(),
            ready: None,
            failures: 0,
            chance: number(name),
        }
    }

    /// Notes what happened and says what is to be done.
    pub fn step(&mut self, settings: &Settings, input: Input, now: Now) -> Vec<Action> {
        let mut actions = Vec::new();
        match input {
            Input::Begin(address) => {
                self.address = address;
                if self.phase == Phase::Idle {
                    self.phase = Phase::Unregistered;
                }
                self.look(settings, now);
            }
            Input::Pinged(result) => self.pinged(settings, result, now),
            Input::Written(result) => self.answered(settings, result, now, &mut actions),
            Input::Lease(answer) => self.lease(settings, lease::Input::Answered(answer), now, &mut actions),
            Input::Gone => {
                self.is_stale = true;
                if !matches!(self.phase, Phase::Writing { .. } | Phase::Idle) {
                    self.uid = None;
                }
            }
            Input::Seen(node) => self.seen(settings, &node, now),
            Input::Template(template, address) => {
                self.template = Template::of(&template);
                self.address = address;
                self.look(settings, now);
            }
            Input::Stirred => self.pinging.hurry(now.mono),
            Input::Tick => {}
        }
        if self.phase == Phase::Idle {
            return actions;
        }
        if self.pinging.expires(settings, now.mono) {
            let why = format!(
                "the provider has not answered a ping within {:?}",
                settings.ping_timeout
            );
            self.unwell = Some(why.into());
            self.look(settings, now);
        }
        if self.pinging.begins(now.mono) {
            actions.push(Action::Ping);
        }
        actions.extend(self.write(settings, now));
        if self.uid.is_some() {
            self.lease(settings, lease::Input::Tick, now, &mut actions);
        }
        if let Some(due) = self.due(settings) {
            actions.push(Action::Wake(due.saturating_sub(now.mono)));
        }
        actions
    }

    /// Whether it is registered and its last ping went well.
    pub fn is_ready(&self) -> bool {
        self.uid.is_some() && self.unwell.is_none() && self.ready == Some(true)
    }

    /// Whether this is what its provider publishes, as far as it was told.
    pub fn publishes(&self, template: &NodeTemplate) -> bool {
        self.template == Template::of(template)
    }

    /// UID of the Node, once registered.
    pub fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// A watch shows the Node. Older than what was written it says nothing, and before that nothing is ours.
    fn seen(&mut self, settings: &Settings, node: &Node, now: Now) {
        let version = version(node);
        if self.uid.is_none() || node.metadata.uid.as_deref() != self.uid() || version <= self.version {
            return;
        }
        if merge::patch(node, &self.node(settings, now)).is_none() {
            // As wanted: also what somebody has put right meanwhile.
            self.amiss = None;
            self.version = version;
            return;
        }
        let due = self.corrected.map_or(Duration::ZERO, |(at, times)| {
            let pause = FIRST_CORRECTION.saturating_mul(1 << u32::from(times.min(16)));
            at.saturating_add(pause.min(settings.report))
        });
        self.amiss = Some((due.max(now.mono), version));
    }

    /// Whether something is to be put right by now, which is noted as done.
    fn corrects(&mut self, settings: &Settings, now: Now) -> bool {
        if self.amiss.is_none_or(|(due, _)| now.mono < due) {
            return false;
        }
        self.amiss = None;
        let row = self
            .corrected
            .filter(|(at, _)| now.mono.saturating_sub(*at) <= settings.report);
        self.corrected = Some((now.mono, row.map_or(0, |(_, times)| times.saturating_add(1))));
        true
    }

    fn pinged(&mut self, settings: &Settings, result: Result<NodeHealth, Fault>, now: Now) {
        let random = self.random();
        self.pinging.answered(settings, now.mono, random);
        let before = (self.unwell.take(), self.wanted == Prints::default());
        match result {
            Ok(health) => {
                let health = Health::of(&health);
                if before == (None, false) && health == self.health {
                    // As it was: nothing to build and compare.
                    return;
                }
                self.health = health;
            }
            Err(fault) => {
                let mut why = fault.message;
                if why.is_empty() {
                    why = fault.reason;
                }
                let end = (0..=LONGEST_COMPLAINT.min(why.len()))
                    .rev()
                    .find(|end| why.is_char_boundary(*end));
                why.truncate(end.unwrap_or_default());
                self.unwell = Some(why.into());
            }
        }
        self.look(settings, now);
    }

    /// Notes what is wanted now.
    fn look(&mut self, settings: &Settings, now: Now) {
        let (shape, values) = fingerprints(&self.node(settings, now));
        self.wanted = Prints { shape, values };
    }

    /// What is wanted, conditions with the time of their last transition as far as it is known.
    fn node(&self, settings: &Settings, now: Now) -> Node {
        let mut node = Parts {
            name: &self.name,
            settings,
            template: self.template.unpack(),
            health: self.health.unpack(),
            unwell: self.unwell.as_deref(),
            address: self.address,
            now: now.wall,
        }
        .node();
        let conditions = node.status.as_mut().and_then(|status| status.conditions.as_mut());
        for condition in conditions.into_iter().flatten() {
            let (kind, status) = (number(&condition.type_), number(&condition.status));
            let known = self
                .known
                .iter()
                .find(|one| one.kind == kind && one.status == status);
            let since = known.and_then(|known| jiff::Timestamp::from_second(known.since).ok());
            if let Some(since) = since {
                condition.last_transition_time = Some(Time(since));
            }
        }
        node
    }

    /// The write that is due, if one is.
    fn write(&mut self, settings: &Settings, now: Now) -> Option<Action> {
        if matches!(self.phase, Phase::Settled { .. }) {
            self.is_stale |= self.corrects(settings, now);
        }
        let is_due = match self.phase {
            Phase::Idle | Phase::Writing { .. } => false,
            Phase::Unregistered => true,
            Phase::Pausing { until } => until <= now.mono,
            Phase::Settled { report } => report <= now.mono || self.wanted != self.written || self.is_stale,
        };
        if !is_due || !self.pinging.is_heard() {
            return None;
        }
        let uid = self.uid.clone();
        let is_post = uid.is_some() && !self.is_stale && self.wanted.shape == self.written.shape;
        self.is_stale = false;
        self.phase = Phase::Writing {
            is_post,
            prints: self.wanted,
        };
        let node = Box::new(self.node(settings, now));
        Some(match uid {
            Some(uid) if is_post => Action::Post(Box::new(post(&uid, &node))),
            _ => Action::Register(node),
        })
    }

    fn answered(
        &mut self,
        settings: &Settings,
        result: Result<Box<Node>, Refused>,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let Phase::Writing { is_post, prints } = self.phase else {
            // Nothing was asked: a late answer says nothing about now.
            return;
        };
        match result {
            Ok(node) => {
                self.failures = 0;
                self.written = prints;
                if is_post {
                    // It has what others wrote, too, and a post writes conditions and resources alone.
                    self.seen(settings, &node, now);
                }
                self.learn(&node, actions);
                let version = self.version;
                self.amiss = self.amiss.filter(|(_, amiss)| is_post || *amiss > version);
                let after = if is_post {
                    settings.report
                } else {
                    // Where nothing was to be written, the last report was another process'.
                    let age = age(&node, now).unwrap_or_default();
                    let random = self.random();
                    settings.report.mul_f64(0.5 + 0.5 * random).saturating_sub(age)
                };
                self.phase = Phase::Settled {
                    report: now.mono.saturating_add(after),
                };
            }
            Err(refused) => {
                if refused == Refused::NotFound {
                    self.uid = None;
                }
                // Whoever wrote between may have written what we would.
                let is_known = is_post && matches!(refused, Refused::NotFound | Refused::Conflict);
                self.is_stale |= is_known;
                let pause = if is_known && self.failures == 0 {
                    Duration::ZERO
                } else {
                    let doubled = FIRST_PAUSE.saturating_mul(1 << u32::from(self.failures.min(10)));
                    doubled.min(LONGEST_PAUSE).mul_f64(1.0 + 0.25 * self.random())
                };
                self.failures = self.failures.saturating_add(1);
                self.phase = Phase::Pausing {
                    until: now.mono.saturating_add(pause),
                };
            }
        }
    }

    /// Notes what the API server has.
    fn learn(&mut self, node: &Node, actions: &mut Vec<Action>) {
        self.uid = node.metadata.uid.as_deref().map(Into::into);
        self.version = self.version.max(version(node));
        self.known = conditions(node)
            .iter()
            .map(|one| Known {
                kind: number(&one.type_),
                status: number(&one.status),
                since: one
                    .last_transition_time
                    .as_ref()
                    .map_or(0, |time| time.0.as_second()),
            })
            .collect();
        let ready = says_ready(node);
        if self.ready.replace(ready) == Some(!ready) {
            let reason = if ready { "NodeReady" } else { "NodeNotReady" };
            let message = format!("Node {} status is now: {reason}", self.name);
            actions.push(Action::Record(reason.to_owned(), message));
        }
    }

    fn lease(&mut self, settings: &Settings, input: lease::Input, now: Now, actions: &mut Vec<Action>) {
        let before = self.lease.renewed();
        let random = self.random();
        let owner = lease::Owner {
            name: &self.name,
            uid: self.uid.as_deref(),
        };
        let request = self.lease.step(&settings.lease, owner, input, now, random);
        actions.extend(request.map(Action::Lease));
        if let (Some(before), Some(after)) = (before, self.lease.renewed())
            && after.saturating_sub(before) > settings.lease.duration / 2
        {
            // So long a silence that others may have written the node off.
            self.is_stale = true;
        }
    }

    fn due(&self, settings: &Settings) -> Option<Duration> {
        let write = match self.phase {
            Phase::Idle | Phase::Unregistered | Phase::Writing { .. } => None,
            Phase::Pausing { until } => Some(until),
            Phase::Settled { report } => Some(self.amiss.map_or(report, |(due, _)| due.min(report))),
        };
        let lease = self.uid.as_ref().and_then(|_| self.lease.due());
        [write, lease, self.pinging.due(settings)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Uniform in `[0, 1)` (SplitMix64).
    fn random(&mut self) -> f64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.chance;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let top = u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap_or_default();
        f64::from(top) / 4_294_967_296.0
    }

    /// Bytes that it takes.
    #[cfg(test)]
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>()
            + self.name.len()
            + self.template.len()
            + self.uid.as_deref().map_or(0, str::len)
            + self.unwell.as_deref().map_or(0, str::len)
            + size_of_val(&*self.known)
    }
}

/// The patch of a status whose keys stay: conditions and resources. It is for this very Node.
fn post(uid: &str, node: &Node) -> Value {
    let conditions: Vec<Value> = conditions(node)
        .iter()
        .map(|one| merge::condition(one, None))
        .collect();
    let status = node.status.as_ref();
    json!({
        "metadata": {"uid": uid},
        "status": {
            "conditions": conditions,
            "capacity": status.and_then(|status| status.capacity.as_ref()),
            "allocatable": status.and_then(|status| status.allocatable.as_ref()),
        }
    })
}

/// The object's version, as a number: 0 where it is none.
fn version(node: &Node) -> u64 {
    let version = node.metadata.resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// How long ago the Node was reported last.
fn age(node: &Node, now: Now) -> Option<Duration> {
    let beat = conditions(node)
        .iter()
        .find(|one| one.type_ == "Ready")?
        .last_heartbeat_time
        .as_ref()?;
    let age = time(now.wall).as_second().saturating_sub(beat.0.as_second());
    Some(Duration::from_secs(u64::try_from(age).unwrap_or_default()))
}
