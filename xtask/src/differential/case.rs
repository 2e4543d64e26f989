//! A case: requests in their order, as data that can be printed, sent, made smaller and recorded.

use super::server::Answer;
use serde_json::{Value, json};
use std::fmt::{self, Write as _};

/// The namespace of a case; `{{run}}` is another one each time that it runs.
pub(super) const NAMESPACE: &str = "g-{{run}}";

/// What a request carries.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Payload {
    None,
    /// Written as JSON, or as YAML where the content type says so.
    Object(Value),
    /// What no encoder would write.
    Text(String),
}

/// One request. Texts hold `{{run}}`, and of what earlier answers said `{{cap:rv}}`, `{{cap:uid}}` (of the
/// last object) and `{{cap:old}}` (the first resourceVersion).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) content_type: &'static str,
    pub(super) payload: Payload,
}

/// Requests that belong together.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) seed: u64,
    pub(super) number: u64,
    /// What is exercised, as in `apply`.
    pub(super) scenario: &'static str,
    pub(super) kind: String,
    pub(super) steps: Vec<Step>,
    /// What is deleted at the end, because it does not lie in the case's namespace.
    pub(super) leaves: Option<String>,
}

impl Case {
    /// What generated names begin with.
    pub(super) fn name_prefixes(&self) -> Vec<String> {
        let objects = self.steps.iter().filter_map(|step| match &step.payload {
            Payload::Object(object) => object["metadata"]["generateName"].as_str(),
            _ => None,
        });
        objects.map(str::to_owned).collect()
    }
}

pub(super) const JSON: &str = "application/json";
pub(super) const YAML: &str = "application/yaml";
pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(super) const JSON_PATCH: &str = "application/json-patch+json";
pub(super) const APPLY: &str = "application/apply-patch+yaml";

impl Step {
    pub(super) fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            content_type: JSON,
            payload: Payload::None,
        }
    }

    pub(super) fn with(mut self, object: Value) -> Self {
        self.payload = Payload::Object(object);
        self
    }

    pub(super) fn of_type(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self
    }

    pub(super) fn ask(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// Path and query.
    pub(super) fn uri(&self) -> String {
        let encoded = |(name, value): &(&str, String)| format!("{name}={}", percent(value));
        match self.query.as_slice() {
            [] => self.path.clone(),
            query => format!(
                "{}?{}",
                self.path,
                query.iter().map(encoded).collect::<Vec<_>>().join("&")
            ),
        }
    }

    /// The body as it is sent.
    pub(super) fn text(&self) -> String {
        match &self.payload {
            Payload::None => String::new(),
            Payload::Object(object) if self.content_type == YAML => {
                serde_saphyr::to_string(object).unwrap_or_else(|_| object.to_string())
            }
            Payload::Object(object) => object.to_string(),
            Payload::Text(text) => text.clone(),
        }
    }

    /// What is done to what, for the name of a group.
    pub(super) fn verb(&self) -> String {
        let what = match (self.method, self.content_type) {
            ("PATCH", MERGE) => "merge",
            ("PATCH", STRATEGIC) => "strategic",
            ("PATCH", JSON_PATCH) => "jsonpatch",
            ("PATCH", _) => "apply",
            ("POST", YAML) => "POST yaml",
            (method, _) => method,
        };
        let part = if self.path.ends_with("/status") {
            "/status"
        } else {
            ""
        };
        format!("{what}{part}")
    }
}

/// What a query may not hold as it is. Braces stay, which are filled in later.
fn percent(value: &str) -> String {
    let mut text = String::new();
    for c in value.chars() {
        if c.is_ascii_alphanumeric() || "-._~{}:/".contains(c) {
            text.push(c);
        } else {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.uri())?;
        if self.payload != Payload::None {
            write!(f, " ({}) {}", self.content_type, self.text())?;
        }
        Ok(())
    }
}

/// What comes before each case: its namespace, and the account that pods run as, which Kubernetes'
/// controllers would make.
pub(super) fn setup() -> [Step; 2] {
    let meta = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    [
        Step::new("POST", "/api/v1/namespaces").with(meta("Namespace", NAMESPACE)),
        Step::new("POST", format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"))
            .with(meta("ServiceAccount", "default")),
    ]
}

impl Case {
    /// The case in the format of recorded traffic, with the answers of the real server, normalised.
    pub(super) fn recorded(&self, answers: &[Answer]) -> Value {
        let mut steps: Vec<Value> = setup()
            .iter()
            .map(|step| json!({"role": "setup", "request": request(step)}))
            .collect();
        let mut first = true;
        for (step, answer) in self.steps.iter().zip(answers) {
            let mut capture = json!({});
            if answer.is_object() {
                for name in ["rv", "old"].iter().take(1 + usize::from(first)) {
                    capture[*name] = json!("/metadata/resourceVersion");
                }
                capture["uid"] = json!("/metadata/uid");
                first = false;
            }
            // Owners of fields are listed by whole seconds, so that their order is not the same each time.
            let mut ignore = vec!["/**/managedFields"];
            if answer.body["items"].is_array() {
                ignore.push("/metadata/resourceVersion");
            }
            steps.push(json!({
                "request": request(step),
                "capture": capture,
                "response": response(answer),
                "compare": {"mode": "exact", "ignore": ignore},
            }));
        }
        if let Some(path) = &self.leaves {
            steps.push(json!({"role": "cleanup", "request": {"method": "DELETE", "path": path}}));
        }
        json!({
            "name": format!("{}-{}-{}", self.scenario, self.seed, self.number),
            "area": "differential", "description": format!("{} of {}", self.scenario, self.kind),
            "profile": "bare", "requires": [], "steps": steps,
        })
    }
}

/// Recorded traffic has the content type beside the other headers, which are lists.
fn response(answer: &Answer) -> Value {
    let mut response = json!({"status": answer.status, "body": answer.body});
    let mut headers = json!({});
    for (name, value) in &answer.headers {
        match *name {
            "content-type" => response["content_type"] = json!(value),
            "warning" => {
                let mut all = headers["Warning"].as_array().cloned().unwrap_or_default();
                all.push(json!(value));
                headers["Warning"] = Value::Array(all);
            }
            _ => {}
        }
    }
    response["headers"] = headers;
    response
}

fn request(step: &Step) -> Value {
    let mut request = json!({
        "method": step.method, "path": step.uri(), "headers": {"Content-Type": step.content_type},
    });
    match &step.payload {
        Payload::None => {}
        Payload::Object(object) if step.content_type != YAML => request["body"] = object.clone(),
        _ => request["body_text"] = json!(step.text()),
    }
    request
}
