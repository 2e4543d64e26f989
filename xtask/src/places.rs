//! `check-docs`: the files and functions that CONTRIBUTING.md names under "Where is what" exist.

use crate::markdown::{self, code_spans};
use anyhow::{Context, bail};
use std::path::Path;

const HEADING: &str = "Where is what";

/// Fails naming each place that is gone.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let page =
        std::fs::read_to_string(root.join("CONTRIBUTING.md")).context("cannot read CONTRIBUTING.md")?;
    let rows = rows(&page);
    if rows.is_empty() {
        bail!("CONTRIBUTING.md has no table under \"Where is what\"");
    }
    let mut gone = Vec::new();
    for row in rows {
        let text = std::fs::read_to_string(root.join(row.file)).unwrap_or_default();
        if !has_function(&text, row.function) {
            gone.push(format!("  {} in {}: {}", row.function, row.file, row.question));
        }
    }
    if !gone.is_empty() {
        bail!(
            "CONTRIBUTING.md names functions that are not there:\n{}",
            gone.join("\n")
        );
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Row<'a> {
    question: &'a str,
    file: &'a str,
    /// The first function that the row names.
    function: &'a str,
}

/// The rows of the table under the heading.
fn rows(page: &str) -> Vec<Row<'_>> {
    let (rows, _) = markdown::read(page, &[]);
    let rows = rows.iter().filter(|row| row.under == HEADING);
    rows.filter_map(row).collect()
}

/// `None`: it names no file or no function.
fn row<'a>(row: &markdown::Row<'a>) -> Option<Row<'a>> {
    Some(Row {
        question: row.first(),
        file: code_spans(row.cell("file")?).next()?,
        function: code_spans(row.cell("function")?).next()?,
    })
}

fn has_function(text: &str, name: &str) -> bool {
    ["(", "<"]
        .iter()
        .any(|next| text.contains(&format!("fn {name}{next}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_a_file_and_its_first_function() {
        let page = "# Page\n| x | `a.rs` | `f` |\n## Where is what\nWords.\n\n| question | file | function |\n|---|---|---|\n\
                    | When? | `crates/a/src/b.rs` | `c` decides, `d` says so |\n\n## Next\n| y | `a.rs` | `f` |\n";
        let expected = Row {
            question: "When?",
            file: "crates/a/src/b.rs",
            function: "c",
        };
        assert_eq!(rows(page), [expected]);
    }

    #[test]
    fn a_function_is_found_by_its_whole_name() {
        let text = "pub fn decide<T>(x: T) {}\nfn other() {}";
        assert!(has_function(text, "decide") && has_function(text, "other"));
        assert!(!has_function(text, "oth") && !has_function(text, "decided"));
    }
}
