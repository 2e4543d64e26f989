//! What came of a scenario, as a table and as JSON.

use crate::{play::Played, scenario::assertions::Finding};
use evenkeel_kube_values::terminal::table;
use serde::Serialize;
use std::{io, path::Path};

/// The report that `--report` writes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report<'a> {
    /// Name of the scenario.
    pub scenario: &'a str,
    /// On what it was played: the lab's own API server, or a release of Kubernetes.
    pub server: &'a str,
    /// Whether Evenkeel's agents and controller ran.
    pub agents: bool,
    /// Whether every assertion held.
    pub passed: bool,
    /// Why the run ended before its last step.
    pub aborted: Option<&'a str>,
    /// Seconds from the start of the command to the end of the last step.
    pub elapsed_seconds: f64,
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
    pub step: &'a str,
}

impl<'a> Report<'a> {
    /// Of one run.
    pub fn new(
        scenario: &'a str,
        server: &'a str,
        agents: bool,
        played: &'a Played,
        elapsed_seconds: f64,
    ) -> Self {
        Self {
            scenario,
            server,
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
        write_json(self, path)
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

/// What many runs of one scenario measured.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures<'a> {
    /// How many runs there were.
    pub count: usize,
    /// In how many of them every assertion held.
    pub passed: usize,
    /// What was measured, in the order in which it first was.
    pub figures: Vec<Figure>,
    pub runs: &'a [Report<'a>],
}

/// The distribution of one measure in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figure {
    pub measure: &'static str,
    /// How often it was looked at.
    pub count: usize,
    /// How often it did not happen in time. These count as longer than all others.
    pub missed: usize,
    /// Half of the runs took at most this long; nothing if it did not happen in half of them.
    pub p50: Option<f64>,
    /// The same for 99 of 100. With fewer than 100 runs it is the longest.
    pub p99: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
}

impl<'a> Figures<'a> {
    /// Of these runs.
    pub fn new(runs: &'a [Report<'a>]) -> Self {
        let mut measures: Vec<(&'static str, Vec<Option<f64>>)> = Vec::new();
        // Counts have no distribution worth a table: their limits say what is allowed.
        let timed = runs
            .iter()
            .flat_map(|run| run.assertions)
            .filter(|finding| finding.count.is_none() && finding.limit.ends_with(" s"));
        for finding in timed {
            match measures
                .iter_mut()
                .find(|(measure, _)| *measure == finding.measure)
            {
                Some((_, seconds)) => seconds.push(finding.seconds),
                None => measures.push((finding.measure, vec![finding.seconds])),
            }
        }
        Self {
            count: runs.len(),
            passed: runs.iter().filter(|run| run.passed).count(),
            figures: measures
                .into_iter()
                .map(|(measure, seconds)| Figure::new(measure, &seconds))
                .collect(),
            runs,
        }
    }

    /// Writes them, with each run, as JSON.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        write_json(self, path)
    }

    /// The table at the end of many runs.
    pub fn table(&self) -> String {
        let head = [
            "MEASURE",
            "RUNS",
            "NOT IN TIME",
            "P50",
            "P99",
            "SHORTEST",
            "LONGEST",
        ]
        .map(str::to_owned);
        let told = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), |it| format!("{it:.1} s"));
        let rows = self.figures.iter().map(|figure| {
            [
                figure.measure.to_owned(),
                figure.count.to_string(),
                figure.missed.to_string(),
                told(figure.p50),
                told(figure.p99),
                told(figure.min),
                told(figure.max),
            ]
        });
        let rows: Vec<[String; 7]> = std::iter::once(head).chain(rows).collect();
        format!(
            "{}every assertion held in {} of {} runs\n",
            table(&rows),
            self.passed,
            self.count
        )
    }
}

impl Figure {
    fn new(measure: &'static str, measured: &[Option<f64>]) -> Self {
        let mut seconds: Vec<f64> = measured.iter().flatten().copied().collect();
        seconds.sort_by(f64::total_cmp);
        // The nearest rank: the smallest value that at least so many percent of all do not exceed.
        let percentile = |percent: usize| {
            let rank = (measured.len() * percent).div_ceil(100);
            rank.checked_sub(1).and_then(|index| seconds.get(index)).copied()
        };
        Self {
            measure,
            count: measured.len(),
            missed: measured.len() - seconds.len(),
            p50: percentile(50),
            p99: percentile(99),
            min: seconds.first().copied(),
            max: seconds.last().copied(),
        }
    }
}

fn write_json(what: &impl Serialize, path: &Path) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(what).map_err(io::Error::other)?;
    text.push(b'\n');
    std::fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(held: bool) -> Finding {
        Finding {
            event: "shore-4 off: endpoints out".to_owned(),
            measure: "endpoints out",
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
        assert!(Report::new("tour", "here", true, &played, 1.0).passed);
        played.findings.push(finding(false));
        assert!(!Report::new("tour", "here", true, &played, 1.0).passed);
        let aborted = Played {
            aborted: Some("step 3".to_owned()),
            ..Played::default()
        };
        assert!(!Report::new("tour", "here", true, &aborted, 1.0).passed);
        let interrupted = Played {
            interrupted: true,
            ..Played::default()
        };
        let report = Report::new("tour", "here", true, &interrupted, 1.0);
        assert!(!report.passed);
        assert_eq!(report.aborted, Some("interrupted"));
    }

    #[test]
    fn the_table_says_what_was_measured_and_what_stock_does() {
        let played = Played {
            findings: vec![finding(true), finding(false)],
            ..Played::default()
        };
        let table = Report::new("tour", "here", true, &played, 1.0).table();
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
        Report::new("tour", "here", false, &played, 12.34)
            .write(&path)
            .unwrap();
        let read: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(read["assertions"][0]["seconds"], 4.2);
        assert_eq!(read["assertions"][0]["held"], true);
        assert_eq!(
            (&read["agents"], &read["elapsedSeconds"]),
            (&false.into(), &12.3.into())
        );
        assert_eq!(read["steps"][0]["step"], "cut");
        assert!(
            Report::new("tour", "here", false, &played, 1.0)
                .write(place.path())
                .is_err(),
            "a folder is no file"
        );
    }

    #[test]
    fn many_runs_have_a_distribution() {
        let run = |seconds: Option<f64>| Played {
            findings: vec![Finding {
                seconds,
                held: seconds.is_some(),
                ..finding(true)
            }],
            ..Played::default()
        };
        let mut played: Vec<Played> = (1..=9).rev().map(|number| run(Some(f64::from(number)))).collect();
        played.push(run(None));
        let reports: Vec<Report<'_>> = played
            .iter()
            .map(|run| Report::new("x", "here", true, run, 1.0))
            .collect();
        let figures = Figures::new(&reports);
        assert_eq!((figures.count, figures.passed), (10, 9));
        let figure = &figures.figures[0];
        assert_eq!((figure.count, figure.missed), (10, 1));
        assert_eq!(
            (figure.p50, figure.p99),
            (Some(5.0), None),
            "one in ten did not happen"
        );
        assert_eq!((figure.min, figure.max), (Some(1.0), Some(9.0)));
        let table = figures.table();
        assert!(table.contains("endpoints out  10    1"), "{table}");
        assert!(
            table.ends_with("every assertion held in 9 of 10 runs\n"),
            "{table}"
        );
    }
}
