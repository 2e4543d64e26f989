//! The project's own tools: generators of files that are committed, and checks that only this project needs.

mod differential;
mod documented;
mod gen_schemas;
mod graph;
mod hazards;
mod image;
mod manifests;
mod markdown;
mod messages;
mod metrics;
mod numbers;
mod outside;
mod places;
mod prove;
mod real;
mod size;

use anyhow::Context;
use clap::{Parser, Subcommand};
use std::{
    ffi::OsString,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

#[derive(Parser)]
#[command(about = "Tools of the project")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes the CRDs, the rights of Koupleless, the kustomize base and the Helm chart under deploy/, and
    /// docs/metrics.md
    GenManifests {
        /// Change nothing; fail if a file is out of date
        #[arg(long)]
        check: bool,
    },
    /// Packs the Kubernetes schemas into crates/kube-rules/data/schemas.bin
    GenSchemas(gen_schemas::Args),
    /// Compares the crates' dependencies with the graph in ARCHITECTURE.md
    CheckGraph,
    /// Compares the tests, files, places, Events and log lines that the documentation names with the code
    CheckDocs,
    /// Compiles programs outside the workspace that use one crate each, and counts their dependencies
    CheckOutside,
    /// Builds the container images and lists what is in them: docs/images.md
    Image(image::Args),
    /// Builds Kubernetes' own control plane of its Go modules, and starts one on loopback until Ctrl-C
    Real {
        /// Build it, and print where the program is
        #[arg(long)]
        build_only: bool,
        /// Other arguments for it than `up`: see interop/kubernetes/README.md
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Prints what zones cost and how soon they find a death beside the goals: simulated, and then with real
    /// agents on machines of network namespaces, for which it needs root and 15 minutes
    Numbers {
        /// Arguments for the simulator's part: see crates/sim/examples/numbers.rs
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Sends the same generated requests to Kubernetes' own API server and to the embedded one, and prints
    /// every difference of their answers
    Differential(differential::Args),
    /// Measures on Kubernetes' own control plane what README claims, with Evenkeel and without, and writes
    /// docs/real.md. Goes on where it was interrupted
    Prove(prove::Args),
    /// Prints how large the tree is, crate by crate
    Size {
        /// Fail if a limit in xtask/src/size/limits.rs is broken, or could be lower
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to hear that standard error is closed.
            let _ = writeln!(std::io::stderr(), "xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    let root = root()?;
    match command {
        Command::GenManifests { check } => manifests::run(&root, check),
        Command::GenSchemas(args) => gen_schemas::run(&root, &args),
        Command::CheckGraph => graph::run(&root),
        Command::CheckDocs => {
            documented::run(&root)?;
            places::run(&root)?;
            messages::run(&root)?;
            hazards::run(&root)
        }
        Command::CheckOutside => outside::run(&root),
        Command::Image(args) => image::run(&root, &args),
        Command::Numbers { args } => numbers::run(&root, &args),
        Command::Differential(args) => differential::run(&args),
        Command::Prove(args) => prove::run(&root, &args),
        Command::Real { build_only, args } => real::run(&root, build_only, args),
        Command::Size { check } => size::run(&root, check),
    }
}

/// The checkout that this tool was built from.
fn root() -> anyhow::Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .context("the tool lies outside a checkout")
}

/// What must hold for every change, beside the code's own tests: `cargo test` runs these with one build.
#[cfg(test)]
mod tests {
    use super::{Command, run};

    #[track_caller]
    fn holds(command: Command) {
        if let Err(problem) = run(command) {
            panic!("{problem:#}");
        }
    }

    #[test]
    fn generated_files_are_those_of_the_code() {
        holds(Command::GenManifests { check: true });
    }

    #[test]
    fn crates_depend_on_each_other_as_the_architecture_says() {
        holds(Command::CheckGraph);
    }

    #[test]
    fn the_documentation_names_what_is_there() {
        holds(Command::CheckDocs);
    }

    #[test]
    fn the_tree_is_no_larger_than_its_limits() {
        holds(Command::Size { check: true });
    }
}
