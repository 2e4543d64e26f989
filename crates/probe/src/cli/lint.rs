//! `evenkeel probe lint`.

use super::Validate;
use super::args::{LintArgs, Output};
use super::error::CliError;
use super::out;
use super::text::escape_json;
use super::workload;
use crate::lint::{Finding, RULES, Severity, lint};
use evenkeel_kube_values::terminal::clean;
use tokio_util::sync::CancellationToken;

/// Prints what it finds; 1 if any of it is more than worth knowing.
pub(super) async fn run(
    args: &LintArgs,
    validate: Validate<'_>,
    shutdown: &CancellationToken,
) -> Result<u8, CliError> {
    if let Some(unknown) = args
        .allow
        .iter()
        .find(|code| !RULES.iter().any(|rule| rule.code == **code))
    {
        let codes: Vec<&str> = RULES.iter().map(|rule| rule.code).collect();
        return Err(CliError::usage(format!(
            "--allow: {unknown:?} is no code of a finding; there are {}",
            codes.join(", ")
        )));
    }
    let documents = workload::all(workload::read(&args.filename, shutdown).await?, validate)?;
    let mut findings = lint(&documents.workloads);
    findings.retain(|finding| !args.allow.iter().any(|code| *code == finding.code));
    let text = match args.output {
        Output::Text => report(&findings),
        Output::Json => serde_json::to_string_pretty(&findings)
            .map(|json| escape_json(&json) + "\n")
            .map_err(|error| CliError::later(format!("cannot write the findings as JSON: {error}")))?,
    };
    // A reader that has gone away knows enough.
    out::put(&text).map_err(|error| CliError::later(format!("cannot write to standard output: {error}")))?;
    let bad = findings.iter().any(|finding| finding.severity > Severity::Info);
    Ok(u8::from(bad))
}

/// Three lines for each finding, and a last one that counts.
fn report(findings: &[Finding]) -> String {
    let mut lines = Vec::new();
    for finding in findings {
        let Finding {
            code,
            severity,
            object,
            origin,
            line,
            path,
            message,
            why,
            fix,
        } = finding;
        lines.push(clean(&format!(
            "{origin}:{line}: {severity} {code}: {object}: {path}: {message}"
        )));
        lines.push(format!("    why: {why}"));
        lines.push(format!("    fix: {fix}"));
    }
    let count = |severity| {
        findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    };
    lines.push(format!(
        "errors: {}, warnings: {}, infos: {}\n",
        count(Severity::Error),
        count(Severity::Warning),
        count(Severity::Info)
    ));
    lines.join("\n")
}
