//! Modules (biz) of a base, their states and how they came about.
//!
//! HTTP writes states in lower case and reasons as words, MQTT writes the names of the Java enums; both are
//! read here.

use crate::command::ModuleId;
use crate::envelope::DecodeError;
use crate::read;
use serde_json::Value;
use std::fmt;

/// State of a module (sofa-ark's `BizState`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModuleState {
    /// Known, not yet read.
    Unresolved,
    /// Read, and starting. Cannot be removed now.
    Resolved,
    /// The module serves.
    Activated,
    /// Installed, while another version of its name serves.
    Deactivated,
    /// Failed to start or to stop. Blocks its identity until it is removed.
    Broken,
    /// Removed; never seen in a list.
    Stopped,
    /// A word that is not known here.
    Other(String),
}

impl ModuleState {
    /// Reads it in any case.
    pub fn parse(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "unresolved" => Self::Unresolved,
            "resolved" => Self::Resolved,
            "activated" => Self::Activated,
            "deactivated" => Self::Deactivated,
            "broken" => Self::Broken,
            "stopped" => Self::Stopped,
            _ => Self::Other(text.to_owned()),
        }
    }

    /// In lower case, as over HTTP.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Unresolved => "unresolved",
            Self::Resolved => "resolved",
            Self::Activated => "activated",
            Self::Deactivated => "deactivated",
            Self::Broken => "broken",
            Self::Stopped => "stopped",
            Self::Other(text) => text,
        }
    }
}

impl fmt::Display for ModuleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a state was entered (sofa-ark's `StateChangeReason`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The module was read and registered (`Created`).
    Created,
    /// Its `main` has returned (`Started`).
    Started,
    /// Its `main` has thrown (`Install Failed`, `INSTALL_FAILED`).
    InstallFailed,
    /// Stopping it has thrown (`Uninstall Failed`, `UN_INSTALL_FAILED`).
    UninstallFailed,
    /// Another version of its name was made the one that serves, or this one (`Switched`).
    Switched,
    /// It is being stopped (`Killing`).
    Killing,
    /// It was stopped (`Stopped`).
    Stopped,
    /// No reason was given (`Undefine`).
    Undefined,
    /// A word that is not known here.
    Other(String),
}

impl Reason {
    /// Reads it in any case, with blanks, underscores or neither.
    pub fn parse(text: &str) -> Self {
        let mut bare = text.to_ascii_lowercase();
        bare.retain(|c| c != ' ' && c != '_');
        match bare.as_str() {
            "created" => Self::Created,
            "started" => Self::Started,
            "installfailed" => Self::InstallFailed,
            "uninstallfailed" => Self::UninstallFailed,
            "switched" => Self::Switched,
            "killing" => Self::Killing,
            "stopped" => Self::Stopped,
            "undefine" | "undefined" => Self::Undefined,
            _ => Self::Other(text.to_owned()),
        }
    }

    /// One word in the manner of Kubernetes: `InstallFailed`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Created => "Created",
            Self::Started => "Started",
            Self::InstallFailed => "InstallFailed",
            Self::UninstallFailed => "UninstallFailed",
            Self::Switched => "Switched",
            Self::Killing => "Killing",
            Self::Stopped => "Stopped",
            Self::Undefined => "Undefined",
            Self::Other(text) => text,
        }
    }
}

/// A state that a module entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRecord {
    /// The state that was entered.
    pub state: ModuleState,
    /// The reason for it.
    pub reason: Reason,
    /// More; a stack trace after a failure.
    pub message: String,
    /// When, milliseconds since the epoch **by the base's clock**.
    pub changed_ms: Option<i64>,
}

/// A module of a base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Name and version by the manifest.
    pub id: ModuleId,
    /// Its state now.
    pub state: ModuleState,
    /// How it got there, oldest first. Over MQTT the latest alone.
    pub records: Vec<StateRecord>,
    /// Class whose `main` was run.
    pub main_class: Option<String>,
    /// Path under which it serves.
    pub web_context_path: Option<String>,
    /// Where arklet has unpacked it, in the answer to an install.
    pub url: Option<String>,
}

