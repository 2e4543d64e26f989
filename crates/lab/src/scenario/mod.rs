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
mod seconds;
mod text;

use crate::switch::links::Way;
pub use seconds::Span;
use serde::Deserialize;
use serde_saphyr::Spanned;
use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Most nodes a lab can have: each is a process on this machine.
pub const MAX_NODES: u8 = 50;

/// The scenarios that `evenkeel lab run NAME` finds without a file.
pub const BUILT_IN: [(&str, &str); 2] = [
    ("tour", include_str!("../../scenarios/tour.yaml")),
    ("crash", include_str!("../../scenarios/crash.yaml")),
];

/// Why a scenario cannot be played. Not worth a retry.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It cannot be read.
    #[error("cannot read scenario {path}: {source}; give a file, or one of the built-in ones: tour, crash")]
    Unreadable {
        /// File.
        path: PathBuf,
        /// Why.
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
        /// That line.
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
    /// For people.
    pub name: String,
    /// Number of nodes; they are called `PREFIX-1` and so on.
    #[serde(default = "default_nodes")]
    nodes: Spanned<u8>,
    /// Prefix of their names.
    #[serde(default = "default_prefix")]
    node_prefix: Spanned<String>,
    /// Timers of the stand-in for the stock controllers.
    #[serde(default)]
    pub stock: StockTimers,
    /// What is deployed before the first step.
    #[serde(default)]
    pub apply: Vec<Manifest>,
    /// What happens, in order.
    steps: Vec<Spanned<Step>>,
}

fn default_nodes() -> Spanned<u8> {
    nowhere(5)
}

fn default_prefix() -> Spanned<String> {
    nowhere("shore".to_owned())
}

fn nowhere<T>(value: T) -> Spanned<T> {
    Spanned::new(
        value,
        serde_saphyr::Location::UNKNOWN,
        serde_saphyr::Location::UNKNOWN,
    )
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

/// One step.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Step {
    /// Words for whoever watches.
    Note(String),
    /// Go on once something is so; the run ends if it is not in time.
    Wait(Wait),
    /// Break or impair a link.
    Cut(Cut),
    /// Take a node's power.
    Kill(Victim),
    /// Kill a process; it is started again.
    Crash(Crash),
    /// Repair links and switch nodes on.
    Heal(Heal),
    /// Let time pass; then judge what happened since the last fault.
    Hold(Hold),
    /// Judge what happened since the last fault, giving it the time it may take.
    Expect(Expect),
}

/// Waits for a condition.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wait {
    /// For what.
    pub until: Condition,
    /// At most so long.
    pub within: Span,
}

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Condition {
    /// Every node is Ready, every workload has its replicas ready, and each ready pod of a Service is an endpoint.
    Ready,
    /// Ready, and nothing of an incident is left: no taints, no pod on its way out, no open incident.
    Clean,
}

/// A link and what becomes of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cut {
    /// The node.
    node: Spanned<String>,
    /// The other end: `cloud`, `peers` (all other nodes), or a node.
    #[serde(default = "default_link")]
    link: Spanned<String>,
    /// Which way, seen from the node.
    #[serde(default)]
    pub way: Way,
    /// Delay instead of cutting.
    #[serde(default)]
    pub delay: Option<Span>,
    /// Lose this share of datagrams, in percent, instead of cutting.
    #[serde(default)]
    drop_percent: Option<Spanned<u8>>,
}

fn default_link() -> Spanned<String> {
    nowhere("cloud".to_owned())
}

/// A node by its name or by what runs on it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Victim {
    /// Its name.
    #[serde(default)]
    node: Option<Spanned<String>>,
    /// Any node on which a pod of each of these workloads is ready, as in `deployment/web`.
    #[serde(default)]
    pub running: Vec<String>,
    /// But none of these.
    #[serde(default)]
    except: Vec<Spanned<String>>,
}

/// Kills a process.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Crash {
    /// The agent of a node.
    Agent(Spanned<String>),
    /// The controller.
    Controller,
}

/// Repairs one node, or everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Heal {
    #[serde(default)]
    node: Option<Spanned<String>>,
}

/// Lets time pass.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hold {
    /// How long.
    pub r#for: Span,
    /// Most pods that may have been deleted or replaced since the last fault.
    #[serde(default)]
    pub pods_moved: Option<usize>,
    /// Most endpoints that may have been not ready at any moment since the last fault.
    #[serde(default)]
    pub endpoints_lost: Option<usize>,
}

