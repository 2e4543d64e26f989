//! A scenario: what is deployed, what goes wrong, and what must hold. Pure: text in, steps out.
//!
//! ```yaml
//! name: a node without power
//! nodes: 3
//! stock: {gracePeriod: 15s, unreachableTolerationSeconds: 15}
//! apply: [{file: app.yaml}]
//! steps:
//!   - wait: {until: ready, within: 60s}
//!   - kill: {running: [deployment/web]}
//!   - expect: {endpointsOut: 10s, replaced: 30s}
//!   - heal: {}
//!   - wait: {until: clean, within: 30s}
//! ```

pub mod assertions;
mod check;
pub mod crash;
pub mod layout;
mod seconds;
pub mod step;
mod text;

use crash::Crash;
use evenkeel_api::policy::Profile;
use layout::{Layout, Zones};
pub use seconds::Span;
use serde::Deserialize;
use serde_saphyr::Spanned;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use step::Step;

/// Most nodes a lab can have: each is a process on this machine.
pub const MAX_NODES: u8 = 50;

/// Number of nodes where neither a scenario nor a flag gives one.
pub const DEFAULT_NODES: u8 = 5;

/// The scenarios that `evenkeel lab run NAME` finds without a file.
pub const BUILT_IN: [(&str, &str); 10] = [
    ("tour", include_str!("../../scenarios/tour.yaml")),
    ("crash", include_str!("../../scenarios/crash.yaml")),
    ("stall", include_str!("../../scenarios/stall.yaml")),
    ("isolated", include_str!("../../scenarios/isolated.yaml")),
    ("split", include_str!("../../scenarios/split.yaml")),
    ("dark", include_str!("../../scenarios/dark.yaml")),
    ("three-zones", include_str!("../../scenarios/three-zones.yaml")),
    ("api-restart", include_str!("../../scenarios/api-restart.yaml")),
    ("power-off", include_str!("../../scenarios/power-off.yaml")),
    (
        "power-off-builtin",
        include_str!("../../scenarios/power-off-builtin.yaml"),
    ),
];

/// Names of [`BUILT_IN`], for messages.
fn built_in_names() -> String {
    BUILT_IN.map(|(name, _)| name).join(", ")
}

/// Why a scenario cannot be played. Not worth a retry.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It cannot be read.
    #[error(
        "cannot read scenario {path}: {source}; give a file, or one of the built-in ones: {}",
        built_in_names()
    )]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// It is not a scenario.
    #[error("{origin}:{line}: {reason}{}", quoted(.text))]
    Malformed {
        /// File or name.
        origin: String,
        /// Line, from 1; 0 where there is none.
        line: u64,
        text: String,
        /// What is wrong.
        reason: String,
    },
}

fn quoted(line: &str) -> String {
    if line.is_empty() {
        String::new()
    } else {
        format!(" (at `{line}`)")
    }
}

/// What is played.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    pub name: String,
    /// Number of nodes; they are called `PREFIX-1` and so on.
    #[serde(default)]
    nodes: Option<Spanned<u8>>,
    /// Prefix of their names.
    #[serde(default)]
    node_prefix: Option<Spanned<String>>,
    /// Zones with their sizes, instead.
    #[serde(default)]
    zones: Option<Spanned<Zones>>,
    /// Number of controllers.
    #[serde(default)]
    controllers: Option<Spanned<u8>>,
    /// Defaults that the controllers run with.
    #[serde(default = "edge")]
    pub profile: Profile,
    /// Timers of the stand-in for the stock controllers.
    #[serde(default)]
    pub stock: StockTimers,
    /// What is deployed before the first step.
    #[serde(default)]
    pub apply: Vec<Manifest>,
    /// What happens, in order.
    steps: Vec<Spanned<Step>>,
}

fn nowhere<T>(value: T) -> Spanned<T> {
    Spanned::new(
        value,
        serde_saphyr::Location::UNKNOWN,
        serde_saphyr::Location::UNKNOWN,
    )
}

fn edge() -> Profile {
    Profile::Edge
}

