//! How Go prints values; some of its prints end up in API messages.

use serde_json::Value;
use std::fmt::Write as _;

/// `fmt.Sprintf("%v", value)` of decoded JSON.
pub(crate) fn go_print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(go_print).collect::<Vec<_>>().join(" "))
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            let shown: Vec<_> = members
                .iter()
                .map(|(name, value)| format!("{name}:{}", go_print(value)))
                .collect();
            format!("map[{}]", shown.join(" "))
        }
        other => other.to_string(),
    }
}

/// A value as JSON, as Go's `encoding/json` writes it for pages.
pub(crate) fn go_json(value: &Value) -> String {
    let mut shown = value.to_string();
    for (from, to) in [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ] {
        shown = shown.replace(from, to);
    }
    shown
}

/// A text in quotes, as Go's `strconv.Quote` writes it.
pub fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if c.is_control() && (c as u32) < 0x80 => {
                write!(out, "\\x{:02x}", c as u32).unwrap_or_default();
            }
            c if c.is_control() => {
                write!(out, "\\u{:04x}", c as u32).unwrap_or_default();
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
