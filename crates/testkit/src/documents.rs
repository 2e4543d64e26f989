//! The commands in README and documentation: in blocks of code, and within sentences and tables.
//!
//! A block `sh` is commands, one a line. In a block `console` they follow `$ `, and what they print stands
//! below them. CONTRIBUTING.md says what is done with them, and how one is marked as not run.

use crate::root;
use std::path::PathBuf;

/// How a mark begins that says why something is not run, and how it ends.
const MARK: (&str, &str) = ("<!-- not run: ", " -->");
/// Languages of blocks that hold no commands.
const NO_COMMANDS: [&str; 5] = ["json", "rust,no_run", "text", "toml", "yaml"];

/// One command of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// As it stands there, without `$ `.
    pub line: String,
    /// What stands below it as its output.
    pub output: Vec<String>,
    /// Why it is not run.
    pub not_run: Option<String>,
}

/// A block of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Page and line, such as `docs/install.md:15`.
    pub place: String,
    /// In their order.
    pub commands: Vec<Command>,
}

/// README and everything below `docs`, in reading order: name from the root, and text.
pub fn pages() -> Vec<(String, String)> {
    let root = root();
    let mut left = vec![root.join("docs")];
    let mut found = vec![root.join("README.md"), root.join("README.zh-CN.md")];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).expect("docs can be read").flatten() {
            let path = entry.path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found[2..].sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a page can be read");
        let name = path.strip_prefix(&root).expect("it is below the root");
        (name.display().to_string(), text)
    };
    found.into_iter().map(read).collect()
}

/// The blocks of commands of a page, and what is wrong with its blocks and marks.
pub fn blocks(page: &str, text: &str) -> (Vec<Block>, Vec<String>) {
    let (mut blocks, mut problems) = (Vec::new(), Vec::new());
    let mut marks: Vec<&str> = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        let place = || format!("{page}:{number}");
        if let Some(mark) = line.strip_prefix(MARK.0) {
            match mark.strip_suffix(MARK.1) {
                Some(mark) => marks.push(mark),
                None => problems.push(format!("{}: the mark does not end on its line", place())),
            }
            continue;
        }
        if let Some(language) = line.trim_start().strip_prefix("```") {
            let inner: Vec<&str> = lines
                .by_ref()
                .map(|(_, line)| line)
                .take_while(|line| !line.trim_start().starts_with("```"))
                .collect();
            match commands(language, &inner) {
                Some(mut commands) => {
                    problems.extend(mark(&place(), &mut commands, &std::mem::take(&mut marks)));
                    blocks.push(Block {
                        place: place(),
                        commands,
                    });
                }
                None if NO_COMMANDS.contains(&language) => {}
                None => problems.push(format!(
                    "{}: call the block sh, console or one of {NO_COMMANDS:?}, not {language:?}",
                    place()
                )),
            }
        }
        if !line.is_empty() && !marks.is_empty() {
            problems.push(format!(
                "{}: a mark above this line stands before no block of commands",
                place()
            ));
            marks.clear();
        }
    }
    (blocks, problems)
}

/// The commands of a block; `None` if its language is none of commands.
fn commands(language: &str, lines: &[&str]) -> Option<Vec<Command>> {
    let mut found: Vec<Command> = Vec::new();
    for line in lines {
        let command = match language {
            "sh" => Some(*line),
            "console" => line.strip_prefix("$ "),
            _ => return None,
        };
        match (command, found.last_mut()) {
            (Some(""), _) => {}
            (Some(line), _) => found.push(Command {
                line: line.to_owned(),
                output: Vec::new(),
                not_run: None,
            }),
            (None, Some(before)) => before.output.push((*line).to_owned()),
            (None, None) => {}
        }
    }
    Some(found)
}

/// Puts the reasons of marks on commands: a mark that begins with a command in backticks and a colon is of
/// the commands that begin so, any other of the whole block.
fn mark(place: &str, commands: &mut [Command], marks: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    for mark in marks {
        let named = mark.strip_prefix('`').and_then(|mark| mark.split_once("`: "));
        let (start, reason) = named.unwrap_or(("", mark));
        let mut meant = commands
            .iter_mut()
            .filter(|command| command.line.starts_with(start))
            .peekable();
        if reason.trim().is_empty() || meant.peek().is_none() {
            problems.push(format!(
                "{place}: the mark {mark:?} has no reason, or names no command"
            ));
        }
        meant.for_each(|command| command.not_run = Some((*reason).to_owned()));
    }
    problems
}

/// What stands in backticks within the text of a page, on one line each.
pub fn spans(text: &str) -> Vec<String> {
    let mut is_block = false;
    let mut prose = String::new();
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_block ^= is_fence;
        let is_comment = line.starts_with("<!--");
        prose.push_str(if is_block || is_fence || is_comment {
            ""
        } else {
            line
        });
        prose.push('\n');
    }
    let paragraphs = prose.split("\n\n");
    let spans = paragraphs.flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    spans.map(|span| span.replace('\n', " ")).collect()
}

