//! Plays many seeds of every group and prints a table.
//!
//! `cargo run --profile dist -p evenkeel-sim --example soak -- [--seeds N] [--first N] [--group NAME]`
//!
//! `--group NAME --trace SEED` prints one run, with `--small` the smallest script that fails as it does.
//! `--matrices` plays all 65,536 matrices of links between four nodes and links to the cloud.
//! `--splits N` plays splits of zones of N nodes, and counts the rounds of votes in them.
//! `--few-links N --linked K` plays zones of N nodes of which all but K are cut off from the cloud.
//! `--histories N` plays histories of two replicas and counts disagreements by the states that they are in.
#![allow(clippy::print_stdout, reason = "a table for people")]
#![allow(
    clippy::disallowed_methods,
    reason = "measures how long runs take; the simulator itself has no clock"
)]

use evenkeel_sim::agreement::History;
use evenkeel_sim::groups::{few_links, matrix, script, split};
use evenkeel_sim::run::Outcome;
use evenkeel_sim::{Group, run};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let seeds: u64 = value("--seeds").and_then(|text| text.parse().ok()).unwrap_or(100);
    let first: u64 = value("--first").and_then(|text| text.parse().ok()).unwrap_or(0);
    let only = value("--group").and_then(|text| Group::parse(&text));
    if let (Some(seed), Some(group)) = (value("--trace").and_then(|text| text.parse().ok()), only) {
        let mut script = script(group, seed);
        if arguments.iter().any(|argument| argument == "--small")
            && let Some(failure) = run::shrink(&script)
        {
            println!("{failure}");
            script = failure.script;
        }
        println!("{script}");
        for line in run::trace(&script) {
            println!("{line}");
        }
        println!("{:?}", run::play(&script).broken);
        return;
    }
    if arguments.iter().any(|argument| argument == "--matrices") {
        return matrices();
    }
    if let Some(size) = value("--splits").and_then(|text| text.parse::<usize>().ok()) {
        return splits(size, first, seeds);
    }
    if let Some(size) = value("--few-links").and_then(|text| text.parse::<usize>().ok()) {
        let linked = value("--linked").and_then(|text| text.parse().ok()).unwrap_or(1);
        return links(size, linked, first, seeds);
    }
    if let Some(histories) = value("--histories").and_then(|text| text.parse::<u64>().ok()) {
        return agreement(first, histories);
    }
    println!(
        "{:<28} {:>6} {:>6} {:>8} {:>10} {:>10} {:>8} {:>10} {:>10}",
        "group", "seeds", "broken", "evicted", "back s", "out s", "changes", "writes/h", "converged"
    );
    for group in Group::all().filter(|group| only.is_none_or(|only| only == *group)) {
        let began = std::time::Instant::now();
        let outcomes = play(first, seeds, |seed| run::run(group, seed));
        let most = |of: fn(&evenkeel_sim::ledger::Numbers) -> u64| {
            outcomes
                .iter()
                .map(|(_, outcome)| of(&outcome.numbers))
                .max()
                .unwrap_or_default() as f64
                / 1000.0
        };
        let broken: Vec<u64> = outcomes
            .iter()
            .filter(|(_, outcome)| outcome.broken.is_some())
            .map(|(seed, _)| *seed)
            .collect();
        println!(
            "{:<28} {:>6} {:>6} {:>8} {:>10.1} {:>10.1} {:>8} {:>10.1} {:>10.1}   {:.1} s",
            group.name(),
            seeds,
            broken.len(),
            outcomes
                .iter()
                .map(|(_, outcome)| outcome.numbers.evicted)
                .sum::<usize>(),
            most(|numbers| numbers.worst_back),
            most(|numbers| numbers.worst_out),
            outcomes
                .iter()
                .map(|(_, outcome)| outcome.numbers.changes)
                .max()
                .unwrap_or_default(),
            outcomes
                .iter()
                .map(|(_, outcome)| outcome.numbers.writes_per_hour)
                .fold(0.0, f64::max),
            most(|numbers| numbers.converged),
            began.elapsed().as_secs_f64(),
        );
        let mut kinds: std::collections::BTreeMap<&str, Vec<u64>> = std::collections::BTreeMap::new();
        for (seed, outcome) in &outcomes {
            if let Some(broken) = &outcome.broken {
                kinds.entry(broken.promise).or_default().push(*seed);
            }
        }
        for (promise, mut seeds) in kinds {
            seeds.sort_unstable();
            println!(
                "    {:>4} x {promise}; seeds {:?}",
                seeds.len(),
                &seeds[..seeds.len().min(8)]
            );
        }
    }
}

/// Plays seeds on two threads. The outcomes are in the order in which they were ready.
fn play(first: u64, seeds: u64, one: impl Fn(u64) -> Outcome + Sync) -> Vec<(u64, Outcome)> {
    let next = AtomicU64::new(first);
    let (done, results) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (next, one, done) = (&next, &one, done.clone());
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds || done.send((seed, one(seed))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
    });
    results.into_iter().collect()
}

/// Splits of zones of this size.
fn splits(size: usize, first: u64, seeds: u64) {
    let results = play(first, seeds, |seed| run::play(&split(size, seed)));
    let (mut rounds, mut broken) = (0, 0);
    for (seed, outcome) in results {
        rounds += outcome.numbers.rounds;
        if let Some(why) = outcome.broken {
            broken += 1;
            println!("seed {seed}: {why}");
        }
    }
    println!("{seeds} splits of {size} nodes, {rounds} rounds of votes published, {broken} broken promises");
}

/// Zones of this size with so many links to the cloud.
fn links(size: usize, linked: usize, first: u64, seeds: u64) {
    for (seed, outcome) in play(first, seeds, |seed| run::play(&few_links(size, linked, seed))) {
        let (spoken_for, cells) = outcome.numbers.spoken_for;
        let broken = outcome
            .broken
            .map_or("no broken promise".to_owned(), |why| why.to_string());
        println!(
            "seed {seed}: {linked} of {size} nodes with a link, {spoken_for} of {cells} cells kept all endpoints; {broken}"
        );
    }
}

/// Every matrix of four nodes.
fn matrices() {
    let like = script(Group::Matrices, 0);
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= 1 << 16 {
                        return;
                    }
                    let script = matrix(&like, 4, number >> 4, number & 15);
                    if let Some(broken) = run::play(&script).broken {
                        println!("{broken}\n{script}");
                    }
                }
            });
        }
    });
    println!("65,536 matrices played");
}

/// Disagreements of two replicas, by what they are about.
fn agreement(first: u64, histories: u64) {
    let mut kinds: std::collections::BTreeMap<String, Vec<u64>> = std::collections::BTreeMap::new();
    for seed in first..first + histories {
        if let Some(text) = History::of(seed).play() {
            let what = text.split(", node-").nth(1).unwrap_or_default();
            // Without times: the names in brackets are the states.
            let words = what.split(|c: char| c.is_ascii_digit()).collect::<String>();
            kinds.entry(words).or_default().push(seed);
        }
    }
    let failing: usize = kinds.values().map(Vec::len).sum();
    println!("{failing} of {histories} histories");
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, seeds)| std::cmp::Reverse(seeds.len()));
    for (what, seeds) in kinds {
        println!(
            "{:>5} x {what}\n        seeds {:?}",
            seeds.len(),
            &seeds[..seeds.len().min(5)]
        );
        if let Some((history, text)) = History::of(seeds[0]).shrink() {
            println!("{text}\n{history}");
        }
    }
}
