//! `check-docs`: pages that list cases beside the tests that hold them name tests that exist, and leave no
//! case out.
//!
//! A page that names a test is wrong once the test is renamed or gone, and nobody notices: what it says is no
//! longer held by anything. The same goes for a row without a test, or for a number that was dropped from a
//! list.

pub(crate) mod tests_by_name;

use crate::markdown::{self, Row, code_spans, is_test};
use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::path::Path;

/// Headings of the columns that name tests.
const TESTS: [&str; 4] = ["here", "tests", "on the machine", "on whole candidates"];
/// How a row that has no test begins to say why, in one of those columns.
const REASONS: [&str; 2] = ["cannot apply: ", "*missing*"];

/// A page, and what must be found on it.
struct Page {
    /// From the root of the repository.
    path: &'static str,
    /// The folder of the crate whose tests need no prefix.
    home: &'static str,
    /// Fewer tests than this are named only if the page was not understood, or much of it is gone.
    least_tests: usize,
    /// The same for rows.
    least_rows: usize,
    /// Numbers that must be there.
    numbers: &'static [Numbers],
}

/// A list of numbers that a page must have in full.
enum Numbers {
    /// Rows under a heading begin with `1. ` to `LAST. ` in this order, or with `1a. `, `1b. ` where a case
    /// has parts.
    Cases { heading: &'static str, last: u32 },
    /// At least so many rows stand under a heading.
    Rows { heading: &'static str, least: usize },
    /// The words from `S1` to `S` and the last number stand somewhere on the page.
    Scenarios { last: u32 },
    /// The column of this heading has each of these values.
    Column {
        heading: &'static str,
        values: &'static [&'static str],
    },
}

const PAGES: [Page; 5] = [
    Page {
        path: "docs/koupleless/upstream-cases.md",
        home: "koupleless",
        least_tests: 141,
        least_rows: 80,
        numbers: &[
            Numbers::Cases {
                heading: "Scenarios",
                last: 10,
            },
            Numbers::Cases {
                heading: "Defects",
                last: 23,
            },
            Numbers::Rows {
                heading: "Bad input",
                least: 20,
            },
        ],
    },
    Page {
        path: "docs/vnode/upstream-cases.md",
        home: "vnode",
        least_tests: 101,
        least_rows: 91,
        numbers: &[],
    },
    Page {
        path: "docs/probe/upstream-cases.md",
        home: "probe",
        least_tests: 221,
        least_rows: 151,
        numbers: &[],
    },
    Page {
        path: "docs/election/upstream-cases.md",
        home: "election",
        least_tests: 101,
        least_rows: 110,
        numbers: &[Numbers::Scenarios { last: 25 }],
    },
    Page {
        path: "docs/failover-rules.md",
        home: "failover-rules",
        least_tests: 61,
        least_rows: 70,
        numbers: &[Numbers::Column {
            heading: "hazard",
            values: &[
                "7", "8", "12", "13", "16", "17", "18", "19", "20", "21", "22", "23", "24", "25", "26", "36",
                "37", "38", "40", "50", "52", "54", "55", "56", "58", "doubt",
            ],
        }],
    },
];

/// Checks all pages; fails naming the page and the line of everything that is wrong.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let mut problems = Vec::new();
    for page in &PAGES {
        let path = root.join(page.path);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let found = check(root, page, &text);
        problems.extend(
            found
                .into_iter()
                .map(|problem| format!("  {}{problem}", page.path)),
        );
    }
    if !problems.is_empty() {
        bail!("documentation and tests disagree:\n{}", problems.join("\n"));
    }
    Ok(())
}

