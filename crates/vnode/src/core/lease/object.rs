//! The object: what is kept of it, and what is written.

use super::{Owner, Settings};
use crate::core::Now;
use evenkeel_api::names;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};

/// What is kept of a Lease between renewals: its version, and the rest only where it is not what we would
/// write.
#[derive(Debug)]
pub(super) struct Held {
    version: Option<Box<str>>,
    /// The Lease without what the server keeps, where others have put something on it.
    odd: Option<Box<Lease>>,
}

impl Held {
    pub(super) fn of(mut lease: Lease, settings: &Settings, owner: Owner<'_>) -> Self {
        let version = lease.metadata.resource_version.take().map(String::into_boxed_str);
        lease.metadata.managed_fields = None;
        let plain = Lease {
            metadata: ObjectMeta {
                name: lease.metadata.name.clone(),
                namespace: lease.metadata.namespace.clone(),
                uid: lease.metadata.uid.clone(),
                creation_timestamp: lease.metadata.creation_timestamp.clone(),
                owner_references: reference(owner).map(|one| vec![one]),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(settings.holder.as_deref().unwrap_or(owner.name).to_owned()),
                lease_duration_seconds: lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds),
                renew_time: lease.spec.as_ref().and_then(|spec| spec.renew_time.clone()),
                ..LeaseSpec::default()
            }),
        };
        let odd = (lease != plain).then(|| Box::new(lease));
        Self { version, odd }
    }

    #[cfg(test)]
    pub(super) fn is_plain(&self) -> bool {
        self.odd.is_none()
    }
}

/// The Lease to be written: a new one, or what is held with the present time and duration. `None` as long as
/// the Node that it would belong to is not known, for a Lease without an owner would outlive its node.
pub(super) fn renewed(
    settings: &Settings,
    owner: Owner<'_>,
    held: Option<&Held>,
    now: Now,
) -> Option<Box<Lease>> {
    let mut lease = held
        .and_then(|held| held.odd.as_deref())
        .cloned()
        .unwrap_or_default();
    let meta = &mut lease.metadata;
    meta.name = Some(owner.name.to_owned());
    meta.namespace = Some(names::NODE_LEASE_NAMESPACE.to_owned());
    meta.resource_version = held
        .and_then(|held| held.version.as_deref())
        .map(ToOwned::to_owned);
    let references = meta.owner_references.get_or_insert_default();
    let mine = reference(owner);
    if let Some(mine) = &mine {
        // Of an earlier Node of this name.
        references
            .retain(|other| !(other.kind == mine.kind && other.name == mine.name && other.uid != mine.uid));
    }
    if references.is_empty() {
        references.push(mine?);
    }
    let spec = lease.spec.get_or_insert_default();
    match &settings.holder {
        Some(holder) => spec.holder_identity = Some(holder.as_ref().to_owned()),
        None => {
            spec.holder_identity.get_or_insert_with(|| owner.name.to_owned());
        }
    }
    spec.lease_duration_seconds = Some(i32::try_from(settings.duration.as_secs()).unwrap_or(i32::MAX));
    let micros = i64::try_from(now.wall.as_micros()).unwrap_or(i64::MAX);
    spec.renew_time = Some(MicroTime(
        Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX),
    ));
    Some(Box::new(lease))
}

fn reference(owner: Owner<'_>) -> Option<OwnerReference> {
    Some(OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: owner.name.to_owned(),
        uid: owner.uid?.to_owned(),
        ..OwnerReference::default()
    })
}
