//! `additionalPrinterColumns`.

use crate::schema;
use crate::table::{Column, Row, age};
use jiff::Timestamp;
use serde_json::{Value, json};

/// One column of a definition.
#[derive(Clone, Debug)]
pub(super) struct PrinterColumn {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    path: Vec<Segment>,
    text: String,
}

/// One step of a JSONPath, as far as printer columns use them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// `.name` or `['name']`
    Member(String),
    /// `[3]`, or from the end `[-1]`
    Index(i64),
    /// `[*]` or `.*`
    All,
    /// A filter, as in `[?(@.type=="Ready")]`.
    Filter(Vec<Segment>, String),
}

impl PrinterColumn {
    /// The columns of a version; without any, the age.
    pub(super) fn of_version(version: &Value) -> Vec<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let listed = version["additionalPrinterColumns"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        if listed.is_empty() {
            let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": creation()});
            return Self::of_version(&json!({"additionalPrinterColumns": [age]}));
        }
        listed
            .iter()
            .map(|column| {
                let path = text(&column["jsonPath"]);
                let described = column["description"].as_str().filter(|text| !text.is_empty());
                let description = described.map_or_else(
                    || format!("Custom resource definition column (in JSONPath format): {path}"),
                    str::to_owned,
                );
                Self {
                    name: text(&column["name"]),
                    kind: text(&column["type"]),
                    format: text(&column["format"]),
                    description,
                    priority: column["priority"].as_i64().unwrap_or(0),
                    path: parse(&path),
                    text: path,
                }
            })
            .collect()
    }
}

fn described(member: &str) -> String {
    let metadata = schema::definition_json(super::OBJECT_META).unwrap_or_default();
    metadata["properties"][member]["description"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn creation() -> String {
    described("creationTimestamp")
}

/// Name first, then the definition's.
pub(super) fn columns(printed: &[PrinterColumn]) -> Vec<Column> {
    let name = Column {
        name: "Name".to_owned(),
        kind: "string".to_owned(),
        format: "name".to_owned(),
        description: described("name"),
        priority: 0,
    };
    let rest = printed.iter().map(|column| Column {
        name: column.name.clone(),
        kind: column.kind.clone(),
        format: column.format.clone(),
        description: column.description.clone(),
        priority: column.priority,
    });
    std::iter::once(name).chain(rest).collect()
}

/// The cells of an object.
pub(super) fn row(printed: &[PrinterColumn], object: &Value, now: Timestamp) -> Row {
    let name = object["metadata"]["name"].clone();
    let rest = printed.iter().map(|column| cell(column, object, now));
    Row {
        cells: std::iter::once(name).chain(rest).collect(),
        conditions: Vec::new(),
    }
}

fn cell(column: &PrinterColumn, object: &Value, now: Timestamp) -> Value {
    // The age of an object is shown by the same rule as for every other kind.
    if column.text == ".metadata.creationTimestamp" {
        return json!(age(&object["metadata"]["creationTimestamp"], now));
    }
    let mut found = Vec::new();
    select(&column.path, object, &mut found);
    let Some(first) = found.first().copied().filter(|value| !value.is_null()) else {
        return Value::Null;
    };
    match column.kind.as_str() {
        "integer" => first
            .as_i64()
            .or_else(|| first.as_f64().map(|number| number as i64))
            .map_or(Value::Null, Value::from),
        "number" => first.as_f64().map_or(Value::Null, Value::from),
        "boolean" => first.as_bool().map_or(Value::Null, Value::from),
        "date"
            if first
                .as_str()
                .is_some_and(|text| text.parse::<Timestamp>().is_ok()) =>
        {
            json!(age(first, now))
        }
        "date" => json!("<invalid>"),
        _ if found.len() > 1 => json!(
            found
                .iter()
                .map(|value| shown(value))
                .collect::<Vec<_>>()
                .join(",")
        ),
        _ => json!(shown(first)),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A path that cannot be read selects nothing.
fn parse(path: &str) -> Vec<Segment> {
    parse_segments(path).unwrap_or_else(|| vec![Segment::Index(i64::MAX)])
}

fn parse_segments(path: &str) -> Option<Vec<Segment>> {
    let mut segments = Vec::new();
    let mut rest = path.trim();
    rest = rest
        .strip_prefix('{')
        .and_then(|inner| inner.strip_suffix('}'))
        .unwrap_or(rest);
    rest = rest.strip_prefix('$').unwrap_or(rest);
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let end = closing(inner)?;
            segments.push(bracket(&inner[..end])?);
            rest = &inner[end + 1..];
            continue;
        }
        let name = rest.strip_prefix('.').unwrap_or(rest);
        let mut member = String::new();
        let mut characters = name.char_indices();
        let mut used = name.len();
        while let Some((at, character)) = characters.next() {
            match character {
                '\\' => member.push(characters.next()?.1),
                '.' | '[' => {
                    used = at;
                    break;
                }
                other => member.push(other),
            }
        }
        if member.is_empty() {
            return None;
        }
        segments.push(if member == "*" {
            Segment::All
        } else {
            Segment::Member(member)
        });
        rest = &name[used..];
    }
    Some(segments)
}

/// Where the bracket closes, quotes respected.
fn closing(inner: &str) -> Option<usize> {
    let mut quote = None;
    for (at, character) in inner.char_indices() {
        match (quote, character) {
            (None, ']') => return Some(at),
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), close) if open == close => quote = None,
            _ => {}
        }
    }
    None
}

