//! Changes of leadership as Events.

use super::target::Target;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use std::time::Duration;

/// Name of the reporter where the user gives none.
pub(super) const COMPONENT: &str = "evenkeel-election";

/// Reason and action of the Event; client-go's.
const REASON: &str = "LeaderElection";

/// After this an Event is given up: it is news, and news that comes later than that misleads.
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

    /// One Event; needs `create` on `events.events.k8s.io`. A failure is a line in the log.
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
        // A recorder of its own each time: it folds Events that differ in their note only into one, and "became
        // leader" and "stopped leading" differ in nothing else.
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
