//! Events about pods and nodes, all by way of one writer.

use super::directory::Directory;
use crate::core::Event;
use crate::core::pod::specs;
use crate::provider::PodId;
use evenkeel_api::names::vnode::COMPONENT;
use evenkeel_probe::core::Role;
use evenkeel_probe::events::{ApiSink, EventAbout, EventSink, Source};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// The events of a fleet. Clones go to the same writer.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    sink: ApiSink,
}

impl Events {
    pub(crate) fn start(client: Client, stop: CancellationToken) -> Self {
        let source = Source {
            component: COMPONENT.to_owned(),
            host: String::new(),
        };
        Self {
            sink: ApiSink::start(client, source, stop),
        }
    }

    /// About a container of a pod, or the pod as a whole.
    pub(crate) fn record(&self, id: &PodId, pod: &Pod, container: Option<&str>, event: Event) {
        let role = container.map_or(Role::Regular, |name| role(pod, name));
        self.put(id, container.unwrap_or_default(), role, event);
    }

    /// About a pod as a whole.
    pub(crate) fn about_pod(&self, id: &PodId, events: Vec<Event>) {
        for event in events {
            self.put(id, "", Role::Regular, event);
        }
    }

    fn put(&self, id: &PodId, container: &str, role: Role, event: Event) {
        let about = EventAbout {
            uid: id.uid.clone(),
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            container: container.into(),
            role,
        };
        self.sink.record_on(id.node.clone(), about, event);
    }

    /// About a node.
    pub(crate) fn about_node(&self, node: &Arc<str>, why: &str, message: String) {
        let event = Event {
            warning: is_warning(why),
            reason: reason(why),
            message,
        };
        self.sink
            .record_on(node.clone(), EventAbout::node(node.clone()), event);
    }

    /// Waits until nothing is written any more, after the stop.
    pub(crate) async fn stopped(&self) {
        self.sink.stopped().await;
    }
}

fn role(pod: &Pod, name: &str) -> Role {
    let found = specs(pod).into_iter().find(|spec| spec.name == name);
    found.map_or(Role::Regular, |spec| spec.role.probed())
}

/// As the kubelet has it: a node's events are `Normal`, but for failures.
fn is_warning(reason: &str) -> bool {
    reason.starts_with("Failed") || reason.ends_with("Failed")
}

/// A reason as a word that lasts. Reasons are words of programs, so that there are few; what is beyond a
/// hundred of them is text that somebody made up, and is told as one.
fn reason(text: &str) -> &'static str {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    // An insertion is complete before anything could panic.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.get(text) {
        return known;
    }
    if known.len() >= 100 {
        return "NodeEvent";
    }
    let word: &'static str = Box::leak(text.to_owned().into_boxed_str());
    known.insert(word);
    word
}

/// Where the prober's events go: to the same writer, in the name of the pod's node.
pub(crate) struct OfProbes {
    pub(crate) events: Events,
    pub(crate) directory: Arc<Directory>,
}

impl EventSink for OfProbes {
    fn record(&self, about: EventAbout, event: Event) {
        match self.directory.probed(&about.uid) {
            Some((id, _)) => self.events.sink.record_on(id.node.clone(), about, event),
            None => self.events.sink.record(about, event),
        }
    }
}
