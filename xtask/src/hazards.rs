//! `check-docs`: `docs/hazards.md` has every number, the tests and files that it and `docs/security.md` name
//! exist, and what these and `docs/failover-rules.md` say to be in a file is there.

use crate::documented::tests_by_name;
use crate::markdown::{self, code_spans, is_test};
use crate::size::rust_files;
use anyhow::{Context, bail};
use std::path::Path;

/// Hazards are numbered from 1 to this.
const LAST: usize = 59;
/// The crate whose tests are named without its folder.
const HOME: &str = "failover-rules";

const HAZARDS: &str = "docs/hazards.md";
const RULES: &str = "docs/failover-rules.md";

/// Fails naming everything that is wrong with the pages.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let sources = sources(root)?;
    for name in [HAZARDS, "docs/security.md", RULES] {
        let page = std::fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"))?;
        let mut problems = elsewhere(&sources, &page);
        if name != RULES {
            problems.extend(not_there(root, &page));
        }
        if name == HAZARDS {
            problems.extend(incomplete(&page));
        }
        if !problems.is_empty() {
            bail!("{name}:\n{}", problems.join("\n"));
        }
    }
    Ok(())
}

/// Hazards that are missing, or of which something is.
fn incomplete(page: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let entries = entries(page);
    for number in 1..=LAST {
        match entries.iter().filter(|(known, _)| *known == number).count() {
            1 => {}
            count => problems.push(format!("  hazard {number} stands there {count} times")),
        }
    }
    for (number, text) in entries {
        let has = |item: &str| text.lines().any(|line| line.starts_with(item));
        if !has("* Rule: ") {
            problems.push(format!("  hazard {number} has no rule"));
        }
        if !has("* Tests: ") && !has("* **Not built yet**") {
            problems.push(format!(
                "  hazard {number} names no test and does not say that it is not built yet"
            ));
        }
    }
    problems
}

/// Tests and files that a page names and that do not exist.
fn not_there(root: &Path, page: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for name in code_spans(page) {
        let is_file = [".rs", ".yaml"].iter().any(|end| name.ends_with(end));
        if is_test(name) && !tests_by_name::exists(root, HOME, name) {
            problems.push(format!("  there is no test {name}"));
        } else if is_file && !root.join(name).is_file() {
            problems.push(format!("  there is no file {name}"));
        }
    }
    problems
}

/// All Rust files of the crates: path and text.
fn sources(root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    rust_files(&root.join("crates"), &mut files)?;
    let read = |path: std::path::PathBuf| {
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok((path.display().to_string(), text))
    };
    files.into_iter().map(read).collect()
}

/// What a page says to be in a file, as "`one` and `other` in `path.rs`", and what is not. A path may lack
/// its beginning.
fn elsewhere(sources: &[(String, String)], page: &str) -> Vec<String> {
    let parts: Vec<&str> = page.split('`').collect();
    let is_file = |name: &str| Path::new(name).extension().is_some_and(|end| end == "rs");
    let mut problems = Vec::new();
    for (place, path) in parts.iter().enumerate().skip(1).step_by(2) {
        if !is_file(path) || place < 3 || parts[place - 1] != " in " {
            continue;
        }
        let end = format!("/{path}");
        let texts = || {
            sources
                .iter()
                .filter(|(file, _)| file.ends_with(&end))
                .map(|(_, text)| text)
        };
        let mut named = place - 2;
        loop {
            let name = parts[named].rsplit("::").next().unwrap_or_default();
            let is_word = |text: &String| {
                text.split(|c: char| c != '_' && !c.is_alphanumeric())
                    .any(|word| word == name)
            };
            let is_name = !name.is_empty() && name.chars().all(|c| c == '_' || c.is_ascii_lowercase());
            if is_name && !texts().any(is_word) {
                problems.push(format!("  there is no {name} in {path}"));
            }
            if named < 3 || ![", ", " and ", ", and "].contains(&parts[named - 1]) {
                break;
            }
            named -= 2;
            if is_file(parts[named]) {
                break;
            }
        }
    }
    problems
}

/// The hazards of a page: the number of each, and its text.
fn entries(page: &str) -> Vec<(usize, &str)> {
    let numbered = |(heading, text): (&str, _)| Some((heading.split_once(". ")?.0.parse().ok()?, text));
    markdown::sections(page).filter_map(numbered).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The root of this checkout, whose files the page may name.
    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .unwrap_or(Path::new("."))
    }

    fn problems(page: &str) -> Vec<String> {
        let sources = sources(root()).expect("the crates are readable");
        [
            incomplete(page),
            not_there(root(), page),
            elsewhere(&sources, page),
        ]
        .concat()
    }

    /// A page with all numbers, of which the first has this text.
    fn page(first: &str) -> String {
        let rest =
            (2..=LAST).map(|number| format!("\n### {number}. x\n\n* Rule: y.\n* **Not built yet**.\n"));
        format!(
            "# Page\n\n## Part\n\n### 1. x\n{first}\n## Next\n{}",
            rest.collect::<String>()
        )
    }

    #[test]
    fn a_page_that_names_what_exists_is_accepted() {
        let text = page(
            "\n* Rule: y.\n* Code: `count`, `report` and `Held` in `crates/zone/src/verdict/cell.rs`.\n* Tests: `sim::it::a_node_that_stalls`.\n",
        );
        assert_eq!(problems(&text), Vec::<String>::new());
    }

    #[test]
    fn what_is_missing_or_gone_is_named() {
        let text =
            page("\nWords about `a::b::c` and `xtask/src/gone.rs`, `is_moved` and `count` in `crates/zone/src/verdict/cell.rs`.\n").replace("\n### 7. x", "\n### 8. x");
        let expected = [
            "  hazard 7 stands there 0 times",
            "  hazard 8 stands there 2 times",
            "  hazard 1 has no rule",
            "  hazard 1 names no test and does not say that it is not built yet",
            "  there is no test a::b::c",
            "  there is no file xtask/src/gone.rs",
            "  there is no is_moved in crates/zone/src/verdict/cell.rs",
        ];
        assert_eq!(problems(&text), expected);
    }
}
