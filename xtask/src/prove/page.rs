//! The page of what was measured.

use super::{
    Outcome,
    rows::{Row, Stock},
};
use serde_json::Value;
use std::{collections::BTreeSet, fmt::Write as _};

/// One measure over all runs of a row.
#[derive(Debug, PartialEq)]
enum Measured {
    /// The most that was counted, and the earliest time of one of these, where it is known.
    Count(u64, Option<f64>),
    /// Seconds; `None` did not happen in time.
    Seconds(Vec<Option<f64>>),
    Text(String),
}

/// The page, and what is missing or did not hold.
pub(super) fn write(rows: &[(&Row, Vec<Outcome>, Vec<Outcome>)], release: &str) -> (String, Vec<String>) {
    let mut troubles = Vec::new();
    let mut text = format!(
        "# On Kubernetes' own control plane\n\n\
         kube-apiserver, kube-controller-manager, kube-scheduler and etcd of Kubernetes {release} with their own timers, built of their Go\n\
         modules ([interop/kubernetes](../interop/kubernetes/README.md)); machines, agents and controllers of `evenkeel lab --join KUBECONFIG`. Containers and\n\
         links are the lab's: see [scenarios](scenarios.md). `cargo xtask prove` plays what is missing and writes this page.\n\n\
         {}\n\n\
         | what happens | with Evenkeel | Kubernetes alone | held |\n|---|---|---|---|\n",
        machine()
    );
    for (row, evenkeel, stock) in rows {
        let runs: Vec<&Value> = evenkeel.iter().flat_map(|outcome| &outcome.runs).collect();
        let verdict = verdict(row, &runs);
        if let Err(why) = &verdict {
            troubles.push(format!("{}: {why}", row.name));
        }
        let alone: Vec<&Value> = stock.iter().flat_map(|outcome| &outcome.runs).collect();
        let alone = match &row.stock {
            Stock::As(other) => format!("as in `{other}`"),
            Stock::Played(_, wanted) => {
                if alone.len() < *wanted {
                    let found = alone.len();
                    troubles.push(format!("{}: {found} of {wanted} runs without Evenkeel", row.name));
                }
                if alone.is_empty() {
                    "not measured".to_owned()
                } else {
                    summary(&alone)
                }
            }
        };
        let commits: BTreeSet<&str> = evenkeel.iter().map(|outcome| outcome.commit.as_str()).collect();
        let commits = commits.into_iter().collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            text,
            "| {} (`{}`) | {} | {alone} | {} |",
            row.what,
            row.name,
            if runs.is_empty() {
                "not measured".to_owned()
            } else {
                summary(&runs)
            },
            verdict.map_or_else(|why| format!("**no**: {why}"), |()| format!("yes ({commits})")),
        );
    }
    let all = || {
        rows.iter()
            .flat_map(|(_, evenkeel, stock)| evenkeel.iter().chain(stock))
    };
    let dates = || all().map(|outcome| outcome.date.as_str());
    let loads = || all().filter_map(|outcome| outcome.load.parse::<f64>().ok());
    let _ = write!(
        text,
        "\nPlayed from {} to {} (UTC), each row at the commit in its last column; load of the machine at the end of a run between {:.1} and {:.1}, since several labs ran side by\n\
         side. Times of many runs are the median, the shortest and the longest. `lost` and `moved` count endpoints and pods that were\n\
         there when the last fault struck, the most of any part of a scenario; the time is that of the first one, since that fault.\n",
        dates().min().unwrap_or("-"),
        dates().max().unwrap_or("-"),
        loads().fold(f64::INFINITY, f64::min),
        loads().fold(0.0, f64::max),
    );
    (text, troubles)
}

/// Why a row does not hold.
fn verdict(row: &Row, runs: &[&Value]) -> Result<(), String> {
    if runs.len() < row.runs {
        return Err(format!("{} of {} runs", runs.len(), row.runs));
    }
    let failed = runs.iter().filter(|run| run["passed"] != true).count();
    if failed > 0 {
        return Err(format!("an assertion failed in {failed} of {} runs", runs.len()));
    }
    for (measure, p50, p99) in row.goals {
        let found = measures(runs).into_iter().find(|(name, _)| name == measure);
        let Some((_, Measured::Seconds(seconds))) = found else {
            return Err(format!("{measure} was not measured"));
        };
        for (percent, goal) in [(50, *p50), (99, *p99)] {
            match percentile(&seconds, percent) {
                Some(found) if found <= goal => {}
                found => {
                    let found = found.map_or("not in time".to_owned(), |found| format!("{found:.1} s"));
                    return Err(format!(
                        "{measure}: {percent} % took {found}, and {goal} s is the goal"
                    ));
                }
            }
        }
    }
    Ok(())
}

fn summary(runs: &[&Value]) -> String {
    let mut parts: Vec<String> = measures(runs)
        .into_iter()
        .map(|(name, measured)| match measured {
            Measured::Count(0, _) => format!("{name}: 0"),
            Measured::Count(count, None) => format!("{name}: {count}"),
            Measured::Count(count, Some(first)) => format!("{name}: {count}, from {first:.0} s"),
            Measured::Text(text) => text,
            Measured::Seconds(seconds) => {
                let never = seconds.iter().filter(|one| one.is_none()).count();
                let last = percentile(&seconds, 100);
                match (percentile(&seconds, 50), percentile(&seconds, 1), last) {
                    (Some(median), Some(first), Some(last)) if seconds.len() > 1 => {
                        format!("{name}: {median:.1} s ({first:.1} to {last:.1})")
                    }
                    (Some(one), _, Some(_)) => format!("{name}: {one:.1} s"),
                    _ => format!("{name}: not in time in {never} of {} runs", seconds.len()),
                }
            }
        })
        .collect();
    parts.extend(
        runs.iter()
            .filter_map(|run| run["aborted"].as_str())
            .map(|why| format!("ended early: {why}")),
    );
    if runs.len() > 1 {
        parts.push(format!("{} runs", runs.len()));
    }
    parts.join("; ").replace('|', "\\|")
}

