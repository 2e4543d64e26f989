//! What came of a scenario, as a table and as JSON.

use crate::{control::status::table, play::Played, scenario::assertions::Finding};
use serde::Serialize;
use std::{io, path::Path};

/// The report that `--report` writes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report<'a> {
    /// Name of the scenario.
    pub scenario: &'a str,
    /// Whether Evenkeel's agents and controller ran.
    pub agents: bool,
    /// Whether every assertion held.
    pub passed: bool,
    /// Why the run ended before its last step.
    pub aborted: Option<&'a str>,
    /// Seconds from the start of the command to the end of the last step.
    pub elapsed_seconds: f64,
    /// Each assertion.
    pub assertions: &'a [Finding],
    /// The steps with the seconds at which they were taken.
    pub steps: Vec<StepRow<'a>>,
}

/// One step as it was taken.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepRow<'a> {
    /// Seconds since the lab was up.
    pub at: f64,
    /// What it was.
    pub step: &'a str,
}

impl<'a> Report<'a> {
    /// Of one run.
    pub fn new(scenario: &'a str, agents: bool, played: &'a Played, elapsed_seconds: f64) -> Self {
        Self {
            scenario,
            agents,
            passed: played.passed(),
            aborted: played
                .aborted
                .as_deref()
                .or(played.interrupted.then_some("interrupted")),
            elapsed_seconds: (elapsed_seconds * 10.0).round() / 10.0,
            assertions: &played.findings,
            steps: played
                .script
                .iter()
                .map(|(at, step)| StepRow { at: *at, step })
                .collect(),
        }
    }

    /// Writes it as JSON.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        text.push(b'\n');
        std::fs::write(path, text)
    }

    /// The table at the end of a run.
    pub fn table(&self) -> String {
        let head = [
            "EVENT",
            "MEASURED",
            "WANTED",
            "STOCK KUBERNETES 1.36 (RECORDED)",
            "VERDICT",
        ]
        .map(str::to_owned);
        let rows: Vec<[String; 5]> = std::iter::once(head)
            .chain(self.assertions.iter().map(|finding| {
                [
                    finding.event.clone(),
                    finding.measured.clone(),
                    finding.limit.clone(),
                    finding.stock_recorded.to_owned(),
                    if finding.held { "held" } else { "FAILED" }.to_owned(),
                ]
            }))
            .collect();
        table(&rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(held: bool) -> Finding {
        Finding {
            event: "shore-4 off: endpoints out".to_owned(),
            measured: "4.2 s".to_owned(),
            seconds: Some(4.2),
            count: None,
            limit: "<= 10 s".to_owned(),
            stock_recorded: "44.6 s",
            held,
            detail: Vec::new(),
        }
    }

    #[test]
    fn the_report_tells_the_truth() {
        let mut played = Played {
            findings: vec![finding(true)],
            ..Played::default()
        };
        assert!(Report::new("tour", true, &played, 1.0).passed);
        played.findings.push(finding(false));
        assert!(!Report::new("tour", true, &played, 1.0).passed);
        let aborted = Played {
            aborted: Some("step 3".to_owned()),
            ..Played::default()
        };
        assert!(!Report::new("tour", true, &aborted, 1.0).passed);
        let interrupted = Played {
            interrupted: true,
            ..Played::default()
        };
        let report = Report::new("tour", true, &interrupted, 1.0);
        assert!(!report.passed);
        assert_eq!(report.aborted, Some("interrupted"));
    }

    #[test]
    fn the_table_says_what_was_measured_and_what_stock_does() {
        let played = Played {
            findings: vec![finding(true), finding(false)],
            ..Played::default()
        };
        let table = Report::new("tour", true, &played, 1.0).table();
        let rows: Vec<&str> = table.lines().collect();
        assert!(rows[0].contains("RECORDED"));
        assert_eq!(
            rows[1]
                .split("  ")
                .filter(|cell| !cell.is_empty())
                .map(str::trim)
                .collect::<Vec<_>>(),
            ["shore-4 off: endpoints out", "4.2 s", "<= 10 s", "44.6 s", "held"]
        );
        assert!(rows[2].ends_with("FAILED"));
    }

    #[test]
    fn the_file_is_json_with_the_measured_values() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("report.json");
        let played = Played {
            findings: vec![finding(true)],
            script: vec![(1.5, "cut".to_owned())],
            ..Played::default()
        };
        Report::new("tour", false, &played, 12.34).write(&path).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(read["assertions"][0]["seconds"], 4.2);
        assert_eq!(read["assertions"][0]["held"], true);
        assert_eq!(
            (&read["agents"], &read["elapsedSeconds"]),
            (&false.into(), &12.3.into())
        );
        assert_eq!(read["steps"][0]["step"], "cut");
        assert!(
            Report::new("tour", false, &played, 1.0)
                .write(place.path())
                .is_err(),
            "a folder is no file"
        );
    }
}
