//! `evenkeel doctor`: what is wrong with a cluster or an installation, and what to do about each thing.
//!
//! | module | what it holds |
//! |---|---|
//! | `facts` | **pure**: what a diagnosis is made from |
//! | [`findings`] | **pure**: the checks of an installation |
//! | `nodes` | **pure**: the checks of nodes, agents and stock controllers |
//! | `machine` | the machine that the command runs on |
//! | `read` | the lists that facts are made from |

pub(crate) mod facts;
pub mod findings;
mod machine;
mod nodes;
pub(crate) mod read;

use crate::error::InstallError;
use clap::Args;
use evenkeel_net::client::ClientArgs;
use evenkeel_net::output::{Format, print};
use findings::{Finding, Severity};
use kube::Client;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// When the API server has not answered everything within this time, the command says so and ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// Finds what would keep Evenkeel from working on a cluster, or keeps it from working well.
///
/// Before an installation it says whether one would be taken, and what the cluster lacks. Afterwards it looks
/// at controllers, agents, zones, the webhook (which the API server itself is made to ask), rights and
/// versions. It changes nothing.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// Look at this machine alone, as one that is or will be a node: kernel settings and ports.
    #[arg(long)]
    pub machine: bool,
    /// How to print.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: Format,
    /// Where the API server is.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// Reads, prints, and returns the exit code. Call [`evenkeel_net::init_crypto`] before.
pub async fn run(args: DoctorArgs) -> Result<u8, InstallError> {
    let findings = if args.machine {
        let mut findings = machine::findings(Path::new("/"));
        findings.extend(machine::ports());
        findings
    } else {
        let client = args.client.client("doctor").await?;
        diagnose(&client).await?
    };
    let text = args.output.of(&findings, |findings, _| text(findings));
    let text = text.map_err(InstallError::Output)?;
    print(&text).map_err(InstallError::Output)?;
    Ok(exit_code(&findings))
}

/// What is wrong with a cluster, the worst first.
pub async fn diagnose(client: &Client) -> Result<Vec<Finding>, InstallError> {
    let facts = tokio::time::timeout(PATIENCE, read::facts(client)).await;
    let facts = facts.map_err(|_| InstallError::Read {
        what: "the cluster".to_owned(),
        why: format!("the API server has not answered within {} s", PATIENCE.as_secs()),
        is_forbidden: false,
    })??;
    Ok(findings::findings(&facts))
}

fn exit_code(findings: &[Finding]) -> u8 {
    u8::from(findings.iter().any(|finding| finding.severity != Severity::Note))
}

fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let severity = match finding.severity {
            Severity::Error => "ERROR  ",
            Severity::Warning => "WARNING",
            Severity::Note => "NOTE   ",
        };
        // A String takes everything.
        let _ = writeln!(
            text,
            "{severity} {}: {}\n        fix: {}",
            finding.check, finding.problem, finding.fix
        );
    }
    let count = |severity| {
        findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    };
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let _ = match (errors, warnings) {
        (0, 0) => writeln!(text, "Nothing is wrong."),
        _ => writeln!(text, "{errors} errors, {warnings} warnings."),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity) -> Finding {
        Finding {
            severity,
            check: "zones",
            problem: "too small".to_owned(),
            fix: "more nodes".to_owned(),
        }
    }

    #[test]
    fn the_exit_code_says_whether_something_is_wrong() {
        assert_eq!(exit_code(&[]), 0);
        assert_eq!(exit_code(&[finding(Severity::Note)]), 0);
        assert_eq!(
            exit_code(&[finding(Severity::Note), finding(Severity::Warning)]),
            1
        );
        assert_eq!(exit_code(&[finding(Severity::Error)]), 1);
    }

    #[test]
    fn each_finding_has_its_fix_and_the_end_counts() {
        let findings = [finding(Severity::Error), finding(Severity::Warning)];
        assert_eq!(
            text(&findings),
            "ERROR   zones: too small\n        fix: more nodes\nWARNING zones: too small\n        fix: more nodes\n1 errors, 1 warnings.\n"
        );
        assert_eq!(text(&[]), "Nothing is wrong.\n");
    }
}
