//! Text for people: text of strangers made harmless, cut to a width; durations and times.

use jiff::Timestamp;
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Duration;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Text that may have come from anybody, on one line: what a terminal would obey is escaped, and so are
/// characters that turn the direction of text around or cannot be seen.
pub(super) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => clean.push_str("\\n"),
            '\r' => clean.push_str("\\r"),
            '\t' => clean.push_str("\\t"),
            c if is_unsafe(c) => clean.extend(c.escape_unicode()),
            c => clean.push(c),
        }
    }
    clean
}

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

/// What a terminal would obey, or what turns the direction of text around or cannot be seen.
fn is_unsafe(c: char) -> bool {
    let unseen = matches!(
        c,
        '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
    );
    unseen || c.is_control()
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

/// A text and blanks up to a width.
pub(super) fn pad(text: &str, cells: usize) -> String {
    let blanks = cells.saturating_sub(width(text));
    format!("{text}{:blanks$}", "")
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

/// A set time, as Go writes it: `1m30s`, `500ms`, `10s`.
pub(super) fn span(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    if seconds == 0 {
        return if millis == 0 {
            "0s".to_owned()
        } else {
            format!("{millis}ms")
        };
    }
    let mut text = String::new();
    for (unit, size, wrap) in [("h", 3_600, u64::MAX), ("m", 60, 60)] {
        let count = seconds / size % wrap;
        if count > 0 {
            // Writing to a string cannot fail.
            let _ = write!(text, "{count}{unit}");
        }
    }
    let rest = seconds % 60;
    let _ = match millis {
        0 if rest == 0 => Ok(()),
        0 => write!(text, "{rest}s"),
        _ => write!(text, "{rest}.{millis:03}s"),
    };
    text
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
    fn nothing_that_a_terminal_obeys_gets_through() {
        assert_eq!(clean("ok\n\tdone\r"), "ok\\n\\tdone\\r");
        assert_eq!(
            clean("\x1b[2Jgone\x07\u{9b}31m\x7f"),
            "\\u{1b}[2Jgone\\u{7}\\u{9b}31m\\u{7f}"
        );
        assert_eq!(clean("a\u{202e}b\u{200b}c"), "a\\u{202e}b\\u{200b}c");
        assert_eq!(clean("grün 好"), "grün 好");
    }

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
        assert_eq!(pad("好", 4), "好  ");
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
        for (duration, wanted) in [
            (Duration::ZERO, "0s"),
            (Duration::from_millis(500), "500ms"),
            (Duration::from_secs(10), "10s"),
            (Duration::from_secs(90), "1m30s"),
            (Duration::from_secs(300), "5m"),
            (Duration::from_secs(3_600), "1h"),
            (Duration::from_millis(1_500), "1.500s"),
        ] {
            assert_eq!(span(duration), wanted);
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
