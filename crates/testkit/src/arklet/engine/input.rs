//! Commands and their requests: reading them as fastjson does, and arklet's checks with its own messages.

use crate::arklet::bean::bean;
use serde_json::{Map, Value, json};

/// arklet's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Install,
    Uninstall,
    Switch,
    QueryAll,
    Health,
    Help,
    Batch,
    QueryOps,
}

impl Command {
    /// In the order in which `help` lists them.
    pub(crate) const ALL: [Self; 8] = [
        Self::Health,
        Self::Batch,
        Self::QueryAll,
        Self::Help,
        Self::Uninstall,
        Self::Switch,
        Self::Install,
        Self::QueryOps,
    ];

    pub(crate) fn named(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.id() == id)
    }

    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::Install => "installBiz",
            Self::Uninstall => "uninstallBiz",
            Self::Switch => "switchBiz",
            Self::QueryAll => "queryAllBiz",
            Self::Health => "health",
            Self::Help => "help",
            Self::Batch => "batchInstallBiz",
            Self::QueryOps => "queryBizOps",
        }
    }

    /// What `help` says of it. The text for batches is not recorded.
    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::Install => "install one ark biz",
            Self::Uninstall => "uninstall one ark biz",
            Self::Switch => "switch one ark biz",
            Self::QueryAll => "query all ark biz(including master biz)",
            Self::Health => "get all health info",
            Self::Help => "list all supported commands",
            Self::Batch => "batch install biz",
            Self::QueryOps => "query ark biz ops",
        }
    }

    /// The class that handles it.
    pub(crate) fn handler(self) -> String {
        let name = match self {
            Self::Install => "InstallBiz",
            Self::Uninstall => "UninstallBiz",
            Self::Switch => "SwitchBiz",
            Self::QueryAll => "QueryAllBiz",
            Self::Health => "Health",
            Self::Help => "Help",
            Self::Batch => "BatchInstallBiz",
            Self::QueryOps => "QueryBizOps",
        };
        format!("com.alipay.sofa.koupleless.arklet.core.command.builtin.handler.{name}Handler")
    }

    /// What the machine says when the handler reads its missing input, by the first getter it calls.
    pub(crate) fn null_input(self) -> String {
        let getter = match self {
            Self::Install => "isAsync",
            Self::Uninstall | Self::Switch => "getBizName",
            Self::Batch => "getBizList",
            Self::QueryOps => "getRequestId",
            Self::QueryAll | Self::Health | Self::Help => "toString",
        };
        format!(
            "Cannot invoke \"{}$Input.{getter}()\" because \"<parameter1>\" is null",
            self.handler()
        )
    }
}

/// What is asked of one module.
#[derive(Clone, Debug, Default)]
pub(crate) struct BizInput {
    pub(crate) name: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) asynchronous: bool,
    pub(crate) request_id: Option<String>,
    /// Of installations only, as are the following.
    pub(crate) url: Option<String>,
    pub(crate) args: Option<Vec<String>>,
    pub(crate) envs: Option<Vec<(String, String)>>,
    pub(crate) strategy: Option<String>,
    pub(crate) by_hand: bool,
}

impl BizInput {
    pub(crate) fn read(content: &Map<String, Value>) -> Self {
        Self {
            name: text(content, "bizName"),
            version: text(content, "bizVersion"),
            asynchronous: match content.get("async") {
                Some(Value::Bool(flag)) => *flag,
                Some(Value::String(flag)) => flag.eq_ignore_ascii_case("true"),
                _ => false,
            },
            request_id: text(content, "requestId"),
            url: text(content, "bizUrl"),
            args: content
                .get("args")
                .and_then(Value::as_array)
                .map(|args| args.iter().filter_map(as_text).collect()),
            envs: content.get("envs").and_then(Value::as_object).map(|envs| {
                envs.iter()
                    .filter_map(|(key, value)| Some((key.clone(), as_text(value)?)))
                    .collect()
            }),
            strategy: text(content, "installStrategy"),
            by_hand: false,
        }
    }

    /// An installation of what is at a URL.
    pub(crate) fn of_url(url: &str) -> Self {
        Self {
            url: Some(url.to_owned()),
            ..Self::default()
        }
    }

