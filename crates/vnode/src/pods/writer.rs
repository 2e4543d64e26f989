//! Writes of pods' statuses, and their removal: a pool of writers for a whole fleet.
//!
//! Of a pod the latest status is written, never an earlier one after it, and never to another pod of its
//! name: the patch holds the UID, and the API server refuses one that does not match. A pod that cannot be
//! written waits with back-off and holds nobody up. What waits is packed: when many pods start at once, it is
//! a hundred thousand statuses.

use super::Message;
use super::packed::Packed;
use crate::core::pod::{Input, Posted};
use crate::core::queue::{Policy, Queue};
use crate::fleet::directory::Handle;
use crate::fleet::metrics::{Metrics, WriteResult};
use crate::node::is_absent;
use crate::provider::PodId;
use evenkeel_api::names::vnode::COMPONENT;
use evenkeel_election::gate::is_gate_closed;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::{Request, Status};
use kube::{Client, Error, Resource as _};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// For one request.
const REQUEST: Duration = Duration::from_secs(10);
/// How failures are repeated: the API server may be gone for long, and there is no point in giving a status
/// up.
const AGAIN: Policy = Policy {
    first: Duration::from_millis(500),
    most: Duration::from_secs(30),
    tries: None,
    rate: None,
};
/// A gate that is closed opens again, or the slot is lost soon.
const GATE: Duration = Duration::from_secs(1);

/// The writers. Clones are handles of the same ones.
#[derive(Clone)]
pub(crate) struct Writers {
    shared: Arc<Shared>,
    tasks: TaskTracker,
}

struct Shared {
    state: Mutex<State>,
    stirred: Notify,
    origin: Instant,
    metrics: Metrics,
}

struct State {
    queue: Queue<Arc<str>>,
    /// What is to be written of each pod, by UID.
    jobs: HashMap<Arc<str>, Box<Job>>,
}

impl State {
    /// The work on a pod is over.
    fn finish(&mut self, uid: &str) {
        self.jobs.remove(uid);
        // A rush leaves no empty table behind.
        if self.jobs.len() < self.jobs.capacity() / 8 {
            self.jobs.shrink_to(self.jobs.len() * 2);
        }
    }
}

/// What is to be written of a pod.
struct Job {
    pod: PodId,
    client: Arc<Client>,
    handle: Arc<Handle>,
    /// The patch, and when it was decided.
    status: Option<(Packed<Value>, Instant)>,
    /// Once the status is written.
    remove: bool,
}

/// A single request.
enum Work {
    Status(Packed<Value>, Instant),
    Remove,
}

impl Writers {
    /// Starts so many writers, until `stop`.
    pub(crate) fn start(number: usize, metrics: Metrics, stop: CancellationToken) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                queue: Queue::new(AGAIN),
                jobs: HashMap::new(),
            }),
            stirred: Notify::new(),
            origin: Instant::now(),
            metrics,
        });
        let tasks = TaskTracker::new();
        for _ in 0..number.max(1) {
            tasks.spawn(stop.clone().run_until_cancelled_owned(shared.clone().write()));
        }
        tasks.close();
        Self { shared, tasks }
    }

    /// The status is to be this. Replaces an earlier one that is not written yet.
    pub(crate) fn post(&self, pod: &PodId, client: &Arc<Client>, handle: &Arc<Handle>, status: &PodStatus) {
        let patch = Packed::new(&body(pod, status));
        self.shared.add(pod, client, handle, |job| {
            job.status = Some((patch, Instant::now()));
        });
    }

    /// The object is to be deleted, after what is still to be written.
    pub(crate) fn remove(&self, pod: &PodId, client: &Arc<Client>, handle: &Arc<Handle>) {
        self.shared.add(pod, client, handle, |job| job.remove = true);
    }

    /// Nothing is to be written any more. A write that is under way may still arrive.
    pub(crate) fn forget(&self, uid: &Arc<str>) {
        let mut state = self.shared.lock();
        state.finish(uid);
        state.queue.forget(uid);
    }

    /// Waits until nothing is written any more, after the stop.
    pub(crate) async fn stopped(&self) {
        self.tasks.wait().await;
    }
}

