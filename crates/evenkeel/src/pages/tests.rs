use super::*;
use crate::help::tests::visible;
use crate::program::Program;
use crate::{Any, Cli, Command as Visible};
use clap::ValueEnum as _;
use std::collections::BTreeMap;

fn line() -> Command {
    Program::Evenkeel.command::<Cli<Visible>>()
}

/// The pages by their names, with escaped characters as a reader sees them.
fn read() -> BTreeMap<String, String> {
    let pages = manual(line()).into_iter();
    pages
        .map(|(name, page)| (name, page.replace("\\-", "-").replace("\\'", "'")))
        .collect()
}

fn name_of(path: &str) -> String {
    let words = format!("evenkeel {path}");
    format!("{}.1", words.trim_end().replace(' ', "-"))
}

#[test]
fn scripts_complete_every_command_that_people_use_and_no_other() {
    let hidden = Program::Evenkeel.command::<Cli<Any>>();
    let hidden = hidden.get_subcommands().filter(|command| command.is_hide_set());
    let hidden: Vec<&str> = hidden.map(Command::get_name).collect();
    assert_eq!(hidden, ["elect-keeper"]);
    for shell in Shell::value_variants() {
        let script = script(*shell, line());
        for (path, _) in visible() {
            let name = path.rsplit(' ').next().unwrap_or_default();
            assert!(script.contains(name), "{shell}: {name} is missing");
        }
        for hidden in &hidden {
            assert!(!script.contains(hidden), "{shell}: {hidden} is completed");
        }
        assert!(script.contains("node-monitor-grace-period"), "{shell}");
    }
}

#[test]
fn every_command_has_a_page_that_names_each_of_its_flags() {
    let pages = read();
    let visible = visible();
    assert_eq!(pages.len(), visible.len());
    for (path, command) in visible {
        let page = &pages[&name_of(&path)];
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let flag = match (arg.get_long(), arg.get_value_names()) {
                (Some(long), _) => format!("--{long}"),
                (None, Some(names)) => names[0].to_string(),
                (None, None) => arg.get_id().to_string(),
            };
            assert!(page.contains(&flag), "{flag} is missing in {}", name_of(&path));
        }
        for below in command.get_subcommands() {
            let name = name_of(format!("{path} {}", below.get_name()).trim_start());
            let name = name.replace(".1", "(1)");
            assert!(page.contains(&name), "{name} is missing in {}", name_of(&path));
        }
    }
}

#[test]
fn a_page_has_the_sections_of_a_manual_in_their_order() {
    for (name, page) in read() {
        let found: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix(".SH "))
            .collect();
        let first = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"];
        let last = ["EXAMPLES", "\"EXIT STATUS\""];
        assert!(
            found.starts_with(&first) && found.ends_with(&last),
            "{name}: {found:?}"
        );
        let title = name.trim_end_matches(".1");
        let version = env!("CARGO_PKG_VERSION");
        let title = format!(".TH {title} 1 \" \" \"Evenkeel {version}\" Evenkeel\n");
        assert!(page.contains(&title), "{title} is missing in {name}: {page}");
    }
}

#[test]
fn a_page_is_made_of_requests_that_every_formatter_has() {
    // What groff's and mandoc's `man` macros share, and what roff's preamble for quotes uses.
    let known = [
        "TH", "SH", "PP", "TP", "IP", "RS", "RE", "nf", "fi", "br", "ie", "el", "ds",
    ];
    for (name, page) in manual(line()) {
        let mut opened = 0_i32;
        for line in page.lines() {
            let Some(request) = line.strip_prefix('.') else {
                assert!(!line.starts_with('\''), "{name}: {line:?} is taken for a request");
                continue;
            };
            let request = request.split(' ').next().unwrap_or_default();
            assert!(known.contains(&request), "{name}: {line:?}");
            opened += match request {
                "nf" | "RS" => 1,
                "fi" | "RE" => -1,
                _ => 0,
            };
            assert!((0..=2).contains(&opened), "{name}: {line:?}");
        }
        assert_eq!(opened, 0, "{name}: a block is not closed");
    }
}

#[test]
fn examples_keep_their_lines_and_exit_codes_have_the_name_that_manuals_use() {
    let text = "Examples:\n  evenkeel a\n  .b\n\nExit codes:\n  0  done\nThere are more.";
    assert_eq!(
        sections(text).to_roff(),
        ".SH EXAMPLES\n.nf\n  evenkeel a\n  .b\n.fi\n.SH \"EXIT STATUS\"\n.nf\n  0  done\n.fi\n.PP\nThere are more.\n"
    );
}

#[test]
fn pages_are_written_into_a_directory_that_is_made() {
    let home = tempfile::TempDir::new().unwrap();
    let directory = home.path().join("share/man1");
    write(&directory, line()).unwrap();
    let page = fs::read_to_string(directory.join("evenkeel-probe-http.1")).unwrap();
    assert!(page.contains("probe"), "{page}");
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = write(&file.join("man1"), line()).unwrap_err();
    assert!(
        refused.to_string().contains("choose another directory"),
        "{refused}"
    );
}
