//! What will bite: rules that look at manifests before the kubelet does.
//!
//! Pure: workloads go in, findings come out, always in the same order. Each rule is a row of a table and a
//! small function; `docs/probe/lint.md` says the same in prose, and a test holds the two together.

mod budget;
mod handler;
mod lifecycle;
mod rules;
#[cfg(test)]
mod tests;

use crate::core::{Container, Kind, Pod, Probe};
use crate::manifest::{Workload, check_extras};
use evenkeel_api::names::annotations::PROBES;
use serde::Serialize;
use serde_json::Value;
use std::fmt;

pub use rules::{RULES, Rule};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; often right as it is.
    Info,
    /// Will hurt one day.
    Warning,
    /// The probe cannot work as it is.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// Something that will bite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// `EK-P001`; names the rule for good.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Which object: `Deployment default/web`.
    pub object: String,
    /// File it is from.
    pub origin: String,
    /// Line on which the object's document starts, from 1.
    pub line: u64,
    /// Field within the object: `spec.containers[0].livenessProbe.periodSeconds`.
    pub path: String,
    /// What will bite. Never shows the value of a header or a variable.
    pub message: String,
    /// Why it bites, in a sentence.
    pub why: &'static str,
    /// What to do.
    pub fix: &'static str,
}

/// All findings, in the order of the workloads and their containers. A pod that cannot be probed is told only
/// that.
pub fn lint(workloads: &[Workload]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for workload in workloads {
        let mut report = Report {
            workload,
            findings: &mut findings,
        };
        report.workload();
    }
    findings
}

/// Where a finding is, below what its rule looks at, and what it is.
type Hit = (String, String);

/// A finding at a field below what the rule looks at; empty for the thing itself.
#[allow(
    clippy::unnecessary_wraps,
    reason = "it ends functions that return an Option, thirty times"
)]
fn hit(field: &str, message: impl Into<String>) -> Option<Hit> {
    Some((field.to_owned(), message.into()))
}

/// What a rule looks at.
#[derive(Clone, Copy, Debug)]
enum Check {
    /// Nothing by itself: conversion and the reader of the annotation find it.
    Reader,
    /// Checks a pod as a whole.
    Pod(fn(&PodSeen) -> Option<Hit>),
    /// Each container, ordinary init containers excepted.
    Container(fn(&Seen) -> Option<Hit>),
    /// Checks each probe by itself.
    Probe(fn(&Seen, Kind, &Probe) -> Option<Hit>),
}

/// A pod, with what the prober has no use for.
#[derive(Clone, Copy, Debug)]
struct PodSeen<'a> {
    workload: &'a Workload,
    pod: &'a Pod,
}

/// A container, with what the prober has no use for.
#[derive(Clone, Copy, Debug)]
struct Seen<'a> {
    of: PodSeen<'a>,
    container: &'a Container,
    raw: &'a Value,
}

struct Report<'a> {
    workload: &'a Workload,
    findings: &'a mut Vec<Finding>,
}

impl Report<'_> {
    fn workload(&mut self) {
        let workload = self.workload;
        let pod = match workload.to_pod() {
            Ok(pod) => pod,
            Err(error) => {
                for problem in error.problems {
                    self.add(&rules::UNREADABLE, &problem.path, problem.message);
                }
                return;
            }
        };
        for problem in check_extras(&pod, &workload.pod) {
            self.add(&rules::ANNOTATION, &problem.path, problem.message);
        }
        let of = PodSeen { workload, pod: &pod };
        for rule in RULES {
            if let Check::Pod(check) = rule.check
                && let Some((path, message)) = check(&of)
            {
                self.add(rule, &path, message);
            }
        }
        let spec = &workload.pod["spec"];
        let regular = spec["containers"].as_array().map_or(0, Vec::len);
        for (index, container) in pod.containers.iter().enumerate() {
            let (list, index) = match index.checked_sub(regular) {
                None => ("containers", index),
                Some(index) => ("initContainers", index),
            };
            let seen = Seen {
                of,
                container,
                raw: &spec[list][index],
            };
            self.container(&seen, &format!("spec.{list}[{index}]"));
        }
    }

    fn container(&mut self, seen: &Seen, path: &str) {
        if seen.container.role == crate::core::Role::Init {
            return;
        }
        for rule in RULES {
            if let Check::Container(check) = rule.check
                && let Some((field, message)) = check(seen)
            {
                self.add(rule, &join(path, &field), message);
            }
        }
        for kind in Kind::ALL {
            let Some(probe) = seen.container.probe(kind) else {
                continue;
            };
            let path = join(path, kind.field());
            for rule in RULES {
                if let Check::Probe(check) = rule.check
                    && let Some((field, message)) = check(seen, kind, probe)
                {
                    self.add(rule, &join(&path, &field), message);
                }
            }
        }
    }

    fn add(&mut self, rule: &Rule, path: &str, message: String) {
        // The path of an annotation on the workload itself is not below its template.
        let prefix = if path.starts_with('/') {
            ""
        } else {
            self.workload.prefix
        };
        self.findings.push(Finding {
            code: rule.code,
            severity: rule.severity,
            object: self.workload.title(),
            origin: self.workload.origin.clone(),
            line: self.workload.line,
            path: format!("{prefix}{}", path.trim_start_matches('/')),
            message,
            why: rule.why,
            fix: rule.fix,
        });
    }
}

fn join(path: &str, field: &str) -> String {
    if field.is_empty() {
        path.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

/// The annotation on a workload instead of on its template.
fn misplaced_annotation(seen: &PodSeen) -> Option<Hit> {
    seen.workload.annotations.get(PROBES)?;
    hit(
        &format!("/metadata.annotations[{PROBES}]"),
        format!(
            "{PROBES} is on the {} itself, where no prober reads it",
            seen.workload.kind
        ),
    )
}

/// The rules as a document, in Markdown: what `docs/probe/lint.md` holds.
pub fn reference() -> String {
    use std::fmt::Write as _;
    let mut text = "# What `evenkeel probe lint` finds\n\nA finding has a code, which stays the same for good, a severity, the path of a field, \
                    what will bite, why, and what to do.\nAn *error* cannot work, a *warning* will hurt one day, an *info* is worth knowing and often right as it is.\n\n\
                    | code | severity | finding |\n|---|---|---|\n"
        .to_owned();
    for rule in RULES {
        let anchor = rule.code.to_lowercase();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| [{}](#{anchor}) | {} | {} |",
            rule.code, rule.severity, rule.title
        );
    }
    for rule in RULES {
        let _ = write!(
            text,
            "\n## {}\n\n**{}** ({})\n\n{}\n\nFix: {}\n",
            rule.code, rule.title, rule.severity, rule.why, rule.fix
        );
    }
    text
}