    pub(crate) fn both_blank(&self) -> bool {
        blank(self.name.as_ref()) && blank(self.version.as_ref())
    }

    pub(crate) fn identity(&self) -> String {
        let part = |part: &Option<String>| part.clone().unwrap_or_else(|| "null".to_owned());
        format!("{}:{}", part(&self.name), part(&self.version))
    }

    pub(crate) fn uninstalls_first(&self) -> bool {
        self.strategy.as_deref() == Some("uninstallThenInstall")
    }

    /// The message of the first check that an installation does not pass.
    pub(crate) fn check_install(&self) -> Result<(), &'static str> {
        self.check_async()?;
        if blank(self.url.as_ref()) {
            return Err("bizUrl should not be blank");
        }
        if blank(self.name.as_ref()) != blank(self.version.as_ref()) {
            return Err("bizName and bizVersion should be both blank or both not blank.");
        }
        Ok(())
    }

    /// The same of `uninstallBiz` and `switchBiz`.
    pub(crate) fn check_identity(&self) -> Result<(), &'static str> {
        if blank(self.name.as_ref()) {
            return Err("bizName should not be blank");
        }
        if blank(self.version.as_ref()) {
            return Err("bizVersion should not be blank");
        }
        self.check_async()
    }

    fn check_async(&self) -> Result<(), &'static str> {
        if self.asynchronous && blank(self.request_id.as_ref()) {
            return Err("requestId should not be blank when async is true");
        }
        Ok(())
    }

    /// `arkBizMeta` in the record of an asynchronous command.
    pub(crate) fn meta(&self, command: Command) -> Value {
        let strategy = match command {
            Command::Install => json!(self.strategy.as_deref().unwrap_or("installOnly")),
            _ => Value::Null,
        };
        let envs = self
            .envs
            .as_ref()
            .map_or(Value::Null, |envs| envs.iter().cloned().collect());
        bean([
            ("args", json!(self.args)),
            ("async", json!(self.asynchronous)),
            ("bizName", json!(self.name.as_deref())),
            ("bizUrl", json!(self.url.as_deref())),
            ("bizVersion", json!(self.version.as_deref())),
            ("envs", envs),
            ("installStrategy", strategy),
            ("requestId", json!(self.request_id.as_deref())),
        ])
    }
}

/// What `health` is asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct HealthInput {
    pub(crate) kind: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) metrics: Vec<String>,
}

impl HealthInput {
    pub(crate) fn read(content: &Map<String, Value>) -> Self {
        Self {
            kind: text(content, "type").filter(|kind| !kind.is_empty()),
            name: text(content, "bizName").filter(|name| !name.is_empty()),
            version: text(content, "bizVersion").filter(|version| !version.is_empty()),
            metrics: content
                .get("metrics")
                .and_then(Value::as_array)
                .map(|metrics| metrics.iter().filter_map(as_text).collect())
                .unwrap_or_default(),
        }
    }
}

pub(crate) fn text(content: &Map<String, Value>, key: &str) -> Option<String> {
    content.get(key).and_then(as_text)
}

/// fastjson takes numbers and flags for texts too.
fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

pub(crate) fn blank(text: Option<&String>) -> bool {
    text.is_none_or(|text| text.trim().is_empty())
}

/// What `java.net.URL` says against a text, if anything.
pub(crate) fn malformed_url(url: &str) -> Option<String> {
    let scheme = url.split_once(':').map(|(scheme, _)| scheme);
    match scheme.filter(|scheme| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|each| each.is_ascii_alphanumeric() || "+-.".contains(each))
    }) {
        None => Some(format!("no protocol: {url}")),
        Some("file" | "http" | "https" | "jar" | "ftp" | "jrt" | "mailto") => None,
        Some(unknown) => Some(format!("unknown protocol: {unknown}")),
    }
}

/// What Java says when nothing is at a URL.
pub(crate) fn not_found(url: &str) -> String {
    match url.strip_prefix("file:") {
        Some(path) => format!("/{} (No such file or directory)", path.trim_start_matches('/')),
        None => url.to_owned(),
    }
}
