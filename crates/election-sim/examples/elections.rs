//! Elections by the million in virtual time, under seeded faults; exits 1 with a script of what happened when
//! two candidates could act as leader at once.
//!
//! ```text
//! cargo run --profile dist -p evenkeel-election-sim --example elections -- --elections 1000000 --seed 7
//! cargo run --profile dist -p evenkeel-election-sim --example elections -- --world 1168899507518718668
//! ```
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program for people"
)]

use clap::Parser;
use evenkeel_election_sim::random::{Rules, replay, run};
use std::process::ExitCode;
use std::time::Instant;

/// Runs elections in virtual time and looks for two leaders.
#[derive(Parser)]
struct Options {
    /// Elections at least; the last world is run to its end.
    #[arg(long, default_value_t = 1_000_000)]
    elections: u64,
    /// Seed; random unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// Run this one world again instead, and say what happens.
    #[arg(long)]
    world: Option<u64>,
    /// Rules to run under; all but the first are expected to fail.
    #[arg(long, value_enum, default_value = "evenkeel")]
    rules: RulesName,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum RulesName {
    Evenkeel,
    NoDeadlineCheck,
    RatesBeyond,
    ClientGo,
    ClientGoNeverPaused,
}

impl From<RulesName> for Rules {
    fn from(name: RulesName) -> Self {
        match name {
            RulesName::Evenkeel => Self::Evenkeel,
            RulesName::NoDeadlineCheck => Self::NoDeadlineCheck,
            RulesName::RatesBeyond => Self::RatesBeyond,
            RulesName::ClientGo => Self::ClientGo,
            RulesName::ClientGoNeverPaused => Self::ClientGoNeverPaused,
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let rules = options.rules.into();
    if let Some(world) = options.world {
        let Some(failure) = replay(rules, world) else {
            println!("world {world} breaks no rule");
            return ExitCode::SUCCESS;
        };
        println!("{failure}");
        return ExitCode::FAILURE;
    }
    let seed = options.seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    let start = Instant::now();
    let report = run(rules, seed, options.elections);
    println!("{}", report.tally);
    println!("{:.1} s", start.elapsed().as_secs_f64());
    match report.failure {
        None => {
            println!("overlaps: 0");
            ExitCode::SUCCESS
        }
        Some(failure) => {
            println!("again: --world {}", failure.world);
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
