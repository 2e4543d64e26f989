//! Commands of arklet and the bodies of their requests.
//!
//! Bodies are JSON objects without nulls: a malformed body or a JSON array is never answered over HTTP.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// The commands that are built into arklet. Bases may add others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Command {
    /// Installs one module.
    InstallBiz,
    /// Removes one version of a module.
    UninstallBiz,
    /// Makes another installed version of a module the active one.
    SwitchBiz,
    /// Lists the modules of the base.
    QueryAllBiz,
    /// Reads the record of an asynchronous operation.
    QueryBizOps,
    /// Installs several modules, by priority.
    BatchInstallBiz,
    /// JVM, processor and modules.
    Health,
    /// Lists the commands of the base.
    Help,
}

impl Command {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::InstallBiz,
        Self::UninstallBiz,
        Self::SwitchBiz,
        Self::QueryAllBiz,
        Self::QueryBizOps,
        Self::BatchInstallBiz,
        Self::Health,
        Self::Help,
    ];

    /// Its name on the wire: the path over HTTP, the last level of the topic over MQTT.
    pub fn id(self) -> &'static str {
        match self {
            Self::InstallBiz => "installBiz",
            Self::UninstallBiz => "uninstallBiz",
            Self::SwitchBiz => "switchBiz",
            Self::QueryAllBiz => "queryAllBiz",
            Self::QueryBizOps => "queryBizOps",
            Self::BatchInstallBiz => "batchInstallBiz",
            Self::Health => "health",
            Self::Help => "help",
        }
    }

    /// The command of that name.
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.id() == id)
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// Name and version of a module. A base holds at most one module of each identity, several versions of a name
/// side by side.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId {
    /// `bizName`, as in the manifest of the jar.
    pub name: String,
    /// `bizVersion`, as in the manifest of the jar.
    pub version: String,
}

impl ModuleId {
    /// Puts the two together.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
        }
    }

    fn put(&self, body: &mut Map<String, Value>) {
        body.insert("bizName".to_owned(), json!(self.name));
        body.insert("bizVersion".to_owned(), json!(self.version));
    }

    /// arklet refuses half an identity.
    pub(super) fn check(&self) -> Result<(), InvalidRequest> {
        if self.name.trim().is_empty() || self.version.trim().is_empty() {
            return Err(InvalidRequest::Identity(self.clone()));
        }
        Ok(())
    }
}

impl fmt::Display for ModuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.version)
    }
}

/// What to do about other versions of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Leave them; arklet's default.
    InstallOnly,
    /// Remove all versions of that name first.
    UninstallThenInstall,
}

impl Strategy {
    /// As on the wire. An unknown word means `installOnly` to arklet.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InstallOnly => "installOnly",
            Self::UninstallThenInstall => "uninstallThenInstall",
        }
    }
}

/// A module to install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    /// What is asked for. It is a lock key and the name of a file to arklet: what gets installed is what the
    /// manifest of the jar says, so an answer must be compared
    /// ([`Outcome::Mismatch`](crate::outcome::Outcome::Mismatch)). `None`: whatever the jar holds, over HTTP
    /// alone.
    pub id: Option<ModuleId>,
    /// Where the jar is: `file:`, `http:` or another URL that Java knows. A bare path is refused.
    pub url: String,
    /// Arguments of the module's `main`.
    pub args: Vec<String>,
    /// Environment; heeded by JDKs with tenants alone.
    pub envs: BTreeMap<String, String>,
    /// `None`: arklet's default.
    pub strategy: Option<Strategy>,
}

/// Why a request is not sent: arklet would refuse it, or never answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// Name or version is blank.
    #[error("module identity \"{0}\": name and version must both be set")]
    Identity(ModuleId),
    /// The address of the jar is not a URL.
    #[error("\"{0}\" is not a URL: it needs a scheme, such as file: or https:")]
    Url(String),
    /// A module without name and version, over MQTT, where replies are matched by these.
    #[error("a module needs a name and a version over MQTT")]
    Anonymous,
    /// arklet takes one MiB.
    #[error("the request has {0} bytes, arklet takes 1048576")]
    TooLong(usize),
    /// Part of a topic that is none.
    #[error("{what} \"{text}\" cannot be part of an MQTT topic")]
    Topic {
        /// Identity or environment.
        what: &'static str,
        /// The text that was refused, or its start.
        text: String,
    },
}

