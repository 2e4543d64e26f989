//! Differences of two answers, and the pattern by which many of them are one.

use super::server::Answer;
use regex::Regex;
use serde_json::Value;
use std::fmt;
use std::sync::LazyLock;

/// One place where two answers differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// Where: `status`, a header, or a place in the body.
    pub(super) path: String,
    pub(super) real: String,
    pub(super) ours: String,
    /// The same for all differences that are of one rule.
    pub(super) pattern: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}\n    real: {}\n    ours: {}",
            self.path, self.real, self.ours
        )
    }
}

/// Each of a body that is very different would be a group of its own.
const ENOUGH: usize = 12;

/// All differences of two answers that were normalised.
pub(super) fn differences(real: &Answer, ours: &Answer) -> Vec<Difference> {
    let mut found = Vec::new();
    if real.status != ours.status {
        let pattern = format!(
            "{} {} / {} {}",
            real.status,
            brief(real),
            ours.status,
            brief(ours)
        );
        found.push(Difference {
            path: "status".to_owned(),
            real: summary(real),
            ours: summary(ours),
            pattern: format!("status: {pattern}"),
        });
        return found;
    }
    let headers = |answer: &Answer| -> Vec<String> {
        answer
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect()
    };
    sets("header", &headers(real), &headers(ours), &mut found);
    if real.body["kind"] == "Status" && real.status >= 400 {
        statuses(real, ours, &mut found);
    } else {
        bodies("", &real.body, &ours.body, &mut found);
    }
    found.truncate(ENOUGH);
    found
}

fn summary(answer: &Answer) -> String {
    match answer.body["message"].as_str() {
        Some(message) => format!("{} {message}", answer.status),
        None => format!("{} {}", answer.status, answer.body),
    }
}

fn brief(answer: &Answer) -> String {
    // The first of a list of faults is enough to tell one rule from another.
    let message = answer.body["message"].as_str().unwrap_or_default();
    let first = answer.body["details"]["causes"][0].as_object().map(|cause| {
        let text = |name: &str| cause.get(name).and_then(Value::as_str).unwrap_or_default();
        format!("{}: {}", text("field"), text("message"))
    });
    generalise(first.as_deref().unwrap_or(message))
}

fn statuses(real: &Answer, ours: &Answer, found: &mut Vec<Difference>) {
    let causes = |answer: &Answer| -> Vec<String> {
        let list = answer.body["details"]["causes"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let text = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
        list.iter()
            .map(|cause| {
                format!(
                    "{}: {} ({})",
                    text(cause, "field"),
                    text(cause, "message"),
                    text(cause, "reason")
                )
            })
            .collect()
    };
    let before = found.len();
    sets("cause", &causes(real), &causes(ours), found);
    if found.len() == before {
        bodies("", &real.body, &ours.body, found);
    }
}

/// What only one of two lists has; the order where they have the same.
fn sets(what: &str, real: &[String], ours: &[String], found: &mut Vec<Difference>) {
    let mut missing: Vec<&String> = real.iter().collect();
    let mut extra = Vec::new();
    for item in ours {
        match missing.iter().position(|one| *one == item) {
            Some(place) => drop(missing.remove(place)),
            None => extra.push(item),
        }
    }
    let mut note = |real: &str, ours: &str, pattern: String| {
        found.push(Difference {
            path: what.to_owned(),
            real: real.to_owned(),
            ours: ours.to_owned(),
            pattern,
        });
    };
    for one in &missing {
        note(one, "-", format!("{what} missing: {}", generalise(one)));
    }
    for one in &extra {
        note("-", one, format!("{what} extra: {}", generalise(one)));
    }
    if missing.is_empty() && extra.is_empty() && real != ours {
        note(&real.join("; "), &ours.join("; "), format!("{what}: order"));
    }
}

fn bodies(path: &str, real: &Value, ours: &Value, found: &mut Vec<Difference>) {
    if real == ours || found.len() >= ENOUGH {
        return;
    }
    match (real, ours) {
        (Value::Object(left), Value::Object(right)) => {
            for (key, value) in left {
                let place = format!("{path}/{key}");
                match right.get(key) {
                    Some(other) => bodies(&place, value, other, found),
                    None => found.push(leaf(&place, "missing", Some(value), None)),
                }
            }
            for (key, value) in right.iter().filter(|(key, _)| !left.contains_key(*key)) {
                found.push(leaf(&format!("{path}/{key}"), "extra", None, Some(value)));
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (value, other)) in left.iter().zip(right).enumerate() {
                bodies(&format!("{path}/{index}"), value, other, found);
            }
        }
        _ => found.push(leaf(path, "differs", Some(real), Some(ours))),
    }
}

fn leaf(path: &str, how: &str, real: Option<&Value>, ours: Option<&Value>) -> Difference {
    let text = |value: Option<&Value>| value.map_or_else(|| "-".to_owned(), ToString::to_string);
    let (real, ours) = (text(real), text(ours));
    let detail = if path == "/message" {
        format!(": {} / {}", generalise(&real), generalise(&ours))
    } else {
        String::new()
    };
    Difference {
        path: path.to_owned(),
        pattern: format!("{} {how}{detail}", place_pattern(path)),
        real,
        ours,
    }
}

/// A place without indexes, and without what a user names.
fn place_pattern(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        if parts.last() == Some(&"fieldsV1") {
            break;
        }
        let named = matches!(
            parts.last(),
            Some(&"labels" | &"annotations" | &"data" | &"limits" | &"requests" | &"matchLabels" | &"hard")
        );
        parts.push(if named || part.parse::<usize>().is_ok() {
            "*"
        } else {
            part
        });
    }
    parts.join("/")
}

static QUOTED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"\\?"[^"]*\\?""#).expect("it is written here"));
static INDEX: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\[[^\]]*\]").expect("it is written here"));
static NUMBER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\d+").expect("it is written here"));
static DUMP: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\{.*\}").expect("it is written here"));

/// A message without what it is about.
fn generalise(message: &str) -> String {
    let text = QUOTED.replace_all(message, "Q");
    let text = DUMP.replace_all(&text, "{}");
    let text = INDEX.replace_all(&text, "[*]");
    NUMBER.replace_all(&text, "N").chars().take(220).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(status: u16, body: Value) -> Answer {
        Answer {
            status,
            headers: Vec::new(),
            body,
        }
    }

    #[test]
    fn the_same_rule_on_other_names_is_the_same_pattern() {
        let refusal = |index: u8, name: &str| {
            let cause = json!({"field": format!("spec.ports[{index}].name"), "reason": "FieldValueInvalid",
                "message": format!("Invalid value: {name:?}: no")});
            answer(422, json!({"kind": "Status", "details": {"causes": [cause]}}))
        };
        let none = answer(422, json!({"kind": "Status", "details": {}}));
        let first = differences(&refusal(0, "A"), &none);
        let second = differences(&refusal(7, "B_C"), &none);
        assert_eq!(first[0].pattern, second[0].pattern);
        assert_eq!(first.len(), 1);
    }

    #[test]
    fn every_place_of_a_body_is_found() {
        let real = answer(200, json!({"a": 1, "b": [{"c": 1}], "d": 1}));
        let ours = answer(200, json!({"a": 1, "b": [{"c": 2}], "e": 1}));
        let found = differences(&real, &ours);
        let patterns: Vec<&str> = found.iter().map(|one| one.pattern.as_str()).collect();
        assert_eq!(patterns, ["/b/*/c differs", "/d missing", "/e extra"]);
    }
}
