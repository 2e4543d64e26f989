use super::*;
use crate::program::Program;
use crate::{Any, Cli, Command as Visible};
use clap::error::ErrorKind;
use evenkeel_testkit::documents;
use std::ffi::OsString;

/// The words after `evenkeel` of each command that people see, and the command.
pub(crate) fn visible() -> Vec<(String, Command)> {
    let mut whole = Program::Evenkeel
        .command::<Cli<Visible>>()
        .disable_help_subcommand(true);
    whole.build();
    let mut left = vec![(String::new(), whole)];
    let mut found = Vec::new();
    while let Some((path, command)) = left.pop() {
        for below in command.get_subcommands() {
            let path = format!("{path} {}", below.get_name());
            left.push((path.trim_start().to_owned(), below.clone()));
        }
        found.push((path, command));
    }
    found
}

#[test]
fn every_command_says_what_it_is_for_with_an_example_and_its_exit_codes() {
    for (path, mut command) in visible() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(!about.is_empty(), "`evenkeel {path}` has no first line");
        assert!(
            !about.starts_with("Flags of"),
            "`evenkeel {path}`: {about:?} is for programmers"
        );
        let help = command.render_long_help().to_string();
        let example = format!("evenkeel {path}");
        let after = help.split_once("Examples:").map_or("", |(_, after)| after);
        assert!(
            after.contains(example.trim_end()),
            "`evenkeel {path}` has no example: add a block in {}\n{help}",
            file!().replace("/tests.rs", ".txt")
        );
        assert!(
            help.contains("Exit code"),
            "`evenkeel {path}` does not list its exit codes: add a block in {}",
            file!().replace("/tests.rs", ".txt")
        );
    }
}

#[test]
fn every_flag_has_a_help_text() {
    for (path, command) in visible() {
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.is_empty(), "`evenkeel {path}`: {arg} has no help text");
        }
    }
}

#[test]
fn every_row_is_of_a_command() {
    let paths: Vec<String> = visible().into_iter().map(|(path, _)| path).collect();
    for (name, _) in blocks().filter(|(name, _)| name.starts_with("evenkeel")) {
        let path = name.trim_start_matches("evenkeel").trim_start();
        assert!(paths.iter().any(|known| known == path), "there is no `{name}`");
        assert!(
            text_of(path).is_some(),
            "`{name}` has no exit codes, or names some that are not there"
        );
    }
}

/// The words of a command line of an example, up to a comment or the next command.
fn words(line: &str) -> Vec<OsString> {
    let ends = ["  #", " >", " && ", " | ", "; ", " &", ")"];
    let end = ends.iter().filter_map(|end| line.find(end)).min();
    let line = &line[..end.unwrap_or(line.len())];
    let quoted = line.split('\'').enumerate();
    quoted
        .flat_map(|(number, part)| match number % 2 {
            0 => part.split_whitespace().map(OsString::from).collect(),
            _ => vec![OsString::from(part)],
        })
        .collect()
}

#[test]
fn every_example_is_a_command_line_that_is_accepted() {
    let mut tried = 0;
    for (path, command) in visible() {
        let text = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        for line in text.lines().filter_map(|line| line.strip_prefix("  evenkeel ")) {
            let line = words(&format!("evenkeel {line}"));
            let parsed = Program::Evenkeel.parse::<Cli<Any>>(line.clone());
            let asks_for_help = line[1] == "help";
            assert!(
                parsed.is_ok() || asks_for_help,
                "`evenkeel {path}`: {line:?}: {}",
                parsed.err().map(|error| error.to_string()).unwrap_or_default()
            );
            tried += 1;
        }
    }
    assert!(tried > 50, "only {tried} examples were found");
}

/// What clap has against a command line; nothing if it asks for help or a version.
fn refusal(line: &str) -> Option<(ErrorKind, String)> {
    // Values that are checked; all other words in capitals are names or files.
    let line = line.replace(" SHELL", " bash").replace(" COMMAND", " status");
    let error = Program::Evenkeel.parse::<Cli<Any>>(words(&line)).err()?;
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    (!is_help).then(|| (error.kind(), format!("{line}: {error}")))
}

/// Where a line of a shell begins to call this program.
fn calls(line: &str) -> impl Iterator<Item = &str> {
    let line = line.split("  #").next().unwrap_or_default();
    let found = line.match_indices("evenkeel ").map(|(at, _)| line.split_at(at));
    found.filter_map(|(before, call)| {
        let before = before.strip_suffix("kubectl ").unwrap_or(before);
        let begins = before.is_empty() || ["; ", "| ", "&& ", "("].iter().any(|end| before.ends_with(end));
        begins.then_some(call)
    })
}

#[test]
fn every_command_line_in_readme_and_documentation_is_accepted() {
    // A sentence may name a command without what it needs.
    let is_short = |kind| {
        matches!(
            kind,
            ErrorKind::MissingRequiredArgument
                | ErrorKind::MissingSubcommand
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        )
    };
    let (mut refused, mut tried) = (Vec::new(), 0);
    for (page, text) in documents::pages() {
        let (blocks, _) = documents::blocks(&page, &text);
        let commands = blocks.iter().flat_map(|block| &block.commands);
        let lines: Vec<&str> = commands.flat_map(|command| calls(&command.line)).collect();
        let spans = documents::spans(&text);
        let spans: Vec<&str> = spans.iter().flat_map(|span| calls(span)).collect();
        tried += lines.len() + spans.len();
        let of_lines = lines.into_iter().filter_map(refusal);
        let of_spans = spans
            .into_iter()
            .filter_map(refusal)
            .filter(|(kind, _)| !is_short(*kind));
        refused.extend(of_lines.chain(of_spans).map(|(_, why)| format!("{page}: {why}")));
    }
    assert_eq!(refused, [""; 0]);
    assert!(tried > 150, "only {tried} command lines were found");
}
