//! `differential`: the same generated requests to two API servers, and every difference of their answers.
//!
//! One server is Kubernetes' own (`cargo xtask real`, without controllers: nobody else may write), the other
//! is the embedded one (`evenkeel apiserver`). A case is made of a seed and its number alone, so that each
//! can be played again. See `docs/differential.md`.

mod case;
mod compare;
mod generate;
mod kinds;
mod known;
mod normal;
mod play;
mod scenario;
mod server;
mod shrink;
mod tally;

use anyhow::{Context as _, bail};
use case::Case;
use compare::Difference;
use futures::StreamExt as _;
use kinds::Kind;
use play::Pair;
use serde_json::Value;
use server::Server;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use tally::Tally;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kubeconfig of the server that is right
    #[arg(long, value_name = "FILE")]
    real: PathBuf,
    /// Kubeconfig of the server that is examined
    #[arg(long, value_name = "FILE")]
    ours: PathBuf,
    /// Where the random choices begin; another one each day without it
    #[arg(long)]
    seed: Option<u64>,
    /// Play this case alone, and print its requests
    #[arg(long)]
    case: Option<u64>,
    /// How many cases are played
    #[arg(long, default_value_t = 1000)]
    cases: u64,
    /// Play these scenarios alone: create, update, apply, and others
    #[arg(long, value_delimiter = ',')]
    scenarios: Vec<String>,
    /// Play these kinds alone, as in Pod
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<String>,
    /// Cases at a time
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// Print the first case of each group as it is, not the smallest one
    #[arg(long)]
    no_shrink: bool,
    /// Where the smallest cases go, as recorded traffic with the real server's answers
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A directory for the cases that both servers answered alike, a file of recorded traffic each
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
}

/// Differences of one pattern.
struct Group {
    count: usize,
    kinds: BTreeSet<String>,
    case: Case,
    difference: Difference,
}

/// By what is done and by pattern.
type Groups = BTreeMap<(String, String), Group>;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // Both TLS providers may be compiled in; one is chosen.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start")?.block_on(compare(args))
}

async fn compare(args: &Args) -> anyhow::Result<()> {
    let pair = Pair::new(
        Server::connect(&args.real).await?,
        Server::connect(&args.ours).await?,
    );
    kinds::install(&pair.real).await.context("the real server")?;
    kinds::install(&pair.ours).await.context("our server")?;
    let (kinds, left_out) = kinds::common(&pair.real, &pair.ours).await?;
    let wanted: Vec<&Kind> = kinds
        .iter()
        .filter(|kind| args.kinds.is_empty() || args.kinds.contains(&kind.name))
        .collect();
    let scenarios: Vec<_> = scenario::SCENARIOS
        .into_iter()
        .filter(|(name, ..)| args.scenarios.is_empty() || args.scenarios.iter().any(|one| one == name))
        .collect();
    if wanted.is_empty() || scenarios.is_empty() {
        bail!(
            "nothing is left to play; known scenarios are {:?}",
            scenario::SCENARIOS.map(|(name, ..)| name)
        );
    }
    let seed = args.seed.unwrap_or_else(today);
    let mut out = std::io::stdout();
    writeln!(out, "seed {seed}, {} kinds", wanted.len())?;
    let numbers = match args.case {
        Some(number) => number..number + 1,
        None => 0..args.cases,
    };
    if args.case.is_none() {
        for line in &left_out {
            writeln!(out, "left out: {line}")?;
        }
    }
    let drawn = numbers.map(|number| scenario::draw(seed, number, &wanted, &scenarios));
    let played = futures::stream::iter(drawn.map(|case| async {
        let outcome = pair.play(&case).await;
        (case, outcome)
    }));
    let mut played = played.buffer_unordered(args.jobs.max(1));
    let mut groups = Groups::new();
    let (mut cases, mut differing, mut failed) = (0_u64, 0_u64, 0_u64);
    let mut tally = Tally::default();
    let mut listed: BTreeMap<&str, u64> = BTreeMap::new();
    while let Some((case, outcome)) = played.next().await {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                writeln!(out, "case {} of {}: {error:#}", case.number, case.kind)?;
                failed += 1;
                continue;
            }
        };
        cases += 1;
        tally.count(&case, &outcome.real);
        if args.case.is_some() {
            print(&mut out, &case, &outcome.real)?;
        }
        let Some((at, found)) = outcome.found else {
            if let Some(dir) = &args.record {
                record(dir, &case, &outcome.real)?;
            }
            continue;
        };
        let mut unknown = Vec::new();
        for difference in found {
            match known::find(&case, &difference) {
                Some(known) => *listed.entry(known.reason).or_default() += 1,
                None => unknown.push(difference),
            }
        }
        if unknown.is_empty() {
            continue;
        }
        differing += 1;
        note(&mut groups, &case, at, unknown);
    }
    let compared = pair.compared.load(Ordering::Relaxed);
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.count));
    let mut recorded = Vec::new();
    for ((verb, pattern), group) in &mut groups {
        if !args.no_shrink {
            group.case = shrink::shrink(&pair, group.case.clone(), pattern).await?;
            if let Some(difference) = shrink::shows(&pair, &group.case, pattern).await? {
                group.difference = difference;
            }
        }
        report(&mut out, verb, pattern, group)?;
        if args.json.is_some() {
            let real = pair.play(&group.case).await?.real;
            recorded.push(group.case.recorded(&real));
        }
    }
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&Value::Array(recorded))?;
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if args.case.is_none() {
        write!(out, "\n{tally}")?;
    }
    for (reason, count) in listed {
        writeln!(out, "listed, {count} x: {reason}")?;
    }
    writeln!(
        out,
        "{cases} cases, {compared} answers compared, {differing} cases differ, {} groups",
        groups.len()
    )?;
    if failed > 0 || (differing > 0 && args.case.is_none()) {
        bail!("{differing} cases differ in a way that is not listed, and {failed} could not be played");
    }
    Ok(())
}

