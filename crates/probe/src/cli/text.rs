//! Text for people: JSON in which nothing harms a terminal, text cut to a width, durations and times.

use evenkeel_kube_values::terminal::is_unsafe;
use jiff::Timestamp;
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Duration;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// A value as JSON on one line. Strings keep their value, but what a terminal would obey is written as
/// `\uXXXX`, since programs' output is looked at, too.
pub(super) fn json(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(|text| escape_json(&text))
}

/// JSON in which what a terminal would obey is escaped. Such characters stand within strings only.
pub(super) fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// How many cells of a terminal a text takes.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// As much of a text as fits; a `…` stands for what was cut.
pub(super) fn cut(text: &str, cells: usize) -> String {
    if width(text) <= cells {
        return text.to_owned();
    }
    let mut shorter = String::new();
    let mut taken = 0;
    for c in text.chars() {
        let next = taken + c.width().unwrap_or(0);
        if next >= cells {
            break;
        }
        taken = next;
        shorter.push(c);
    }
    if cells > 0 {
        shorter.push('…');
    }
    shorter
}

/// How long something took: `340 µs`, `1.2 ms`, `3.0 s`.
pub(super) fn took(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 1e-3 {
        format!("{} µs", duration.as_micros())
    } else if seconds < 1.0 {
        format!("{:.1} ms", seconds * 1e3)
    } else {
        format!("{seconds:.1} s")
    }
}

/// A time since the Unix epoch as RFC 3339 writes it, in UTC, to the millisecond.
pub(super) fn stamp(wall: Duration) -> String {
    let millis = i64::try_from(wall.as_millis()).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
    time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_its_value_and_no_terminal_obeys_it() {
        let text = "a\n\x1b[2J\u{9b}31m\x7f\u{202e}\u{feff}grün 好 \u{1f600}\"\\";
        let json = json(&text).unwrap();
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        assert!(json.chars().all(|c| !is_unsafe(c)), "{json:?}");
        assert!(
            json.contains("\\u009b31m\\u007f\\u202e\\ufeffgrün 好 \u{1f600}"),
            "{json}"
        );
        let pretty = escape_json(&serde_json::to_string_pretty(&[text]).unwrap());
        assert_eq!(serde_json::from_str::<[String; 1]>(&pretty).unwrap(), [text]);
    }

    #[test]
    fn text_is_cut_to_cells_not_to_characters() {
        for (text, cells, wanted) in [
            ("abcdef", 6, "abcdef"),
            ("abcdef", 5, "abcd…"),
            ("abcdef", 1, "…"),
            ("abcdef", 0, ""),
            ("好好好", 6, "好好好"),
            ("好好好", 5, "好好…"),
            ("好好好", 4, "好…"),
            ("", 0, ""),
        ] {
            assert_eq!(cut(text, cells), wanted, "{text} {cells}");
            assert!(width(&cut(text, cells)) <= cells, "{text} {cells}");
        }
    }

    #[test]
    fn durations_are_shown_shortly() {
        for (duration, wanted) in [
            (Duration::ZERO, "0 µs"),
            (Duration::from_micros(340), "340 µs"),
            (Duration::from_micros(1_240), "1.2 ms"),
            (Duration::from_millis(3_040), "3.0 s"),
        ] {
            assert_eq!(took(duration), wanted);
        }
    }

    #[test]
    fn times_are_told_in_utc_to_the_millisecond() {
        assert_eq!(
            stamp(Duration::from_millis(1_700_000_000_123)),
            "2023-11-14T22:13:20.123Z"
        );
        assert_eq!(stamp(Duration::MAX).len(), "9999-12-30T22:00:00.999Z".len());
    }
}
