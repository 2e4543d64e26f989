//! Converts LeaseCandidates and Leases for the pure rules, and the writes that these ask for to patches.

use crate::core::coordinated::{Candidate, LeaseChange, LeaseView, Timing};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::coordination::v1beta1::{LeaseCandidate, LeaseCandidateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use serde_json::{Value, json};
use std::time::Duration;

/// The wall clock in whole microseconds, which is what the API stores.
pub(super) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

pub(super) fn candidate(object: &LeaseCandidate) -> Candidate {
    let (metadata, spec) = (&object.metadata, object.spec.clone().unwrap_or_default());
    Candidate {
        name: metadata.name.clone().unwrap_or_default(),
        lease_name: spec.lease_name,
        ping_time: spec.ping_time.map(|time| time.0),
        renew_time: spec.renew_time.map(|time| time.0),
        binary_version: spec.binary_version,
        emulation_version: spec.emulation_version.unwrap_or_default(),
        strategy: spec.strategy,
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        annotations: metadata.annotations.clone().unwrap_or_default(),
    }
}

/// A new LeaseCandidate with the content of `wanted`, renewed at `now`.
pub(super) fn new_candidate(namespace: &str, wanted: &Candidate, now: Timestamp) -> LeaseCandidate {
    let emulation = (!wanted.emulation_version.is_empty()).then(|| wanted.emulation_version.clone());
    LeaseCandidate {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(wanted.name.clone()),
            annotations: (!wanted.annotations.is_empty()).then(|| wanted.annotations.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseCandidateSpec {
            lease_name: wanted.lease_name.clone(),
            renew_time: Some(MicroTime(now)),
            binary_version: wanted.binary_version.clone(),
            emulation_version: emulation,
            strategy: wanted.strategy.clone(),
            ping_time: None,
        }),
    }
}

/// A patch that sets the content of `wanted` and the renew time. It does not change the ping.
pub(super) fn renewal(wanted: &Candidate, renew_time: Timestamp) -> Value {
    let emulation = (!wanted.emulation_version.is_empty()).then_some(&wanted.emulation_version);
    json!({
        "metadata": {"annotations": wanted.annotations},
        "spec": {
            "renewTime": MicroTime(renew_time),
            "binaryVersion": wanted.binary_version,
            "emulationVersion": emulation,
            "strategy": wanted.strategy,
        },
    })
}

/// A patch that pings the candidate, on the condition that the object has not changed since it was read.
pub(super) fn ping(object: &LeaseCandidate, now: Timestamp) -> Value {
    json!({
        "metadata": {"resourceVersion": object.metadata.resource_version},
        "spec": {"pingTime": MicroTime(now)},
    })
}

pub(super) fn view(lease: &Lease, unchanged_for: Option<Duration>) -> LeaseView {
    let spec = lease.spec.clone().unwrap_or_default();
    LeaseView {
        holder: spec.holder_identity.unwrap_or_default(),
        preferred_holder: spec.preferred_holder.unwrap_or_default(),
        strategy: spec.strategy.unwrap_or_default(),
        duration_seconds: spec.lease_duration_seconds,
        renew_time: spec.renew_time.map(|time| time.0),
        unchanged_for,
    }
}

/// The Lease that the first election creates.
pub(super) fn new_lease(
    namespace: &str,
    name: &str,
    strategy: &str,
    holder: Option<String>,
    timing: &Timing,
    now: Timestamp,
) -> Lease {
    Lease {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            strategy: Some(strategy.to_owned()),
            lease_duration_seconds: Some(timing.lease_seconds()),
            renew_time: Some(MicroTime(now)),
            holder_identity: holder,
            ..LeaseSpec::default()
        }),
    }
}

/// A patch for a change of the Lease, on the condition that it has not changed since it was read; `None` for
/// [`LeaseChange::Create`].
pub(super) fn lease_patch(
    lease: &Lease,
    change: &LeaseChange,
    timing: &Timing,
    now: Timestamp,
) -> Option<Value> {
    let spec = match change {
        LeaseChange::Create { .. } => return None,
        LeaseChange::Assign { strategy, holder } => {
            let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
            json!({
                "strategy": strategy,
                "holderIdentity": holder,
                "preferredHolder": null,
                "acquireTime": null,
                "renewTime": MicroTime(now),
                "leaseDurationSeconds": timing.lease_seconds(),
                "leaseTransitions": transitions.unwrap_or_default().saturating_add(1),
            })
        }
        LeaseChange::Prefer { strategy, holder } => json!({"strategy": strategy, "preferredHolder": holder}),
        LeaseChange::Label { strategy } => json!({"strategy": strategy}),
    };
    Some(json!({"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-20T12:00:00.123456Z".parse().unwrap()
    }

    fn wanted() -> Candidate {
        Candidate {
            name: "me".into(),
            lease_name: "l".into(),
            binary_version: "1.2.0".into(),
            emulation_version: "1.1.0".into(),
            strategy: "foo.com/bar".into(),
            annotations: [("a".to_owned(), "b".to_owned())].into(),
            ..Candidate::default()
        }
    }

    #[test]
    fn a_candidate_survives_the_wire() {
        let text = serde_json::to_string(&new_candidate("ns", &wanted(), now())).unwrap();
        let read: LeaseCandidate = serde_json::from_str(&text).unwrap();
        let expected = Candidate {
            renew_time: Some(now()),
            ..wanted()
        };
        assert_eq!(candidate(&read), expected);
    }

    #[test]
    fn a_renewal_leaves_ping_and_lease_name_alone() {
        let patch = renewal(&wanted(), now());
        assert_eq!(patch["spec"]["renewTime"], "2026-11-20T12:00:00.123456Z");
        assert_eq!(patch["spec"].get("pingTime"), None);
        assert_eq!(patch["spec"].get("leaseName"), None);
        let silent = Candidate {
            emulation_version: String::new(),
            ..wanted()
        };
        assert_eq!(renewal(&silent, now())["spec"]["emulationVersion"], Value::Null);
    }

    #[test]
    fn an_assignment_starts_a_new_term() {
        let lease: Lease = serde_json::from_value(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"resourceVersion": "7"}, "spec": {"leaseTransitions": 3, "leaseDurationSeconds": 15}}))
        .unwrap();
        let change = LeaseChange::Assign {
            strategy: "s".into(),
            holder: "me".into(),
        };
        let expected = json!({"metadata": {"resourceVersion": "7"}, "spec": {"strategy": "s", "holderIdentity": "me",
            "preferredHolder": null, "acquireTime": null, "renewTime": "2026-11-20T12:00:00.123456Z",
            "leaseDurationSeconds": 5, "leaseTransitions": 4}});
        let patch = lease_patch(&lease, &change, &Timing::default(), now());
        assert_eq!(patch, Some(expected));
    }

    #[test]
    fn other_changes_touch_no_times() {
        for change in [
            LeaseChange::Prefer {
                strategy: "s".into(),
                holder: "me".into(),
            },
            LeaseChange::Label { strategy: "s".into() },
        ] {
            let patch = lease_patch(&Lease::default(), &change, &Timing::default(), now()).unwrap();
            assert_eq!(patch["spec"].get("renewTime"), None, "{change:?}");
            assert_eq!(patch["spec"].get("holderIdentity"), None, "{change:?}");
        }
    }
}
