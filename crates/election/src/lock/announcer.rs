//! Records changes of leadership as Events.

use super::target::Target;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use std::time::Duration;

/// The reporting component, unless the user names one.
pub(super) const COMPONENT: &str = "evenkeel-election";

/// Reason and action of the Event, as in client-go.
const REASON: &str = "LeaderElection";

/// Time limit for recording an Event. One that is recorded later would mislead its readers.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Writes Events on a lock object.
#[derive(Clone)]
pub(super) struct Announcer {
    client: Client,
    reporter: Reporter,
}

impl Announcer {
    pub(super) fn new(client: Client, component: &str) -> Self {
        Self {
            client,
            reporter: Reporter::from(component),
        }
    }

    /// Records one Event, which needs the right to `create` `events.events.k8s.io`. A failure is logged.
    pub(super) async fn announce(&self, target: &Target, uid: Option<String>, message: String) {
        let event = Event {
            type_: EventType::Normal,
            reason: REASON.to_owned(),
            action: REASON.to_owned(),
            note: Some(message),
            secondary: None,
        };
        let reference = ObjectReference {
            api_version: Some(target.resource.api_version.clone()),
            kind: Some(target.resource.kind.clone()),
            namespace: Some(target.namespace.clone()),
            name: Some(target.name.clone()),
            uid,
            ..ObjectReference::default()
        };
        // Each Event gets a new recorder, because a recorder merges Events that differ only in their note, as
        // "became leader" and "stopped leading" do.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        let lock = target.describe();
        match tokio::time::timeout(TIMEOUT, recorder.publish(&event, &reference)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(
                %lock, error = super::refusal::chain(&error),
                "cannot write the leader election event; it needs create on events.events.k8s.io"
            ),
            Err(_) => tracing::warn!(%lock, "no answer to the leader election event, gave it up"),
        }
    }
}