impl Install {
    /// A module with the defaults.
    pub fn new(id: ModuleId, url: impl Into<String>) -> Self {
        Self {
            id: Some(id),
            url: url.into(),
            args: Vec::new(),
            envs: BTreeMap::new(),
            strategy: None,
        }
    }

    /// What arklet would refuse.
    pub fn check(&self) -> Result<(), InvalidRequest> {
        if let Some(id) = &self.id {
            id.check()?;
        }
        // RFC 3986, 3.1.
        let scheme = self.url.split_once(':').map(|(scheme, _)| scheme);
        let is_scheme = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphabetic())
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        };
        if !scheme.is_some_and(is_scheme) {
            return Err(InvalidRequest::Url(self.url.clone()));
        }
        Ok(())
    }

    /// The body of `installBiz`, and an entry of `batchInstallBiz`.
    pub fn body(&self) -> Map<String, Value> {
        let mut body = Map::new();
        if let Some(id) = &self.id {
            id.put(&mut body);
        }
        body.insert("bizUrl".to_owned(), json!(self.url));
        if !self.args.is_empty() {
            body.insert("args".to_owned(), json!(self.args));
        }
        if !self.envs.is_empty() {
            body.insert("envs".to_owned(), json!(self.envs));
        }
        if let Some(strategy) = self.strategy {
            body.insert("installStrategy".to_owned(), json!(strategy.as_str()));
        }
        body
    }
}

/// Which parts of its health a base is to report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthQuery {
    /// The part that is wanted; `None`: all parts.
    pub kind: Option<HealthKind>,
    /// One module, with [`HealthKind::Biz`].
    pub module: Option<ModuleId>,
    /// `jvm`, `cpu`; empty: all.
    pub metrics: Vec<String>,
}

/// A part of the answer to `health`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthKind {
    /// JVM and processor.
    System,
    /// The modules.
    Biz,
    /// Plugins of the container, sofa-ark.
    Plugin,
}

impl HealthKind {
    /// As on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Biz => "biz",
            Self::Plugin => "plugin",
        }
    }
}

