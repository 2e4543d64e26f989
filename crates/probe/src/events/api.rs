//! Events as objects of the API server.

use super::correlate::{Action, Correlator, Record};
use super::queue::Queue;
use super::{EventAbout, EventSink};
use crate::core::{Event, Now};
use crate::manager::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as Object, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Events that may wait for the API server; then the oldest go.
const WAITING: usize = 1000;
/// Tries of one event before it is given up (upstream's number).
const TRIES: u32 = 12;
/// Between the first try and the second; then twice as long each time.
const BACKOFF: Duration = Duration::from_millis(500);
/// Longest time between two tries.
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// For one request; the writer is one, and a server that accepts and never answers must not hold it for ever.
const REQUEST: Duration = Duration::from_secs(30);
/// For what still waits at the shutdown.
const LAST: Duration = Duration::from_secs(2);

/// The component that reports events, and where it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Name of the program, as `kubelet` is one.
    pub component: String,
    /// Name of the node; empty where there is none.
    pub host: String,
}

/// Writes events as `v1` Events about the pod or node, by the rules of client-go's recorder (see
/// [`Correlator`]).
///
/// A thousand may wait; then the oldest go, counted by [`ApiSink::lost`]. Writes that fail for a passing
/// reason are repeated up to twelve times; the first two seconds after the shutdown are for what still waits.
#[derive(Clone, Debug)]
pub struct ApiSink {
    queue: Arc<Queue<Waiting>>,
    clock: Clock,
    /// The task that writes queued events.
    tasks: TaskTracker,
}

/// An event that waits to be written.
#[derive(Debug)]
struct Waiting {
    about: EventAbout,
    event: Event,
    at: Now,
    /// Instead of [`Source::host`].
    host: Option<Arc<str>>,
}

impl ApiSink {
    /// Starts writing in a task of the current runtime, until `shutdown`.
    pub fn start(client: Client, source: Source, shutdown: CancellationToken) -> Self {
        let sink = Self {
            queue: Arc::new(Queue::new(WAITING)),
            clock: Clock::system(),
            tasks: TaskTracker::new(),
        };
        let writer = Writer {
            client,
            source,
            correlator: Correlator::default(),
        };
        sink.tasks.spawn(writer.run(sink.queue.clone(), shutdown));
        sink.tasks.close();
        sink
    }

    /// Waits until nothing is written any more: after the shutdown, two seconds at most.
    pub async fn stopped(&self) {
        self.tasks.wait().await;
    }

    /// Takes an event that happened on another node than the [`Source`] names: one process may speak for
    /// many.
    pub fn record_on(&self, host: Arc<str>, about: EventAbout, event: Event) {
        self.queue.push(Waiting {
            about,
            event,
            at: self.clock.now(),
            host: Some(host),
        });
    }

    /// How many events were lost because too many waited.
    pub fn lost(&self) -> u64 {
        self.queue.lost_ever()
    }
}

impl EventSink for ApiSink {
    fn record(&self, about: EventAbout, event: Event) {
        self.queue.push(Waiting {
            about,
            event,
            at: self.clock.now(),
            host: None,
        });
    }
}

struct Writer {
    client: Client,
    source: Source,
    correlator: Correlator,
}

impl Writer {
    async fn run(mut self, queue: Arc<Queue<Waiting>>, shutdown: CancellationToken) {
        let working = async {
            // What is being written at the shutdown is written to its end.
            while let Some((item, lost)) = shutdown.run_until_cancelled(queue.next()).await {
                self.take(item, lost).await;
            }
            while let Some((item, lost)) = queue.try_next() {
                self.take(item, lost).await;
            }
        };
        let late = async {
            shutdown.cancelled().await;
            tokio::time::sleep(LAST).await;
        };
        tokio::select! {
            () = working => {}
            () = late => tracing::warn!("Events were not written before the end"),
        }
    }

