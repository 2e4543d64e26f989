//! Syntax of names, labels and the like, with upstream's texts.

pub(crate) use evenkeel_kube_values::names::SUBDOMAIN_LIMIT;
use evenkeel_kube_values::names::{LABEL_LIMIT, is_label_text, is_part};

const LABEL_FMT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const LABEL_1035_TEXT: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
const QUALIFIED_FMT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const WILDCARD_TEXT: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
const LABEL_VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// As upstream's `validation.RegexError`.
fn regex_error(text: &str, regex: &str, examples: &[&str]) -> String {
    let mut shown = String::new();
    for (number, example) in examples.iter().enumerate() {
        if number > 0 {
            shown.push_str(" or ");
        }
        shown.extend(["'", example, "', "]);
    }
    format!("{text} (e.g. {shown}regex used for validation is '{regex}')")
}

pub(crate) fn too_long(most: usize) -> String {
    format!("must be no more than {most} characters")
}

/// Upstream counts labels and their keys in bytes, and other names in characters. Both are bytes.
fn too_long_label(most: usize) -> String {
    format!("must be no more than {most} bytes")
}

/// What is wrong with a DNS-1123 subdomain.
pub(crate) fn dns_subdomain(name: &str) -> Vec<String> {
    subdomain(name, too_long)
}

/// The same, where upstream counts its length in bytes.
pub(crate) fn dns_subdomain_in_bytes(name: &str) -> Vec<String> {
    subdomain(name, too_long_label)
}

fn subdomain(name: &str, too_long: fn(usize) -> String) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > SUBDOMAIN_LIMIT {
        errors.push(too_long(SUBDOMAIN_LIMIT));
    }
    if !name.split('.').all(is_part) {
        let regex = format!("{LABEL_FMT}(\\.{LABEL_FMT})*");
        errors.push(regex_error(SUBDOMAIN_TEXT, &regex, &["example.com"]));
    }
    errors
}

/// What is wrong with a DNS-1123 label.
pub(crate) fn dns_label(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > LABEL_LIMIT {
        errors.push(too_long(LABEL_LIMIT));
    }
    if !is_part(name) {
        if name.split('.').all(is_part) {
            errors.push("must not contain dots".to_owned());
        } else {
            errors.push(regex_error(LABEL_TEXT, LABEL_FMT, &["my-name", "123-abc"]));
        }
    }
    errors
}

/// What is wrong with a DNS-1035 label.
pub(crate) fn dns_1035_label(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > LABEL_LIMIT {
        errors.push(too_long(LABEL_LIMIT));
    }
    if !is_part(name) || name.starts_with(|c: char| c.is_ascii_digit()) {
        errors.push(regex_error(
            LABEL_1035_TEXT,
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// What is wrong with a qualified name such as `example.com/name`.
pub(crate) fn qualified(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let (prefix, name) = match name.split_once('/') {
        Some((_, rest)) if rest.contains('/') => {
            let text = regex_error(
                &format!("a valid label key {QUALIFIED_TEXT}"),
                QUALIFIED_FMT,
                &["MyName", "my.name", "123-abc"],
            );
            return vec![format!(
                "{text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some((prefix, rest)) => (Some(prefix), rest),
        None => (None, name),
    };
    match prefix {
        Some("") => errors.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => errors.extend(
            dns_subdomain_in_bytes(prefix)
                .iter()
                .map(|error| format!("prefix part {error}")),
        ),
        None => {}
    }
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_LIMIT {
        errors.push(format!("name part {}", too_long_label(LABEL_LIMIT)));
    }
    if !is_label_text(name) {
        let text = regex_error(QUALIFIED_TEXT, QUALIFIED_FMT, &["MyName", "my.name", "123-abc"]);
        errors.push(format!("name part {text}"));
    }
    errors
}

/// What is wrong with a label value.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_LIMIT {
        errors.push(too_long_label(LABEL_LIMIT));
    }
    if !value.is_empty() && !is_label_text(value) {
        let regex = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
        errors.push(regex_error(
            LABEL_VALUE_TEXT,
            regex,
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// What is wrong with an environment variable's name.
pub(crate) fn env_name(name: &str) -> Vec<String> {
    let bad = |c: char| !(' '..='~').contains(&c) || c == '=';
    if name.contains(bad) {
        vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
    } else {
        Vec::new()
    }
}

/// What is wrong with a key of a ConfigMap or Secret.
pub(crate) fn config_key(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if key.len() > 253 {
        errors.push(too_long(253));
    }
    if key.is_empty()
        || !key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
    {
        errors.push(regex_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    } else if key == "." || key == ".." {
        errors.push(format!("must not be '{key}'"));
    } else if key.starts_with("..") {
        errors.push("must not start with '..'".to_owned());
    }
    errors
}

/// What is wrong with a host name that begins with `*.`.
pub(crate) fn wildcard_subdomain(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > SUBDOMAIN_LIMIT {
        errors.push(too_long(SUBDOMAIN_LIMIT));
    }
    let rest = name.strip_prefix("*.");
    if !rest.is_some_and(|rest| rest.split('.').all(is_part)) {
        let regex = format!("\\*\\.{LABEL_FMT}(\\.{LABEL_FMT})*");
        errors.push(regex_error(WILDCARD_TEXT, &regex, &["*.example.com"]));
    }
    errors
}

/// What is wrong with the name of a port, as the IANA has it.
pub(crate) fn port_name(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > 15 {
        errors.push("must be no more than 15 characters".to_owned());
    }
    if !name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        || name.is_empty()
    {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// What is wrong with the name of an HTTP header.
pub(crate) fn header_name(name: &str) -> Vec<String> {
    if !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    vec![regex_error(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

/// What is wrong with a path segment used as a name (RBAC objects, endpoints).
pub fn path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ['/', '%']
        .iter()
        .filter(|c| name.contains(**c))
        .map(|c| format!("may not contain '{c}'"))
        .collect()
}