/// A command with what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Installs a module (`installBiz`).
    Install {
        /// The module and where its jar is.
        install: &'a Install,
        /// With one it runs asynchronously. Must be new to the base: records are never forgotten while it
        /// runs.
        request_id: Option<&'a str>,
    },
    /// Removes a module (`uninstallBiz`).
    Uninstall(&'a ModuleId),
    /// Makes an installed module the one of its name that serves (`switchBiz`).
    Switch(&'a ModuleId),
    /// Lists the modules (`queryAllBiz`).
    Modules,
    /// Reads the record of an asynchronous operation (`queryBizOps`).
    Ops {
        /// As given to the operation.
        request_id: &'a str,
    },
    /// `batchInstallBiz`. One batch at a time per base.
    Batch(&'a [Install]),
    /// Reads the health of the base (`health`).
    Health(HealthQuery),
    /// Lists the commands (`help`).
    Help,
}

impl Request<'_> {
    /// Whose request it is.
    pub fn command(&self) -> Command {
        match self {
            Self::Install { .. } => Command::InstallBiz,
            Self::Uninstall(_) => Command::UninstallBiz,
            Self::Switch(_) => Command::SwitchBiz,
            Self::Modules => Command::QueryAllBiz,
            Self::Ops { .. } => Command::QueryBizOps,
            Self::Batch(_) => Command::BatchInstallBiz,
            Self::Health(_) => Command::Health,
            Self::Help => Command::Help,
        }
    }

    /// What arklet would refuse.
    pub fn check(&self) -> Result<(), InvalidRequest> {
        match self {
            Self::Install { install, .. } => install.check(),
            Self::Uninstall(id) | Self::Switch(id) => id.check(),
            Self::Batch(installs) => installs.iter().try_for_each(Install::check),
            Self::Modules | Self::Ops { .. } | Self::Health(_) | Self::Help => Ok(()),
        }
    }

    /// The body: always an object, without nulls.
    pub fn body(&self) -> Value {
        let mut body = Map::new();
        match self {
            Self::Install { install, request_id } => {
                body = install.body();
                if let Some(id) = request_id {
                    body.insert("async".to_owned(), json!(true));
                    body.insert("requestId".to_owned(), json!(id));
                }
            }
            Self::Uninstall(id) | Self::Switch(id) => id.put(&mut body),
            Self::Ops { request_id } => {
                body.insert("requestId".to_owned(), json!(request_id));
            }
            Self::Batch(installs) => {
                let list: Vec<Value> = installs
                    .iter()
                    .map(|install| Value::Object(install.body()))
                    .collect();
                body.insert("bizList".to_owned(), Value::Array(list));
            }
            Self::Health(query) => {
                if let Some(kind) = query.kind {
                    body.insert("type".to_owned(), json!(kind.as_str()));
                }
                if let Some(id) = &query.module {
                    id.put(&mut body);
                }
                if !query.metrics.is_empty() {
                    body.insert("metrics".to_owned(), json!(query.metrics));
                }
            }
            Self::Modules | Self::Help => {}
        }
        Value::Object(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_hold_what_is_set_and_nothing_else() {
        let id = ModuleId::new("biz1", "0.0.1");
        let plain = Install::new(id.clone(), "file:///a.jar");
        let full = Install {
            args: vec!["--a=b".to_owned()],
            envs: BTreeMap::from([("K".to_owned(), "V".to_owned())]),
            strategy: Some(Strategy::UninstallThenInstall),
            ..plain.clone()
        };
        let nameless = Install {
            id: None,
            ..plain.clone()
        };
        let list = [plain.clone(), nameless.clone()];
        let health = HealthQuery {
            kind: Some(HealthKind::Biz),
            module: Some(id.clone()),
            metrics: vec!["jvm".to_owned()],
        };
        let table = [
            (
                Request::Install {
                    install: &plain,
                    request_id: None,
                },
                r#"{"bizName":"biz1","bizUrl":"file:///a.jar","bizVersion":"0.0.1"}"#,
            ),
            (
                Request::Install {
                    install: &full,
                    request_id: Some("r1"),
                },
                r#"{"args":["--a=b"],"async":true,"bizName":"biz1","bizUrl":"file:///a.jar","bizVersion":"0.0.1","envs":{"K":"V"},"installStrategy":"uninstallThenInstall","requestId":"r1"}"#,
            ),
            (
                Request::Install {
                    install: &nameless,
                    request_id: None,
                },
                r#"{"bizUrl":"file:///a.jar"}"#,
            ),
            (
                Request::Uninstall(&id),
                r#"{"bizName":"biz1","bizVersion":"0.0.1"}"#,
            ),
            (Request::Switch(&id), r#"{"bizName":"biz1","bizVersion":"0.0.1"}"#),
            (Request::Modules, "{}"),
            (Request::Help, "{}"),
            (Request::Ops { request_id: "r1" }, r#"{"requestId":"r1"}"#),
            (
                Request::Batch(&list),
                r#"{"bizList":[{"bizName":"biz1","bizUrl":"file:///a.jar","bizVersion":"0.0.1"},{"bizUrl":"file:///a.jar"}]}"#,
            ),
            (Request::Batch(&[]), r#"{"bizList":[]}"#),
            (Request::Health(HealthQuery::default()), "{}"),
            (
                Request::Health(health),
                r#"{"bizName":"biz1","bizVersion":"0.0.1","metrics":["jvm"],"type":"biz"}"#,
            ),
        ];
        for (request, body) in table {
            // Compared as values: the order of keys has no meaning.
            let wanted: Value = serde_json::from_str(body).unwrap();
            assert_eq!(request.body(), wanted, "{request:?}");
        }
    }

    #[test]
    fn what_arklet_would_refuse_is_not_sent() {
        let id = ModuleId::new("biz1", "0.0.1");
        for url in ["/a.jar", "", "a.jar", ":x", "1a:b", "a b:c"] {
            let wanted = Err(InvalidRequest::Url(url.to_owned()));
            assert_eq!(Install::new(id.clone(), url).check(), wanted);
        }
        for url in ["file:///a.jar", "https://h/a.jar", "file:a.jar", "jar+x:y"] {
            assert_eq!(Install::new(id.clone(), url).check(), Ok(()), "{url}");
        }
        for half in [ModuleId::new("a", ""), ModuleId::new(" ", "1")] {
            assert!(Request::Uninstall(&half).check().is_err());
            assert!(Install::new(half, "file:a").check().is_err());
        }
    }

    #[test]
    fn commands_are_found_by_their_names() {
        for command in Command::ALL {
            assert_eq!(Command::from_id(command.id()), Some(command));
        }
        assert_eq!(Command::from_id("nosuch"), None);
    }
}
