//! What happened: every change of the objects that matter, with its time, so that assertions are judged from
//! recorded facts and not from what a poll happened to see.

pub mod description;
pub mod facts;
pub mod moment;

use evenkeel_api::names;
use facts::{Change, Kind, Watched, from_object};
use futures::StreamExt as _;
use kube::{
    Api, Client, ResourceExt as _,
    api::DynamicObject,
    runtime::{WatchStreamExt as _, utils::Backoff, watcher},
};
use moment::Moment;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

/// The record of a lab, growing. Cheap to clone.
#[derive(Clone)]
pub struct Observer {
    start: Instant,
    record: Arc<Mutex<Record>>,
    changed: watch::Receiver<usize>,
}

#[derive(Default)]
struct Record {
    changes: Vec<Change>,
    now: Moment,
}

impl Observer {
    /// Starts to watch; times count from now.
    pub fn start(client: &Client, shutdown: &CancellationToken) -> Self {
        let (publish, changed) = watch::channel(0);
        let observer = Self {
            start: Instant::now(),
            record: Arc::default(),
            changed,
        };
        let publish = Arc::new(publish);
        for kind in Kind::ALL {
            let (watching, publish) = (observer.clone(), Arc::clone(&publish));
            let (client, shutdown) = (client.clone(), shutdown.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = shutdown.cancelled() => {}
                    () = watching.follow(kind, client, &publish) => {}
                }
            });
        }
        observer
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub fn now(&self) -> Moment {
        self.lock().now.clone()
    }

    /// Everything so far, oldest first.
    pub fn changes(&self) -> Vec<Change> {
        self.lock().changes.clone()
    }

    /// What came after the first `known` changes.
    pub fn changes_after(&self, known: usize) -> Vec<Change> {
        self.lock()
            .changes
            .get(known..)
            .map(<[Change]>::to_vec)
            .unwrap_or_default()
    }

    /// Counts changes; fires on each.
    pub fn follow_changes(&self) -> watch::Receiver<usize> {
        self.changed.clone()
    }

    /// Waits until `wanted` holds of how things are, for at most `within`; `None` if it did not.
    pub async fn wait_for(&self, within: Duration, wanted: impl Fn(&Moment) -> bool) -> Option<Duration> {
        let end = Instant::now() + within;
        let mut changed = self.changed.clone();
        loop {
            changed.mark_unchanged();
            if wanted(&self.lock().now) {
                return Some(self.elapsed());
            }
            match tokio::time::timeout_at(end, changed.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return None,
            }
        }
    }

    async fn follow(&self, kind: Kind, client: Client, publish: &watch::Sender<usize>) {
        let api: Api<DynamicObject> = Api::all_with(client, &kind.resource());
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).backoff(Steady));
        let mut known: HashSet<String> = HashSet::new();
        let mut listed: HashSet<String> = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init) => listed.clear(),
                Ok(watcher::Event::InitApply(object)) => {
                    listed.insert(key(&object));
                    self.note(kind, &object, publish);
                }
                Ok(watcher::Event::InitDone) => {
                    for gone in known.difference(&listed) {
                        self.add(Watched::Gone(kind, gone.clone()), publish);
                    }
                    known.clone_from(&listed);
                }
                Ok(watcher::Event::Apply(object)) => {
                    known.insert(key(&object));
                    self.note(kind, &object, publish);
                }
                Ok(watcher::Event::Delete(object)) => {
                    let key = key(&object);
                    known.remove(&key);
                    self.add(Watched::Gone(kind, key), publish);
                }
                Err(error) => tracing::debug!(?kind, %error, "watch failed, trying again"),
            }
        }
    }

    fn note(&self, kind: Kind, object: &DynamicObject, publish: &watch::Sender<usize>) {
        if is_evenkeels_own(object) {
            return;
        }
        match serde_json::to_value(object) {
            Ok(value) => self.add(from_object(kind, key(object), &value), publish),
            Err(error) => tracing::warn!(?kind, %error, "an object cannot be read"),
        }
    }

    fn add(&self, what: Watched, publish: &watch::Sender<usize>) {
        let at = self.elapsed();
        {
            let mut record = self.lock();
            if !record.now.apply(&what) {
                return;
            }
            record.changes.push(Change { at, what });
        }
        publish.send_modify(|count| *count += 1);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pods of an installation, and the machines that its controllers run on: no scenario is about them.
fn is_evenkeels_own(object: &DynamicObject) -> bool {
    object.namespace().as_deref() == Some(names::NAMESPACE)
        || object.labels().contains_key(names::CONTROL_PLANE_LABEL)
}

/// A second between two attempts to watch: a kind may be defined at any time, and the API server is on this
/// machine.
struct Steady;

impl Iterator for Steady {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }
}

impl Backoff for Steady {
    fn reset(&mut self) {}
}

/// Pods are told apart by UID: a new pod of the same name is another pod.
fn key(object: &DynamicObject) -> String {
    object.uid().unwrap_or_else(|| object.name_any())
}