/// What is wrong with a page, each beginning with `:LINE: ` or `: `.
fn check(root: &Path, page: &Page, text: &str) -> Vec<String> {
    let (rows, mut problems) = markdown::read(text, &TESTS);
    let mut count = 0;
    for row in &rows {
        let named: Vec<&str> = row
            .columns(&TESTS)
            .flat_map(code_spans)
            .filter(|span| is_test(span))
            .collect();
        count += named.len();
        for name in &named {
            if !tests_by_name::exists(root, page.home, name) {
                problems.push(format!(":{}: there is no test {name}", row.line));
            }
        }
        let explained = |cell: &str| {
            let cell = cell.to_lowercase();
            REASONS.iter().any(|reason| cell.starts_with(reason))
        };
        if named.is_empty() && !row.columns(&TESTS).any(explained) {
            problems.push(format!(
                ":{}: \"{}\" has neither a test nor a reason why there is none",
                row.line,
                row.first()
            ));
        }
    }
    for (what, there, least) in [
        ("tests", count, page.least_tests),
        ("rows", rows.len(), page.least_rows),
    ] {
        if there < least {
            problems.push(format!(": {there} {what}, at least {least} were expected"));
        }
    }
    for numbers in page.numbers {
        problems.extend(numbers.check(text, &rows));
    }
    problems
}

impl Numbers {
    fn check(&self, text: &str, rows: &[Row<'_>]) -> Vec<String> {
        match self {
            Self::Cases { heading, last } => {
                let cases: Vec<&Row<'_>> = rows.iter().filter(|row| row.under == *heading).collect();
                cases_in_order(heading, &cases, *last)
            }
            Self::Rows { heading, least } => {
                let there = rows.iter().filter(|row| row.under == *heading).count();
                let few = there < *least;
                few.then(|| format!(": {there} rows under \"{heading}\", at least {least} were expected"))
                    .into_iter()
                    .collect()
            }
            Self::Scenarios { last } => {
                let words: BTreeSet<&str> = text.split(|mark: char| !mark.is_alphanumeric()).collect();
                (1..=*last)
                    .map(|number| format!("S{number}"))
                    .filter(|name| !words.contains(name.as_str()))
                    .map(|name| format!(": scenario {name} is missing"))
                    .collect()
            }
            Self::Column { heading, values } => values
                .iter()
                .filter(|value| !rows.iter().any(|row| row.cell(heading) == Some(**value)))
                .map(|value| format!(": {heading} {value} is missing"))
                .collect(),
        }
    }
}

/// A case's number, and its letter if it is a part.
fn label(case: &str) -> Option<(u32, Option<char>)> {
    let label = case.split_once(". ")?.0;
    let digits = label.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let mut letters = label[digits.len()..].chars();
    let part = letters.next();
    letters.next().is_none().then_some((digits.parse().ok()?, part))
}

/// Cases are numbered from 1 to `last` without a gap. A case with parts has them from a on, and at least two.
fn cases_in_order(heading: &str, cases: &[&Row<'_>], last: u32) -> Vec<String> {
    let mut problems = Vec::new();
    let mut before = (0, None);
    for (nth, row) in cases.iter().enumerate() {
        let Some(here) = label(row.first()) else {
            problems.push(format!(":{}: \"{}\" has no number", row.line, row.first()));
            continue;
        };
        let next_part = match before {
            (number, Some(letter)) => char::from_u32(letter as u32 + 1).map(|letter| (number, Some(letter))),
            (_, None) => None,
        };
        let begins = here == (before.0 + 1, None) || here == (before.0 + 1, Some('a'));
        if !begins && Some(here) != next_part {
            problems.push(format!(":{}: \"{}\" is out of order", row.line, row.first()));
        }
        let after = cases.get(nth + 1).and_then(|row| label(row.first()));
        if here.1 == Some('a') && after != Some((here.0, Some('b'))) {
            problems.push(format!(
                ":{}: \"{}\" is the only part of its case",
                row.line,
                row.first()
            ));
        }
        before = here;
    }
    if before.0 != last {
        problems.push(format!(
            ": the last case under \"{heading}\" is {}, not {last}",
            before.0
        ));
    }
    problems
}

#[cfg(test)]
mod tests;
