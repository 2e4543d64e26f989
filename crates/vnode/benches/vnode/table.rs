//! The results for people.

use std::fmt::Write as _;

/// One line of the table.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) measured: String,
    /// The goal, and whether it is met.
    pub(crate) goal: Option<(&'static str, bool)>,
}

/// A table in Markdown.
pub(crate) fn text(rows: &[Row]) -> String {
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