/// Writes a case with the real server's answers in the format of recorded traffic.
fn record(dir: &Path, case: &Case, real: &[server::Answer]) -> anyhow::Result<()> {
    let recorded = case.recorded(real);
    let name = recorded["name"].as_str().unwrap_or_default();
    let file = dir.join(format!("{name}.json"));
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    std::fs::write(&file, recorded.to_string()).with_context(|| format!("cannot write {}", file.display()))
}

fn today() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs() / 86_400)
}

fn note(groups: &mut Groups, case: &Case, at: usize, found: Vec<Difference>) {
    let verb = case.steps[at].verb();
    let mut seen = BTreeSet::new();
    for difference in found {
        if !seen.insert(difference.pattern.clone()) {
            continue;
        }
        let key = (verb.clone(), difference.pattern.clone());
        let group = groups.entry(key).or_insert_with(|| {
            // What comes behind the difference has no part in it.
            let mut case = case.clone();
            case.steps.truncate(at + 1);
            Group {
                count: 0,
                kinds: BTreeSet::new(),
                case,
                difference,
            }
        });
        group.count += 1;
        group.kinds.insert(case.kind.clone());
    }
}

fn print(out: &mut impl std::io::Write, case: &Case, real: &[server::Answer]) -> std::io::Result<()> {
    for (step, answer) in case.steps.iter().zip(real) {
        writeln!(out, "{step}\n  real: {} {}", answer.status, answer.body)?;
    }
    Ok(())
}

fn report(out: &mut impl std::io::Write, verb: &str, pattern: &str, group: &Group) -> std::io::Result<()> {
    let kinds: Vec<&str> = group.kinds.iter().map(String::as_str).collect();
    writeln!(
        out,
        "\n## {} x {verb} | {pattern}\n   kinds: {}",
        group.count,
        kinds.join(", ")
    )?;
    writeln!(
        out,
        "   --seed {} --case {} ({})",
        group.case.seed, group.case.number, group.case.scenario
    )?;
    for step in &group.case.steps {
        writeln!(out, "   {step}")?;
    }
    writeln!(out, "   {}", group.difference)
}
