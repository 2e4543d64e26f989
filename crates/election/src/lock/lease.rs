//! The record as the spec of a `coordination.k8s.io/v1` Lease.

use super::announcer::{Announcer, COMPONENT};
use super::object::{Form, ObjectLock};
use super::target::{LockNameError, Target};
use super::{Lock, LockError};
use crate::core::{Observation, Record};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::core::ApiResource;
use std::collections::BTreeMap;

/// A Lease as lock; what client-go's `leases` lock is.
///
/// The account of its client needs `get`, `create` and `update` on `leases.coordination.k8s.io` in the namespace. With
/// `list` and `watch` changes are noticed at once; without, a candidate asks every retry period. (`create` cannot be
/// narrowed to one name in RBAC; the others can.)
///
/// Each write replaces the whole spec, as client-go's do, on the condition that nobody wrote since the given version.
/// Labels, annotations and whatever else others put on the object stay. Unlike client-go's, an update that failed
/// leaves no trace in the object kept here.
#[derive(Clone)]
pub struct LeaseLock(ObjectLock);

impl LeaseLock {
    /// A lock on one Lease, which need not exist yet; its namespace must. No request is made.
    ///
    /// # Errors
    /// An empty or impossible namespace or name.
    pub fn new(client: Client, namespace: &str, name: &str) -> Result<Self, LockNameError> {
        let target = Target::new(ApiResource::erase::<Lease>(&()), namespace, name)?;
        Ok(Self(ObjectLock::new(client, target, SPEC)))
    }

    /// Labels to put on the Lease and to hold there; labels with other keys are left alone.
    #[must_use]
    pub fn with_labels(self, labels: BTreeMap<String, String>) -> Self {
        Self(self.0.with_labels(labels))
    }

    /// Tells changes of leadership as Events on the Lease; without this nothing is told. The account of `client`, which
    /// may be another than the lock's, needs `create` on `events.events.k8s.io` in the namespace.
    #[must_use]
    pub fn with_events(self, client: Client) -> Self {
        self.with_events_of(client, COMPONENT)
    }

    /// The same, naming the component that reports (at most 63 characters, as a label value).
    #[must_use]
    pub fn with_events_of(self, client: Client, component: &str) -> Self {
        Self(self.0.with_announcer(Announcer::new(client, component)))
    }
}

impl Lock for LeaseLock {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn get(&self) -> BoxFuture<'static, Result<Option<Observation>, LockError>> {
        self.0.get()
    }

    fn create(&self, record: Record) -> BoxFuture<'static, Result<Observation, LockError>> {
        self.0.create(record)
    }

    fn update(&self, record: Record, version: String) -> BoxFuture<'static, Result<Observation, LockError>> {
        self.0.update(record, version)
    }

    fn changes(&self) -> BoxStream<'static, Option<Observation>> {
        self.0.changes()
    }

    fn announce(&self, message: String) -> BoxFuture<'static, ()> {
        self.0.announce(message)
    }
}

/// The record is the spec.
const SPEC: Form = Form {
    not_initialized: "lease not initialized, call get or create first",
    read: |object| {
        let spec = match object.data.get("spec") {
            None | Some(serde_json::Value::Null) => LeaseSpec::default(),
            Some(spec) => serde_json::from_value(spec.clone())
                .map_err(|error| format!("its spec is not that of a Lease ({error})"))?,
        };
        let record = record(spec);
        let raw = record.raw();
        Ok((record, raw))
    },
    write: |object, record| {
        object.data["spec"] = serde_json::to_value(spec(record))?;
        Ok(())
    },
};

/// What a Lease says. Absent fields are empty or zero.
fn record(spec: LeaseSpec) -> Record {
    Record {
        holder: spec.holder_identity.unwrap_or_default(),
        lease_duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
        acquire_time: spec.acquire_time.map(|time| time.0),
        renew_time: spec.renew_time.map(|time| time.0),
        transitions: spec.lease_transitions.unwrap_or_default(),
        strategy: spec.strategy.unwrap_or_default(),
        preferred_holder: spec.preferred_holder.unwrap_or_default(),
    }
}

/// The spec that a record is: all of it, so that what it does not say (a strategy, a preferred holder) goes.
fn spec(record: &Record) -> LeaseSpec {
    let unless_empty = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    LeaseSpec {
        holder_identity: Some(record.holder.clone()),
        lease_duration_seconds: Some(record.lease_duration_seconds),
        acquire_time: record.acquire_time.map(micros).map(MicroTime),
        renew_time: record.renew_time.map(micros).map(MicroTime),
        lease_transitions: Some(record.transitions),
        strategy: unless_empty(&record.strategy),
        preferred_holder: unless_empty(&record.preferred_holder),
    }
}

/// A time as it comes back from the API: whole microseconds.
pub(super) fn micros(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
