//! A column: its heading, and what its cells show of an object.

use super::cells::{int, or, size, text};
use super::{Column, age};
use jiff::Timestamp;
use serde_json::{Value, json};

/// A column of a built-in kind: its definition, and how its cell is made. Both stand in one place, so that no
/// row can have other cells than its table has columns.
#[derive(Clone, Copy)]
pub(super) struct Printer {
    /// Heading, with blanks.
    name: &'static str,
    kind: &'static str,
    is_wide: bool,
    cell: Cell,
}

/// What a cell shows. Members are named by JSON pointers.
#[derive(Clone, Copy)]
pub(super) enum Cell {
    /// A text, or the placeholder where the text is absent or empty.
    Text(&'static str, &'static str),
    /// A number, or zero.
    Number(&'static str),
    /// Whether a member is true.
    Flag(&'static str),
    /// The number of items of a list, or of members of a map.
    Size(&'static str),
    /// A member as it is; null where it is absent.
    Member(&'static str),
    /// The time since a timestamp.
    Age(&'static str),
    /// What a function makes of the object and the present time.
    Made(fn(&Value, Timestamp) -> Value),
}

/// A column of texts.
pub(super) const fn string(name: &'static str, cell: Cell) -> Printer {
    Printer {
        name,
        kind: "string",
        is_wide: false,
        cell,
    }
}

/// A column of whole numbers.
pub(super) const fn integer(name: &'static str, cell: Cell) -> Printer {
    Printer {
        kind: "integer",
        ..string(name, cell)
    }
}

/// A column of truth values.
pub(super) const fn boolean(name: &'static str, cell: Cell) -> Printer {
    Printer {
        kind: "boolean",
        ..string(name, cell)
    }
}

/// The column that every kind begins with.
pub(super) const NAME: Printer = string("Name", Cell::Text("/metadata/name", ""));

/// Time since the object was created.
pub(super) const AGE: Printer = string("Age", Cell::Age("/metadata/creationTimestamp"));

/// Kinds without columns of their own show when the object was created.
pub(super) const CREATED_AT: Printer = Printer {
    kind: "date",
    ..string("Created At", Cell::Member("/metadata/creationTimestamp"))
};

impl Printer {
    /// The same column, shown with `-o wide` only.
    pub(super) const fn wide(self) -> Self {
        Self {
            is_wide: true,
            ..self
        }
    }

    /// The column as clients see it.
    pub(super) fn definition(&self) -> Column {
        Column {
            name: self.name.to_owned(),
            kind: self.kind.to_owned(),
            format: if self.name == "Name" { "name" } else { "" }.to_owned(),
            description: self.description(),
            priority: i64::from(self.is_wide),
        }
    }

    fn description(&self) -> String {
        match self.name {
            "Name" => "Name of the object, unique among its kind in its namespace.".to_owned(),
            "Age" => "Time since the object was created.".to_owned(),
            "Created At" => "When the object was created.".to_owned(),
            other => format!("{other} of the object."),
        }
    }

    /// The cell of an object.
    pub(super) fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let member = |at: &str| object.pointer(at).unwrap_or(&Value::Null);
        match self.cell {
            Cell::Text(at, placeholder) => json!(or(text(object, at), placeholder)),
            Cell::Number(at) => json!(int(object, at)),
            Cell::Flag(at) => json!(*member(at) == Value::Bool(true)),
            Cell::Size(at) => json!(size(object, at)),
            Cell::Member(at) => member(at).clone(),
            Cell::Age(at) => json!(age(member(at), now)),
            Cell::Made(make) => make(object, now),
        }
    }
}
