//! The lock whose record is the spec of a `coordination.k8s.io/v1` Lease.

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

/// A lock on a Lease, like client-go's `leases` lock.
///
/// The account of its client needs `get`, `create` and `update` on `leases.coordination.k8s.io` in the
/// namespace. With `list` and `watch` changes are noticed at once; without them, a candidate reads the Lease
/// every retry period. (RBAC cannot restrict `create` to one name; it can restrict the others.)
///
/// Each write replaces the whole spec, as client-go's do, on the condition that nobody wrote since the given
/// version. Labels, annotations and other fields of the object stay. Unlike with client-go, an update that
/// failed does not change the copy of the object that is kept here.
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

    /// Writes these labels to the Lease with every update. Labels with other keys are not changed.
    #[must_use]
    pub fn with_labels(self, labels: BTreeMap<String, String>) -> Self {
        Self(self.0.with_labels(labels))
    }

    /// Records changes of leadership as Events on the Lease, which is off by default. The account of
    /// `client`, which may be another one than the lock's, needs `create` on `events.events.k8s.io` in the
    /// namespace.
    #[must_use]
    pub fn with_events(self, client: Client) -> Self {
        self.with_events_of(client, COMPONENT)
    }

    /// The same with the name of the component that reports (at most 63 characters, as in a label value).
    #[must_use]
    pub fn with_events_of(self, client: Client, component: &str) -> Self {
        Self(self.0.with_announcer(Announcer::new(client, component)))
    }
}

delegate_to_object!(LeaseLock);

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

/// The record in a Lease. Absent fields become empty or zero.
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

/// The complete spec for a record, so that a strategy or a preferred holder that the record does not have is
/// removed.
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

/// A time in whole microseconds, which is what the API stores.
pub(super) fn micros(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
