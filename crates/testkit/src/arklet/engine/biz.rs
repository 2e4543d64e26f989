//! A module ("biz") in a base: its states, the records of how it came to them, and the beans that tell of it.

use crate::arklet::jar::Jar;
use crate::arklet::json::Json;
use crate::arklet::world::stamp;
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
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Resolved => ("resolved", "RESOLVED"),
            Self::Activated => ("activated", "ACTIVATED"),
            Self::Deactivated => ("deactivated", "DEACTIVATED"),
            Self::Broken => ("broken", "BROKEN"),
        }
    }

    pub(crate) fn json(self) -> Json {
        let (text, name) = self.names();
        Json::Enum { text, name }
    }
}

impl fmt::Display for BizState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.names().0)
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
    fn json(self) -> Json {
        let (text, name) = match self {
            Self::Created => ("Created", "CREATED"),
            Self::Started => ("Started", "STARTED"),
            Self::InstallFailed => ("Install Failed", "INSTALL_FAILED"),
            Self::UninstallFailed => ("Uninstall Failed", "UN_INSTALL_FAILED"),
            Self::Switched => ("Switched", "SWITCHED"),
            Self::Killing => ("Killing", "KILLING"),
        };
        Json::Enum { text, name }
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
    pub(crate) fn json(&self) -> Json {
        Json::bean([
            ("changeTime", Json::Int(self.time)),
            ("message", Json::text(&self.message)),
            ("reason", self.reason.json()),
            ("state", self.state.json()),
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
    /// Counts registrations, so that an installation knows its own module from a later one of the same identity.
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

    fn records(&self) -> Json {
        Json::List(self.records.iter().map(Record::json).collect())
    }

    /// As in the answer to an installation.
    pub(crate) fn info(&self) -> Json {
        let directory = format!("file:{}/", self.work_dir);
        let class_path = Json::texts([directory.as_str(), &format!("{directory}lib")]);
        let none = || Json::List(Vec::new());
        Json::bean([
            ("attributes", Json::Object(Vec::new())),
            ("bizName", Json::text(&self.jar.name)),
            ("bizState", self.state.json()),
            ("bizStateRecords", self.records()),
            ("bizTempWorkDir", Json::text(&self.work_dir)),
            ("bizUrl", Json::text(&directory)),
            ("bizVersion", Json::text(&self.jar.version)),
            ("classPath", class_path),
            ("declaredMode", Json::Bool(false)),
            ("denyImportClasses", none()),
            ("denyImportPackageNodes", none()),
            ("denyImportPackageStems", none()),
            ("denyImportPackages", none()),
            ("denyImportResources", none()),
            ("denyPrefixImportResourceStems", none()),
            ("denySuffixImportResourceStems", none()),
            ("identity", Json::text(self.jar.identity())),
            ("injectExportPackages", none()),
            ("injectPluginDependencies", none()),
            ("mainClass", Json::text(&self.jar.main_class)),
            ("priority", Json::Int(self.jar.priority)),
            ("webContextPath", Json::text(&self.jar.web_context_path)),
        ])
    }

    /// As in the answer to `queryAllBiz`.
    pub(crate) fn entry(&self) -> Json {
        Json::bean([
            ("bizName", Json::text(&self.jar.name)),
            ("bizState", self.state.json()),
            ("bizStateRecords", self.records()),
            ("bizVersion", Json::text(&self.jar.version)),
            ("mainClass", Json::text(&self.jar.main_class)),
            ("webContextPath", Json::text(&self.jar.web_context_path)),
        ])
    }

    /// As `queryAllBiz` is answered over MQTT: the state is a text there, in lower case, and only the last record is told.
    pub(crate) fn simple(&self) -> Json {
        Json::bean([
            (
                "latestStateRecord",
                self.records.last().map_or(Json::Null, Record::json),
            ),
            ("name", Json::text(&self.jar.name)),
            ("state", Json::text(self.state.to_string())),
            ("version", Json::text(&self.jar.version)),
        ])
    }

    /// As in `health`.
    pub(crate) fn health(&self) -> Json {
        health(
            &self.jar.name,
            &self.jar.version,
            self.state,
            &self.jar.web_context_path,
        )
    }
}

/// A module's line in `health`.
pub(crate) fn health(name: &str, version: &str, state: BizState, path: &str) -> Json {
    Json::bean([
        ("bizName", Json::text(name)),
        ("bizState", state.json()),
        ("bizVersion", Json::text(version)),
        ("webContextPath", Json::text(path)),
    ])
}
