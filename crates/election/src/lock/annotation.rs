//! Locks whose record is an annotation of a ConfigMap or of Endpoints, as Kubernetes used before 1.17.

use super::announcer::{Announcer, COMPONENT};
use super::object::{Form, ObjectLock};
use super::target::{LockNameError, Target};
use super::{Lock, LockError};
use crate::core::{Observation, Record};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints};
use kube::Client;
use kube::core::{ApiResource, DynamicObject};

pub use evenkeel_api::names::annotations::LEADER as LEADER_ANNOTATION;

/// A lock on an annotation of a ConfigMap or of Endpoints. client-go has removed these locks. Use it to read
/// who leads an old deployment, and to move from it to a [`LeaseLock`](super::LeaseLock) with a
/// [`MultiLock`](super::MultiLock).
///
/// It needs the same rights as a Lease, on `configmaps` or `endpoints`. Everything else in the object stays
/// as it is. An object without the annotation reads as a record that nobody has held.
#[derive(Clone)]
pub struct AnnotationLock(ObjectLock);

impl AnnotationLock {
    /// A lock on one ConfigMap. No request is made.
    ///
    /// # Errors
    /// An empty or impossible namespace or name.
    pub fn config_map(client: Client, namespace: &str, name: &str) -> Result<Self, LockNameError> {
        let target = Target::new(ApiResource::erase::<ConfigMap>(&()), namespace, name)?;
        Ok(Self(ObjectLock::new(client, target, CONFIG_MAP)))
    }

    /// A lock on one Endpoints object. No request is made.
    ///
    /// # Errors
    /// An empty or impossible namespace or name.
    pub fn endpoints(client: Client, namespace: &str, name: &str) -> Result<Self, LockNameError> {
        let target = Target::new(ApiResource::erase::<Endpoints>(&()), namespace, name)?;
        Ok(Self(ObjectLock::new(client, target, ENDPOINTS)))
    }

    /// Records changes of leadership as Events on the object; see
    /// [`LeaseLock::with_events`](super::LeaseLock::with_events).
    #[must_use]
    pub fn with_events(self, client: Client) -> Self {
        Self(self.0.with_announcer(Announcer::new(client, COMPONENT)))
    }
}

delegate_to_object!(AnnotationLock);

const CONFIG_MAP: Form = Form {
    not_initialized: "configmap not initialized, call get or create first",
    read,
    write,
};

const ENDPOINTS: Form = Form {
    not_initialized: "endpoint not initialized, call get or create first",
    read,
    write,
};

fn read(object: &DynamicObject) -> Result<(Record, String), String> {
    let annotations = object.metadata.annotations.as_ref();
    let Some(text) = annotations.and_then(|annotations| annotations.get(LEADER_ANNOTATION)) else {
        return Ok((Record::default(), String::new()));
    };
    let record = serde_json::from_str(text)
        .map_err(|error| format!("its annotation {LEADER_ANNOTATION} is no election record ({error})"))?;
    Ok((record, text.clone()))
}

fn write(object: &mut DynamicObject, record: &Record) -> Result<(), serde_json::Error> {
    let text = serde_json::to_string(record)?;
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(LEADER_ANNOTATION.to_owned(), text);
    Ok(())
}

#[cfg(test)]
mod tests;