impl Shared {
    /// Each change of the contents is complete before anything could panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn add(&self, pod: &PodId, client: &Arc<Client>, handle: &Arc<Handle>, change: impl FnOnce(&mut Job)) {
        let mut state = self.lock();
        let job = state.jobs.entry(pod.uid.clone()).or_insert_with(|| {
            Box::new(Job {
                pod: pod.clone(),
                client: client.clone(),
                handle: handle.clone(),
                status: None,
                remove: false,
            })
        });
        change(job);
        state.queue.add(pod.uid.clone(), self.now());
        self.metrics.queue(state.queue.len());
        drop(state);
        self.stirred.notify_one();
    }

    async fn write(self: Arc<Self>) {
        loop {
            let (taken, due) = self.take();
            if let Some((uid, pod, client, handle, work)) = taken {
                // Whoever else may take one should look for itself.
                self.stirred.notify_one();
                self.perform(&uid, &pod, &client, &handle, work).await;
                continue;
            }
            let stirred = self.stirred.notified();
            match due {
                None => stirred.await,
                // Whichever comes first, there may be something.
                Some(due) => drop(tokio::time::timeout_at(self.origin + due, stirred).await),
            }
        }
    }

    /// The next piece of work; or when there may be one.
    #[expect(
        clippy::type_complexity,
        reason = "the parts of a job, taken apart at the only place of use"
    )]
    fn take(
        &self,
    ) -> (
        Option<(Arc<str>, PodId, Arc<Client>, Arc<Handle>, Work)>,
        Option<Duration>,
    ) {
        let mut state = self.lock();
        let now = self.now();
        while let Some(uid) = state.queue.take(now) {
            self.metrics.queue(state.queue.len());
            let job = state.jobs.get_mut(&uid);
            let work = job.and_then(|job| {
                let work = match job.status.take() {
                    Some((status, decided)) => Work::Status(status, decided),
                    None if job.remove => Work::Remove,
                    None => return None,
                };
                Some((job.pod.clone(), job.client.clone(), job.handle.clone(), work))
            });
            if let Some((pod, client, handle, work)) = work {
                return (Some((uid, pod, client, handle, work)), None);
            }
            state.finish(&uid);
            state.queue.done(&uid, now);
        }
        (None, state.queue.due())
    }

    async fn perform(&self, uid: &Arc<str>, pod: &PodId, client: &Client, handle: &Arc<Handle>, work: Work) {
        let (end, latency) = match &work {
            Work::Status(status, decided) => {
                let end = match status.open() {
                    Ok(body) => timed(patch(client, pod, body)).await,
                    Err(damaged) => End::Refused(damaged.to_string()),
                };
                (end, decided.elapsed())
            }
            Work::Remove => (timed(delete(client, pod)).await, Duration::ZERO),
        };
        let told = match (end, work) {
            (End::Done(version), Work::Status(..)) => {
                self.metrics.wrote(WriteResult::Written, latency);
                Some(Input::Posted(Posted::Done(version)))
            }
            (End::Done(_), Work::Remove) => {
                self.metrics.wrote(WriteResult::Removed, latency);
                Some(Input::Removed(true))
            }
            (End::Stays, _) => {
                self.metrics.wrote(WriteResult::Refused, latency);
                Some(Input::Removed(false))
            }
            (End::Overtaken, work) => {
                self.metrics.wrote(WriteResult::Overtaken, latency);
                Some(match work {
                    Work::Status(..) => Input::Posted(Posted::Overtaken),
                    Work::Remove => Input::Removed(true),
                })
            }
            (End::Refused(why), work) => {
                self.metrics.wrote(WriteResult::Refused, latency);
                let what = match work {
                    Work::Status(..) => "status",
                    Work::Remove => "removal",
                };
                tracing::warn!(%pod, %uid, node = %pod.node, what, why, "the API server refuses a write of a pod");
                Some(match work {
                    Work::Status(..) => Input::Posted(Posted::Refused(why)),
                    Work::Remove => Input::Removed(false),
                })
            }
            (End::Failed(why, delay), work) => {
                self.metrics.wrote(WriteResult::Failed, latency);
                tracing::debug!(%pod, %uid, why, "cannot write a pod yet");
                self.again(uid, work, delay);
                None
            }
        };
        if let Some(input) = told {
            self.done(uid, matches!(input, Input::Removed(_)));
            handle.send(Message::Told(uid.clone(), Box::new(input)));
        }
    }

    /// To be tried again, unless something newer came meanwhile.
    fn again(&self, uid: &Arc<str>, work: Work, delay: Option<Duration>) {
        let mut state = self.lock();
        let Some(job) = state.jobs.get_mut(uid) else {
            // Forgotten meanwhile.
            let now = self.now();
            state.queue.done(uid, now);
            return;
        };
        if let Work::Status(status, decided) = work
            && job.status.is_none()
        {
            job.status = Some((status, decided));
        }
        let now = self.now();
        state.queue.failed(uid, delay, now);
        self.metrics.queue(state.queue.len());
        drop(state);
        self.stirred.notify_one();
    }

    fn done(&self, uid: &Arc<str>, removal: bool) {
        let mut state = self.lock();
        let now = self.now();
        let Some(job) = state.jobs.get_mut(uid) else {
            state.queue.done(uid, now);
            return;
        };
        if removal {
            job.remove = false;
        }
        let more = job.status.is_some() || job.remove;
        if !more {
            state.finish(uid);
        }
        state.queue.done(uid, now);
        if more {
            state.queue.add(uid.clone(), now);
        }
        self.metrics.queue(state.queue.len());
        drop(state);
        if more {
            self.stirred.notify_one();
        }
    }
}

