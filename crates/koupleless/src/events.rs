//! Events about nodes and Deployments, written by one task that nobody waits for.

use evenkeel_net::log::causes;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Events that wait to be written; more are only logged.
const WAITING: usize = 256;
/// For how long writing one may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// Where events go. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    queue: mpsc::Sender<(Event, ObjectReference)>,
}

impl Events {
    pub(crate) fn start(client: Client, component: &'static str, stop: CancellationToken) -> Self {
        let (queue, mut waiting) = mpsc::channel::<(Event, ObjectReference)>(WAITING);
        let reporter = Reporter {
            controller: component.to_owned(),
            instance: None,
        };
        let recorder = Recorder::new(client, reporter);
        let writing = async move {
            while let Some((event, about)) = waiting.recv().await {
                let published = tokio::time::timeout(DEADLINE, recorder.publish(&event, &about)).await;
                let error = match published {
                    Ok(Ok(())) => continue,
                    Ok(Err(error)) => causes(&error),
                    Err(_elapsed) => format!("no answer within {DEADLINE:?}"),
                };
                tracing::warn!(
                    reason = event.reason,
                    object = about.name,
                    error,
                    "cannot write an Event"
                );
            }
        };
        tokio::spawn(stop.run_until_cancelled_owned(writing));
        Self { queue }
    }

    /// Writes an event about an object. Never waits.
    pub(crate) fn put(
        &self,
        about: ObjectReference,
        warning: bool,
        reason: &str,
        action: &str,
        note: String,
    ) {
        let event = Event {
            type_: if warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: reason.to_owned(),
            // The API takes 1 kB.
            note: Some(note.chars().take(500).collect()),
            action: action.to_owned(),
            secondary: None,
        };
        if self.queue.try_send((event, about)).is_err() {
            tracing::warn!(reason, "too many Events wait to be written, one is dropped");
        }
    }
}

/// A Node. Kubelets put its name where its UID belongs, and so do those who look for its events.
pub(crate) fn node(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}