    async fn take(&mut self, waiting: Waiting, lost: u64) {
        let Waiting {
            about,
            event,
            at,
            host,
        } = waiting;
        let host = host.as_deref().unwrap_or(&self.source.host).to_owned();
        if lost > 0 {
            tracing::warn!(
                lost,
                component = self.source.component,
                "too many Events wait to be written, the oldest are lost"
            );
        }
        match self.correlator.correlate(about, event, at) {
            Action::Create(record) => self.write(&record, &host, true).await,
            Action::Patch(record) => self.write(&record, &host, false).await,
            Action::Drop => {}
        }
    }

    async fn write(&self, record: &Record, host: &str, mut new: bool) {
        let api: Api<Object> = Api::namespaced(self.client.clone(), namespace(&record.about));
        let mut pause = BACKOFF;
        let mut tries = 0;
        loop {
            let request = async {
                if new {
                    let object = object(record, &self.source.component, host);
                    api.create(&PostParams::default(), &object).await
                } else {
                    let patch = raise(record);
                    api.patch(&record.name, &PatchParams::default(), &patch).await
                }
            };
            let answer = tokio::time::timeout(REQUEST, request)
                .await
                .unwrap_or_else(|late| Err(Error::Service(late.into())));
            tries += 1;
            match answer {
                Ok(_) => return,
                // It is there: an earlier try whose answer was lost.
                Err(Error::Api(status)) if new && status.code == 409 => return,
                // It is gone, or was never written.
                Err(Error::Api(status)) if !new && status.code == 404 => new = true,
                // Its namespace ends; nobody will read it.
                Err(Error::Api(status))
                    if status.code == 403 && status.message.contains("being terminated") =>
                {
                    return;
                }
                Err(error) if may_pass(&error) && tries < TRIES => {
                    tracing::debug!(%error, event = record.name, tries, "cannot write an event yet");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(BACKOFF_MAX);
                }
                Err(error) => {
                    let EventAbout { namespace, name, .. } = &record.about;
                    let reason = record.event.reason;
                    tracing::warn!(%error, %namespace, pod = %name, reason, tries, "cannot write an Event, given up");
                    return;
                }
            }
        }
    }
}

/// Whether the same request may succeed later.
fn may_pass(error: &Error) -> bool {
    match error {
        Error::Api(status) => status.code == 429 || status.code >= 500,
        Error::HyperError(_) | Error::Service(_) | Error::ReadEvents(_) => true,
        _ => false,
    }
}

/// Where events about an object are kept: those about a Node in `default`, since it has no namespace.
fn namespace(about: &EventAbout) -> &str {
    if about.namespace.is_empty() {
        "default"
    } else {
        &about.namespace
    }
}

fn object(record: &Record, component: &str, host: &str) -> Object {
    let EventAbout { uid, name, .. } = &record.about;
    let about_node = record.about.namespace.is_empty();
    Object {
        metadata: ObjectMeta {
            name: Some(record.name.clone()),
            namespace: Some(namespace(&record.about).to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(if about_node { "Node" } else { "Pod" }.to_owned()),
            namespace: (!about_node).then(|| record.about.namespace.to_string()),
            name: Some(name.to_string()),
            uid: Some(uid.to_string()),
            field_path: Some(record.about.field_path()).filter(|path| !path.is_empty()),
            resource_version: None,
        },
        type_: Some(if record.event.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(record.event.reason.to_owned()),
        message: Some(record.event.message.clone()),
        count: Some(i32::try_from(record.count).unwrap_or(i32::MAX)),
        first_timestamp: Some(Time(time(record.first))),
        last_timestamp: Some(Time(time(record.last))),
        source: Some(EventSource {
            component: Some(component.to_owned()),
            host: Some(host.to_owned()).filter(|host| !host.is_empty()),
        }),
        reporting_component: Some(component.to_owned()),
        reporting_instance: Some(host.to_owned()).filter(|host| !host.is_empty()),
        ..Object::default()
    }
}

fn raise(record: &Record) -> Patch<serde_json::Value> {
    Patch::Merge(json!({
        "count": i32::try_from(record.count).unwrap_or(i32::MAX),
        "lastTimestamp": Time(time(record.last)),
        "message": record.event.message,
    }))
}

/// Whole seconds, as these fields have.
fn time(wall: Duration) -> Timestamp {
    let seconds = i64::try_from(wall.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}