/// What must have happened, counted from the last fault, on the node it struck.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expect {
    /// No endpoint on the node is ready.
    #[serde(default)]
    pub endpoints_out: Option<Span>,
    /// Each Deployment that had pods there has as many ready pods elsewhere as it had in all.
    #[serde(default)]
    pub replaced: Option<Span>,
    /// The StatefulSet pods of the node are still the same pods, and nobody else has their name.
    #[serde(default)]
    pub stateful_not_moved: bool,
    /// Most pods that may have been deleted or replaced.
    #[serde(default)]
    pub pods_moved: Option<usize>,
    /// Most endpoints that may have been lost.
    #[serde(default)]
    pub endpoints_lost: Option<usize>,
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
        scenario
            .check()
            .map_err(|(line, reason)| malformed(origin, text, line, reason))?;
        Ok(scenario)
    }

    /// Names of the nodes, in order.
    pub fn node_names(&self) -> Vec<String> {
        (1..=self.nodes.value)
            .map(|node| format!("{}-{node}", self.node_prefix.value))
            .collect()
    }

    /// What happens, in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().map(|step| &step.value)
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u8 {
        self.nodes.value
    }

    /// Prefix of their names.
    pub fn node_prefix(&self) -> &str {
        &self.node_prefix.value
    }

    /// What deserialization cannot know: names of nodes, ranges, and steps that need a fault before them.
    fn check(&self) -> Result<(), (u64, String)> {
        let nodes = self.nodes.value;
        if nodes == 0 || nodes > MAX_NODES {
            let line = self.nodes.referenced.line();
            return Err((line, format!("nodes: {nodes} is not between 1 and {MAX_NODES}")));
        }
        let prefix = &self.node_prefix.value;
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if prefix.len() > 50
            || !prefix.starts_with(|c: char| c.is_ascii_lowercase())
            || !prefix.chars().all(is_name)
        {
            let line = self.node_prefix.referenced.line();
            return Err((line, format!("nodePrefix: `{prefix}` cannot begin a node name")));
        }
        let known: BTreeSet<String> = self.node_names().into_iter().collect();
        let named = |field: &str, name: &Spanned<String>| {
            if known.contains(&name.value) {
                return Ok(());
            }
            let list = self.node_names().join(", ");
            Err((
                name.referenced.line(),
                format!("{field}: unknown node `{}`; known are {list}", name.value),
            ))
        };
        let mut struck = false;
        for Spanned {
            value: step,
            referenced,
            ..
        } in &self.steps
        {
            let line = referenced.line();
            match step {
                Step::Note(_) | Step::Wait(_) => {}
                Step::Cut(cut) => {
                    named("cut.node", &cut.node)?;
                    if !matches!(cut.link.value.as_str(), "cloud" | "peers") {
                        named("cut.link", &cut.link)?;
                    }
                    if let Some(percent) = &cut.drop_percent
                        && percent.value > 100
                    {
                        return Err((
                            percent.referenced.line(),
                            "cut.dropPercent: more than 100".to_owned(),
                        ));
                    }
                    struck = true;
                }
                Step::Kill(victim) => {
                    match &victim.node {
                        Some(node) if victim.running.is_empty() => named("kill.node", node)?,
                        Some(node) => {
                            let reason = "kill: give either node or running".to_owned();
                            return Err((node.referenced.line(), reason));
                        }
                        None if victim.running.is_empty() => {
                            return Err((line, "kill: give node or running".to_owned()));
                        }
                        None => {}
                    }
                    for node in &victim.except {
                        named("kill.except", node)?;
                    }
                    struck = true;
                }
                Step::Crash(Crash::Agent(node)) => {
                    named("crash.agent", node)?;
                    struck = true;
                }
                Step::Crash(Crash::Controller) => struck = true,
                Step::Heal(heal) => {
                    if let Some(node) = &heal.node {
                        named("heal.node", node)?;
                    }
                }
                Step::Hold(hold) if hold.pods_moved.is_none() && hold.endpoints_lost.is_none() => {}
                Step::Hold(_) | Step::Expect(_) if struck => {}
                Step::Hold(_) | Step::Expect(_) => {
                    return Err((
                        line,
                        "an assertion needs a cut, kill or crash before it".to_owned(),
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Cut {
    /// Name of the node.
    pub fn node(&self) -> &str {
        &self.node.value
    }

    /// `cloud`, `peers`, or a node.
    pub fn link(&self) -> &str {
        &self.link.value
    }

    /// Whether the API server hears nothing of the node any more.
    pub fn silences(&self) -> bool {
        let cut = self.delay.is_none() && self.drop_percent.is_none();
        cut && self.link() == "cloud" && self.way != Way::To
    }

    /// Datagrams lost, in percent.
    pub fn drop_percent(&self) -> Option<u8> {
        self.drop_percent.as_ref().map(|percent| percent.value)
    }
}

impl Victim {
    /// Name of the node, where the scenario says it.
    pub fn node(&self) -> Option<&str> {
        self.node.as_ref().map(|node| node.value.as_str())
    }

    /// Nodes that are spared.
    pub fn except(&self) -> impl Iterator<Item = &str> {
        self.except.iter().map(|node| node.value.as_str())
    }
}

impl Heal {
    /// Name of the node; `None` is everything.
    pub fn node(&self) -> Option<&str> {
        self.node.as_ref().map(|node| node.value.as_str())
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

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "ready",
            Self::Clean => "clean",
        })
    }
}

#[cfg(test)]
mod tests;
