//! What is said to people of a Java exception: its innermost cause in one line.

use crate::read;
use serde_json::Value;

/// Most characters of a cause: it goes into status messages and events.
const MOST: usize = 400;
/// Most causes that are followed inwards.
const DEEPEST: usize = 64;

/// Whether a text is a stack trace.
pub fn is_trace(text: &str) -> bool {
    text.lines().any(is_frame)
}

/// The last `Caused by:` of a stack trace, else its head; shortened. `None` for a blank text.
///
/// Causes of suppressed exceptions stand indented and do not count.
pub fn of_trace(trace: &str) -> Option<String> {
    let lines: Vec<&str> = trace.lines().collect();
    let last = lines.iter().rposition(|line| line.starts_with("Caused by:"));
    let from = last.unwrap_or_default();
    // A message may run over several lines.
    let text: Vec<&str> = lines[from..]
        .iter()
        .enumerate()
        .take_while(|(nth, line)| *nth == 0 || !(is_frame(line) || line.starts_with("Caused by:")))
        .map(|(_, line)| line.strip_prefix("Caused by:").unwrap_or(line).trim())
        .filter(|line| !line.is_empty())
        .collect();
    shorten(&text.join(" "))
}

/// The innermost cause of a `throwable` as `queryBizOps` shows it: beans with `@type`, `message` and `cause`.
pub fn of_throwable(throwable: &Value) -> Option<String> {
    let mut innermost = None;
    let mut next = Some(throwable);
    for _ in 0..DEEPEST {
        let Some(bean) = next else { break };
        let class = read::non_blank(bean, "@type");
        let message = read::non_blank(bean, "message").or_else(|| read::non_blank(bean, "localizedMessage"));
        // What holds neither is a reference to another place of the document.
        innermost = match (class, message) {
            (Some(class), Some(message)) => Some(format!("{class}: {message}")),
            (Some(one), None) | (None, Some(one)) => Some(one),
            (None, None) => break,
        };
        next = bean.get("cause");
    }
    shorten(&innermost?)
}

/// A message without the package of the exception's class, cut to a length for people. `None` for a blank
/// text.
pub fn shorten(text: &str) -> Option<String> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let (head, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
    let is_class = head.contains('.')
        && head
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '$'));
    let head = match head.rsplit_once('.') {
        Some((_, simple)) if is_class && simple.starts_with(char::is_uppercase) => simple,
        _ => head,
    };
    Some(read::excerpt(&format!("{head}{rest}"), MOST))
}

/// A line `\tat class.method(File.java:1)` or `\t... 12 more`.
fn is_frame(line: &str) -> bool {
    let bare = line.trim_start();
    bare.len() < line.len()
        && (bare.starts_with("at ") || bare.starts_with("... ") || bare.starts_with("Suppressed:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_cause_of_a_trace_is_told() {
        let table = [
            (
                "a.b.OuterException: a.b.C\n\tat x.Y.z(Y.java:1)\nCaused by: a.b.C\n\t... 2 more\nCaused by: java.lang.IllegalStateException: boom\n\tat X1.main(X1.java:1)\n\t... 49 more\n",
                Some("IllegalStateException: boom"),
            ),
            (
                "a.b.C: bizUrl should not be blank\n\tat x.Y.z(Y.java:1)",
                Some("C: bizUrl should not be blank"),
            ),
            // Two lines of message, and the causes of what was suppressed.
            (
                "Caused by: a.B: cannot bind\n\n    Reason: no port\n\tat x.Y.z(Y.java:1)\n\tSuppressed: a.E: x\n\tCaused by: a.F: y\n",
                Some("B: cannot bind Reason: no port"),
            ),
            ("Caused by: a.B: one\nCaused by: a.C: two", Some("C: two")),
            ("\r\n", None),
            ("", None),
            ("Caused by:", None),
        ];
        for (trace, wanted) in table {
            assert_eq!(of_trace(trace).as_deref(), wanted, "{trace:?}");
        }
    }

    #[test]
    fn the_innermost_bean_is_told_and_references_are_not_followed() {
        let table = [
            (
                json!({"@type": "a.Outer", "message": "m", "cause": {"@type": "a.b.Inner", "message": "boom", "cause": {"$ref": "$.x"}}}),
                Some("Inner: boom"),
            ),
            (json!({"@type": "a.b.Lone"}), Some("Lone")),
            (json!({"localizedMessage": "m"}), Some("m")),
            (json!({"cause": {"@type": "a.B"}}), None),
            (json!([1]), None),
        ];
        for (bean, wanted) in table {
            assert_eq!(of_throwable(&bean).as_deref(), wanted, "{bean}");
        }
    }

    #[test]
    fn what_is_no_class_stays_as_it_is() {
        assert_eq!(
            shorten("see docs.example.org: x").as_deref(),
            Some("see docs.example.org: x")
        );
        assert_eq!(shorten("file.jar: x").as_deref(), Some("file.jar: x"));
        assert_eq!(shorten("a.B$C: x").as_deref(), Some("B$C: x"));
        let long = shorten(&"ü".repeat(1000)).unwrap();
        assert_eq!(long.chars().count(), MOST + 1);
    }

    #[test]
    fn a_trace_is_told_from_a_message() {
        assert!(is_trace("a.B: c\n\tat x.Y.z(Y.java:1)"));
        assert!(!is_trace("a.B: c\nat home"));
    }
}
