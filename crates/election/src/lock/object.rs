//! A record inside an object at the API server: the common part of Leases and annotated objects.

use super::LockError;
use super::announcer::Announcer;
use super::memory::Op;
use super::refusal::lock_error;
use super::target::Target;
use crate::core::{Observation, Record};
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use kube::api::PostParams;
use kube::core::DynamicObject;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often an account that may not watch tries whether it may now.
const WATCH_RIGHTS_RETRY: Duration = Duration::from_secs(300);

/// How many versions of the object are remembered: those of the last requests, and what the watch delivered
/// meanwhile.
const REMEMBERED: usize = 4;

/// How a kind of object stores the record.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// client-go's answer to an update of an object that was never read.
    pub(super) not_initialized: &'static str,
    /// Reads the record, and its text as client-go compares it. The error says what is wrong and where in the
    /// object.
    pub(super) read: fn(&DynamicObject) -> Result<(Record, String), String>,
    /// Writes the record into the object and leaves everything else as it is.
    pub(super) write: fn(&mut DynamicObject, &Record) -> Result<(), serde_json::Error>,
}

/// One object that holds a record. Untyped, so that fields which our API version does not know survive a
/// write.
#[derive(Clone)]
pub(super) struct ObjectLock {
    api: Api<DynamicObject>,
    target: Arc<Target>,
    form: Form,
    labels: BTreeMap<String, String>,
    announcer: Option<Announcer>,
    /// The last versions of the object, the newest first.
    seen: Arc<Mutex<VecDeque<DynamicObject>>>,
}

impl ObjectLock {
    pub(super) fn new(client: Client, target: Target, form: Form) -> Self {
        Self {
            api: Api::namespaced_with(client, &target.namespace, &target.resource),
            target: Arc::new(target),
            form,
            labels: BTreeMap::new(),
            announcer: None,
            seen: Arc::default(),
        }
    }

    pub(super) fn with_labels(mut self, labels: BTreeMap<String, String>) -> Self {
        self.labels = labels;
        self
    }

    pub(super) fn with_announcer(mut self, announcer: Announcer) -> Self {
        self.announcer = Some(announcer);
        self
    }

    pub(super) fn describe(&self) -> String {
        self.target.describe()
    }

