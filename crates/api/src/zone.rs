//! The data of [`ZoneHealth`](crate::crd::ZoneHealth) and [`ZoneReport`](crate::crd::ZoneReport): plain
//! values that the pure cores read and write.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// A value that only a later version knows reads as the one from which nothing follows (hazard 48): the rest
/// of its object counts.
pub(crate) fn known_or_default<'de, T, D>(input: D) -> Result<T, D::Error>
where
    T: DeserializeOwned + Default,
    D: Deserializer<'de>,
{
    let value = serde_json::Value::deserialize(input)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// A roster as it is published, stored, and passed on between agents: one string, so that everybody hashes
/// and checks the same bytes, whichever fields a version knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SignedRoster {
    /// Version of the roster, for people: readers take it from the text.
    #[serde(default)]
    pub version: i64,
    /// How many members it has, for people.
    #[serde(default)]
    pub members: i32,
    /// The roster as JSON: version, cell, members, and who has to agree until it is settled.
    pub text: String,
    /// Ed25519 signature of the text by the controllers' roster key, base64. Empty where the controllers have
    /// none: then a roster counts because the API server shows it, and agents do not pass it on.
    #[serde(default)]
    pub signature: String,
}

/// A roster: one writer (the leading controller), a version that only grows. It is published as the text of
/// a [`SignedRoster`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RosterSpec {
    /// Grows with every change; never reused. From 1 to 2^53 - 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = RosterSpec::LAST_VERSION)))]
    pub version: i64,
    /// Name of the cell's ZoneHealth.
    #[serde(default)]
    pub cell: String,
    /// UID of that object: a roster of an object that was made anew does not count in the new one, and
    /// versions of the two are not compared.
    #[serde(default)]
    pub cell_uid: String,
    /// Sorted by node UID.
    pub members: Vec<RosterMember>,
    /// UIDs of the nodes that voted in the last settled roster and are still members. While this names
    /// anybody, the present roster is not settled, and a verdict needs the majority of these as well. The
    /// version that settles it names nobody.
    #[serde(default)]
    pub settled_voters: Vec<String>,
    /// Agents of other cells of the zone, to which a cell whose members have all lost their link to the API
    /// server hands its reports. At most [`RosterSpec::CONTACTS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contacts: Vec<RosterContact>,
}

impl RosterSpec {
    /// The largest version: up to here every reader of JSON is exact. Only a hand can come so far.
    pub const LAST_VERSION: i64 = (1 << 53) - 1;

    /// So many contacts a roster names: with links cut at random, that none of them leads to one is rare.
    pub const CONTACTS: usize = 4;

    /// Reads what a [`SignedRoster`] says. Fields that this version does not know are passed over.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The roster as it is published.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers and lists are JSON")
    }

    /// Whether the version is one.
    pub fn has_version(&self) -> bool {
        (1..=Self::LAST_VERSION).contains(&self.version)
    }
}

/// An agent of another cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RosterContact {
    /// UID of its node.
    pub uid: String,
    /// Where it is reached, `IP:PORT`, UDP.
    pub address: String,
    /// Its Ed25519 public key, base64 of 32 bytes.
    pub public_key: String,
}

impl From<&RosterMember> for RosterContact {
    fn from(member: &RosterMember) -> Self {
        Self {
            uid: member.uid.clone(),
            address: member.address.clone(),
            public_key: member.public_key.clone(),
        }
    }
}

/// A report before it is written: by whom, and when by a wall clock, is said by who writes it. An agent that
/// cannot write hands it to one that can.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportDraft {
    /// Everything but the wall-clock times.
    pub report: Report,
    /// By node UID: for how many milliseconds the verdict has been held.
    pub held_for_ms: BTreeMap<String, u64>,
}

