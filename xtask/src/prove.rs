//! `prove`: what README claims, measured on Kubernetes' own control plane, with Evenkeel and without it.
//!
//! Each result is a file in `target/prove`, so that a run that was interrupted goes on where it was. A result
//! with Evenkeel counts for one state of the sources, and stays on the page until there is a newer one; the
//! page says of which commits its results are. A result without Evenkeel is valid until its scenario or the
//! release of Kubernetes changes.

mod page;
mod rows;
mod run;

use crate::real;
use anyhow::{Context, bail};
use rows::{ROWS, Row, Stock};
use run::Task;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::VecDeque,
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

/// What the programs are made of, for git.
const WHAT_RUNS: &[&str] = &[
    "crates",
    "deploy",
    "Cargo.lock",
    ":(exclude)crates/testkit",
    ":(exclude,glob)crates/*/tests/**",
    ":(exclude,glob)crates/*/benches/**",
];
/// Runs in one task, so that little is lost by an interruption.
const BATCH: usize = 5;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these rows
    #[arg(value_name = "ROW")]
    rows: Vec<String>,
    /// How many labs run side by side, each with a control plane of its own
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=8))]
    jobs: u8,
    /// Run nothing: say what is missing, and write the page
    #[arg(long)]
    page: bool,
}

/// With Evenkeel, or Kubernetes alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Evenkeel,
    Stock,
}

/// What a task left in its file.
#[derive(Serialize, Deserialize)]
struct Outcome {
    /// The scenario that it counts for.
    scenario: String,
    /// The sources that it counts for; of Kubernetes alone none.
    sources: String,
    commit: String,
    date: String,
    /// Load of the machine, 1-minute average, at the end.
    load: String,
    /// What the lab reported of each run.
    runs: Vec<Value>,
}

pub(crate) fn run(root: &Path, args: &Args) -> anyhow::Result<()> {
    for name in &args.rows {
        if !ROWS.iter().any(|row| row.name == name) {
            let known: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
            bail!("there is no row `{name}`; there are {}", known.join(", "));
        }
    }
    let prover = Prover::new(root)?;
    let wanted = |row: &&Row| args.rows.is_empty() || args.rows.iter().any(|name| name == row.name);
    let mut missing = VecDeque::new();
    for row in ROWS.iter().filter(wanted) {
        missing.extend(prover.missing(row)?);
    }
    let mut out = std::io::stdout();
    for task in &missing {
        writeln!(out, "missing: {} ({} runs)", task.name, task.runs).context("cannot write")?;
    }
    let mut troubles: Vec<String> = Vec::new();
    if args.page {
        troubles.extend(missing.iter().map(|task| format!("{} is missing", task.name)));
    } else if !missing.is_empty() {
        let tools = run::Tools::build(root)?;
        // The longest first, so that the last one does not run alone.
        missing
            .make_contiguous()
            .sort_by_key(|task| std::cmp::Reverse(task.runs));
        let (queue, failed) = (Mutex::new(missing), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for slot in 0..args.jobs {
                let (queue, failed, tools, prover) = (&queue, &failed, &tools, &prover);
                scope.spawn(move || {
                    while let Some(task) = queue.lock().ok().and_then(|mut tasks| tasks.pop_front()) {
                        if let Err(error) = prover.play(tools, slot, &task)
                            && let Ok(mut failed) = failed.lock()
                        {
                            failed.push(format!("{}: {error:#}", task.name));
                        }
                    }
                });
            }
        });
        troubles = failed.into_inner().unwrap_or_default();
    }
    troubles.extend(prover.write_page()?);
    if !troubles.is_empty() {
        bail!("not proven:\n{}", troubles.join("\n"));
    }
    Ok(())
}

struct Prover {
    root: PathBuf,
    results: PathBuf,
    /// Held as long as this process runs.
    _lock: File,
    /// The release of Kubernetes.
    release: String,
    commit: String,
    /// The sources of everything that runs, by git.
    sources: String,
}

impl Prover {
    fn new(root: &Path) -> anyhow::Result<Self> {
        let of_what_runs = |command: &[&str]| git(root, &[command, &["--"], WHAT_RUNS].concat());
        let changed = of_what_runs(&["status", "--porcelain"])?;
        let mut commit = git(root, &["rev-parse", "--short", "HEAD"])?;
        let mut sources = of_what_runs(&["ls-files", "--stage"])?;
        if !changed.is_empty() {
            commit.push_str(", changed");
            sources.push_str(&changed);
            sources.push_str(&of_what_runs(&["diff", "HEAD"])?);
        }
        let results = root.join("target/prove");
        std::fs::create_dir_all(&results).with_context(|| format!("cannot make {}", results.display()))?;
        let path = results.join("lock");
        let lock = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        if lock.try_lock().is_err() {
            bail!(
                "another `cargo xtask prove` runs in {}; wait until it has ended",
                results.display()
            );
        }
        Ok(Self {
            root: root.to_owned(),
            results,
            _lock: lock,
            release: real::release(root)?,
            commit,
            sources,
        })
    }