/// Every measure of the runs, in the order in which it first was.
fn measures(runs: &[&Value]) -> Vec<(String, Measured)> {
    let mut found: Vec<(String, Measured)> = Vec::new();
    for finding in runs
        .iter()
        .filter_map(|run| run["assertions"].as_array())
        .flatten()
    {
        let name = finding["measure"].as_str().unwrap_or_default();
        let measured = match (finding["count"].as_u64(), finding["limit"].as_str()) {
            (Some(count), _) => Measured::Count(count, first(&finding["detail"])),
            (None, Some(limit)) if limit.ends_with(" s") => {
                Measured::Seconds(vec![finding["seconds"].as_f64()])
            }
            _ => Measured::Text(format!(
                "{name}: {}",
                finding["measured"].as_str().unwrap_or_default()
            )),
        };
        match found.iter_mut().find(|(known, _)| known == name) {
            None => found.push((name.to_owned(), measured)),
            Some((_, Measured::Seconds(seconds))) => {
                if let Measured::Seconds(more) = measured {
                    seconds.extend(more);
                }
            }
            Some((_, known)) => {
                if matches!((&*known, &measured), (Measured::Count(a, _), Measured::Count(b, _)) if b > a) {
                    *known = measured;
                }
            }
        }
    }
    found
}

/// The earliest `after N s` of a list of objects.
fn first(detail: &Value) -> Option<f64> {
    let times = detail.as_array()?.iter().filter_map(|line| {
        let (_, time) = line.as_str()?.rsplit_once(" after ")?;
        time.strip_suffix(" s")?.parse::<f64>().ok()
    });
    times.min_by(f64::total_cmp)
}

/// The nearest rank; what did not happen in time is longer than all others.
fn percentile(seconds: &[Option<f64>], percent: usize) -> Option<f64> {
    let mut sorted: Vec<f64> = seconds.iter().flatten().copied().collect();
    sorted.sort_by(f64::total_cmp);
    let rank = (seconds.len() * percent).div_ceil(100);
    rank.checked_sub(1).and_then(|index| sorted.get(index)).copied()
}

/// What it ran on.
fn machine() -> String {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    let cpu = read("/proc/cpuinfo");
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
    let memory = memory.trim_end_matches(" kB").parse::<u64>().unwrap_or_default() / (1 << 20);
    let model = field(&cpu, "model name").unwrap_or_default();
    format!("Machine: {cores} cores ({model}), {memory} GiB.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(passed: bool, seconds: Option<f64>, lost: u64) -> Value {
        json!({"passed": passed, "assertions": [
            {"measure": "endpoints out", "limit": "<= 6 s", "seconds": seconds, "count": null, "measured": "x"},
            {"measure": "endpoints lost", "limit": "0", "seconds": null, "count": lost, "measured": "x",
             "detail": ["web-1 of web on shore-2 after 50.5 s", "web-2 of web on shore-2 after 45.1 s"]},
        ]})
    }

    fn row(runs: usize) -> Row {
        Row {
            name: "x",
            what: "x",
            scenario: "x",
            installed: false,
            runs,
            stock: Stock::As("y"),
            goals: &[("endpoints out", 4.0, 6.0)],
        }
    }

    #[test]
    fn a_row_says_the_spread_and_the_worst() {
        let runs = [
            run(true, Some(3.0), 0),
            run(true, Some(5.0), 2),
            run(true, Some(3.5), 1),
        ];
        let text = summary(&runs.iter().collect::<Vec<_>>());
        assert_eq!(
            text,
            "endpoints out: 3.5 s (3.0 to 5.0); endpoints lost: 2, from 45 s; 3 runs"
        );
        let late = [run(false, None, 0)];
        let text = summary(&late.iter().collect::<Vec<_>>());
        assert_eq!(
            text,
            "endpoints out: not in time in 1 of 1 runs; endpoints lost: 0"
        );
    }

    #[test]
    fn a_row_holds_only_with_all_runs_assertions_and_goals() {
        let good = run(true, Some(3.0), 0);
        assert_eq!(verdict(&row(1), &[&good]), Ok(()));
        let why = |runs: &[&Value], wanted| verdict(&row(wanted), runs).unwrap_err();
        assert_eq!(why(&[&good], 2), "1 of 2 runs");
        assert_eq!(
            why(&[&run(false, Some(3.0), 1)], 1),
            "an assertion failed in 1 of 1 runs"
        );
        assert!(why(&[&run(true, Some(4.5), 0)], 1).contains("50 % took 4.5 s"));
        let slow = run(true, Some(6.5), 0);
        assert!(why(&[&good, &good, &slow], 3).contains("99 % took 6.5 s"));
        assert!(why(&[&run(true, None, 0)], 1).contains("not in time"));
    }

    #[test]
    fn a_page_says_what_is_missing() {
        let row = row(1);
        let (text, troubles) = write(&[(&row, Vec::new(), Vec::new())], "1.36.2");
        assert!(
            text.contains("| x (`x`) | not measured | as in `y` | **no**: 0 of 1 runs |"),
            "{text}"
        );
        assert_eq!(troubles, ["x: 0 of 1 runs"]);
    }
}