impl ReportDraft {
    /// Reads what [`ReportDraft::to_text`] wrote.
    pub fn from_text(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text)
    }

    /// Adds the time that it was on its way to all ages in it. What others have put there is cut, so that
    /// sums stay in range.
    pub fn grow_older(&mut self, ms: u64) {
        const LONGEST: u64 = 1 << 40;
        let older = |age: u64| age.min(LONGEST) + ms.min(LONGEST);
        for held in self.held_for_ms.values_mut() {
            *held = older(*held);
        }
        for round in &mut self.report.rounds {
            let age = older(u64::try_from(round.age_ms).unwrap_or_default());
            round.age_ms = i64::try_from(age).unwrap_or(i64::MAX);
        }
    }

    /// The draft as JSON.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers, lists and maps of strings are JSON")
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
    /// The key that takes its place soon: what is proven with either of them counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_public_key: Option<String>,
    /// Where the node's kubelet answers, and the certificate it proves itself with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<KubeletEndpoint>,
    /// It has no vote and counts in no majority, because it has not met the others yet. The others watch it
    /// and vote on it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub learner: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Which roster an agent has in force, and whom of it the agent has met. An agent says so while its cell's
/// roster is not settled, while it is a learner, and while ZoneHealth shows an earlier roster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RosterAcknowledgement {
    /// Name of the cell's ZoneHealth.
    #[cfg_attr(feature = "schema", schemars(length(max = 253)))]
    pub cell: String,
    /// UID of the cell's ZoneHealth: one that was made anew begins with version 1 again.
    #[cfg_attr(feature = "schema", schemars(length(max = 128)))]
    pub cell_uid: String,
    /// Public key under which the agent has met the others.
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub public_key: String,
    /// Version of the roster.
    pub version: i64,
    /// How many of the other members have proven their life to this agent.
    pub met: i32,
    /// How many of these have a vote.
    pub met_voters: i32,
}

/// A kubelet as its peers can check it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KubeletEndpoint {
    /// `IP:PORT`, TLS.
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub address: String,
    /// SHA-256 of the DER of its serving certificate, lower-case hex: the pin that makes an answer identity.
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub certificate_sha256: String,
}

/// A challenge: a ballot that signs it is younger than it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IssuedChallenge {
    /// 16 random bytes, base64.
    pub value: String,
    /// When it was drawn, before it was written, by the clock of who drew it: RFC 3339 with milliseconds.
    pub created_at: String,
    /// Name of the process that drew it, another one for each start of a controller. Times that two of them
    /// wrote are not compared, because they are of two clocks.
    #[serde(default)]
    pub created_by: String,
}

/// What one reporter of a cell found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Version of the reporter's roster.
    #[serde(default)]
    pub roster_version: i64,
    /// Grows with every report of one life of the reporter's agent.
    #[serde(default)]
    pub sequence: i64,
    /// When this was written, by the reporter's clock, RFC 3339; for people only, never compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub written_at: Option<String>,
    /// Number of members in the reporter's roster.
    #[serde(default)]
    pub members: i32,
    /// For people: `shore-2 alive (cloud link down), shore-3 dead`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 32768)))]
    pub summary: String,
    /// The members that are not plainly healthy, by name, for people.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 128)))]
    pub nodes: Vec<ListedNode>,
    /// The evidence: for each listed member the newest round that decided something.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 128)))]
    pub rounds: Vec<SignedRound>,
}

/// A round of votes with the ballots that it brought: all evidence there is. Readers check the signatures
/// themselves and count; nothing else in a report decides anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SignedRound {
    /// Milliseconds between the start of the round and this write. Nobody signs it; a reader only uses it to
    /// take a round for older than its own receipt.
    pub age_ms: i64,
    /// The request that the voters answered, base64: the round's random name, the roster, the suspects.
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub request: String,
    /// The signed ballots, base64, at most one of each voter; each covers all suspects of the request.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 128), inner(length(max = 2048))))]
    pub ballots: Vec<String>,
}

/// A node that its cell lists, for people: readers count the ballots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ListedNode {
    /// Node name.
    #[cfg_attr(feature = "schema", schemars(length(max = 253)))]
    pub name: String,
    /// Node UID.
    #[cfg_attr(feature = "schema", schemars(length(max = 128)))]
    pub uid: String,
    /// What the majority says.
    #[serde(deserialize_with = "known_or_default")]
    pub verdict: VerdictKind,
    /// One line: why.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub reason: String,
    /// When the reporter first held this verdict, by its own clock, RFC 3339; never compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub since: Option<String>,
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
