use super::*;
use crate::{Any, Cli};

fn said(program: Program, line: &str) -> String {
    let words = line.split(' ').map(OsString::from);
    let parsed = program.parse::<Cli<Any>>(words);
    parsed.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn kubectl_starts_it_by_the_name_of_a_plug_in() {
    for (called, program) in [
        (Some("/usr/local/bin/kubectl-evenkeel"), Program::Plugin),
        (Some("kubectl-evenkeel"), Program::Plugin),
        (Some("/usr/bin/evenkeel"), Program::Evenkeel),
        (Some("/kubectl-evenkeel/evenkeel"), Program::Evenkeel),
        (Some(""), Program::Evenkeel),
        (None, Program::Evenkeel),
    ] {
        assert_eq!(Program::of(called.map(OsStr::new)), program, "{called:?}");
    }
}

#[test]
fn help_names_the_command_that_was_typed() {
    let help = said(Program::Plugin, "/x/kubectl-evenkeel status --help");
    assert!(help.contains("\nUsage: kubectl evenkeel status "), "{help}");
    assert!(help.contains("\n  kubectl evenkeel status shore-2 "), "{help}");
    assert!(!help.contains("\n  evenkeel "), "{help}");
    let help = said(Program::Evenkeel, "/x/evenkeel-0.1 status --help");
    assert!(help.contains("\nUsage: evenkeel status "), "{help}");
    assert!(help.contains("\n  evenkeel status shore-2 "), "{help}");
}

#[test]
fn the_version_is_one_line() {
    for program in [Program::Evenkeel, Program::Plugin] {
        for flag in ["--version", "-V"] {
            let version = format!("evenkeel {}\n", env!("CARGO_PKG_VERSION"));
            assert_eq!(said(program, &format!("evenkeel {flag}")), version);
        }
    }
}
