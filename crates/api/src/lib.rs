//! Names and object types that the whole of Evenkeel shares; nothing is decided here.
//!
//! Every label, annotation, taint, condition, reason, event and metric name that more than one place must
//! agree on stands in [`names`], once. The custom resources of group `evenkeel.io/v1alpha1` stand in [`crd`]
//! (feature `crd`): who writes each, who reads it, and what each field promises. Their plain data that the
//! pure cores use stands in [`zone`] and [`policy`], free of any Kubernetes client, and what watches deliver
//! in [`watch`] (feature `watch`). [`compare`] finds out whether an object is as it was sent.

pub mod compare;
#[cfg(feature = "crd")]
pub mod crd;
pub mod names;
pub mod policy;
#[cfg(feature = "watch")]
pub mod watch;
pub mod zone;

#[cfg(feature = "crd")]
pub use crd::{
    AgentStatus, AgentStatusSpec, FailoverPolicy, FailoverPolicySpec, NodeIncident, NodeIncidentSpec,
    ZoneChallenge, ZoneChallengeSpec, ZoneHealth, ZoneHealthSpec, ZoneReport, ZoneReportSpec,
};
pub use zone::{
    IssuedChallenge, KubeletEndpoint, ListedNode, Report, RosterMember, RosterSpec, SignedRound, VerdictKind,
};
