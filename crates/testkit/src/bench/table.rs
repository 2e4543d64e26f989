//! The results for people.

use std::fmt::Write as _;

/// One line of the table.
pub struct Row {
    /// What was measured, and how.
    pub what: String,
    /// The figure with its unit.
    pub measured: String,
    /// The goal, and whether it is met.
    pub goal: Option<(&'static str, bool)>,
}

impl Row {
    /// A figure without a goal.
    pub fn new(what: impl Into<String>, measured: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            measured: measured.into(),
            goal: None,
        }
    }
}

/// A table in Markdown.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::from("| what | goal | measured |\n|---|---|---|\n");
    for Row { what, measured, goal } in rows {
        let (goal, verdict) = match goal {
            Some((goal, true)) => (*goal, ": met"),
            Some((goal, false)) => (*goal, ": **missed**"),
            None => ("", ""),
        };
        writeln!(text, "| {what} | {goal} | {measured}{verdict} |").expect("writing to a String cannot fail");
    }
    text
}