    pub(super) fn get(&self) -> BoxFuture<'static, Result<Option<Observation>, LockError>> {
        let lock = self.clone();
        async move {
            match lock.api.get_opt(&lock.target.name).await {
                Ok(Some(object)) => lock.observe(object).map(Some),
                Ok(None) => Ok(None),
                Err(error) => Err(lock_error(&lock.target, Op::Get, error)),
            }
        }
        .boxed()
    }

    pub(super) fn create(&self, record: Record) -> BoxFuture<'static, Result<Observation, LockError>> {
        let lock = self.clone();
        async move {
            let target = &lock.target;
            let object = DynamicObject::new(&target.name, &target.resource)
                .within(&target.namespace)
                .data(serde_json::json!({}));
            let object = lock.fill(object, &record)?;
            match lock.api.create(&PostParams::default(), &object).await {
                Ok(object) => lock.observe(object),
                Err(error) => Err(lock_error(target, Op::Create, error)),
            }
        }
        .boxed()
    }

    pub(super) fn update(
        &self,
        record: Record,
        version: String,
    ) -> BoxFuture<'static, Result<Observation, LockError>> {
        let lock = self.clone();
        async move {
            let object = lock.fill(lock.at(&version).await?, &record)?;
            let (name, params) = (&lock.target.name, PostParams::default());
            match lock.api.replace(name, &params, &object).await {
                Ok(object) => lock.observe(object),
                Err(error) => Err(lock_error(&lock.target, Op::Update, error)),
            }
        }
        .boxed()
    }

    /// Watches this object alone, and reconnects with back-off. Without the right to watch there are no
    /// changes.
    pub(super) fn changes(&self) -> BoxStream<'static, Option<Observation>> {
        let lock = self.clone();
        let attempt = move |turn: u64| {
            let lock = lock.clone();
            async move {
                if turn > 0 {
                    tokio::time::sleep(WATCH_RIGHTS_RETRY).await;
                }
                lock.watch_while_allowed(turn)
            }
        };
        stream::iter(0..).then(attempt).flatten().boxed()
    }

    pub(super) fn announce(&self, message: String) -> BoxFuture<'static, ()> {
        let Some(announcer) = self.announcer.clone() else {
            return std::future::ready(()).boxed();
        };
        let target = self.target.clone();
        let uid = self.seen().front().and_then(|object| object.metadata.uid.clone());
        async move { announcer.announce(&target, uid, message).await }.boxed()
    }

    fn watch_while_allowed(&self, turn: u64) -> impl Stream<Item = Option<Observation>> + Send + use<> {
        let (lock, name, target) = (self.clone(), self.describe(), Arc::clone(&self.target));
        watcher::watch_object(self.api.clone(), &self.target.name)
            .default_backoff()
            .take_while(move |change| {
                let forbidden = matches!(change, Err(error) if is_forbidden(error));
                if forbidden && turn == 0 {
                    tracing::info!(
                        lock = %name,
                        "not allowed to list and watch the lock; changes are noticed by asking every retry period \
                         (to notice them at once, allow list and watch on {resource} in namespace `{namespace}` to \
                         this account)",
                        resource = target.plural(),
                        namespace = target.namespace,
                    );
                }
                std::future::ready(!forbidden)
            })
            .filter_map(move |change| {
                std::future::ready(match change {
                    Ok(Some(object)) => lock
                        .observe(object)
                        .inspect_err(|error| tracing::debug!(%error, "watched a change that cannot be read"))
                        .ok()
                        .map(Some),
                    Ok(None) => Some(None),
                    Err(error) => {
                        tracing::debug!(lock = %lock.describe(), %error, "the watch on the lock failed, trying again");
                        None
                    }
                })
            })
    }

    /// Reads an object that came from the API server, and remembers it, so that the next update keeps what
    /// others wrote.
    fn observe(&self, object: DynamicObject) -> Result<Observation, LockError> {
        let read = (self.form.read)(&object);
        let (uid, version) = (
            object.metadata.uid.clone().unwrap_or_default(),
            version(&object).to_owned(),
        );
        let mut seen = self.seen();
        seen.retain(|known| self::version(known) != version);
        seen.push_front(object);
        seen.truncate(REMEMBERED);
        drop(seen);
        match read {
            Ok((record, raw)) => Ok(Observation {
                record,
                uid,
                version,
                raw,
            }),
            Err(what) => Err(LockError::Malformed(format!(
                "{}: {what}; correct it, or delete it while no candidate leads: then it is made anew",
                self.target
            ))),
        }
    }

    /// The object at this version, from which an update is made. With the metadata of another version, the
    /// update would undo what others changed in between.
    async fn at(&self, wanted: &str) -> Result<DynamicObject, LockError> {
        if self.seen().is_empty() {
            return Err(LockError::Refused(self.form.not_initialized.to_owned()));
        }
        if wanted.is_empty() {
            // Without a version, an update would overwrite any other write.
            let target = &self.target;
            return Err(LockError::Refused(format!(
                "cannot update {target}: it has no resourceVersion; check that the client talks to a Kubernetes \
                 API server"
            )));
        }
        let known = self
            .seen()
            .iter()
            .find(|object| version(object) == wanted)
            .cloned();
        if let Some(object) = known {
            return Ok(object);
        }
        match self.api.get_opt(&self.target.name).await {
            Ok(Some(object)) if version(&object) == wanted => Ok(object),
            Ok(_) => Err(LockError::Conflict),
            Err(error) => Err(lock_error(&self.target, Op::Get, error)),
        }
    }

    fn fill(&self, mut object: DynamicObject, record: &Record) -> Result<DynamicObject, LockError> {
        // Objects that come from a list have no apiVersion and kind.
        object.types = Some(kube::core::TypeMeta {
            api_version: self.target.resource.api_version.clone(),
            kind: self.target.resource.kind.clone(),
        });
        if !self.labels.is_empty() {
            let labels = object.metadata.labels.get_or_insert_default();
            labels.extend(self.labels.clone());
        }
        (self.form.write)(&mut object, record).map_err(|error| {
            let target = &self.target;
            LockError::Malformed(format!("cannot write the record into {target}: {error}"))
        })?;
        Ok(object)
    }

    fn seen(&self) -> MutexGuard<'_, VecDeque<DynamicObject>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn version(object: &DynamicObject) -> &str {
    object.metadata.resource_version.as_deref().unwrap_or_default()
}

fn is_forbidden(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status)) => status.is_forbidden(),
        watcher::Error::WatchError(status) => status.is_forbidden(),
        _ => false,
    }
}
