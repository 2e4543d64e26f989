//! ZoneHealth and ZoneChallenge as they were read.
//!
//! They are read field by field: what this version cannot decode must not keep it from the rest.

use super::error::CloudError;
use evenkeel_api::zone::RosterSpec;
use evenkeel_zone::wire::Challenge;
use serde_json::Value;
use std::collections::BTreeSet;

/// Which state of which object was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Its resourceVersion.
    state: String,
}

impl Version {
    fn of(object: &Value) -> Self {
        let text = |path| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        Self {
            name: text("/metadata/name").to_owned(),
            uid: text("/metadata/uid").to_owned(),
            state: text("/metadata/resourceVersion").to_owned(),
        }
    }

    /// Whether this is an earlier state of the same object: by resourceVersion, which grows with every write.
    /// Nothing where these are no numbers.
    fn is_before(&self, other: &Self) -> Option<bool> {
        if self.uid != other.uid {
            return Some(false);
        }
        let number = |version: &Self| version.state.parse::<u64>().ok();
        Some(number(self)? < number(other)?)
    }
}

/// ZoneHealth as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) version: Version,
    pub(crate) zone: String,
    /// Number of the cell in its zone.
    pub(crate) cell: u32,
    pub(crate) roster: RosterSpec,
}

impl Seen {
    pub(super) fn read(object: &Value) -> Result<Self, CloudError> {
        let version = Version::of(object);
        let roster = object.pointer("/spec/roster").cloned().unwrap_or_default();
        let roster = serde_json::from_value(roster).map_err(|source| CloudError::Odd {
            name: format!("ZoneHealth {}", version.name),
            source,
        })?;
        let zone = object.pointer("/spec/zone").and_then(Value::as_str);
        let cell = object.pointer("/spec/cell").and_then(Value::as_u64);
        Ok(Self {
            version,
            zone: zone.unwrap_or_default().to_owned(),
            cell: cell.and_then(|cell| u32::try_from(cell).ok()).unwrap_or_default(),
            roster,
        })
    }

    /// Whether the roster lists the node of this UID.
    pub(super) fn has_member(&self, node_uid: &str) -> bool {
        self.roster.members.iter().any(|member| member.uid == node_uid)
    }

    /// Whether this is an earlier state of the same object.
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        let before = self.version.is_before(&other.version);
        before.unwrap_or(self.roster.version < other.roster.version)
    }
}

/// ZoneChallenge as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) version: Version,
    /// What ballots have to sign.
    pub(crate) challenge: Challenge,
    /// Node UIDs of the members about which the controller needs rounds.
    pub(crate) wanted: BTreeSet<String>,
}

impl Asked {
    pub(super) fn read(object: &Value) -> Self {
        let version = Version::of(object);
        let value = object.pointer("/spec/current/value").and_then(Value::as_str);
        let challenge = value.and_then(Challenge::from_base64).unwrap_or_else(|| {
            tracing::warn!(
                name = version.name,
                value,
                "the challenge in ZoneChallenge is not 16 bytes in base64"
            );
            Challenge::NONE
        });
        let wanted = object.pointer("/spec/wanted").and_then(Value::as_array);
        Self {
            version,
            challenge,
            // What is no UID names nobody, and is no reason to pass over the rest of the object.
            wanted: wanted
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
        }
    }

    /// Whether this is an earlier state of the same object.
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        self.version.is_before(&other.version).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(resource_version: &str, roster: i64) -> Seen {
        Seen::read(&json!({
            "metadata": { "name": "shore", "uid": "u", "resourceVersion": resource_version },
            "spec": { "zone": "shore", "roster": { "version": roster, "members": [] } },
        }))
        .unwrap()
    }

    #[test]
    fn a_roster_set_back_by_hand_is_news_and_a_late_answer_is_not() {
        let table = [
            ("an earlier answer", seen("9", 1), true),
            ("the same", seen("10", 1), false),
            ("set back by hand", seen("11", 0), false),
            ("earlier roster, versions are words", seen("a", 0), true),
            ("later, versions are words", seen("a", 1), false),
        ];
        for (what, candidate, older) in table {
            assert_eq!(candidate.is_older_than(&seen("10", 1)), older, "{what}");
        }
        let mut anew = seen("9", 0);
        anew.version.uid = "v".into();
        assert!(!anew.is_older_than(&seen("10", 1)), "another object");
    }

    #[test]
    fn a_roster_that_cannot_be_decoded_is_named() {
        let odd = json!({ "metadata": { "name": "shore" }, "spec": { "roster": "a string" } });
        let error = Seen::read(&odd).unwrap_err();
        assert!(error.to_string().contains("ZoneHealth shore"), "{error}");
    }

    #[test]
    fn of_a_challenge_what_can_be_read_is_read() {
        let challenge = Challenge([7; 16]);
        let value = challenge.to_base64();
        let uids = |wanted: &[&str]| {
            wanted
                .iter()
                .map(|uid| (*uid).to_owned())
                .collect::<BTreeSet<_>>()
        };
        let table = [
            (json!({ "current": { "value": value } }), challenge, uids(&[])),
            (
                json!({ "current": { "value": value, "later": 1 }, "wanted": ["a", 7, "b"] }),
                challenge,
                uids(&["a", "b"]),
            ),
            (
                json!({ "current": { "value": "short" }, "wanted": ["a"] }),
                Challenge::NONE,
                uids(&["a"]),
            ),
            (json!({ "current": 3, "wanted": "a" }), Challenge::NONE, uids(&[])),
            (json!(null), Challenge::NONE, uids(&[])),
        ];
        for (spec, challenge, wanted) in table {
            let asked = Asked::read(&json!({ "spec": spec }));
            assert_eq!((asked.challenge, &asked.wanted), (challenge, &wanted), "{spec}");
        }
    }

    #[test]
    fn an_old_challenge_does_not_replace_a_newer_one() {
        let asked = |uid: &str, version: &str| {
            Asked::read(&json!({ "metadata": { "uid": uid, "resourceVersion": version } }))
        };
        let table = [
            ("u", "9", true),
            ("u", "10", false),
            ("u", "11", false),
            ("v", "9", false),
        ];
        for (uid, version, older) in table {
            assert_eq!(
                asked(uid, version).is_older_than(&asked("u", "10")),
                older,
                "{uid} {version}"
            );
        }
    }
}
