//! The actor of a node.

use super::call::Calls;
use super::entry::{Call, Entry, version};
use super::message::{Ended, Message, OwnList, Seen};
use super::packed::Packed;
use super::panic_text;
use super::perform::{Errand, interrupted};
use super::strays::Strays;
use crate::core::env::Location;
use crate::core::node as core_node;
use crate::core::pod::{Action, Input, Machine, ProbeOrder, Settings};
use crate::fleet::common::{Common, Resources};
use crate::fleet::directory::{Handle, MailboxReader};
use crate::fleet::metrics::Phase;
use crate::fleet::wheel::Timer;
use crate::node::NodeWriter;
use crate::provider::{NodeTemplate, PodId};
use k8s_openapi::api::core::v1::Pod;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// How long tasks of a node that is stopped may take to end. They are told to at once; what is left then
/// blocks its thread.
const ENDING: Duration = Duration::from_secs(2);

/// Serves one node: drives its machine and its pods'.
pub(crate) struct Actor {
    pub(super) common: Arc<Common>,
    pub(super) handle: Arc<Handle>,
    mailbox: MailboxReader,
    pub(super) node_writer: NodeWriter,
    pub(super) calls: Calls,
    pub(super) node: core_node::Machine,
    /// The node's, which stands for limits that a container does not have.
    allocatable: Arc<Resources>,
    pub(super) address: Option<SocketAddr>,
    pub(super) ready: bool,
    pub(super) fault: Option<Arc<str>>,
    settings: Arc<Settings>,
    /// Before the first complete list.
    gathered: Option<Gathered>,
    pub(super) pods: HashMap<Arc<str>, Box<Entry>>,
    /// Pods that are over, but whose object the watch may show yet, with the latest list when they were
    /// forgotten.
    over: HashMap<Arc<str>, u32>,
    pub(super) strays: Strays,
    /// Of the latest machine.
    serial: u32,
}

/// Pods that came before the list was complete. Nothing is done for them yet.
#[derive(Debug, Default)]
struct Gathered {
    pods: HashMap<Arc<str>, (Held, u32)>,
    /// Those that went: a list that was made before may hold them still.
    gone: HashSet<Arc<str>>,
}

#[derive(Debug)]
struct Held {
    packed: Packed<Pod>,
    version: u64,
    rules: Rules,
}

type Rules = Vec<(Arc<str>, Vec<evenkeel_probe::core::RestartRule>)>;

/// What an actor is made for.
pub(crate) struct Duty {
    pub(crate) common: Arc<Common>,
    /// Of the node's slot.
    pub(crate) node_writer: NodeWriter,
    pub(crate) handle: Arc<Handle>,
    pub(crate) mailbox: MailboxReader,
    pub(crate) address: Option<SocketAddr>,
}

impl Actor {
    pub(crate) fn new(duty: Duty) -> Self {
        let Duty {
            common,
            node_writer,
            handle,
            mailbox,
            address,
        } = duty;
        let template = template(&common, &handle.name);
        let settings = settings(&common, &template);
        Self {
            allocatable: common.resources(allocatable(&template)),
            node: core_node::Machine::new(&handle.name, template),
            node_writer,
            calls: Calls::new(handle.term.clone(), common.metrics.clone()),
            common,
            handle,
            mailbox,
            address,
            ready: false,
            fault: None,
            settings,
            gathered: Some(Gathered::default()),
            pods: HashMap::new(),
            over: HashMap::new(),
            strays: Strays::default(),
            serial: 0,
        }
    }

    /// Serves until it is stopped. Pods and the node stay as they are; the provider is told that another may
    /// serve them. Returns whether it was stopped, and not ended by a defect.
    pub(crate) async fn run(mut self: Box<Self>) -> bool {
        self.common.metrics.nodes(1);
        let begin = core_node::Input::Begin(self.address);
        let stop = self.handle.term.stop().clone();
        let mut well = self.guarded(|actor| actor.step_node(begin));
        while well && let Some(Some(message)) = stop.run_until_cancelled(self.mailbox.recv()).await {
            well = self.guarded(|actor| actor.take(message));
        }
        // It has room of its own, which nobody needs before.
        Box::pin(self.end()).await;
        well
    }

