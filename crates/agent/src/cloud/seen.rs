//! ZoneHealth and ZoneChallenge as they were read.
//!
//! They are read field by field: what this version cannot decode must not keep it from the rest.

use super::error::CloudError;
use evenkeel_api::zone::{RosterSpec, SignedRoster};
use evenkeel_zone::roster::{CellRef, MemberId};
use evenkeel_zone::wire::Challenge;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

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
    pub(crate) published: SignedRoster,
    /// What the text says, signed or not.
    pub(super) roster: RosterSpec,
}

impl Seen {
    /// Nothing between the making of the object and its first roster.
    pub(super) fn read(object: &Value) -> Result<Option<Self>, CloudError> {
        let version = Version::of(object);
        let odd = |source| CloudError::Odd {
            name: format!("ZoneHealth {}", version.name),
            source,
        };
        let signed = object
            .pointer("/spec/signedRoster")
            .filter(|value| !value.is_null());
        let former = object.pointer("/spec/roster").filter(|value| !value.is_null());
        let published: SignedRoster = match (signed, former) {
            (Some(signed), _) => serde_json::from_value(signed.clone()).map_err(odd)?,
            (None, Some(former)) => SignedRoster {
                text: former.to_string(),
                ..SignedRoster::default()
            },
            (None, None) => return Ok(None),
        };
        let roster = RosterSpec::from_text(&published.text).map_err(odd)?;
        let zone = object.pointer("/spec/zone").and_then(Value::as_str);
        let cell = object.pointer("/spec/cell").and_then(Value::as_u64);
        Ok(Some(Self {
            version,
            zone: zone.unwrap_or_default().to_owned(),
            cell: cell.and_then(|cell| u32::try_from(cell).ok()).unwrap_or_default(),
            published,
            roster,
        }))
    }

    /// The cell whose object it is.
    pub(crate) fn cell_ref(&self) -> CellRef<'_> {
        CellRef {
            name: &self.version.name,
            uid: &self.version.uid,
        }
    }

    /// Whether the roster lists the node of this UID.
    pub(super) fn has_member(&self, node_uid: &str) -> bool {
        self.roster.members.iter().any(|member| member.uid == node_uid)
    }

    /// Whether this is an earlier state of the same object. A later roster never is: versions of the API
    /// server go back where it is restored from a backup, those of rosters do not.
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        let (own, others) = (self.roster.version, other.roster.version);
        let before = self.version.is_before(&other.version);
        before.map_or(own < others, |before| before && own <= others)
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

    /// The members about which the controller needs rounds.
    pub(crate) fn wanted_members(&self) -> BTreeSet<MemberId> {
        self.wanted.iter().map(|uid| MemberId::of(uid)).collect()
    }

    /// Whether this is an earlier state of the same object.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        self.version.is_before(&other.version).unwrap_or(false)
    }
}

/// The caches of API servers are not this far behind. Who tells nothing later for so long was restored from a
/// backup, so that versions have gone back.
const RESTORED: Duration = Duration::from_secs(60);

/// The latest challenge of a cell, of those that watches tell.
#[derive(Default)]
pub(crate) struct LastAsked {
    known: Option<Asked>,
    /// Since when all that is told is older.
    behind: Option<Instant>,
}

impl LastAsked {
    pub(crate) fn get(&self) -> Option<&Asked> {
        self.known.as_ref()
    }

    /// Takes what was told. Returns whether it is the latest.
    pub(crate) fn take(&mut self, asked: Asked, now: Instant) -> bool {
        let is_older = |known: &Asked| asked.is_older_than(known);
        if self.known.as_ref().is_some_and(is_older)
            && now.saturating_duration_since(*self.behind.get_or_insert(now)) < RESTORED
        {
            return false;
        }
        *self = Self {
            known: Some(asked),
            behind: None,
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(resource_version: &str, roster: i64) -> Seen {
        Seen::read(&json!({
            "metadata": { "name": "shore", "uid": "u", "resourceVersion": resource_version },
            "spec": { "zone": "shore", "signedRoster": { "text": text(roster) } },
        }))
        .unwrap()
        .unwrap()
    }

    fn text(version: i64) -> String {
        json!({ "version": version, "members": [] }).to_string()
    }

    #[test]
    fn a_roster_of_a_former_version_is_read_and_one_that_is_not_there_yet_is_waited_for() {
        let table = [
            (json!({ "signedRoster": { "text": text(2) } }), Some(2)),
            (
                json!({ "signedRoster": { "text": text(2) }, "roster": { "version": 1, "members": [] } }),
                Some(2),
            ),
            (json!({ "roster": { "version": 1, "members": [] } }), Some(1)),
            (json!({ "zone": "shore" }), None),
        ];
        for (spec, version) in table {
            let seen = Seen::read(&json!({ "metadata": { "name": "shore" }, "spec": spec })).unwrap();
            assert_eq!(seen.map(|seen| seen.roster.version), version, "{spec}");
        }
    }

    #[test]
    fn a_roster_set_back_by_hand_is_news_and_a_late_answer_is_not() {
        let table = [
            ("an earlier answer", seen("9", 1), true),
            ("the same", seen("10", 1), false),
            ("set back by hand", seen("11", 0), false),
            ("published since the API server was restored", seen("9", 2), false),
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
        for spec in [
            json!({ "roster": "a string" }),
            json!({ "signedRoster": { "text": "{" } }),
        ] {
            let odd = json!({ "metadata": { "name": "shore" }, "spec": spec });
            let error = Seen::read(&odd).unwrap_err();
            assert!(error.to_string().contains("ZoneHealth shore"), "{error}");
        }
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
    /// Versions of the API server go back where it is restored from a backup.
    #[test]
    fn an_old_challenge_counts_where_nothing_later_is_told_for_a_minute() {
        let asked = |version: u32| {
            let version = version.to_string();
            Asked::read(&json!({ "metadata": { "uid": "u", "resourceVersion": version } }))
        };
        let (began, mut last) = (Instant::now(), LastAsked::default());
        let mut take = |second, version| last.take(asked(version), began + Duration::from_secs(second));
        assert!(take(0, 10));
        assert!(!take(10, 7), "a cache that is behind");
        assert!(take(20, 11), "and is not any more");
        assert!(!take(30, 8) && !take(89, 9));
        assert!(take(90, 9));
        assert!(take(91, 10) && !take(92, 9), "from here on as usual");
    }
}