fn bracket(inner: &str) -> Option<Segment> {
    let unquoted = |text: &str| {
        let text = text.trim();
        let quote = text.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
        text.strip_prefix(quote)?.strip_suffix(quote).map(str::to_owned)
    };
    let inner = inner.trim();
    if inner == "*" {
        return Some(Segment::All);
    }
    if let Some(filter) = inner
        .strip_prefix("?(")
        .and_then(|filter| filter.strip_suffix(')'))
    {
        let (path, wanted) = filter.split_once("==")?;
        let path = parse_segments(path.trim().strip_prefix('@')?)?;
        return Some(Segment::Filter(path, unquoted(wanted)?));
    }
    if let Some(name) = unquoted(inner) {
        return Some(Segment::Member(name));
    }
    inner.parse().ok().map(Segment::Index)
}

fn select<'a>(path: &[Segment], value: &'a Value, found: &mut Vec<&'a Value>) {
    let Some((first, rest)) = path.split_first() else {
        found.push(value);
        return;
    };
    match first {
        Segment::Member(name) => {
            if let Some(member) = value.get(name) {
                select(rest, member, found);
            }
        }
        Segment::Index(index) => {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
            let at = if *index < 0 { length + index } else { *index };
            if let Some(item) = usize::try_from(at).ok().and_then(|at| items.get(at)) {
                select(rest, item, found);
            }
        }
        Segment::All => match value {
            Value::Array(items) => items.iter().for_each(|item| select(rest, item, found)),
            Value::Object(members) => members.values().for_each(|member| select(rest, member, found)),
            _ => {}
        },
        Segment::Filter(path, wanted) => {
            for item in value.as_array().into_iter().flatten() {
                let mut inner = Vec::new();
                select(path, item, &mut inner);
                if inner.iter().any(|value| shown(value) == *wanted) {
                    select(rest, item, found);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_select_members_indices_and_filtered_items() {
        let object = json!({
            "spec": {"size": 3, "names": ["a", "b"], "odd.key": "x"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Stale", "status": "False"}]},
        });
        let cases = [
            (".spec.size", "string", json!("3")),
            (".spec.size", "integer", json!(3)),
            (".spec.names[0]", "string", json!("a")),
            (".spec.names[-1]", "string", json!("b")),
            (".spec.names[*]", "string", json!("a,b")),
            (".spec['odd.key']", "string", json!("x")),
            (r".spec.odd\.key", "string", json!("x")),
            (
                ".status.conditions[?(@.type==\"Stale\")].status",
                "string",
                json!("False"),
            ),
            (
                ".status.conditions[?(@.type=='None')].status",
                "string",
                Value::Null,
            ),
            (".spec.names", "integer", Value::Null),
            (".missing.deep", "string", Value::Null),
            (".spec[", "string", Value::Null),
            ("", "date", json!("<invalid>")),
        ];
        for (path, kind, wanted) in cases {
            let version =
                json!({"additionalPrinterColumns": [{"name": "C", "type": kind, "jsonPath": path}]});
            let printed = PrinterColumn::of_version(&version);
            assert_eq!(
                row(&printed, &object, Timestamp::UNIX_EPOCH).cells[1],
                wanted,
                "{path} as {kind}"
            );
        }
    }
}
