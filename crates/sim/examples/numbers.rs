//! Measures zones with the shipping core and prints the numbers beside the goals.
//!
//! `cargo run --release -p evenkeel-sim --example numbers -- [--rows LIST] [--sizes LIST] [--deaths N]
//! [--hours N] [--losses LIST] [--first SEED]`
//!
//! Rows: `detection`, `reporter`, `loss`, `traffic`, `outage`, `mass`, `reports`, `readers`, `changes`,
//! `reporters`, `false`; all by default. Sizes: of a zone; by default 3,5,7,11,16,20,32,64. Above 64 a zone
//! is divided into cells, as the planner divides it: rows of 500 members take up to a minute, and rows of
//! 5,000 up to half an hour. `--hours` are node-hours of the row `false`, for each size and loss; `--losses`
//! are its losses in percent, by default 0,10,20,30. Its rows name the seeds that were played; a later call
//! goes on from there with `--first`.
#![allow(clippy::print_stdout, reason = "a table for people")]
#![allow(
    clippy::disallowed_methods,
    reason = "measures how long runs take; the simulator itself has no clock"
)]

use evenkeel_sim::groups::measured::{SETTLED, calm as calm_zones, good_network, lossy, outage as outage_of};
use evenkeel_sim::ledger::Broken;
use evenkeel_sim::measure::{Measured, Window};
use evenkeel_sim::rng::Rng;
use evenkeel_sim::script::{Network, SECOND};
use evenkeel_sim::zones::measured::{cells, measure, measure_by, reporters};
use evenkeel_sim::{Fault, Script, Step};
use nix::time::{ClockId, clock_gettime};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A victim is off for this long, and on for this long before the next one is chosen. In a zone of many cells
/// one of so many nodes is a victim at the same time.
const OFF: u64 = 25 * SECOND;
const ON: u64 = 45 * SECOND;
const ONE_OF: usize = 500;

