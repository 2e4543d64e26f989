//! A candidate as a process of its own, the counterpart of `interop/clientgo`: same flags, same lines. Tests
//! run the two against each other, and kill and pause them.
#![allow(clippy::disallowed_methods, reason = "a program owns its clocks and tasks")]

mod program;

fn main() -> anyhow::Result<()> {
    program::run(std::env::args())
}