/// Timers of the stand-in for the stock controllers; the defaults are shortened so that a run takes minutes.
/// Kubernetes' own: 5 s, 50 s, 300 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StockTimers {
    /// `--node-monitor-period`
    pub monitor_period: Span,
    /// `--node-monitor-grace-period`
    pub grace_period: Span,
    /// `--default-unreachable-toleration-seconds` of admission.
    pub unreachable_toleration_seconds: u32,
}

impl StockTimers {
    /// Kubernetes' own.
    pub const KUBERNETES: Self = Self {
        monitor_period: Span(Duration::from_secs(5)),
        grace_period: Span(Duration::from_secs(50)),
        unreachable_toleration_seconds: 300,
    };
}

impl Default for StockTimers {
    fn default() -> Self {
        Self {
            monitor_period: Span(Duration::from_secs(1)),
            grace_period: Span(Duration::from_secs(15)),
            unreachable_toleration_seconds: 15,
        }
    }
}

/// Objects to create.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Manifest {
    /// [`crate::SAMPLE`].
    Sample,
    /// A file, relative to the scenario.
    File(Spanned<PathBuf>),
    /// The text itself.
    Inline(Spanned<String>),
}

impl Scenario {
    /// Reads a file, or one of [`BUILT_IN`]. Manifest files are found relative to it.
    pub fn load(name: &str) -> Result<Self, ScenarioError> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Self::parse(text, name);
        }
        let path = Path::new(name);
        let text = std::fs::read_to_string(path).map_err(|source| ScenarioError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        let mut scenario = Self::parse(&text, name)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for manifest in &mut scenario.apply {
            if let Manifest::File(file) = manifest {
                let found = folder.join(&file.value);
                let content = std::fs::read_to_string(&found).map_err(|error| {
                    let reason = format!("cannot read {}: {error}", found.display());
                    malformed(name, &text, file.referenced.line(), reason)
                })?;
                *manifest = Manifest::Inline(Spanned::new(content, file.referenced, file.defined));
            }
        }
        Ok(scenario)
    }

    /// Parses and checks a scenario. `origin` names it in errors.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = serde_saphyr::from_str(text).map_err(|error| {
            let line = error.location().map_or(0, |location| location.line());
            malformed(origin, text, line, text::one_line(&error))
        })?;
        check::check(&scenario).map_err(|(line, reason)| malformed(origin, text, line, reason))?;
        Ok(scenario)
    }

    /// What happens, in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().map(|step| &step.value)
    }

    /// Whether one of its steps takes the API server down.
    pub fn stops_the_api_server(&self) -> bool {
        self.steps()
            .any(|step| matches!(step, Step::Crash(Crash::ApiServer(_))))
    }

    /// The nodes: how many, what they are called, and in which zones they are.
    pub fn layout(&self) -> Layout {
        match &self.zones {
            Some(zones) => {
                let sizes = zones.value.0.iter();
                Layout::Zones(sizes.map(|(zone, size)| (zone.clone(), size.value)).collect())
            }
            None => Layout::One {
                prefix: self
                    .node_prefix
                    .as_ref()
                    .map_or("shore", |prefix| &prefix.value)
                    .to_owned(),
                nodes: self.nodes.as_ref().map_or(DEFAULT_NODES, |nodes| nodes.value),
            },
        }
    }

    /// Names of the nodes, in order.
    pub fn node_names(&self) -> Vec<String> {
        self.layout()
            .places()
            .into_iter()
            .map(|place| place.name)
            .collect()
    }

    /// Number of controllers.
    pub fn controllers(&self) -> u8 {
        self.controllers
            .as_ref()
            .map_or(1, |controllers| controllers.value)
    }
}

impl Manifest {
    /// The text of the manifest; files were read by [`Scenario::load`].
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Sample => Some(crate::SAMPLE),
            Self::Inline(text) => Some(&text.value),
            Self::File(_) => None,
        }
    }
}

fn malformed(origin: &str, text: &str, line: u64, reason: String) -> ScenarioError {
    let number = usize::try_from(line).unwrap_or(0);
    let text = number
        .checked_sub(1)
        .and_then(|index| text.lines().nth(index))
        .unwrap_or_default();
    ScenarioError::Malformed {
        origin: origin.to_owned(),
        line,
        text: text.trim().to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests;