    /// Does it, and returns whether it came to its end. After a panic nobody knows what the actor's state is
    /// worth.
    fn guarded(&mut self, work: impl FnOnce(&mut Self)) -> bool {
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| work(self)));
        if let Err(panic) = &done {
            let panic = panic_text(&**panic);
            tracing::error!(node = %self.handle.name, panic, "a node's actor has panicked, there is a defect");
        }
        done.is_ok()
    }

    async fn end(self: Box<Self>) {
        // It is, unless there was a defect.
        self.handle.term.stop().cancel();
        self.mailbox.close();
        self.common.directory.remove(&self.handle);
        self.common.wheel.clear_all(&self.handle);
        for entry in self.pods.values() {
            self.common.writers.forget(&entry.id.uid);
            self.common.probes.forget(&entry.id);
            self.common.metrics.phase(Some(entry.phase), None);
        }
        if !self.calls.ended(ENDING).await {
            tracing::error!(
                node = %self.handle.name,
                "a call or a stream of the provider blocks its thread and does not end with its node"
            );
        }
        let release = AssertUnwindSafe(|| self.common.provider.release(&self.handle.name));
        if let Err(panic) = std::panic::catch_unwind(release) {
            tracing::error!(call = "release", node = %self.handle.name, panic = panic_text(&*panic), "the provider has panicked");
        }
        self.common.metrics.nodes(-1);
        if self.ready {
            self.common.metrics.nodes_ready(-1);
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Pod(seen, epoch) => self.seen(*seen, epoch),
            Message::Unreadable(uid, epoch) => self.unreadable(&uid, epoch),
            Message::Gone(uid) => self.gone(&uid),
            Message::Listed(epoch) => self.listed(epoch),
            Message::OwnList(list) => self.own_list(*list),
            Message::Tick(Timer::Node) => self.step_node(core_node::Input::Tick),
            Message::Tick(Timer::Strays) => self.list_for_strays(),
            Message::Tick(Timer::Pod(uid)) => self.step(&uid, Input::Tick),
            Message::Ended(ended) => self.ended(*ended),
            Message::Told(uid, input) => self.step(&uid, *input),
            Message::Observed(observed) => {
                let (id, container, observed) = *observed;
                self.observed(&id, container, observed);
            }
            Message::Rechecked(rechecked) => self.rechecked(*rechecked),
            Message::Stirred => self.stirred(),
            Message::Node(input) => self.step_node(*input),
            Message::Strays(list) => self.compare(*list),
            Message::Stray(uid, deleted) => self.stray(&uid, deleted),
            Message::Query(ask) => self.answer(*ask),
            #[cfg(test)]
            Message::Defect => panic!("a defect for a test"),
        }
    }

    fn seen(&mut self, seen: Seen, epoch: u32) {
        let Some(uid) = seen.pod.metadata.uid.as_deref() else {
            return;
        };
        let uid: Arc<str> = match self.pods.get_key_value(uid) {
            Some((known, _)) => known.clone(),
            None => uid.into(),
        };
        if let Some(gathered) = &mut self.gathered {
            let held = Held {
                packed: Packed::new(&seen.pod),
                version: version(&seen.pod),
                rules: seen.rules,
            };
            gathered.gone.remove(&uid);
            gathered.pods.insert(uid, (held, epoch));
            return;
        }
        if let Some(&since) = self.over.get(&uid) {
            if !is_after(epoch, since) {
                return;
            }
            // A list that began after the pod was forgotten holds it: whoever said that it was gone was
            // wrong.
            tracing::warn!(%uid, node = %self.handle.name, "a pod that was over is still there, it is looked at anew");
            self.over.remove(&uid);
            self.meet(&uid, seen, epoch, true);
            return;
        }
        match self.pods.get_mut(&uid) {
            Some(entry) => {
                entry.epoch = epoch;
                let version = version(&seen.pod);
                if version < entry.version {
                    return;
                }
                entry.version = version;
                entry.packed = Packed::new(&seen.pod);
                entry.open = None;
                self.step_with(&uid, Arc::new(seen.pod), Input::Seen);
            }
            None => self.meet(&uid, seen, epoch, false),
        }
    }

    /// A pod that was not known. `found`: it was there when this process began to serve its node.
    fn meet(&mut self, uid: &Arc<str>, seen: Seen, epoch: u32, found: bool) {
        let id = PodId {
            uid: uid.clone(),
            namespace: self
                .common
                .namespace(seen.pod.metadata.namespace.as_deref().unwrap_or("default")),
            name: seen.pod.metadata.name.as_deref().unwrap_or_default().into(),
            node: self.handle.name.clone(),
        };
        let mut machine = Machine::new(&seen.pod);
        if !seen.rules.is_empty() {
            machine = machine.with_rules(seen.rules.clone());
        }
        if found {
            machine = machine.found();
        }
        self.serial = self.serial.wrapping_add(1);
        let entry = Box::new(Entry::new(id, self.serial, epoch, machine, &seen));
        self.common.metrics.phase(None, Some(entry.phase));
        self.pods.insert(uid.clone(), entry);
        self.step_with(uid, Arc::new(seen.pod), Input::Seen);
    }

    fn unreadable(&mut self, uid: &str, epoch: u32) {
        if let Some(gathered) = &mut self.gathered {
            if let Some((_, known)) = gathered.pods.get_mut(uid) {
                *known = epoch;
            }
        } else if let Some(entry) = self.pods.get_mut(uid) {
            entry.epoch = epoch;
        }
    }

    fn gone(&mut self, uid: &Arc<str>) {
        if let Some(gathered) = &mut self.gathered {
            gathered.pods.remove(uid);
            gathered.gone.insert(uid.clone());
            return;
        }
        self.over.remove(uid);
        self.lost(uid);
    }

    /// The object is gone.
    fn lost(&mut self, uid: &Arc<str>) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.gone = true;
            self.step(uid, Input::Gone);
        }
    }

    fn listed(&mut self, epoch: u32) {
        if let Some(gathered) = self.gathered.take() {
            let held = gathered
                .pods
                .into_iter()
                .filter(|(_, (_, known))| *known == epoch);
            self.begin(held.map(|(uid, (held, epoch))| (uid, held, epoch)).collect());
            return;
        }
        self.over.retain(|_, since| !is_after(epoch, *since));
        let missing = self.pods.values().filter(|entry| entry.epoch != epoch);
        let missing: Vec<Arc<str>> = missing.map(|entry| entry.id.uid.clone()).collect();
        for uid in missing {
            self.lost(&uid);
        }
    }

    /// A list of this node alone: at least as new as what the watch had said when it was asked for. What the
    /// watch has said since is newer.
    fn own_list(&mut self, list: OwnList) {
        let epoch = list.epoch;
        if epoch != self.common.directory.epoch() {
            // A list of everything has begun since, and tells of this node as well.
            tracing::debug!(node = %self.handle.name, "a list of a node's pods is overtaken");
            return;
        }
        let Some(gathered) = self.gathered.take() else {
            return;
        };
        let mut pods = gathered.pods;
        for seen in list.pods {
            let Some(uid) = seen.pod.metadata.uid.as_deref() else {
                continue;
            };
            if gathered.gone.contains(uid) {
                continue;
            }
            let version = version(&seen.pod);
            if pods.get(uid).is_none_or(|(held, _)| held.version < version) {
                let held = Held {
                    packed: Packed::new(&seen.pod),
                    version,
                    rules: seen.rules,
                };
                pods.insert(uid.into(), (held, epoch));
            }
        }
        self.begin(
            pods.into_iter()
                .map(|(uid, (held, epoch))| (uid, held, epoch))
                .collect(),
        );
    }

    /// All pods are known: from now on something is done for them.
    fn begin(&mut self, pods: Vec<(Arc<str>, Held, u32)>) {
        self.handle.listed();
        tracing::debug!(node = %self.handle.name, pods = pods.len(), "pods of a node are known");
        for (uid, held, epoch) in pods {
            match held.packed.open() {
                Ok(pod) => {
                    let rules = held.rules;
                    self.meet(&uid, Seen { pod, rules }, epoch, true);
                }
                Err(error) => {
                    tracing::error!(%uid, %error, "a pod that was packed away cannot be read: nothing is done for it until it changes");
                }
            }
        }
        let first = self.common.options.strays.first;
        self.common
            .wheel
            .set(&self.handle, Timer::Strays, self.spread(first));
    }

    /// So long, and up to a half more: ten thousand nodes are not to do things at once.
    pub(super) fn spread(&self, time: Duration) -> Duration {
        let share = f64::from(self.handle.id.wrapping_mul(0x9e37_79b9) as u32) / f64::from(u32::MAX);
        time + (time / 2).mul_f64(share)
    }

    fn ended(&mut self, ended: Ended) {
        let Some(entry) = self.pods.get_mut(&ended.uid) else {
            return;
        };
        if entry.serial != ended.serial {
            return;
        }
        entry.calls.ended();
        self.step(&ended.uid, ended.input);
    }

    /// Passes it to a pod's machine, and does what that asks for.
    pub(super) fn step(&mut self, uid: &Arc<str>, input: Input) {
        let Some(entry) = self.pods.get(uid) else {
            return;
        };
        let Some(pod) = entry.object() else {
            return;
        };
        self.step_with(uid, pod, input);
    }

    fn step_with(&mut self, uid: &Arc<str>, pod: Arc<Pod>, input: Input) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        let now = self.common.clock.now();
        let step = AssertUnwindSafe(|| entry.machine.step(&self.settings, &pod, input, now));
        let actions = match std::panic::catch_unwind(step) {
            Ok(actions) => actions,
            Err(panic) => {
                // The other pods of the node are not to suffer for it. What runs of this one runs on.
                let panic = panic_text(&*panic);
                tracing::error!(pod = %entry.id, %uid, panic, "a pod is left alone from now on, there is a defect");
                self.forget(uid);
                return;
            }
        };
        for action in actions {
            self.perform(uid, &pod, action);
        }
        let ends = pod.metadata.deletion_timestamp.is_some();
        self.pump(uid, ends);
        self.rest(uid, pod);
    }

    /// Keeps a pod at hand while there is something to do, if there is room.
    fn rest(&mut self, uid: &str, pod: Arc<Pod>) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        entry.open = if entry.calls.is_idle() && entry.machine.is_settled() {
            None
        } else {
            let room = entry.open.take().map(|(_, room)| room);
            let room = room.or_else(|| self.common.at_hand.clone().try_acquire_owned().ok());
            room.map(|room| (pod, room))
        };
    }

    fn perform(&mut self, uid: &Arc<str>, pod: &Arc<Pod>, action: Action) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        let common = &self.common;
        match action {
            Action::Adopt => entry.calls.add(Call::Adopt),
            Action::Create => entry.calls.add(Call::Create),
            Action::Update => entry.calls.add(Call::Update),
            Action::Start { container, attempt } => entry.calls.add(Call::Start { container, attempt }),
            Action::Stop { container, id, grace } => entry.calls.add(Call::Stop { container, id, grace }),
            Action::Delete => entry.calls.add(Call::Delete),
            Action::Post(status) => {
                let phase = Phase::of(status.phase.as_deref());
                common.metrics.phase(Some(entry.phase), Some(phase));
                entry.phase = phase;
                common
                    .writers
                    .post(&entry.id, self.node_writer.client(), &self.handle, &status);
            }
            Action::Remove => common
                .writers
                .remove(&entry.id, self.node_writer.client(), &self.handle),
            Action::Record { container, event } => {
                common.events.record(&entry.id, pod, container.as_deref(), event);
            }
            Action::Probe(order) => common.probes.order(&entry.id, pod, &self.handle, order),
            Action::Wake(delay) => common.wheel.set(&self.handle, Timer::Pod(uid.clone()), delay),
            Action::Forget => self.forget(uid),
        }
    }

    fn forget(&mut self, uid: &Arc<str>) {
        let Some(entry) = self.pods.remove(uid) else {
            return;
        };
        let common = &self.common;
        common.wheel.clear(&self.handle, Timer::Pod(uid.clone()));
        common.writers.forget(uid);
        common
            .probes
            .order(&entry.id, &Pod::default(), &self.handle, ProbeOrder::Forget);
        common.objects.forget(&entry.id);
        common.metrics.phase(Some(entry.phase), None);
        if !entry.gone {
            self.over.insert(uid.clone(), common.directory.epoch());
        }
    }

    /// Makes the calls whose turn it is. Where the pod `ends`, those that it has no use for any more are
    /// ended.
    fn pump(&mut self, uid: &Arc<str>, ends: bool) {
        let interrupt = |entry: &Entry| {
            if let Some(interrupt) = entry.calls.interrupt().filter(|_| ends || entry.gone) {
                interrupt.cancel();
            }
        };
        if let Some(entry) = self.pods.get(uid) {
            interrupt(entry);
        }
        while let Some(entry) = self.pods.get_mut(uid)
            && let Some(call) = entry.calls.next()
        {
            interrupt(entry);
            let interrupt = entry.calls.interrupt().cloned().unwrap_or_default();
            let (uid, serial, handle) = (uid.clone(), entry.serial, self.handle.clone());
            let Some(entry) = self.pods.get(&uid) else {
                return;
            };
            let errand = self.errand(entry, &call);
            self.calls.spawn("a provider's call", async move {
                let done = interrupt.run_until_cancelled(errand.run(&call)).await;
                let input = done.unwrap_or_else(|| interrupted(&call));
                handle.send(Message::Ended(Box::new(Ended { uid, serial, input })));
            });
        }
    }

    pub(super) fn errand(&self, entry: &Entry, call: &Call) -> Errand {
        let sandbox = entry.machine.sandbox().cloned().unwrap_or_default();
        let taken = match call {
            Call::Start { .. } => {
                let taken = entry.machine.container_ids();
                taken.map(|(container, id)| (container.into(), id)).collect()
            }
            _ => Vec::new(),
        };
        Errand {
            common: self.common.clone(),
            calls: self.calls.clone(),
            id: entry.id.clone(),
            packed: entry.packed.clone(),
            location: self.location(&sandbox.addresses),
            sandbox,
            taken,
        }
    }

    /// Where a pod runs.
    pub(super) fn location_of(&self, entry: &Entry) -> Location {
        let addresses = entry.machine.sandbox().map(|sandbox| &sandbox.addresses[..]);
        self.location(addresses.unwrap_or_default())
    }

    fn location(&self, addresses: &[IpAddr]) -> Location {
        Location {
            host_addresses: self.settings.host_addresses.clone(),
            pod_addresses: addresses.to_vec(),
            allocatable: self.allocatable.clone(),
        }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The provider publishes something else.
    pub(super) fn set_template(&mut self, template: &NodeTemplate) {
        self.allocatable = self.common.resources(allocatable(template));
        self.settings = settings(&self.common, template);
    }

    /// Whether a pod is known, or was until a moment ago.
    pub(super) fn knows(&self, uid: &str) -> bool {
        self.pods.contains_key(uid) || self.over.contains_key(uid)
    }
}

