//! Field selectors.

use crate::gofmt::go_quote;
use crate::gvk::Gvk;
use crate::status::{ApiError, ApiResult};
use serde_json::Value;

/// A parsed field selector: all terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: String,
    equal: bool,
    value: String,
}

/// Selectable fields of built-in kinds, beside name and namespace.
fn selectable(gvk: &Gvk) -> &'static [&'static str] {
    const EVENT: &[&str] = &[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ];
    const REGARDING: &[&str] = &[
        "regarding.kind",
        "regarding.namespace",
        "regarding.name",
        "regarding.uid",
        "regarding.apiVersion",
        "regarding.resourceVersion",
        "regarding.fieldPath",
        "reason",
        "reportingController",
        "type",
    ];
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "Event") => EVENT,
        ("events.k8s.io", "Event") => REGARDING,
        ("", "Node") => &["spec.unschedulable"],
        ("", "Namespace") => &["status.phase"],
        ("", "Secret") => &["type"],
        ("", "Service") => &["spec.clusterIP", "spec.type"],
        ("", "ReplicationController") => &["status.replicas"],
        ("batch", "Job") => &["status.successful"],
        ("certificates.k8s.io", "CertificateSigningRequest") => &["spec.signerName"],
        _ => &[],
    }
}

impl FieldSelector {
    /// Parses `fieldSelector=`.
    pub fn parse(text: &str) -> ApiResult<Self> {
        parse(text).map(|terms| Self { terms })
    }

    /// 400 for a field by which objects of a built-in kind are not selected.
    pub fn check(&self, gvk: &Gvk) -> ApiResult<()> {
        let known = selectable(gvk);
        let namespaced = !matches!(
            gvk.kind.as_str(),
            "Namespace" | "Node" | "CertificateSigningRequest"
        );
        self.check_known(known, namespaced, |field| match gvk.kind.as_str() {
            "Job" => format!("field label {} not supported for Job", go_quote(field)),
            _ if known.is_empty() => unknown(field, &[]),
            _ => format!("field label not supported: {field}"),
        })
    }

    /// The same for a custom resource with these `selectableFields` paths (`.spec.color`).
    pub fn check_custom(&self, selectable: &[String], namespaced: bool) -> ApiResult<()> {
        let known: Vec<&str> = selectable
            .iter()
            .map(|path| path.trim_start_matches('.'))
            .collect();
        self.check_known(&known, namespaced, |field| {
            format!("field label not supported: {field}")
        })
    }

    fn check_known(&self, known: &[&str], namespaced: bool, error: impl Fn(&str) -> String) -> ApiResult<()> {
        let is_known = |field: &str| {
            field == "metadata.name"
                || (field == "metadata.namespace" && namespaced)
                || known.contains(&field)
        };
        match self.terms.iter().find(|term| !is_known(&term.field)) {
            Some(term) => Err(ApiError::bad_request(error(&term.field))),
            None => Ok(()),
        }
    }

    /// Whether every object is selected.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The name, where the selector demands `metadata.name=NAME`.
    pub fn required_name(&self) -> Option<&str> {
        self.required("metadata.name")
    }

    /// The value that the selector demands of a field, if it demands one.
    pub fn required(&self, field: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| term.equal && term.field == field)
            .map(|term| term.value.as_str())
    }

    /// Whether an object is selected.
    pub fn matches(&self, object: &Value) -> bool {
        self.terms
            .iter()
            .all(|term| (value_of(object, &term.field) == term.value) == term.equal)
    }
}

fn unknown(field: &str, others: &[&str]) -> String {
    let mut known = vec![go_quote("metadata.name"), go_quote("metadata.namespace")];
    known.extend(others.iter().map(|other| go_quote(other)));
    format!(
        "{} is not a known field selector: only {}",
        go_quote(field),
        known.join(", ")
    )
}

fn value_of(object: &Value, field: &str) -> String {
    let path = match field {
        "source" => {
            let component = object["source"]["component"]
                .as_str()
                .filter(|text| !text.is_empty());
            return component
                .or(object["reportingComponent"].as_str())
                .unwrap_or_default()
                .to_owned();
        }
        "status.successful" => "status.succeeded",
        other => other,
    };
    let value = path.split('.').fold(object, |value, name| &value[name]);
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        _ => match path {
            "spec.unschedulable" | "spec.hostNetwork" => "false".to_owned(),
            "status.replicas" | "status.succeeded" => "0".to_owned(),
            "status.podIPs" => String::new(),
            _ => String::new(),
        },
    }
}

fn parse(text: &str) -> ApiResult<Vec<Term>> {
    let mut terms = Vec::new();
    for part in split(text) {
        if part.is_empty() {
            continue;
        }
        let Some((field, equal, value)) = operator(part) else {
            return Err(ApiError::bad_request(format!(
                "invalid selector: '{text}'; can't understand '{part}'"
            )));
        };
        let value = unescape(value).map_err(ApiError::bad_request)?;
        terms.push(Term {
            field: field.to_owned(),
            equal,
            value,
        });
    }
    Ok(terms)
}

/// Splits at commas that no backslash escapes.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn operator(term: &str) -> Option<(&str, bool, &str)> {
    for (at, _) in term.char_indices() {
        for (symbol, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = term[at..].strip_prefix(symbol) {
                return Some((&term[..at], equal, value));
            }
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut escaped = false;
    for c in value.chars() {
        match c {
            '\\' | ',' | '=' if escaped => {
                out.push(c);
                escaped = false;
            }
            other if escaped => {
                return Err(format!(
                    "invalid field selector: invalid escape sequence: \\{other}"
                ));
            }
            '\\' => escaped = true,
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    c as u32
                ));
            }
            other => out.push(other),
        }
    }
    if escaped {
        Err("invalid field selector: invalid escape sequence: \\".to_owned())
    } else {
        Ok(out)
    }
}