/// What was measured, the goal, and whether it is met.
type Row = (String, &'static str, bool);

struct Settings {
    rows: Vec<String>,
    sizes: Vec<usize>,
    deaths: u64,
    hours: u64,
    losses: Vec<u64>,
    first: u64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let list = |name: &str, default: &str| -> Vec<String> {
        let text = value(name).unwrap_or_else(|| default.to_owned());
        text.split(',').map(str::to_owned).collect()
    };
    let number = |name: &str, default: u64| value(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let settings = Settings {
        rows: list(
            "--rows",
            "detection,reporter,loss,traffic,outage,mass,reports,readers,changes,reporters,false",
        ),
        sizes: parsed(&list("--sizes", "3,5,7,11,16,20,32,64")),
        deaths: number("--deaths", 100),
        hours: number("--hours", 10),
        losses: parsed(&list("--losses", "0,10,20,30")),
        first: number("--first", 0),
    };
    println!(
        "{:<10} {:>5}  {:<96} {:<37} {:>7}",
        "row", "N", "measured", "goal", "took"
    );
    for row in &settings.rows {
        for size in &settings.sizes {
            let began = Instant::now();
            let rows = measured(row, *size, &settings)
                .unwrap_or_else(|broken| vec![(broken.to_string(), "", false)]);
            for (measured, goal, is_met) in rows {
                let word = if is_met { "met" } else { "FAILED" };
                println!(
                    "{row:<10} {size:>5}  {measured:<96} {goal:<30} {word:<6} {:>6.1}s",
                    began.elapsed().as_secs_f64()
                );
            }
        }
    }
}

fn parsed<T: FromStr>(texts: &[String]) -> Vec<T> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

fn measured(row: &str, size: usize, settings: &Settings) -> Result<Vec<Row>, Broken> {
    let loss = Network {
        lost: 300,
        ..good_network()
    };
    let rows = match row {
        "detection" => vec![detection(size, settings.deaths, good_network(), false)?],
        "reporter" => vec![detection(size, settings.deaths, good_network(), true)?],
        "loss" => vec![detection(size, settings.deaths, loss, false)?],
        "traffic" => traffic(size)?,
        "outage" => vec![outage(size)?],
        "mass" => mass(size)?,
        "reports" => vec![reports(size)?],
        "readers" => vec![readers(size)?],
        "changes" => vec![changes(size)?],
        "reporters" => vec![standing(size)?],
        "false" => settings
            .losses
            .iter()
            .map(|percent| false_deaths(size, *percent, settings))
            .collect(),
        other => vec![(format!("there is no row {other}"), "", false)],
    };
    Ok(rows)
}

fn script(size: usize, seed: u64, network: Network) -> Script {
    calm_zones(vec![size], seed, network)
}

/// Runs for each seed on two threads.
fn each<T: Send>(seeds: u64, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let next = AtomicU64::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    let result = run(seed);
                    if let Ok(mut done) = done.lock() {
                        done.push((seed, result));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(seed, _)| *seed);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Victims die one after the other; times from the power-off to the reader's verdict.
fn detection(size: usize, deaths: u64, network: Network, reporter: bool) -> Result<Row, Broken> {
    let at_once = (size / ONE_OF).max(1);
    let of_one_run = 10 * at_once as u64;
    let lossy = network.lost > 0;
    let runs = each(deaths.div_ceil(of_one_run), |seed| {
        let mut script = script(size, seed, network);
        let mut rng = Rng::new(seed).fork("victims");
        let first = reporters(&script).first().copied().unwrap_or(1);
        let mut at = SETTLED;
        for _ in 0..10 {
            let spread = 4 * SECOND;
            let mut victims: Vec<usize> = (1..=script.nodes()).collect();
            if reporter {
                victims = vec![first];
            }
            for _ in 0..at_once.min(victims.len()) {
                let any = usize::try_from(rng.below(victims.len() as u64)).unwrap_or_default();
                script.steps.push(Step {
                    at: at + rng.below(spread),
                    lasts: OFF,
                    fault: Fault::PowerOff(victims.swap_remove(any)),
                });
            }
            at += spread + OFF + ON;
        }
        script.steps.sort_by_key(|step| step.at);
        let window = Window { from: 0, until: at };
        measure(&script, window).map(|run| (run, script))
    });
    let runs = runs.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut times = Vec::new();
    let mut missed = 0;
    for (run, script) in &runs {
        for step in &script.steps {
            let found = run
                .deaths
                .iter()
                .find(|(at, node)| Some(*node) == step.fault.node() && *at >= step.at && *at <= step.ends());
            match found {
                Some((at, _)) => times.push(at - step.at),
                None => missed += 1,
            }
        }
    }
    let wrong: u64 = runs.iter().map(|(run, _)| run.false_deaths).sum();
    times.sort_unstable();
    let quantile = |of_hundred: usize| {
        let index = (times.len() * of_hundred).div_ceil(100).saturating_sub(1);
        times.get(index).copied().unwrap_or_default() as f64 / 1000.0
    };
    let (p50, p99) = (quantile(50), quantile(99));
    let (goal, is_met) = if lossy {
        ("p99 <= 8 s at 30 % loss", p99 <= 8.0)
    } else {
        ("p50 <= 4 s, p99 <= 6 s", p50 <= 4.0 && p99 <= 6.0)
    };
    let text = format!(
        "p50 {p50:.2} s, p99 {p99:.2} s, max {:.2} s of {} deaths; {missed} without a verdict in {} s; {wrong} false",
        quantile(100),
        times.len(),
        OFF / SECOND
    );
    Ok((text, goal, is_met && missed == 0 && wrong == 0))
}

fn calm(size: usize, seconds: u64) -> Result<(Measured, u64), Broken> {
    let script = script(size, 1, good_network());
    let from = SETTLED;
    let until = from + seconds * SECOND;
    Ok((measure(&script, Window { from, until })?, seconds))
}

fn traffic(size: usize) -> Result<Vec<Row>, Broken> {
    let (run, seconds) = calm(size, 120)?;
    let per_second = |sum: u64, count: usize| sum as f64 / seconds as f64 / count as f64;
    let nodes = run.meters.len();
    let bytes: u64 = run.meters.iter().map(|meter| meter.bytes).sum();
    let most = run
        .meters
        .iter()
        .map(|meter| meter.bytes)
        .max()
        .unwrap_or_default();
    let datagrams: u64 = run.meters.iter().map(|meter| meter.datagrams).sum();
    let requests: u64 = run.meters.iter().map(|meter| meter.requests).sum();
    Ok(vec![
        (
            format!(
                "to peers {:.0} B/s mean, {:.0} B/s most, {:.1} datagrams/s",
                per_second(bytes, nodes),
                per_second(most, 1),
                per_second(datagrams, nodes)
            ),
            "<= 2,000 B/s for every member",
            per_second(most, 1) <= 2_000.0,
        ),
        (
            format!(
                "{:.3} API requests/s and node, the controller's not counted",
                per_second(requests, nodes)
            ),
            "<= 0.1/s",
            per_second(requests, nodes) <= 0.1,
        ),
    ])
}

/// Nobody reaches the API server for a minute.
fn outage(size: usize) -> Result<Row, Broken> {
    let (script, window) = outage_of(vec![size], 1);
    let run = measure(&script, window)?;
    let (during, after) = run.requests.split_at(run.requests.len() / 2);
    let mean = |requests: &[u64]| {
        let sum: u64 = requests.iter().sum();
        sum as f64 / requests.len() as f64 / run.meters.len() as f64
    };
    let busiest = after.iter().max().copied().unwrap_or_default();
    let (during, after, dead) = (mean(during), mean(after), run.deaths.len());
    Ok((
        format!(
            "{during:.3} API requests/s and node in the outage, {after:.3} in the minute after it, of all nodes \
             {busiest} in the busiest second; {dead} deaths"
        ),
        "<= 0.2/s while recovering, 0 deaths",
        after <= 0.2 && dead == 0,
    ))
}

/// Nodes lose power together: a quarter of all, at random or the same share of each cell as racks are spread;
/// 40 % of each cell; and more than half of each.
fn mass(size: usize) -> Result<Vec<Row>, Broken> {
    let script = script(size, 1, good_network());
    let (nodes, cells) = (script.nodes(), cells(&script));
    let at_random = {
        let mut chosen: Vec<usize> = (1..=nodes).collect();
        Rng::new(1).fork("mass").shuffle(&mut chosen);
        chosen.truncate(nodes / 4);
        chosen
    };
    let spread = |percent: usize| {
        let of_each = cells
            .iter()
            .map(|cell| cell.iter().take(cell.len() * percent / 100));
        of_each.flatten().copied().collect()
    };
    [
        ("25 % at random", at_random),
        ("25 % of each cell", spread(25)),
        ("40 % of each cell", spread(40)),
        ("60 % of each cell", spread(60)),
    ]
    .into_iter()
    .map(|(what, victims)| die_together(script.clone(), &cells, what, &victims))
    .collect()
}

/// Whoever's cell keeps a majority is found dead within 15 s, and nobody else.
fn die_together(
    mut script: Script,
    cells: &[Vec<usize>],
    what: &str,
    victims: &[usize],
) -> Result<Row, Broken> {
    let (at, lasts) = (SETTLED, 40 * SECOND);
    script.steps = victims
        .iter()
        .map(|node| Step {
            at,
            lasts,
            fault: Fault::PowerOff(*node),
        })
        .collect();
    let window = Window {
        from: at,
        until: at + lasts,
    };
    let run = measure(&script, window)?;
    let keeps_majority = |node: usize| {
        let cell = cells.iter().find(|cell| cell.contains(&node));
        let (of_cell, live) = cell.map_or((0, 0), |cell| {
            let live = cell.iter().filter(|node| !victims.contains(node)).count();
            (cell.len(), live)
        });
        live > of_cell / 2
    };
    let (expected, doubtful): (Vec<usize>, Vec<usize>) =
        victims.iter().copied().partition(|node| keeps_majority(*node));
    let found = |node: &usize| {
        let mut deaths = run.deaths.iter();
        deaths.find_map(|(found, dead)| (dead == node).then_some(found - at))
    };
    let mut times: Vec<u64> = expected.iter().filter_map(found).collect();
    times.sort_unstable();
    let missed = expected.len() - times.len();
    let wrong = doubtful.iter().filter_map(found).count() as u64 + run.false_deaths;
    let last = times.last().copied().unwrap_or_default();
    let text = format!(
        "{what}: {} of {} whose cells keep a majority announced, the last after {:.1} s; {wrong} others called dead",
        times.len(),
        expected.len(),
        last as f64 / 1000.0
    );
    let is_met = missed == 0 && wrong == 0 && last <= 15_000;
    Ok((text, "all within 15 s, nobody else", is_met))
}

/// One member listed, because it is cut off; and all, because their kubelets are down.
fn reports(size: usize) -> Result<Row, Broken> {
    let listed = |faults: Vec<Fault>| {
        let mut script = script(size, 1, good_network());
        let at = SETTLED;
        let lasts = 60 * SECOND;
        script.steps = faults
            .into_iter()
            .map(|fault| Step { at, lasts, fault })
            .collect();
        let window = Window {
            from: at,
            until: at + lasts,
        };
        measure(&script, window).map(|run| run.largest_report)
    };
    let cells = cells(&script(size, 1, good_network()));
    let first = cells.first().cloned().unwrap_or_default();
    let members = first.len();
    let one = listed(vec![Fault::CutCloud(1)])?;
    let all = listed(first.into_iter().map(Fault::KubeletDown).collect())?;
    Ok((
        format!("{one} bytes with one member listed, {all} with all {members}"),
        "<= 40 KB with all",
        all <= 40_000,
    ))
}

/// What it costs to verify the reports about so many listed nodes.
const MANY_LISTED: usize = 5_000;

/// All members are listed, because their kubelets are down, and real keys sign. The figure is of one reader,
/// for as many such cells as 5,000 nodes make.
fn readers(size: usize) -> Result<Row, Broken> {
    // Only what this thread runs counts: other programs take the core meanwhile.
    let clock = || {
        let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
        used.map(Duration::from).unwrap_or_default()
    };
    let lasts = 180 * SECOND;
    let mut script = script(size, 1, good_network());
    script.ed25519 = true;
    let step = |node| Step {
        at: SETTLED,
        lasts,
        fault: Fault::KubeletDown(node),
    };
    script.steps = (1..=size).map(step).collect();
    let window = Window {
        from: SETTLED + lasts / 3,
        until: SETTLED + lasts,
    };
    let run = measure_by(&script, window, Some(clock))?;
    let measured = Duration::from_millis(window.until - window.from);
    let of_one = run.reading.as_secs_f64() / measured.as_secs_f64() / size as f64;
    let percent = 100.0 * of_one * MANY_LISTED as f64;
    let text = format!("{percent:.1} % of a core for reports about {MANY_LISTED} listed nodes");
    Ok((text, "<= 5 % of a core", percent <= 5.0))
}

/// One node is off for 8 minutes of 10, and another is out of reach of a third one, in one direction.
fn changes(size: usize) -> Result<Row, Broken> {
    let lossy = Network {
        lost: 10,
        ..good_network()
    };
    let mut script = script(size, 1, lossy);
    let at = SETTLED;
    let step = |fault: Fault| Step {
        at: at + 30 * SECOND,
        lasts: 480 * SECOND,
        fault,
    };
    script.steps = vec![step(Fault::PowerOff(1))];
    // Of three both others have to agree, so the reporter of the two could not be told.
    if size > 3 {
        script.steps.push(step(Fault::CutOneWay(vec![2], vec![3])));
    }
    let window = Window {
        from: at,
        until: at + 600 * SECOND,
    };
    let run = measure(&script, window)?;
    let of = |node: usize| run.changes.get(&node).copied().unwrap_or_default();
    let healthy: u64 = run
        .changes
        .iter()
        .filter(|(node, _)| **node != 1)
        .map(|(_, count)| *count)
        .sum();
    Ok((
        format!(
            "{} changes of the faulty node, {healthy} of all others, in 10 minutes",
            of(1)
        ),
        "<= 2 faulty, 0 healthy",
        of(1) <= 2 && healthy == 0,
    ))
}

fn standing(size: usize) -> Result<Row, Broken> {
    let (run, seconds) = calm(size, 600)?;
    let text = format!(
        "{} stand at the end, {} changes in {} calm minutes",
        run.standing,
        run.stands,
        seconds / 60
    );
    Ok((
        text,
        "<= 3 stand, 0 changes",
        run.standing <= 3 && run.stands == 0,
    ))
}

fn false_deaths(size: usize, percent: u64, settings: &Settings) -> Row {
    let nodes = size as u64;
    let minutes = (settings.hours * 60).div_ceil(nodes).max(1);
    // Runs of half an hour.
    let runs = minutes.div_ceil(30);
    let results = each(runs, |run| {
        let seed = settings.first + run;
        let from = SETTLED;
        let until = from + minutes.min(30) * 60 * SECOND;
        let script = lossy(vec![size], seed, percent, until);
        let found = match measure(&script, Window { from, until }) {
            Ok(run) => run.false_deaths,
            Err(broken) => {
                println!("seed {seed} at {percent} % loss: {broken}");
                1
            }
        };
        if found > 0 {
            println!("seed {seed} at {percent} % loss: {found} false deaths");
        }
        (found, (until - from) / SECOND)
    });
    let found: u64 = results.iter().map(|(found, _)| *found).sum();
    let seconds: u64 = results.iter().map(|(_, seconds)| *seconds).sum();
    let text = format!(
        "{found} false deaths in {} node-hours at {percent} % loss, seeds {} to {}",
        seconds * nodes / 3_600,
        settings.first,
        settings.first + runs - 1
    );
    (text, "0", found == 0)
}
