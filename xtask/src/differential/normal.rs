//! What two servers may answer differently without being different, and only that. Each rule has its reason.

use super::server::Answer;
use regex::Regex;
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

fn regex(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is written here")
}

static UID: LazyLock<Regex> =
    LazyLock::new(|| regex("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
/// Times of this century's third decade: objects of cases have none of these but those the servers took.
static TIME: LazyLock<Regex> = LazyLock::new(|| regex(r"20[2-9]\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z"));
static TOKEN_VOLUME: LazyLock<Regex> = LazyLock::new(|| regex("kube-api-access-[a-z0-9]{5}"));
static DUMP: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(Invalid|Duplicate|Unsupported) value: [{\[][^\n]*?[}\]]: "));
static PATCHED: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"^(.*)Invalid value: "[{\[m].*": (json: |unable |strict decoding |quantities |parsing time |cannot |illegal |error decoding |Object |no kind )"#,
    )
});
/// What follows is a listing of the differences of two Go structures.
static CHANGES: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?s)(pod updates may not change fields other than [^\n]*|ephemeral containers \S+ may not be changed|spec.persistentvolumesource is immutable after creation|spec is immutable after creation except [^\n]*)\n.*$",
    )
});
/// A map that was sent empty is kept by Go's structures and not by canonical JSON.
static NO_MAP: LazyLock<Regex> = LazyLock::new(|| regex(r"(Invalid|Unsupported) value: (?:null|\{\}): "));
static KINDLESS: LazyLock<Regex> =
    LazyLock::new(|| regex(r"Object '(Kind|apiVersion)' is missing in '\{.*\}'"));
