//! Manifests as files: read, and checked as an API server would.

use super::Validate;
use super::error::CliError;
use crate::manifest::{ConvertError, Documents, ManifestError, Workload};
use std::error::Error as _;
use std::path::Path;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// What standard input is called.
const STDIN: &str = "standard input";

/// The one workload of a file, and what else is in it.
pub(super) struct Checked {
    pub(super) workload: Workload,
    /// A line for each object that has no pod.
    pub(super) skipped: Vec<String>,
}

/// The pods of a file, or of standard input. Either may keep us waiting as long as its writer likes, so a
/// thread of its own reads it, which nobody waits for once a signal has come.
pub(super) async fn read(path: &Path, shutdown: &CancellationToken) -> Result<Documents, CliError> {
    let (done, bytes) = oneshot::channel();
    let from = path.to_owned();
    let origin = if path.as_os_str() == "-" {
        STDIN.to_owned()
    } else {
        path.display().to_string()
    };
    let read = move || {
        let read = if from.as_os_str() == "-" {
            Documents::slurp(std::io::stdin().lock())
        } else {
            std::fs::File::open(&from).and_then(Documents::slurp)
        };
        // Nobody wants it after a signal.
        let _ = done.send(read);
    };
    let unread = |source| ManifestError::Read {
        origin: origin.clone(),
        source,
    };
    let reader = std::thread::Builder::new().name("manifest".to_owned());
    let bytes = if let Err(error) = reader.spawn(read) {
        Err(unread(error))
    } else {
        tokio::select! {
            () = shutdown.cancelled() => {
                return Err(CliError::later(format!("stopped by a signal before {origin} was read")));
            }
            bytes = bytes => bytes
                .unwrap_or_else(|_| Err(std::io::Error::other("its reader has died")))
                .map_err(unread),
        }
    };
    bytes
        .and_then(|bytes| Documents::parse_bytes(&origin, bytes))
        .map_err(|error| CliError::usage(explained(&error)))
}

/// All workloads, valid ones.
pub(super) fn all(documents: Documents, validate: Validate<'_>) -> Result<Documents, CliError> {
    let mut wrong = Vec::new();
    for workload in &documents.workloads {
        let errors = validate(&workload.pod);
        wrong.extend(errors.into_iter().map(|error| located(workload, &error)));
    }
    if wrong.is_empty() {
        Ok(documents)
    } else {
        Err(CliError::all(wrong))
    }
}

/// The workload of documents that have one.
pub(super) fn only(documents: Documents, validate: Validate<'_>) -> Result<Checked, CliError> {
    let Documents {
        mut workloads,
        skipped,
    } = all(documents, validate)?;
    let skipped = skipped
        .into_iter()
        .map(|one| {
            format!(
                "{} {:?} (line {}) has no pod, and is left out",
                one.kind, one.name, one.line
            )
        })
        .collect();
    if workloads.len() > 1 {
        let titles: Vec<String> = workloads
            .iter()
            .map(|one| format!("{} (line {})", one.title(), one.line))
            .collect();
        return Err(CliError::usage(format!(
            "{} has {} pods: {}; give a file with one of them",
            workloads[0].origin,
            titles.len(),
            titles.join(", ")
        )));
    }
    let workload = workloads
        .pop()
        .ok_or_else(|| CliError::usage("there is no pod; give the manifest of one"))?;
    Ok(Checked { workload, skipped })
}

/// What cannot be probed.
pub(super) fn problems(workload: &Workload, error: &ConvertError) -> CliError {
    let lines = error
        .problems
        .iter()
        .map(|problem| located(workload, &problem.to_string()));
    CliError::all(lines.collect())
}

/// A message about a pod, with file and workload.
fn located(workload: &Workload, message: &str) -> String {
    format!(
        "{}:{}: {}: {}{message}",
        workload.origin,
        workload.line,
        workload.title(),
        workload.prefix
    )
}

fn explained(error: &ManifestError) -> String {
    let mut line = error.to_string();
    if let Some(cause) = error.source() {
        line.push_str(": ");
        line.push_str(&cause.to_string());
    }
    match error {
        ManifestError::Read { .. } => line.push_str("; -f takes a file, or - for standard input"),
        ManifestError::NoPod { .. } => {
            line.push_str("; give a Pod, or something with a pod template, such as a Deployment");
        }
        ManifestError::TooLarge { .. } | ManifestError::Malformed { .. } => {}
    }
    line
}
