//! What is wrong with a pod, and where; and reading fields so that all that is wrong is found at once.

use serde_json::{Map, Value};
use std::fmt;

/// Why a pod cannot be probed. Not worth a retry: the manifest has to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
pub struct ConvertError {
    /// All that is wrong, at least one, in the order of the manifest.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where: `spec.containers[0].livenessProbe.httpGet.port`.
    pub path: String,
    /// What, in Kubernetes' words where it has some. Shows no value that could be a secret.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Problems found so far.
#[derive(Debug, Default)]
pub(super) struct Problems {
    list: Vec<Problem>,
}

impl Problems {
    /// The value, unless there were problems.
    pub(super) fn or<T>(self, value: T) -> Result<T, ConvertError> {
        if self.list.is_empty() {
            Ok(value)
        } else {
            Err(ConvertError { problems: self.list })
        }
    }

    /// What was found.
    pub(super) fn into_list(self) -> Vec<Problem> {
        self.list
    }

    /// Something is wrong at a path.
    pub(super) fn report(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.list.push(Problem {
            path: path.into(),
            message: message.into(),
        });
    }

    /// A member that is text; empty if absent.
    pub(super) fn text<'a>(&mut self, object: &'a Value, name: &str, path: &str) -> &'a str {
        match present(object, name) {
            None => "",
            Some(Value::String(text)) => text,
            Some(_) => {
                self.report(format!("{path}.{name}"), "must be a string");
                ""
            }
        }
    }

    /// A member that is a whole number of at most 32 bits and not negative.
    pub(super) fn number(&mut self, object: &Value, name: &str, path: &str) -> Option<u32> {
        let value = present(object, name)?;
        match value.as_i64() {
            Some(number) if number < 0 => self.report(
                format!("{path}.{name}"),
                format!("Invalid value: {number}: must be greater than or equal to 0"),
            ),
            Some(number) if number <= i64::from(i32::MAX) => return u32::try_from(number).ok(),
            _ => self.report(
                format!("{path}.{name}"),
                "must be a whole number of at most 2147483647",
            ),
        }
        None
    }

    /// A member that is a list; empty if absent.
    pub(super) fn list<'a>(&mut self, object: &'a Value, name: &str, path: &str) -> &'a [Value] {
        match present(object, name) {
            None => &[],
            Some(Value::Array(list)) => list,
            Some(_) => {
                self.report(format!("{path}.{name}"), "must be a list");
                &[]
            }
        }
    }

    /// A value that is a mapping.
    pub(super) fn mapping<'a>(&mut self, value: &'a Value, path: &str) -> Option<&'a Map<String, Value>> {
        let mapping = value.as_object();
        if mapping.is_none() {
            self.report(path, "must be a mapping");
        }
        mapping
    }
}

/// A member that is there and not null.
pub(super) fn present<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|value| !value.is_null())
}
