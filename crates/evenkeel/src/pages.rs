//! `evenkeel completion` and `evenkeel man`: files that packages install beside the program, made from the
//! same description of the command line that parses it.

use clap::{Command, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use evenkeel_net::output;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What to make.
#[derive(Subcommand)]
pub(crate) enum Pages {
    /// Print a script that completes commands and flags in a shell
    ///
    /// Load the script in the start-up file of your shell, or write it to the directory in which the shell
    /// looks for completions. The script has the commands and flags of this version: make it again after an
    /// upgrade.
    Completion {
        /// The shell.
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Write manual pages (man pages), one for each command
    ///
    /// The pages belong to section 1 of the manual: evenkeel.1, evenkeel-status.1, evenkeel-probe-http.1 and
    /// so on. Files of these names are overwritten.
    Man {
        /// Directory for the pages; it is made if it does not exist.
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
    },
}

/// Why there are no pages.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PagesError {
    #[error("cannot write the script to standard output")]
    Print(#[source] io::Error),
    #[error("cannot write {}: choose another directory, or make it writable", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Makes what was asked for. `command`: the whole command line, without what is not for people.
pub(crate) fn run(pages: Pages, command: Command) -> Result<(), PagesError> {
    match pages {
        Pages::Completion { shell } => output::print(&script(shell, command)).map_err(PagesError::Print),
        Pages::Man { directory } => write(&directory, command),
    }
}

fn script(shell: Shell, mut command: Command) -> String {
    let name = command.get_name().to_owned();
    // Into memory, because the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

fn write(directory: &Path, command: Command) -> Result<(), PagesError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| PagesError::Write { path, source }
    };
    fs::create_dir_all(directory).map_err(failed(directory))?;
    for (name, page) in manual(command) {
        let path = directory.join(name);
        fs::write(&path, page).map_err(failed(&path))?;
    }
    Ok(())
}

/// File names and texts of the pages of a command and of all commands below it.
fn manual(command: Command) -> Vec<(String, String)> {
    // `evenkeel help` repeats every command.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut left = vec![command];
    let mut pages = Vec::new();
    while let Some(command) = left.pop() {
        left.extend(command.get_subcommands().cloned());
        pages.push(page(command));
    }
    pages
}

fn page(command: Command) -> (String, String) {
    let more = command.get_after_help().map(ToString::to_string);
    let has_commands = command.has_subcommands();
    let source = format!("Evenkeel {}", command.get_version().unwrap_or_default());
    // Without a date, so that each build writes the same. The space keeps its place: nothing would not.
    let man = Man::new(command).date(" ").source(source).manual("Evenkeel");
    let mut text = Vec::new();
    let rendered = (|| {
        man.render_title(&mut text)?;
        man.render_name_section(&mut text)?;
        man.render_synopsis_section(&mut text)?;
        man.render_description_section(&mut text)?;
        man.render_options_section(&mut text)?;
        if has_commands {
            man.render_subcommands_section(&mut text)?;
        }
        sections(&more.unwrap_or_default()).to_writer(&mut text)
    })();
    rendered.expect("memory can be written to");
    (man.get_filename(), String::from_utf8_lossy(&text).into_owned())
}

/// What stands after the flags in the help of a command, as sections of the manual.
fn sections(text: &str) -> Roff {
    let mut roff = Roff::new();
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    for run in lines.chunk_by(|one, next| is_indented(one) == is_indented(next)) {
        if is_indented(run[0]) {
            // Command lines are not to be filled up.
            roff.control("nf", []);
            for line in run {
                roff.text([roman(*line)]);
            }
            roff.control("fi", []);
            continue;
        }
        for line in run {
            match line.strip_suffix(':') {
                // The name that manuals have for it.
                Some("Exit codes") => roff.control("SH", ["EXIT STATUS"]),
                Some(heading) => roff.control("SH", [heading.to_uppercase().as_str()]),
                None => roff.control("PP", []).text([roman(*line)]),
            };
        }
    }
    roff
}

fn is_indented(line: &str) -> bool {
    line.starts_with(' ')
}

#[cfg(test)]
mod tests;
