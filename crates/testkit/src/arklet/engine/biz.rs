//! A module ("biz") in a base: its states, the records of how it came to them, and the beans that tell of it.

use crate::arklet::bean::bean;
use crate::arklet::jar::Jar;
use crate::arklet::world::stamp;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// States of sofa-ark. `unresolved` and `stopped` exist there too, but are never seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BizState {
    /// Registered; its `main` runs.
    Resolved,
    /// Serving.
    Activated,
    /// Started, while another version of the same name serves; or switched away from.
    Deactivated,
    /// Its start or its stop failed.
    Broken,
}

impl BizState {
    const fn text(self) -> &'static str {
        match self {
            Self::Resolved => "resolved",
            Self::Activated => "activated",
            Self::Deactivated => "deactivated",
            Self::Broken => "broken",
        }
    }
}

impl fmt::Display for BizState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Why a state was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Created,
    Started,
    InstallFailed,
    UninstallFailed,
    Switched,
    Killing,
}

impl Reason {
    const fn text(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Started => "Started",
            Self::InstallFailed => "Install Failed",
            Self::UninstallFailed => "Uninstall Failed",
            Self::Switched => "Switched",
            Self::Killing => "Killing",
        }
    }
}

/// Replaces the texts of states and reasons by the names of their constants. fastjson writes the texts over
/// HTTP and the names over MQTT.
pub(crate) fn name_constants(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(name_constants),
        Value::Object(fields) => {
            let is_record = fields.contains_key("changeTime");
            for (key, value) in fields {
                let is_constant = match key.as_str() {
                    "bizState" => true,
                    "state" | "reason" => is_record,
                    _ => false,
                };
                match value {
                    Value::String(text) if is_constant => *text = constant(text),
                    other => name_constants(other),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The name of a constant with this text.
fn constant(text: &str) -> String {
    match text {
        "Uninstall Failed" => "UN_INSTALL_FAILED".to_owned(),
        other => other.to_uppercase().replace(' ', "_"),
    }
}

/// One change of state.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) time: i64,
    pub(crate) state: BizState,
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

impl Record {
    pub(crate) fn json(&self) -> Value {
        bean([
            ("changeTime", json!(self.time)),
            ("message", json!(self.message)),
            ("reason", json!(self.reason.text())),
            ("state", json!(self.state.text())),
        ])
    }
}

/// A registered module.
#[derive(Clone, Debug)]
pub(crate) struct Biz {
    /// What its manifest says.
    pub(crate) jar: Arc<Jar>,
    /// Where it came from.
    pub(crate) url: String,
    pub(crate) by_hand: bool,
    pub(crate) state: BizState,
    pub(crate) records: Vec<Record>,
    /// Where its jar was unpacked.
    work_dir: String,
    /// Counts registrations, so that an installation knows its own module from a later one of the same
    /// identity.
    pub(crate) number: u64,
}

impl Biz {
    /// A module just created from a jar that was saved at `saved` for a request with this name and version.
    pub(crate) fn created(
        jar: Arc<Jar>,
        url: &str,
        asked: (Option<&str>, Option<&str>),
        saved: i64,
        created: i64,
        number: u64,
    ) -> Self {
        let (name, version) = (asked.0.unwrap_or("null"), asked.1.unwrap_or("null"));
        let mut biz = Self {
            jar,
            url: url.to_owned(),
            by_hand: false,
            state: BizState::Resolved,
            records: Vec::new(),
            work_dir: format!("/tmp/sofa-ark/{name}-{version}-{}-unpack", stamp(saved)),
            number,
        };
        biz.enter(BizState::Resolved, Reason::Created, "", created);
        biz
    }

    pub(crate) fn enter(&mut self, state: BizState, reason: Reason, message: &str, time: i64) {
        self.state = state;
        self.records.push(Record {
            time,
            state,
            reason,
            message: message.to_owned(),
        });
    }

    fn records(&self) -> Value {
        Value::Array(self.records.iter().map(Record::json).collect())
    }

    /// As in the answer to an installation.
    pub(crate) fn info(&self) -> Value {
        let directory = format!("file:{}/", self.work_dir);
        let class_path = json!([directory, format!("{directory}lib")]);
        let none = || Value::Array(Vec::new());
        bean([
            ("attributes", json!({})),
            ("bizName", json!(self.jar.name)),
            ("bizState", json!(self.state.text())),
            ("bizStateRecords", self.records()),
            ("bizTempWorkDir", json!(self.work_dir)),
            ("bizUrl", json!(directory)),
            ("bizVersion", json!(self.jar.version)),
            ("classPath", class_path),
            ("declaredMode", json!(false)),
            ("denyImportClasses", none()),
            ("denyImportPackageNodes", none()),
            ("denyImportPackageStems", none()),
            ("denyImportPackages", none()),
            ("denyImportResources", none()),
            ("denyPrefixImportResourceStems", none()),
            ("denySuffixImportResourceStems", none()),
            ("identity", json!(self.jar.identity())),
            ("injectExportPackages", none()),
            ("injectPluginDependencies", none()),
            ("mainClass", json!(self.jar.main_class)),
            ("priority", json!(self.jar.priority)),
            ("webContextPath", json!(self.jar.web_context_path)),
        ])
    }

    /// As in the answer to `queryAllBiz`.
    pub(crate) fn entry(&self) -> Value {
        bean([
            ("bizName", json!(self.jar.name)),
            ("bizState", json!(self.state.text())),
            ("bizStateRecords", self.records()),
            ("bizVersion", json!(self.jar.version)),
            ("mainClass", json!(self.jar.main_class)),
            ("webContextPath", json!(self.jar.web_context_path)),
        ])
    }

    /// As `queryAllBiz` is answered over MQTT: the state is a text there, in lower case, and only the last
    /// record is told.
    pub(crate) fn simple(&self) -> Value {
        bean([
            (
                "latestStateRecord",
                self.records.last().map_or(Value::Null, Record::json),
            ),
            ("name", json!(self.jar.name)),
            ("state", json!(self.state.to_string())),
            ("version", json!(self.jar.version)),
        ])
    }

    /// As in `health`.
    pub(crate) fn health(&self) -> Value {
        health(
            &self.jar.name,
            &self.jar.version,
            self.state,
            &self.jar.web_context_path,
        )
    }
}

/// A module's line in `health`.
pub(crate) fn health(name: &str, version: &str, state: BizState, path: &str) -> Value {
    bean([
        ("bizName", json!(name)),
        ("bizState", json!(state.text())),
        ("bizVersion", json!(version)),
        ("webContextPath", json!(path)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_reasons_go_by_name_over_mqtt() {
        let mut value = json!({"bizState": "activated", "state": "activated", "bizStateRecords": [
            {"changeTime": 1, "reason": "Uninstall Failed", "state": "broken", "message": "Created"},
            {"changeTime": 2, "reason": "Install Failed", "state": "resolved"},
        ]});
        name_constants(&mut value);
        let named = json!({"bizState": "ACTIVATED", "state": "activated", "bizStateRecords": [
            {"changeTime": 1, "reason": "UN_INSTALL_FAILED", "state": "BROKEN", "message": "Created"},
            {"changeTime": 2, "reason": "INSTALL_FAILED", "state": "RESOLVED"},
        ]});
        assert_eq!(value, named);
    }
}
