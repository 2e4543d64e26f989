//! Lenient access to the fields of JSON objects: what is absent or of another type reads as `None`.

use serde_json::Value;

/// A text; numbers and truth values are written out, as versions are sometimes not quoted.
pub(crate) fn text(value: &Value, key: &str) -> Option<String> {
    match value.get(key)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A text that holds more than white space.
pub(crate) fn non_blank(value: &Value, key: &str) -> Option<String> {
    text(value, key).filter(|text| !text.trim().is_empty())
}

/// A whole number; fractions are cut off, what is out of range is held at its end.
pub(crate) fn whole(value: &Value, key: &str) -> Option<i64> {
    let number = value.get(key)?;
    number
        .as_i64()
        .or_else(|| number.as_u64().map(|_| i64::MAX))
        .or_else(|| number.as_f64().map(|real| real as i64))
}

/// A finite number.
pub(crate) fn real(value: &Value, key: &str) -> Option<f64> {
    value.get(key)?.as_f64().filter(|real| real.is_finite())
}

/// The start of a value, for logs and errors.
pub(crate) fn excerpt(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_of_every_kind_are_read() {
        let value = json!({"a": -5, "b": 7.9, "c": u64::MAX, "d": "12", "e": null, "f": -1e300});
        let wanted = [
            ("a", Some(-5)),
            ("b", Some(7)),
            ("c", Some(i64::MAX)),
            ("d", None),
            ("e", None),
            ("f", Some(i64::MIN)),
            ("g", None),
        ];
        for (key, number) in wanted {
            assert_eq!(whole(&value, key), number, "{key}");
        }
        assert_eq!(real(&value, "b"), Some(7.9));
    }

    #[test]
    fn texts_may_be_unquoted_and_may_be_blank() {
        let value = json!({"a": "x", "b": 7, "c": [1], "d": " "});
        assert_eq!(text(&value, "a").as_deref(), Some("x"));
        assert_eq!(text(&value, "b").as_deref(), Some("7"));
        assert_eq!(text(&value, "c"), None);
        assert_eq!(non_blank(&value, "d"), None);
        assert_eq!(text(&json!([1]), "a"), None);
    }

    #[test]
    fn an_excerpt_ends_between_characters() {
        assert_eq!(excerpt("äöü", 2), "äö…");
        assert_eq!(excerpt("äöü", 3), "äöü");
    }
}
