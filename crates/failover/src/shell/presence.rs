//! Each replica shows by a Lease of its own that it works. By these Leases the last one that stops knows that
//! it is the last, and settles what it kept from the stock controllers before it ends (hazard 52).

use crate::clock::wall;
use evenkeel_api::names;
use evenkeel_api::policy::ModePolicy;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often the Lease is renewed: three times within the time for which it is believed.
const EVERY: Duration = Duration::from_secs(5);
/// A Lease that was not renewed for this long is removed by the next replica that starts.
const LONG_GONE: SignedDuration = SignedDuration::from_hours(1);

/// The announcement. Dropping it ends it, and leaves the Lease to run out.
pub(super) struct Present {
    api: Api<Lease>,
    name: String,
    task: JoinHandle<()>,
}

impl Present {
    /// This replica has gone: ends the announcement, and then takes the Lease away, so that no renewal brings
    /// it back.
    pub(super) async fn leave(mut self) {
        self.task.abort();
        // It was told to end, and has nothing to say.
        let _ = (&mut self.task).await;
        if let Err(error) = remove(&self.api, &self.name).await {
            tracing::warn!(%error, lease = self.name, "the Lease that shows this replica is left to run out");
        }
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Name of a replica's Lease.
pub(super) fn lease_name(identity: &str) -> String {
    let cleaned: String = identity
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c
            } else {
                '-'
            }
        })
        .take(200)
        .collect();
    format!("{}{}", names::REPLICA_LEASE_PREFIX, cleaned.trim_matches('-'))
}

/// Keeps the Lease of this replica renewed, which also tells its mode.
#[allow(clippy::disallowed_methods, reason = "the shell starts tasks")]
pub(super) fn announce(client: Client, namespace: &str, identity: &str, mode: ModePolicy) -> Present {
    let name = lease_name(identity);
    let identity = identity.to_owned();
    let api: Api<Lease> = Api::namespaced(client, namespace);
    let present = (api.clone(), name.clone());
    let task = tokio::spawn(async move {
        if let Err(error) = sweep(&api, wall()).await {
            tracing::warn!(%error, "cannot remove Leases of replicas that are long gone");
        }
        let mut every = tokio::time::interval(EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            if let Err(error) = renew(&api, &name, (&identity, mode), wall()).await {
                tracing::warn!(%error, lease = name, "cannot show that this replica works");
            }
        }
    });
    let (api, name) = present;
    Present { api, name, task }
}

/// Removes what replicas that were killed left behind.
async fn sweep(api: &Api<Lease>, now: Timestamp) -> Result<(), kube::Error> {
    for lease in api.list(&ListParams::default()).await? {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
        let old = renewed.is_none_or(|renewed| now.duration_since(renewed.0) > LONG_GONE);
        if name.starts_with(names::REPLICA_LEASE_PREFIX) && old {
            remove(api, name).await?;
        }
    }
    Ok(())
}

async fn remove(api: &Api<Lease>, name: &str) -> Result<(), kube::Error> {
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        answer => answer.map(|_| ()),
    }
}

async fn renew(
    api: &Api<Lease>,
    name: &str,
    (identity, mode): (&str, ModePolicy),
    now: Timestamp,
) -> Result<(), kube::Error> {
    let renewed = format!("{now:.6}");
    let spec = json!({ "metadata": { "annotations": { names::annotations::MODE: mode } }, "spec": {
        "holderIdentity": identity,
        "leaseDurationSeconds": 3 * EVERY.as_secs(),
        "renewTime": renewed,
    }});
    let params = PatchParams::apply(names::FIELD_MANAGER);
    match api.patch(name, &params, &Patch::Merge(&spec)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        answer => return answer.map(|_| ()),
    }
    let mut object = spec;
    object["apiVersion"] = json!("coordination.k8s.io/v1");
    object["kind"] = json!("Lease");
    object["metadata"]["name"] = json!(name);
    let lease: Lease = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    match api.create(&PostParams::default(), &lease).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        answer => answer.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_named_after_its_replica_as_an_object_name_allows() {
        assert_eq!(
            lease_name("host-7_4a5B"),
            "evenkeel-controller-replica-host-7-4a5b"
        );
        assert!(lease_name(&"x".repeat(300)).len() <= 253);
    }
}