/// Where in Go's source the types are registered, which depends on how the server was built.
static SCHEME: LazyLock<Regex> = LazyLock::new(|| regex(r#" in scheme "[^"]*""#));
/// An address that was given by the server.
static GIVEN: LazyLock<Regex> = LazyLock::new(|| regex(r#"Invalid value: "[\d.]+": expected an IPv"#));
/// A version that stands in a text.
static RECORDED: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(ResourceVersion in (?:record|object meta))(?:: | \()\d+\)?"));
/// Dumps of Go's structures hold addresses, and print maps in any order.
static POINTER: LazyLock<Regex> = LazyLock::new(|| regex("0x[0-9a-f]{8,}|0xc[0-9a-f]+"));

/// Numbers of one case: the same text is the same number.
#[derive(Default)]
struct Numbers {
    uids: HashMap<String, usize>,
    versions: Vec<u64>,
    /// Generated names, and what stands for them.
    generated: Vec<(String, String)>,
}

/// Replaces what differs by chance in the answers of one server to one run of a case, in which names are
/// generated after these prefixes.
pub(super) fn normalise(answers: &mut [Answer], prefixes: &[String], run: &str) {
    let mut numbers = Numbers::default();
    let mut versions = BTreeSet::new();
    for answer in answers.iter_mut() {
        // Those that do not mark the end of the state that a watch began with come when a clock says so.
        if let Value::Array(events) = &mut answer.body {
            events.retain(|event| {
                let marks = &event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"];
                event["type"] != "BOOKMARK" || !marks.is_null()
            });
        }
        collect(
            &answer.body,
            is_list(answer.body.get("kind")),
            &mut versions,
            &mut numbers.generated,
        );
        // An object that is refused has got its name already.
        let refused = answer.body["details"]["name"].as_str().unwrap_or_default();
        for prefix in prefixes {
            note_generated(prefix, refused, &mut numbers.generated);
        }
    }
    numbers.versions = versions.into_iter().collect();
    for answer in answers {
        answer.body = numbers.value(std::mem::take(&mut answer.body), "", run, 0);
        for (_, header) in &mut answer.headers {
            *header = numbers.text(header, run);
        }
    }
}

/// A list's version is that of the whole store, in which other cases write.
fn is_list(kind: Option<&Value>) -> bool {
    kind.and_then(Value::as_str)
        .is_some_and(|kind| kind.ends_with("List"))
}

/// An event of a watch that tells how far it has come, in the versions of the whole store.
fn is_bookmark(event: &Map<String, Value>) -> bool {
    event.get("type").is_some_and(|kind| kind == "BOOKMARK")
}

/// Notes versions, but not that `of_list`, and names that were generated.
fn collect(
    value: &Value,
    of_list: bool,
    versions: &mut BTreeSet<u64>,
    generated: &mut Vec<(String, String)>,
) {
    match value {
        Value::Object(map) if is_bookmark(map) => {}
        Value::Object(map) if of_list => {
            let parts = map.iter().filter(|(name, _)| *name != "metadata");
            parts.for_each(|(_, value)| collect(value, false, versions, generated));
        }
        Value::Object(map) => {
            if let Some(version) = map.get("resourceVersion").and_then(Value::as_str) {
                versions.extend(version.parse::<u64>());
            }
            let text = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default();
            let (prefix, name) = (text("generateName"), text("name"));
            note_generated(prefix, name, generated);
            map.values()
                .for_each(|value| collect(value, false, versions, generated));
        }
        Value::Array(list) => list
            .iter()
            .for_each(|value| collect(value, false, versions, generated)),
        _ => {}
    }
}

fn note_generated(prefix: &str, name: &str, generated: &mut Vec<(String, String)>) {
    let is_generated = !prefix.is_empty() && name.len() == prefix.len() + 5 && name.starts_with(prefix);
    if is_generated && !generated.iter().any(|(known, _)| known == name) {
        let number = generated.len() + 1;
        generated.push((name.to_owned(), format!("{prefix}{{{{gen:{number}}}}}")));
    }
}

impl Numbers {
    fn value(&mut self, value: Value, key: &str, run: &str, depth: usize) -> Value {
        match value {
            Value::Object(map) => self.object(map, run, depth),
            // Managers are listed by the second of their last write: the end of a second changes the order.
            Value::Array(mut list) if key == "managedFields" => {
                for entry in &mut list {
                    if let Some(entry) = entry.as_object_mut().filter(|entry| entry.contains_key("time")) {
                        entry.insert("time".to_owned(), json!("{{time}}"));
                    }
                }
                list.sort_by_key(ToString::to_string);
                Value::Array(list)
            }
            Value::Array(list) => list
                .into_iter()
                .map(|item| self.value(item, key, run, depth + 1))
                .collect(),
            // Each server hands out addresses and ports of its own choice.
            Value::String(text) if matches!(key, "clusterIP" | "clusterIPs") && text.contains('.') => {
                json!("{{ip}}")
            }
            Value::Number(port)
                if matches!(key, "nodePort" | "healthCheckNodePort")
                    && port.as_u64().is_some_and(|port| (30_000..32_768).contains(&port)) =>
            {
                json!("{{nodeport}}")
            }
            Value::String(text) => Value::String(self.text(&text, run)),
            other => other,
        }
    }

    fn object(&mut self, map: Map<String, Value>, run: &str, depth: usize) -> Value {
        if is_bookmark(&map) {
            let mut map = map;
            if let Some(version) = map["object"]["metadata"].get_mut("resourceVersion") {
                *version = json!("{{rv}}");
            }
            return Value::Object(map);
        }
        let is_list = depth == 0 && is_list(map.get("kind"));
        map.into_iter()
            .map(|(key, value)| {
                let value = match (key.as_str(), value) {
                    // Conflicts are those of a Go map, in any order.
                    ("causes", Value::Array(mut causes))
                        if causes
                            .iter()
                            .any(|cause| cause["reason"] == "FieldManagerConflict") =>
                    {
                        causes.sort_by_key(ToString::to_string);
                        self.value(Value::Array(causes), "causes", run, depth + 1)
                    }
                    ("resourceVersion", Value::String(text)) => self.version(&text),
                    // Its bytes are the server's own.
                    ("continue", Value::String(text)) if !text.is_empty() => json!("{{continue}}"),
                    ("metadata", Value::Object(mut metadata)) if is_list => {
                        metadata.remove("resourceVersion");
                        self.value(Value::Object(metadata), "metadata", run, depth + 1)
                    }
                    (key, value) => self.value(value, key, run, depth + 1),
                };
                (key, value)
            })
            .collect()
    }

    /// Versions count the writes to a store: only their order is the case's.
    fn version(&self, text: &str) -> Value {
        let place = text
            .parse()
            .ok()
            .and_then(|version| self.versions.binary_search(&version).ok());
        place.map_or_else(|| json!(text), |place| json!(format!("{{{{rv:{place}}}}}")))
    }

    fn text(&mut self, text: &str, run: &str) -> String {
        let mut text = text.to_owned();
        for (name, stands) in &self.generated {
            text = text.replace(name, stands);
        }
        // The case's own name differs each time.
        let text = text.replace(run, "{{run}}");
        let text = UID.replace_all(&text, |found: &regex::Captures<'_>| {
            let next = self.uids.len() + 1;
            let number = *self.uids.entry(found[0].to_owned()).or_insert(next);
            format!("{{{{uid:{number}}}}}")
        });
        let text = TIME.replace_all(&text, "{{time}}");
        let text = TOKEN_VOLUME.replace_all(&text, "kube-api-access-{{gen}}");
        let text = NO_MAP.replace_all(&text, "${1} value: {{none}}: ");
        // Upstream dumps its internal structures, whose members are named and ordered otherwise.
        let text = DUMP.replace_all(&text, "${1} value: {{any}}: ");
        let text = KINDLESS.replace_all(&text, "Object '${1}' is missing in {{any}}");
        let text = SCHEME.replace_all(&text, " in scheme {{any}}");
        let text = GIVEN.replace_all(&text, "Invalid value: {{any}}: expected an IPv");
        let text = RECORDED.replace_all(&text, "${1} {{rv}}");
        let text = CHANGES.replace_all(&text, "${1}");
        // The patched object, whose members stand in the order of a Go structure where the patch left them.
        let text = PATCHED.replace_all(&text, "${1}Invalid value: {{any}}: ${2}");
        POINTER.replace_all(&text, "{{pointer}}").into_owned()
    }
}