/// Whether a list is later than another; their numbers begin anew after the largest.
fn is_after(list: u32, other: u32) -> bool {
    list != other && list.wrapping_sub(other) < u32::MAX / 2
}

fn allocatable(template: &NodeTemplate) -> &Resources {
    if template.allocatable.is_empty() {
        &template.capacity
    } else {
        &template.allocatable
    }
}

/// What the provider publishes of a node; nothing of its own where it panics.
pub(super) fn template(common: &Common, node: &str) -> NodeTemplate {
    let asked = AssertUnwindSafe(|| common.provider.node(node));
    std::panic::catch_unwind(asked).unwrap_or_else(|panic| {
        tracing::error!(call = "node", %node, panic = panic_text(&*panic), "the provider has panicked");
        NodeTemplate::default()
    })
}

/// The fleet's, with the node's own addresses where it has any.
fn settings(common: &Common, template: &NodeTemplate) -> Arc<Settings> {
    let own = template
        .addresses
        .iter()
        .filter(|(kind, _)| kind == "InternalIP")
        .filter_map(|(_, address)| address.parse().ok());
    let own: Vec<IpAddr> = own.collect();
    if own.is_empty() {
        return common.options.pods.clone();
    }
    Arc::new(Settings {
        host_addresses: own,
        ..Settings::clone(&common.options.pods)
    })
}
