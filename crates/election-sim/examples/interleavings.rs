//! Every interleaving of two candidates and one lock, further than the tests look; exits 1 with a shortest
//! script when both could act as leader at once.
//!
//! ```text
//! cargo run --profile dist -p evenkeel-election-sim --example interleavings -- --grid drifting --depth 40
//! cargo run --profile dist -p evenkeel-election-sim --example interleavings -- --mutation no-deadline-check
//! ```
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for people"
)]

use clap::{Parser, ValueEnum};
use evenkeel_election_sim::model::{Budget, Grid, Model, Mutation, search};
use std::process::ExitCode;
use std::time::Instant;

/// Looks at every interleaving of two candidates and one lock.
#[derive(Parser)]
struct Options {
    /// Steps of a script at most.
    #[arg(long, default_value_t = 1_000)]
    depth: u32,
    /// Steps of time.
    #[arg(long, value_enum, default_value = "coarse")]
    grid: GridName,
    /// Crashes in one script at most.
    #[arg(long, default_value_t = 0)]
    crashes: u8,
    /// Candidates told to stop, in one script at most.
    #[arg(long, default_value_t = 0)]
    stops: u8,
    /// Candidates told to hand over, likewise.
    #[arg(long, default_value_t = 0)]
    hand_overs: u8,
    /// Deletions of the lock, likewise.
    #[arg(long, default_value_t = 0)]
    deletions: u8,
    /// Changes told of when they are none any more, likewise.
    #[arg(long, default_value_t = 0)]
    stale_changes: u8,
    /// A rule to leave out.
    #[arg(long, value_enum, default_value = "none")]
    mutation: MutationName,
}

#[derive(Clone, Copy, ValueEnum)]
enum GridName {
    Coarse,
    Drifting,
    Beyond,
}

#[derive(Clone, Copy, ValueEnum)]
enum MutationName {
    None,
    NoDeadlineCheck,
    NoVersionCheck,
    Impatient,
    DeadlineFromAnswer,
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let options = Options::parse();
    let model = Model {
        grid: match options.grid {
            GridName::Coarse => Grid::COARSE,
            GridName::Drifting => Grid::DRIFTING,
            GridName::Beyond => Grid::BEYOND,
        },
        budget: Budget {
            crashes: options.crashes,
            stops: options.stops,
            hand_overs: options.hand_overs,
            deletions: options.deletions,
            stale_changes: options.stale_changes,
        },
        mutation: match options.mutation {
            MutationName::None => Mutation::None,
            MutationName::NoDeadlineCheck => Mutation::NoDeadlineCheck,
            MutationName::NoVersionCheck => Mutation::NoVersionCheck,
            MutationName::Impatient => Mutation::Impatient,
            MutationName::DeadlineFromAnswer => Mutation::DeadlineFromAnswer,
        },
        depth: options.depth,
    };
    let start = Instant::now();
    let outcome = search(&model)?;
    println!("{outcome}");
    println!("{:.1} s", start.elapsed().as_secs_f64());
    Ok(match outcome.found {
        Some(_) => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    })
}