/// How a request ended.
enum End {
    /// Well; the object's resourceVersion.
    Done(String),
    /// It is to be deleted, but finalizers hold it.
    Stays,
    /// The object is gone or another.
    Overtaken,
    /// For good, with the API server's message.
    Refused(String),
    /// To be repeated, after this long where it is known.
    Failed(String, Option<Duration>),
}

async fn timed(request: impl Future<Output = kube::Result<End>>) -> End {
    match tokio::time::timeout(REQUEST, request).await {
        Err(_) => End::Failed(format!("no answer within {REQUEST:?}"), None),
        Ok(Ok(end)) => end,
        Ok(Err(error)) if is_gate_closed(&error) => End::Failed(error.to_string(), Some(GATE)),
        Ok(Err(Error::Api(status))) => match status.code {
            409 => End::Overtaken,
            404 if is_absent(&status) => End::Overtaken,
            // How an API server says of a patch that the object is another.
            422 if is_about_uid(&status) => End::Overtaken,
            // A token that expired, and a server that has too much to do, may do better next time.
            400 | 403 | 405 | 413 | 415 | 422 => End::Refused(status.message),
            _ => End::Failed(status.message, None),
        },
        Ok(Err(error)) => End::Failed(evenkeel_net::log::causes(&error), None),
    }
}

fn is_about_uid(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.field == "metadata.uid")
}

/// The part of an answer that is of interest. Decoding the whole pod would cost more than the request.
#[derive(Debug, Deserialize)]
struct Written {
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    resource_version: String,
    finalizers: Vec<String>,
}

async fn patch(client: &Client, pod: &PodId, body: Value) -> kube::Result<End> {
    let params = PatchParams::apply(COMPONENT);
    let request = Request::new(Pod::url_path(&(), Some(&pod.namespace))).patch_subresource(
        "status",
        &pod.name,
        &params,
        &Patch::Strategic(body),
    );
    let request = request.map_err(Error::BuildRequest)?;
    let written: Written = client.request(request).await?;
    Ok(End::Done(written.metadata.resource_version))
}

async fn delete(client: &Client, pod: &PodId) -> kube::Result<End> {
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: Some(pod.uid.to_string()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let request = Request::new(Pod::url_path(&(), Some(&pod.namespace)))
        .delete(&pod.name, &params)
        .map_err(Error::BuildRequest)?;
    // The pod as it was; or, from some servers, a Status, whose metadata is empty.
    let deleted: Written = client.request(request).await?;
    Ok(if deleted.metadata.finalizers.is_empty() {
        End::Done(deleted.metadata.resource_version)
    } else {
        End::Stays
    })
}

/// The body of the patch. What the status does not have any more is set to null, and lists that the API
/// server would merge by key are replaced, but for the conditions: those of others stay.
fn body(pod: &PodId, status: &PodStatus) -> Value {
    let mut value = serde_json::to_value(status).expect("a PodStatus has string keys alone, and so is JSON");
    if let Value::Object(fields) = &mut value {
        // Merged by their types: what is not said of one would stay as it was.
        let conditions = fields.get_mut("conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
            for name in ["message", "reason"] {
                condition.entry(name).or_insert(Value::Null);
            }
        }
        for name in [
            "message",
            "reason",
            "podIP",
            "hostIP",
            "startTime",
            "containerStatuses",
            "initContainerStatuses",
            "ephemeralContainerStatuses",
        ] {
            fields.entry(name).or_insert(Value::Null);
        }
        for name in ["podIPs", "hostIPs"] {
            match fields.get_mut(name) {
                Some(Value::Array(items)) => items.push(json!({"$patch": "replace"})),
                _ => {
                    fields.insert(name.to_owned(), Value::Null);
                }
            }
        }
    }
    json!({"metadata": {"uid": &*pod.uid}, "status": value})
}

#[cfg(test)]
mod tests;