impl Module {
    /// Reads an entry of `queryAllBiz`, `bizInfos`, `health` or `simpleBiz`.
    pub fn read(value: &Value) -> Result<Self, Unreadable> {
        let name = read::non_blank(value, "bizName").or_else(|| read::non_blank(value, "name"));
        let version = read::non_blank(value, "bizVersion").or_else(|| read::non_blank(value, "version"));
        let (name, version) = match (name, version) {
            (Some(name), Some(version)) => (name, version),
            (name, version) => {
                return Err(Unreadable {
                    name,
                    version,
                    excerpt: read::excerpt(&value.to_string(), 200),
                });
            }
        };
        let list = value.get("bizStateRecords").and_then(Value::as_array);
        let records: Vec<StateRecord> = list
            .into_iter()
            .flatten()
            .chain(value.get("latestStateRecord"))
            .filter_map(StateRecord::read)
            .collect();
        let state = read::non_blank(value, "bizState")
            .or_else(|| read::non_blank(value, "state"))
            .map(|text| ModuleState::parse(&text))
            .or_else(|| latest(&records).map(|record| record.state.clone()))
            .unwrap_or_else(|| ModuleState::Other(String::new()));
        Ok(Self {
            id: ModuleId { name, version },
            state,
            records,
            main_class: read::non_blank(value, "mainClass"),
            web_context_path: read::non_blank(value, "webContextPath"),
            url: read::non_blank(value, "bizUrl"),
        })
    }

    /// Whether it serves.
    pub fn is_active(&self) -> bool {
        self.state == ModuleState::Activated
    }

    /// The record of the greatest time; of several the last one.
    pub fn latest(&self) -> Option<&StateRecord> {
        latest(&self.records)
    }

    /// When it came to be, by the base's clock. `None` where only later records are told, as over MQTT.
    pub fn created_ms(&self) -> Option<i64> {
        let first = self.records.first()?;
        let young = matches!(first.state, ModuleState::Unresolved | ModuleState::Resolved);
        first
            .changed_ms
            .filter(|_| young || first.reason == Reason::Created)
    }
}

impl StateRecord {
    fn read(value: &Value) -> Option<Self> {
        Some(Self {
            state: ModuleState::parse(&read::non_blank(value, "state")?),
            reason: Reason::parse(&read::text(value, "reason").unwrap_or_default()),
            message: read::text(value, "message").unwrap_or_default(),
            changed_ms: read::whole(value, "changeTime"),
        })
    }
}

fn latest(records: &[StateRecord]) -> Option<&StateRecord> {
    records.iter().max_by_key(|record| record.changed_ms)
}

/// An entry of a list of modules that lacks its name or its version. Something is there: nobody may conclude
/// from the rest of the list that a module of that name is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its name, if there is one.
    pub name: Option<String>,
    /// Its version, if there is one.
    pub version: Option<String>,
    /// The start of what was read.
    pub excerpt: String,
}

/// The modules of a base, without the base's own ("master") biz.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleList {
    /// In the order of the answer.
    pub modules: Vec<Module>,
    /// Entries that are no modules.
    pub unreadable: Vec<Unreadable>,
}

impl ModuleList {
    /// Reads a list. Anything but an array is an error: silence must not look like an empty base.
    pub fn read(value: &Value) -> Result<Self, DecodeError> {
        let entries = value.as_array().ok_or(DecodeError::Shape {
            what: "the list of modules",
            wanted: "an array",
        })?;
        let mut list = Self::default();
        for entry in entries {
            match Module::read(entry) {
                Ok(module) => list.modules.push(module),
                Err(unreadable) => list.unreadable.push(unreadable),
            }
        }
        Ok(list)
    }

