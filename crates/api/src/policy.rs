//! The settings of a FailoverPolicy: plain values for the crates that decide, and with feature `crd` the
//! custom resource.

#[cfg(feature = "crd")]
use crate::crd::FailoverPolicyStatus;
#[cfg(feature = "crd")]
use kube::CustomResource;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Settings for the nodes and workloads it selects. Where several match, the most cautious value wins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(CustomResource))]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[cfg_attr(all(feature = "crd", not(feature = "schema")), kube(schema = "disabled"))]
#[cfg_attr(
    feature = "crd",
    kube(
        group = "evenkeel.io",
        version = "v1alpha1",
        kind = "FailoverPolicy",
        doc = "Settings for the nodes it selects; where several match, the most cautious value wins",
        plural = "failoverpolicies",
        shortname = "fop",
        status = "FailoverPolicyStatus",
        derive = "Default",
        derive = "PartialEq",
        printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
        printcolumn = r#"{"name":"Autonomy","type":"integer","jsonPath":".spec.autonomySeconds"}"#,
        printcolumn = r#"{"name":"Endpoints","type":"string","jsonPath":".spec.endpoints"}"#,
        printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct FailoverPolicySpec {
    /// Nodes that carry all of these labels; empty selects every node.
    #[serde(default)]
    pub node_labels: BTreeMap<String, String>,
    /// Whether Evenkeel acts on these nodes, or only decides, records and explains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ModePolicy>,
    /// Seconds for which evictions are held while the whole zone is silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub autonomy_seconds: Option<i64>,
    /// Seconds between the confirmed death of a node and the eviction of its pods, in place of the 300 s that
    /// admission adds by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub evict_after_seconds: Option<i64>,
    /// What becomes of the endpoints of a Disconnected node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<EndpointsPolicy>,
    /// What becomes of a node that its peers cannot reach and the API server can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolated: Option<IsolatedPolicy>,
    /// Whether fencing is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fencing: Option<FencingPolicy>,
    /// Whether stateful pods move. `true` is refused: it needs a fence proof, and nothing produces one yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("enum" = [false])))]
    pub stateful_failover: Option<bool>,
}

/// Defaults where no policy speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// As close to stock Kubernetes as failover can be.
    #[default]
    Builtin,
    /// For zones that live through long cuts of their cloud link.
    Edge,
}

impl Profile {
    /// Its name, as flags have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Edge => "edge",
        }
    }
}

/// Whether Evenkeel acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum ModePolicy {
    /// It decides and acts.
    #[default]
    Act,
    /// It decides, records and explains, and changes nothing.
    Observe,
}

impl ModePolicy {
    /// Its name, as flags have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Act => "act",
            Self::Observe => "observe",
        }
    }
}

/// Endpoints of a Disconnected node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum EndpointsPolicy {
    /// They stay ready for everybody.
    #[default]
    Keep,
    /// They would stay ready for consumers in the zone alone. Nothing restricts them yet, so the schema
    /// refuses this value, and a stored one is read as [`EndpointsPolicy::Stock`].
    #[cfg_attr(feature = "schema", schemars(skip))]
    KeepLocal,
    /// As stock Kubernetes does.
    Stock,
}

/// An Isolated node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum IsolatedPolicy {
    /// Say so, do nothing.
    #[default]
    Report,
    /// No new pods, endpoints out; never an eviction.
    Withdraw,
}

/// What fencing does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FencingPolicy {
    /// Nothing.
    Off,
    /// Record what it would do.
    #[default]
    Observe,
    /// It would act. No fencing method exists yet, so the schema refuses this value, and a stored one is read
    /// as [`FencingPolicy::Observe`].
    #[cfg_attr(feature = "schema", schemars(skip))]
    Enforce,
}
