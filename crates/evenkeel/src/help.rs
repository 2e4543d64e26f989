//! The texts of `help.txt` in the help of each command.

use clap::Command;

/// Blocks, each below a line `== NAME`: of commands, and of exit codes that several commands share.
const TEXTS: &str = include_str!("help.txt");

/// Names of the blocks, and what stands below.
fn blocks() -> impl Iterator<Item = (&'static str, &'static str)> {
    let blocks = TEXTS.split("\n== ").skip(1);
    blocks.filter_map(|block| block.trim_end().split_once('\n'))
}

fn block(name: &str) -> Option<&'static str> {
    blocks().find_map(|(known, text)| (known == name).then_some(text))
}

/// The text of a command; `None` if there is none.
fn text_of(path: &str) -> Option<String> {
    let (examples, codes) = block(format!("evenkeel {path}").trim_end())?.split_once("\nexit codes:")?;
    let codes = codes
        .strip_prefix(' ')
        .map_or(Some(codes.trim_start_matches('\n')), block)?;
    Some(format!("Examples:\n{examples}\n\nExit codes:\n{codes}"))
}

/// Adds the texts to a command and all commands below it, for a program that the user calls `name`.
pub(crate) fn explained(command: Command, name: &str) -> Command {
    add(command, "", name)
}

fn add(mut command: Command, path: &str, name: &str) -> Command {
    // A text of the crate that the command comes from wins.
    let own = command.get_after_help().map(ToString::to_string);
    if let Some(text) = own.or_else(|| text_of(path)) {
        let line = |name: &str| format!("\n  {name} ");
        command = command.after_help(text.replace(&line("evenkeel"), &line(name)));
    }
    command.mut_subcommands(|below| {
        let path = format!("{path} {}", below.get_name());
        add(below, path.trim_start(), name)
    })
}

#[cfg(test)]
pub(crate) mod tests;
