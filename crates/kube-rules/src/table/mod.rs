//! Printer columns.

mod cells;
mod layout;
mod node;
mod pod;
#[cfg(test)]
mod tests;
pub mod usage;

use crate::gvk::Gvk;
use jiff::Timestamp;
use serde_json::{Value, json};

/// One `TableColumnDefinition`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    pub kind: String,
    /// `name` for the name column, else mostly empty.
    pub format: String,
    /// For people.
    pub description: String,
    /// 0 is always shown, 1 with `-o wide`.
    pub priority: i64,
}

impl Column {
    /// As in `Table.columnDefinitions`.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format,
            "description": self.description, "priority": self.priority,
        })
    }
}

/// One row's own part of a `TableRow`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// One value per column.
    pub cells: Vec<Value>,
    /// `TableRow.conditions`, mostly empty.
    pub conditions: Vec<Value>,
}

/// Columns of a built-in kind (name and age where there are no special ones).
pub fn columns(gvk: &Gvk) -> Vec<Column> {
    layout::columns(gvk)
        .split_whitespace()
        .map(|word| {
            let (name, options) = word.split_once(':').unwrap_or((word, ""));
            let kind = match options.chars().find(char::is_ascii_lowercase) {
                Some('i') => "integer",
                Some('b') => "boolean",
                Some('d') => "date",
                _ => "string",
            };
            let is_name = name == "Name";
            Column {
                name: name.replace('_', " "),
                kind: kind.to_owned(),
                format: if is_name { "name".to_owned() } else { String::new() },
                description: describe(name),
                priority: i64::from(options.contains('1')),
            }
        })
        .collect()
}

/// The row of an object of a built-in kind.
pub fn row(gvk: &Gvk, object: &Value, now: Timestamp) -> Row {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod::row(object, now),
        ("", "Node") => Row {
            cells: node::cells(object, now),
            conditions: Vec::new(),
        },
        ("metrics.k8s.io", _) => Row {
            cells: usage::cells(object),
            conditions: Vec::new(),
        },
        _ => Row {
            cells: layout::cells(gvk, object, now),
            conditions: Vec::new(),
        },
    }
}

/// A heading in words.
fn describe(name: &str) -> String {
    match name {
        "Name" => "Name of the object, unique among its kind in its namespace.".to_owned(),
        "Age" => "Time since the object was created.".to_owned(),
        "Created_At" => "When the object was created.".to_owned(),
        other => format!("{} of the object.", other.replace('_', " ")),
    }
}

/// A duration as people read it, as upstream's `duration.HumanDuration`.
pub(crate) fn human_duration(seconds: i64) -> String {
    let pair = |big: i64, big_unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{big}{big_unit}")
        } else {
            format!("{big}{big_unit}{small}{small_unit}")
        }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => pair(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => pair(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

/// Time since a timestamp, `<unknown>` without one.
pub(crate) fn age(time: &Value, now: Timestamp) -> String {
    match time.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(time) => human_duration(now.as_second() - time.as_second()),
        None => "<unknown>".to_owned(),
    }
}
