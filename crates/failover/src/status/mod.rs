//! `evenkeel status`: the leader's published decisions, in words. It reads, and changes nothing.
//!
//! | module | what it holds |
//! |---|---|
//! | [`report`] | **pure**: what there is to tell, as plain data |
//! | `scene` | **pure**: objects in, a report out |
//! | [`text`] | **pure**: a report as tables and paragraphs |
//! | `read` | the lists that it is made from |

mod near;
mod read;
pub mod report;
mod scene;
pub mod text;

use evenkeel_api::names;
use evenkeel_net::client::{ClientArgs, ClientError};
use evenkeel_net::output::{self, Format};
use report::{Question, Subject};
use std::io;
use std::time::Duration;

/// When the API server has not answered everything within this time, the command says so and ends. Several
/// attempts fit into it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Show what Evenkeel has decided about nodes, and why.
///
/// Without a name: one line per node. With the name of a node: its state, the evidence, what would change the
/// decision, the settings that hold, and the history of its incident. It shows what the leading controller
/// has published, it decides nothing itself, and it changes nothing; the rights of a reader are enough.
#[derive(Clone, Debug, clap::Args)]
pub struct StatusArgs {
    /// A node, or `zones`, or `incidents` [default: every node]. `node/NAME` is a node of any name.
    #[arg(value_name = "NODE|zones|incidents")]
    pub what: Option<String>,
    /// With `zones`: this zone alone. With `incidents`: those of this node alone.
    #[arg(value_name = "NAME", requires = "what")]
    pub name: Option<String>,
    /// How to print: a table, a table with more columns, or everything for programs.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: Format,
    /// Namespace that Evenkeel is installed in.
    #[arg(
        long,
        value_name = "NAME",
        env = "EVENKEEL_NAMESPACE",
        default_value = names::NAMESPACE,
        value_parser = names::parse_namespace
    )]
    pub namespace: String,
    /// Where the API server is.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// Why the command could not show what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// Arguments that do not go together.
    #[error("{0}")]
    Usage(String),
    /// There is no API server to be found.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A collection cannot be read.
    #[error("cannot read {what}: {source}; {advice}")]
    Read {
        what: String,
        /// What to do.
        advice: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server is silent.
    #[error(
        "the API server has not answered within {} s: is it the right one (--kubeconfig, --context), and does it run? Try: kubectl get nodes",
        PATIENCE.as_secs()
    )]
    Silent,
    /// There is no such node or zone.
    #[error("there is no {kind} {name}{hint}")]
    Unknown {
        /// `node` or `zone`.
        kind: &'static str,
        name: String,
        /// What to do.
        hint: String,
    },
    /// Nobody reads the output, or the report cannot be written in the format.
    #[error("cannot write the report")]
    Output(#[source] io::Error),
}

impl StatusError {
    /// On one line, with the cause.
    fn told(&self) -> String {
        self.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Reads, prints, and returns the exit code. Call [`evenkeel_net::init_crypto`] before.
pub async fn run(args: StatusArgs) -> Result<u8, StatusError> {
    let question = question(args.what.as_deref(), args.name)?;
    let client = args.client.client("status").await?;
    let found = tokio::time::timeout(PATIENCE, read::found(&client, &args.namespace))
        .await
        .map_err(|_| StatusError::Silent)??;
    let report = scene::report(&found, &question);
    let text = args.output.of(&report, text::text).map_err(StatusError::Output)?;
    output::print(&text).map_err(StatusError::Output)?;
    if let Subject::Unknown(unknown) = &report.subject {
        let all = if unknown.kind == "zone" {
            "evenkeel status zones"
        } else {
            "evenkeel status"
        };
        let hint = match unknown.closest.as_slice() {
            [] => format!("; all of them: {all}"),
            closest => format!("; is it {}? All of them: {all}", closest.join(" or ")),
        };
        return Err(StatusError::Unknown {
            kind: unknown.kind,
            name: unknown.name.clone(),
            hint,
        });
    }
    Ok(report.exit_code())
}

fn question(what: Option<&str>, name: Option<String>) -> Result<Question, StatusError> {
    match (what, name) {
        (None, _) => Ok(Question::Nodes),
        (Some("zones" | "zone"), name) => Ok(Question::Zones(name)),
        (Some("incidents" | "incident"), name) => Ok(Question::Incidents(name)),
        (Some("nodes"), None) => Ok(Question::Nodes),
        (Some("node" | "nodes"), Some(name)) => Ok(Question::Node(name)),
        (Some(node), None) => Ok(Question::Node(
            node.strip_prefix("node/").unwrap_or(node).to_owned(),
        )),
        (Some(what), Some(name)) => Err(StatusError::Usage(format!(
            "{name}: one node at a time; a second name goes with `zones` and `incidents`, not with {what}"
        ))),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
