//! `evenkeel lab run`: a scenario, once or many times, each time in a lab of its own.

use super::{LabArgs, LabError, Outcome, Shape, settings, start, stop, take_orders};
use crate::{
    console::Console,
    join::Joinable,
    play::{Played, play},
    report::{Figures, Report},
    running::Settings,
    scenario::Scenario,
};
use std::{path::Path, sync::Arc};
use tokio_util::sync::CancellationToken;

pub(super) async fn run_scenario(
    args: &LabArgs,
    name: &str,
    repeat: u32,
    report: Option<&Path>,
    shutdown: CancellationToken,
) -> Result<Outcome, LabError> {
    let scenario = Scenario::load(name)?;
    let unwritable = |path: &Path, source| LabError::Report {
        path: path.to_owned(),
        source,
    };
    if let Some(path) = report {
        // Found out now, not after three minutes. What an earlier command wrote is not to be taken for this
        // one's.
        std::fs::write(path, "").map_err(|source| unwritable(path, source))?;
    }
    let join = args.cluster(&shutdown).await?;
    let without_control = join.as_ref().is_some_and(|join| join.cluster.control().is_none());
    if without_control && scenario.stops_the_api_server() {
        let why = format!("{name} stops the API server; say with --control-plane by which command");
        return Err(LabError::Usage(why));
    }
    let server = join
        .as_ref()
        .map_or("the lab's own API server".to_owned(), |join| {
            format!("Kubernetes {}", join.version)
        });
    let console = Console::new();
    let mut runs = Vec::new();
    // What was measured is reported also where a later run fails, or is interrupted before it begins.
    let (mut stopped, mut interrupted) = (Ok(()), false);
    for number in 0..repeat {
        if repeat > 1 {
            console.text(&format!("\nrun {} of {repeat}\n", number + 1));
        }
        let begun = console.elapsed();
        let seed = args.seed.wrapping_add(u64::from(number));
        let once = run_once(args, &scenario, (seed, join.clone()), &console, &shutdown).await;
        let played = match once {
            Ok(Some((played, end))) => {
                stopped = end;
                played
            }
            Ok(None) => {
                interrupted = true;
                break;
            }
            Err(error) => {
                stopped = Err(error);
                break;
            }
        };
        let elapsed = console.elapsed().saturating_sub(begun).as_secs_f64();
        let report = Report::new(&scenario.name, &server, !args.without_agents, &played, elapsed);
        report_outcome(&report, &played, &console);
        interrupted = played.interrupted;
        runs.push((played, elapsed));
        if interrupted || stopped.is_err() {
            break;
        }
    }
    let reports: Vec<Report<'_>> = runs
        .iter()
        .map(|(played, elapsed)| Report::new(&scenario.name, &server, !args.without_agents, played, *elapsed))
        .collect();
    let figures = Figures::new(&reports);
    if let Some(path) = report.filter(|_| !reports.is_empty()) {
        let written = match reports.first() {
            Some(only) if repeat == 1 => only.write(path),
            _ => figures.write(path),
        };
        written.map_err(|source| unwritable(path, source))?;
    }
    if repeat > 1 {
        console.text(&format!("\n{}", figures.table()));
    }
    stopped?;
    if interrupted {
        return Ok(Outcome::Interrupted);
    }
    let passed = reports.iter().all(|report| report.passed);
    Ok(if passed { Outcome::Success } else { Outcome::Failed })
}

/// Plays a scenario in a lab of its own, and how that stopped; `None` if it was interrupted before that was
/// up.
async fn run_once(
    args: &LabArgs,
    scenario: &Scenario,
    (seed, join): (u64, Option<Joinable>),
    console: &Console,
    shutdown: &CancellationToken,
) -> Result<Option<(Played, Result<(), LabError>)>, LabError> {
    let shape = Shape {
        layout: scenario.layout(),
        controllers: scenario.controllers(),
        profile: scenario.profile,
        stock: scenario.stock,
    };
    let settings = Settings {
        seed,
        ..settings(args, shape, join)?
    };
    let Some(lab) = start(settings, console, shutdown).await? else {
        return Ok(None);
    };
    let lab = Arc::new(lab);
    let serving = take_orders(&lab).await?;
    let played = play(&lab, scenario, console, shutdown).await;
    let stopped = stop(&lab, serving).await;
    Ok(Some((played?, stopped)))
}

/// The table of one run, and its verdict.
fn report_outcome(report: &Report<'_>, played: &Played, console: &Console) {
    let verdict = match (&played.aborted, report.passed) {
        (Some(reason), _) => format!("FAILED: {reason}"),
        (None, true) => "every assertion held".to_owned(),
        (None, false) if played.interrupted => "interrupted".to_owned(),
        (None, false) => "FAILED: not every assertion held".to_owned(),
    };
    if !played.findings.is_empty() {
        console.text(&format!("\n{}", report.table()));
    }
    let (name, server, elapsed) = (report.scenario, report.server, report.elapsed_seconds);
    console.text(&format!("\n{name}: {verdict} ({elapsed:.0} s, on {server})\n"));
}
