//! The data of [`ZoneHealth`](crate::crd::ZoneHealth): plain values that the pure cores read and write.

use serde::{Deserialize, Serialize};

/// A roster: one writer (the leading controller), a version that only grows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RosterSpec {
    /// Grows by one with every change of the members; never reused. From 1 to 2^53 - 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = RosterSpec::LAST_VERSION)))]
    pub version: i64,
    /// Sorted by node UID.
    pub members: Vec<RosterMember>,
}

impl RosterSpec {
    /// The largest version: up to here every reader of JSON is exact. Only a hand can come so far.
    pub const LAST_VERSION: i64 = (1 << 53) - 1;

    /// Whether the version is one.
    pub fn has_version(&self) -> bool {
        (1..=Self::LAST_VERSION).contains(&self.version)
    }
}

/// One member of a roster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RosterMember {
    /// Node name.
    pub name: String,
    /// Node UID: a machine that is registered again is another member.
    pub uid: String,
    /// Where peers reach the agent, `IP:PORT`, UDP.
    pub address: String,
    /// Ed25519 public key of the agent, base64 of 32 bytes.
    pub public_key: String,
    /// Where the node's kubelet answers, and the certificate it proves itself with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<KubeletEndpoint>,
}

/// A kubelet as its peers can check it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KubeletEndpoint {
    /// `IP:PORT`, TLS.
    pub address: String,
    /// SHA-256 of the DER of its serving certificate, lower-case hex: the pin that makes an answer identity.
    pub certificate_sha256: String,
}

/// What the reporters of a zone found. Written on change, and every few seconds while a node is kept alive by
/// fresh attestations; the heartbeat is the zone's Lease.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ZoneHealthStatus {
    /// Node name of the reporter that wrote this.
    #[serde(default)]
    pub reporter: String,
    /// Roster version the verdicts were made under.
    #[serde(default)]
    pub roster_version: i64,
    /// First 8 bytes of the roster's SHA-256, hex: two rosters of one version never pass for each other.
    #[serde(default)]
    pub epoch: String,
    /// Grows with every write of a zone; readers ignore what does not grow.
    #[serde(default)]
    pub sequence: i64,
    /// Number of roster members.
    #[serde(default)]
    pub members: i32,
    /// For people: `shore-2 alive (cloud link down), shore-3 dead`.
    #[serde(default)]
    pub summary: String,
    /// The nodes that are not plainly healthy, by name.
    #[serde(default)]
    pub nodes: Vec<NodeVerdict>,
}

/// The verdict on one node with its evidence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeVerdict {
    /// Node name.
    pub name: String,
    /// Node UID.
    pub uid: String,
    /// What the majority says.
    pub verdict: VerdictKind,
    /// One line for people: why.
    #[serde(default)]
    pub reason: String,
    /// When the reporter first held this verdict, by its own clock, RFC 3339; for people only, never
    /// compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Milliseconds between the start of the confirm round and this write (dead only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_age_ms: Option<i64>,
    /// Signed statements: ballots (dead) or attestations (alive), base64.
    #[serde(default)]
    pub evidence: Vec<String>,
}

/// What a verdict can say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum VerdictKind {
    /// No majority either way, or the evidence ran out: neither healthy nor dead.
    #[default]
    None,
    /// A majority has fresh contact; something else is wrong (cloud link, kubelet, runtime).
    Alive,
    /// A majority voted no in a confirm round.
    Dead,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_an_earlier_version_with_its_storm_bit_is_read() {
        let text = r#"{"reporter":"shore-1","sequence":7,"storm":true,"nodes":[]}"#;
        let status: ZoneHealthStatus = serde_json::from_str(text).unwrap();
        assert_eq!((status.reporter.as_str(), status.sequence), ("shore-1", 7));
        let written = serde_json::to_value(&status).unwrap();
        assert_eq!(written.get("storm"), None);
    }
}
