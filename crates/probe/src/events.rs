//! Events about probes, on their way to who wants them.

#[cfg(feature = "api-events")]
mod api;
#[cfg(feature = "api-events")]
mod correlate;
#[cfg(feature = "api-events")]
mod queue;

#[cfg(feature = "api-events")]
pub use api::{ApiSink, Source};
#[cfg(feature = "api-events")]
pub use correlate::{Action, Correlator, Record};

use crate::core::{Event, Role};
use std::sync::Arc;

/// The container, pod or node that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventAbout {
    /// UID of its pod; of the node.
    pub uid: Arc<str>,
    /// Namespace of its pod. Empty: the event is about the Node `name`.
    pub namespace: Arc<str>,
    /// Name of its pod; of the node.
    pub name: Arc<str>,
    /// Its own name. Empty: the event is about the pod as a whole.
    pub container: Arc<str>,
    /// Its part in the pod.
    pub role: Role,
}

impl EventAbout {
    /// A Node. Kubelets put its name where its UID belongs, and so do those who look for its events.
    pub fn node(name: Arc<str>) -> Self {
        Self {
            uid: name.clone(),
            namespace: "".into(),
            name,
            container: "".into(),
            role: Role::default(),
        }
    }

    /// The container within its pod, as Kubernetes names it: `spec.containers{app}`. Empty where it is about
    /// none.
    pub fn field_path(&self) -> String {
        if self.container.is_empty() {
            return String::new();
        }
        let list = match self.role {
            Role::Regular => "containers",
            Role::Init | Role::Sidecar => "initContainers",
        };
        format!("spec.{list}{{{}}}", self.container)
    }
}

/// Receives the events of a prober.
///
/// Called while the manager holds its lock: an implementation never blocks, and never calls the manager.
pub trait EventSink: Send + Sync + 'static {
    /// Takes an event about a container.
    fn record(&self, about: EventAbout, event: Event);
}

/// Discards events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl EventSink for NullSink {
    fn record(&self, _about: EventAbout, _event: Event) {}
}

/// Into the log, warnings as such. Use it with a log writer that does not block.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogSink;

impl EventSink for LogSink {
    fn record(&self, about: EventAbout, event: Event) {
        let EventAbout {
            namespace,
            name,
            container,
            ..
        } = &about;
        let Event {
            warning,
            reason,
            message,
        } = &event;
        if *warning {
            tracing::warn!(%namespace, pod = %name, %container, reason, event = %message, "an event of a probe");
        } else {
            tracing::info!(%namespace, pod = %name, %container, reason, event = %message, "an event of a probe");
        }
    }
}

#[cfg(test)]
#[cfg(feature = "api-events")]
mod tests;