    /// The module of that identity.
    pub fn get(&self, id: &ModuleId) -> Option<&Module> {
        self.modules.iter().find(|module| module.id == *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn states_and_reasons_are_the_same_over_http_and_mqtt() {
        for (http, mqtt, wanted) in [
            ("Created", "CREATED", Reason::Created),
            ("Started", "STARTED", Reason::Started),
            ("Install Failed", "INSTALL_FAILED", Reason::InstallFailed),
            ("Uninstall Failed", "UN_INSTALL_FAILED", Reason::UninstallFailed),
            ("Switched", "SWITCHED", Reason::Switched),
            ("Killing", "KILLING", Reason::Killing),
            ("Stopped", "STOPPED", Reason::Stopped),
            ("Undefine", "UNDEFINE", Reason::Undefined),
        ] {
            assert_eq!(Reason::parse(http), wanted);
            assert_eq!(Reason::parse(mqtt), wanted);
        }
        for state in [
            "unresolved",
            "resolved",
            "activated",
            "deactivated",
            "broken",
            "stopped",
        ] {
            assert_eq!(ModuleState::parse(&state.to_uppercase()).as_str(), state);
            assert!(!matches!(ModuleState::parse(state), ModuleState::Other(_)));
        }
        assert_eq!(Reason::parse("Eaten"), Reason::Other("Eaten".to_owned()));
    }

    #[test]
    fn a_malformed_entry_spoils_itself_alone() {
        let list = ModuleList::read(&json!([
            {"bizName": "a", "bizVersion": "1", "bizState": "activated"},
            {"bizName": "b"},
            7,
            {"bizName": "c", "bizVersion": 2, "bizState": "Melted", "bizStateRecords": [null, 5, {"state": "BROKEN", "changeTime": 3.5}]},
            {"bizName": "d", "bizVersion": "1", "bizStateRecords": "none"},
        ]))
        .unwrap();
        let ids: Vec<String> = list.modules.iter().map(|module| module.id.to_string()).collect();
        assert_eq!(ids, ["a:1", "c:2", "d:1"]);
        assert_eq!(list.modules[1].state, ModuleState::Other("Melted".to_owned()));
        assert_eq!(list.modules[1].latest().unwrap().changed_ms, Some(3));
        assert_eq!(list.modules[2].state, ModuleState::Other(String::new()));
        let names: Vec<Option<&str>> = list.unreadable.iter().map(|u| u.name.as_deref()).collect();
        assert_eq!(names, [Some("b"), None]);
    }

    #[test]
    fn silence_is_not_an_empty_base() {
        assert!(ModuleList::read(&json!({})).is_err());
        assert!(ModuleList::read(&Value::Null).is_err());
        assert_eq!(ModuleList::read(&json!([])).unwrap(), ModuleList::default());
    }

    #[test]
    fn the_latest_record_is_the_one_of_the_greatest_time() {
        let module = Module::read(&json!({"bizName": "a", "bizVersion": "1", "bizStateRecords": [
            {"state": "resolved", "reason": "Created", "changeTime": 10},
            {"state": "activated", "reason": "Started", "changeTime": 30},
            {"state": "deactivated", "reason": "Switched", "changeTime": 20},
        ]}))
        .unwrap();
        assert_eq!(module.state, ModuleState::Activated, "taken from the records");
        assert_eq!(module.latest().unwrap().reason, Reason::Started);
        assert_eq!(module.created_ms(), Some(10));
    }

    #[test]
    fn when_a_module_came_to_be_is_not_told_by_its_latest_record() {
        let module = |record: serde_json::Value| {
            Module::read(
                &json!({"bizName": "a", "bizVersion": "1", "bizState": "ACTIVATED", "bizStateRecords": [record]}),
            )
        };
        let created = json!({"changeTime": 1, "reason": "CREATED", "state": "RESOLVED"});
        let started = json!({"changeTime": 2, "reason": "STARTED", "state": "ACTIVATED"});
        assert_eq!(module(created).unwrap().created_ms(), Some(1));
        assert_eq!(module(started).unwrap().created_ms(), None);
    }
}
