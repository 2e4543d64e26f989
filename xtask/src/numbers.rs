//! `numbers`: what zones cost and how soon they find a death.

use anyhow::{Context, bail};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

const SIMULATED: [&str; 7] = [
    "run",
    "--release",
    "-q",
    "-p",
    "evenkeel-sim",
    "--example",
    "numbers",
];
/// Without optimisation, the agents of 64 machines overload two cores.
const REAL: [&str; 10] = [
    "test",
    "--release",
    "-q",
    "-p",
    "evenkeel",
    "--test",
    "it",
    "netns::shore::numbers",
    "--",
    "--ignored",
];

/// Prints both parts of the table; `args` are for the simulator.
pub(crate) fn run(root: &Path, args: &[OsString]) -> anyhow::Result<()> {
    let mut simulated = Command::new("cargo");
    simulated.args(SIMULATED).arg("--").args(args);
    let mut real = Command::new("cargo");
    real.args(REAL).arg("--nocapture");
    for mut command in [simulated, real] {
        let status = command
            .current_dir(root)
            .status()
            .context("cannot start `cargo`")?;
        if !status.success() {
            bail!("{command:?} failed ({status})");
        }
    }
    Ok(())
}
