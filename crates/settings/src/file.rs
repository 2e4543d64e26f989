//! A configuration file: one YAML document, whose fields are the flags, in camelCase.
//!
//! ```yaml
//! apiVersion: evenkeel.io/v1alpha1
//! kind: VnodeConfiguration
//! admin: 0.0.0.0:9860
//! podSelector: app=edge
//! ```

use crate::layers::{Layer, LayerError, argument, command, is_switch};
use crate::names::nearest;
use clap::builder::ArgAction;
use clap::{Arg, Args};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_saphyr::{Location, Spanned};
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

/// What `apiVersion` must be.
pub const API_VERSION: &str = "evenkeel.io/v1alpha1";

/// Why a file is of no use. Not worth a retry.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("--config {origin}: {source}")]
    Read {
        /// File as it was named.
        origin: String,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// It does not say what such a file says.
    #[error("{origin}:{line}:{column}: {reason}")]
    Malformed {
        /// File as it was named.
        origin: String,
        /// Line in the file, from 1.
        line: u64,
        /// Column in that line, from 1.
        column: u64,
        /// What is wrong, and what to write.
        reason: String,
    },
    /// A value that its field does not take.
    #[error(transparent)]
    Value(#[from] LayerError),
}

/// Reads a file of this kind with settings of `A`. `refuses`: why a setting cannot stand in a file, if it
/// cannot.
pub fn read<A: Args>(
    path: &Path,
    kind: &str,
    refuses: impl Fn(&str) -> Option<String>,
) -> Result<Layer, FileError> {
    of_text::<A>(path, std::fs::read_to_string(path), kind, refuses)
}

/// The same of a file that was read, or could not be.
pub(crate) fn of_text<A: Args>(
    path: &Path,
    read: std::io::Result<String>,
    kind: &str,
    refuses: impl Fn(&str) -> Option<String>,
) -> Result<Layer, FileError> {
    let origin = path.display().to_string();
    match read {
        Ok(text) => parse::<A>(&origin, &text, kind, refuses),
        Err(source) => Err(FileError::Read { origin, source }),
    }
}

/// The same of a text. `origin` names it in messages.
pub fn parse<A: Args>(
    origin: &str,
    text: &str,
    kind: &str,
    refuses: impl Fn(&str) -> Option<String>,
) -> Result<Layer, FileError> {
    let wrong = |place: Location, reason: String| FileError::Malformed {
        origin: origin.to_owned(),
        line: place.line().max(1),
        column: place.column().max(1),
        reason,
    };
    let mut options = serde_saphyr::options! { with_snippet: false };
    // Far below the reader's own limit: a file of settings has no use for aliases.
    options.alias_limits.max_total_replayed_events = 10_000;
    let fields: Fields = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let error = error.without_snippet();
        let place = error.location().unwrap_or(Location::UNKNOWN);
        let text = error.to_string();
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = words.join(" ");
        // What the library advises is for programmers, and the line is told already.
        let advice = [", set ", "; use ", " at line "];
        let text = advice.iter().fold(&*text, |text, mark| {
            text.split_once(mark).map_or(text, |(before, _)| before)
        });
        wrong(place, text.to_owned())
    })?;
    for (name, expected) in [("apiVersion", API_VERSION), ("kind", kind)] {
        let found = fields.0.iter().find(|(field, _)| field.value == name);
        let place = found.map_or(Location::UNKNOWN, |(field, _)| field.referenced);
        if found.and_then(|(_, value)| value.value.as_str()) != Some(expected) {
            return Err(wrong(place, format!("{name} must be {expected}")));
        }
    }
    let command = command::<A>();
    let mut layer = Layer::default();
    for (field, value) in &fields.0 {
        let (name, place) = (field.value.as_str(), field.referenced);
        if matches!(name, "apiVersion" | "kind") {
            continue;
        }
        let arg = command
            .get_arguments()
            .find(|arg| field_of(arg.get_id().as_str()) == name);
        let Some(id) = arg.map(|arg| arg.get_id().as_str()) else {
            let near = nearest(
                name,
                command.get_arguments().map(|arg| field_of(arg.get_id().as_str())),
            );
            let hint = near.map_or_else(String::new, |near| format!("; is it {near}?"));
            return Err(wrong(place, format!("there is no field {name:?}{hint}")));
        };
        if let Some(reason) = refuses(id) {
            return Err(wrong(place, format!("{name}: {reason}")));
        }
        let values = argument(&command, id)
            .ok_or("it is not known")
            .and_then(|arg| texts(arg, &value.value))
            .map_err(|reason| wrong(place, format!("{name}: {reason}")))?;
        let by = format!("{origin}:{}:{}: {name}", place.line(), place.column());
        layer.give::<A>(id, values, &by)?;
    }
    Ok(layer)
}

/// The field of a setting: `mqtt_ca_file` is `mqttCaFile`.
pub fn field_of(id: &str) -> String {
    let mut words = id.split('_');
    let mut field = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        field.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        field.extend(letters);
    }
    field
}

/// A value as a command line would have it.
fn texts(arg: &Arg, value: &Value) -> Result<Vec<OsString>, &'static str> {
    if let (Value::Array(values), ArgAction::Append) = (value, arg.get_action()) {
        return values.iter().map(|value| text(arg, value)).collect();
    }
    Ok(vec![text(arg, value)?])
}

fn text(arg: &Arg, value: &Value) -> Result<OsString, &'static str> {
    match value {
        Value::Bool(value) if is_boolean(arg) => Ok(value.to_string().into()),
        _ if is_boolean(arg) => Err("write true or false"),
        Value::String(text) => Ok(text.into()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Ok(number.to_string().into()),
        Value::Bool(_) | Value::Number(_) => Err("it is a text: put it into quotes"),
        Value::Null => Err("it has no value: give it one, or leave it out"),
        Value::Array(_) => Err("it has one value, not a list"),
        Value::Object(_) => Err("it has one value, no fields"),
    }
}

fn is_boolean(arg: &Arg) -> bool {
    let names = arg.get_value_names().unwrap_or_default();
    is_switch(arg) || names.iter().any(|name| name == "BOOL")
}

/// Fields with their lines, in the order of the text.
struct Fields(Vec<(Spanned<String>, Spanned<Value>)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fields with values")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Fields, M::Error> {
        let mut fields = Vec::new();
        while let Some(entry) = map.next_entry()? {
            fields.push(entry);
        }
        Ok(Fields(fields))
    }
}

#[cfg(test)]
mod tests;