    /// The tasks of a row and a side, done or not.
    fn tasks(&self, row: &Row, side: Side) -> anyhow::Result<Vec<Task>> {
        let (scenario, runs) = match (side, &row.stock) {
            (Side::Evenkeel, _) => (row.scenario, row.runs),
            (Side::Stock, Stock::Played(scenario, runs)) => (*scenario, *runs),
            (Side::Stock, Stock::As(_)) => return Ok(Vec::new()),
        };
        let file = self
            .root
            .join(format!("interop/kubernetes/scenarios/{scenario}.yaml"));
        let built_in = self.root.join(format!("crates/lab/scenarios/{scenario}.yaml"));
        let (scenario, file) = if file.is_file() {
            (file.display().to_string(), file)
        } else {
            (scenario.to_owned(), built_in)
        };
        let text = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
        let text = format!("{} {text}", self.release);
        let suffix = match side {
            Side::Evenkeel => "evenkeel",
            Side::Stock => "stock",
        };
        let batch = match side {
            Side::Evenkeel => BATCH,
            Side::Stock => 1,
        };
        Ok((0..runs.div_ceil(batch))
            .map(|number| Task {
                name: format!("{}.{suffix}.{number}", row.name),
                scenario: scenario.clone(),
                runs: batch.min(runs - number * batch),
                agents: side == Side::Evenkeel,
                installed: side == Side::Evenkeel && row.installed,
                state: digest(&text),
            })
            .collect())
    }

    fn missing(&self, row: &Row) -> anyhow::Result<Vec<Task>> {
        let mut tasks = self.tasks(row, Side::Evenkeel)?;
        tasks.extend(self.tasks(row, Side::Stock)?);
        Ok(tasks
            .into_iter()
            .filter(|task| {
                let outcome = self.outcome(task);
                outcome.is_none_or(|outcome| outcome.sources != self.sources_of(task))
            })
            .collect())
    }

    fn file(&self, task: &Task) -> PathBuf {
        self.results.join(format!("{}.json", task.name))
    }

    /// What a result of this task depends on, beside its scenario.
    fn sources_of(&self, task: &Task) -> String {
        if task.agents {
            digest(&self.sources)
        } else {
            String::new()
        }
    }

    /// What a task has left of this scenario, perhaps of older sources.
    fn outcome(&self, task: &Task) -> Option<Outcome> {
        let text = std::fs::read(self.file(task)).ok()?;
        let outcome: Outcome = serde_json::from_slice(&text).ok()?;
        (outcome.scenario == task.state).then_some(outcome)
    }

    fn play(&self, tools: &run::Tools, slot: u8, task: &Task) -> anyhow::Result<()> {
        let mut out = std::io::stdout();
        writeln!(out, "{}: begun", task.name).context("cannot write")?;
        let runs = tools.play(&self.results.join(format!("slot-{slot}")), slot, task)?;
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let outcome = Outcome {
            scenario: task.state.clone(),
            sources: self.sources_of(task),
            commit: self.commit.clone(),
            date: date()?,
            load: load.split_whitespace().next().unwrap_or("?").to_owned(),
            runs,
        };
        let passed = outcome.runs.iter().filter(|run| run["passed"] == true).count();
        let file = self.file(task);
        std::fs::write(&file, serde_json::to_vec_pretty(&outcome)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        writeln!(
            out,
            "{}: every assertion held in {passed} of {} runs",
            task.name,
            outcome.runs.len()
        )
        .context("cannot write")
    }

    /// Writes docs/real.md; returns what is missing or did not hold.
    fn write_page(&self) -> anyhow::Result<Vec<String>> {
        let mut rows = Vec::new();
        for row in &ROWS {
            let outcomes = |side| -> anyhow::Result<Vec<Outcome>> {
                let tasks = self.tasks(row, side)?;
                Ok(tasks.iter().filter_map(|task| self.outcome(task)).collect())
            };
            rows.push((row, outcomes(Side::Evenkeel)?, outcomes(Side::Stock)?));
        }
        let (text, troubles) = page::write(&rows, &self.release);
        let file = self.root.join("docs/real.md");
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(troubles)
    }
}

fn git(root: &Path, args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").args(args).current_dir(root).output();
    let output = output.context("cannot start git")?;
    if !output.status.success() {
        bail!(
            "git {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn date() -> anyhow::Result<String> {
    let output = Command::new("date").args(["--utc", "+%F %H:%M"]).output();
    let output = output.context("cannot start date")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Tells states of sources apart; nobody forges them.
fn digest(text: &str) -> String {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
