//! JSON as fastjson 1.2.83 writes it: keys of a bean in alphabetical order, keys of a map in the order of Java's hash
//! tables, nothing for null, enums by their text (HTTP) or by their name (MQTT).

use std::fmt::Write as _;

/// A value to be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    /// Left out of beans and maps.
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// A constant of a Java enum, whose `toString()` differs from its name.
    Enum {
        text: &'static str,
        name: &'static str,
    },
    List(Vec<Json>),
    /// Written in this order.
    Object(Vec<(String, Json)>),
}

/// How enums are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enums {
    /// By `toString()`, as the HTTP tunnel does.
    Text,
    /// By name, as the MQTT tunnel does.
    Name,
}

impl Json {
    /// A Java bean.
    pub(crate) fn bean<const N: usize>(fields: [(&str, Json); N]) -> Self {
        let mut fields: Vec<_> = fields
            .into_iter()
            .filter(|(_, value)| *value != Json::Null)
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Self::Object(fields)
    }

    /// A `java.util.HashMap` with a table of `table` buckets (a power of two), filled in the order given.
    pub(crate) fn hash_map(entries: Vec<(String, Json)>, table: u32) -> Self {
        let mut entries: Vec<_> = entries
            .into_iter()
            .filter(|(_, value)| *value != Json::Null)
            .collect();
        entries.sort_by_key(|(key, _)| bucket(key, table));
        Self::Object(entries)
    }

    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Null for `None`.
    pub(crate) fn maybe(text: Option<&str>) -> Self {
        text.map_or(Self::Null, Self::text)
    }

    pub(crate) fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        Self::List(texts.into_iter().map(Self::text).collect())
    }

    /// The document.
    pub(crate) fn write(&self, enums: Enums) -> String {
        let mut out = String::new();
        self.append(&mut out, enums);
        out
    }

    fn append(&self, out: &mut String, enums: Enums) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Int(value) => out.push_str(&value.to_string()),
            Self::Float(value) => out.push_str(&java_double(*value)),
            Self::Text(text) => quote(text, out),
            Self::Enum { text, name } => quote(if enums == Enums::Text { text } else { name }, out),
            Self::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.append(out, enums);
                }
                out.push(']');
            }
            Self::Object(fields) => {
                out.push('{');
                for (index, (key, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    quote(key, out);
                    out.push(':');
                    value.append(out, enums);
                }
                out.push('}');
            }
        }
    }
}

impl From<i64> for Json {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<f64> for Json {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                let written = write!(out, "\\u{:04X}", u32::from(character));
                debug_assert!(written.is_ok(), "a String takes everything");
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

/// `Double.toString`: always with a fraction, scientific outside 10⁻³..10⁷.
fn java_double(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || (1e-3..1e7).contains(&size) || !value.is_finite() {
        return format!("{value:?}");
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if digits.contains('.') => format!("{digits}E{exponent}"),
        Some((digits, exponent)) => format!("{digits}.0E{exponent}"),
        None => text,
    }
}

/// `String.hashCode`.
fn java_hash(text: &str) -> u32 {
    text.encode_utf16().fold(0_u32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(u32::from(unit))
    })
}

/// Where `java.util.HashMap` and `ConcurrentHashMap` put a string key in a table of so many buckets.
pub(crate) fn bucket(key: &str, table: u32) -> u32 {
    let hash = java_hash(key);
    (hash ^ (hash >> 16)) & (table - 1)
}

/// Buckets of a default hash table once it holds so many keys: 16, doubled when three quarters are passed.
pub(crate) fn table_of(keys: usize) -> u32 {
    let mut table = 16;
    while keys > table as usize / 4 * 3 {
        table *= 2;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bean_is_alphabetical_and_has_no_nulls() {
        let bean = Json::bean([
            ("message", Json::text("a\"b\\c\n\u{1}é")),
            ("code", Json::Int(-3)),
            ("data", Json::Null),
            ("async", Json::Bool(true)),
        ]);
        assert_eq!(
            bean.write(Enums::Text),
            r#"{"async":true,"code":-3,"message":"a\"b\\c\n\u0001é"}"#
        );
    }

    #[test]
    fn enums_go_by_text_over_http_and_by_name_over_mqtt() {
        let state = Json::Enum {
            text: "activated",
            name: "ACTIVATED",
        };
        assert_eq!(state.write(Enums::Text), "\"activated\"");
        assert_eq!(state.write(Enums::Name), "\"ACTIVATED\"");
    }

    #[test]
    fn doubles_look_as_java_prints_them() {
        for (value, text) in [
            (704.0, "704.0"),
            (47_670.0, "47670.0"),
            (17.783_561_706_542_97, "17.78356170654297"),
            (-0.5, "-0.5"),
            (1e7, "1.0E7"),
            (1.25e-5, "1.25E-5"),
            (0.0, "0.0"),
        ] {
            assert_eq!(java_double(value), text);
        }
    }

    #[test]
    fn maps_have_the_order_of_javas_buckets() {
        let map = Json::hash_map(
            ["command", "bizName", "bizVersion", "response"]
                .map(|key| (key.to_owned(), Json::Int(0)))
                .into(),
            16,
        );
        assert_eq!(
            map.write(Enums::Text),
            r#"{"bizName":0,"response":0,"command":0,"bizVersion":0}"#
        );
        assert_eq!((table_of(12), table_of(13), table_of(25)), (16, 32, 64));
    }
}