/// Whether a command has printed what the documentation shows. Words that begin with a digit are not
/// compared, nor how far columns are apart, nor items of lists: they depend on the moment. `…` stands for
/// any text, and alone on a line for any lines.
pub fn is_alike(shown: &[String], printed: &str) -> bool {
    let shown = comparable(shown.iter().map(String::as_str));
    let printed = comparable(printed.lines());
    let parts: Vec<&str> = shown.split('…').map(str::trim).collect();
    let [first, middle @ .., last] = parts.as_slice() else {
        return printed == shown.trim();
    };
    let Some(mut left) = printed.strip_prefix(first) else {
        return false;
    };
    for part in middle {
        match left.split_once(part) {
            Some((_, after)) => left = after,
            None => return false,
        }
    }
    left.ends_with(last)
}

/// Words between single blanks, lines between line feeds, and each word that begins with a digit as `0`.
fn comparable<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let word = |word: &str| {
        let opened = word.trim_start_matches('(');
        let core = opened.trim_end_matches([',', ';', ':', ')', '.']);
        let (start, end) = (&word[..word.len() - opened.len()], &opened[core.len()..]);
        match core {
            _ if core.starts_with(|c: char| c.is_ascii_digit()) => format!("{start}0{end}"),
            "ms" | "µs" => format!("{start}s{end}"),
            _ => word.to_owned(),
        }
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    let lines = lines.filter(|line| !line.starts_with("  - "));
    lines.map(line).collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str, output: &[&str], not_run: Option<&str>) -> Command {
        Command {
            line: line.to_owned(),
            output: output.iter().map(ToString::to_string).collect(),
            not_run: not_run.map(str::to_owned),
        }
    }

    #[test]
    fn commands_are_read_with_their_output_and_their_marks() {
        let page = "Text.\n\n```console\n$ a 1\n1\n\n$ b\n```\n\n<!-- not run: it is late -->\n```sh\na 2\n\nb # c\n```\n\
                    <!-- not run: `b`: never -->\n\n```sh\na 3\nb 3\n```\n```yaml\nx: y\n```\n";
        let (found, problems) = blocks("page", page);
        assert_eq!(problems, [""; 0]);
        let block = |line: usize, commands: &[Command]| Block {
            place: format!("page:{line}"),
            commands: commands.to_vec(),
        };
        let late = Some("it is late");
        let expected = [
            block(3, &[command("a 1", &["1", ""], None), command("b", &[], None)]),
            block(11, &[command("a 2", &[], late), command("b # c", &[], late)]),
            block(
                18,
                &[command("a 3", &[], None), command("b 3", &[], Some("never"))],
            ),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn blocks_without_a_language_and_marks_without_a_reason_or_a_block_are_named() {
        let page = "```\na\n```\n<!-- not run:  -->\n```sh\na\n```\n<!-- not run: `c`: gone -->\n```sh\na\n```\n\
                    <!-- not run: lost -->\nText.\n<!-- not run: open\n";
        let (_, problems) = blocks("page", page);
        let starts = [
            "page:1: call the block",
            "page:5: the mark",
            "page:9: the mark",
            "page:13: a mark",
            "page:14: ",
        ];
        assert_eq!(problems.len(), starts.len(), "{problems:?}");
        for (problem, start) in problems.iter().zip(starts) {
            assert!(problem.starts_with(start), "{problem}");
        }
    }

    #[test]
    fn spans_go_over_lines_and_not_into_blocks() {
        let page = "Run `a\nb`, or `c`.\n\n```sh\n`d`\n```\n| `e | f` |\n";
        assert_eq!(spans(page), ["a b", "c", "e | f"]);
    }

    #[test]
    fn output_is_compared_without_numbers_and_with_what_is_left_out() {
        let shown = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        for (text, printed, alike) in [
            ("2 of 3 run", "10  of 11 run\n", true),
            ("took 11.2 ms: ok", "took 182 µs: ok", true),
            (
                "since 41s (2026-11-22T19:51:28Z)",
                "since 1m2s (2027-01-01T00:00:00Z)",
                true,
            ),
            ("since 41s, by shore-2", "since 1m2s, by shore-2", true),
            ("node shore-2", "node shore-3", false),
            ("a\nb", "a\nb\nc", false),
            ("a\n…", "a\nb\nc", true),
            ("a\n…\nd", "a\nb\nc\nd", true),
            ("a\n…\nd", "a\nb\nd\nc", false),
            ("held by x-1_6f0c…", "held by x-1_6f0c77aa", true),
            ("why:\n  - a\nend", "why:\n  - b\n  - c\nend", true),
        ] {
            assert_eq!(is_alike(&shown(text), printed), alike, "{text:?}, {printed:?}");
        }
    }
}
