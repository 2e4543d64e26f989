//! `metav1.Time` and `metav1.MicroTime`.

use jiff::{Timestamp, tz::TimeZone};

/// Layouts as Go's error messages quote them.
const SECONDS_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICROS_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Canonical form of a `Time`: UTC, whole seconds.
pub(crate) fn seconds(text: &str) -> Result<String, String> {
    Ok(rfc3339(parse(text, SECONDS_LAYOUT)?))
}

/// Canonical form of a `MicroTime`: UTC, six digits.
pub(crate) fn micros(text: &str) -> Result<String, String> {
    Ok(rfc3339_micros(parse(text, MICROS_LAYOUT)?))
}

/// A point in time as `metav1.Time` is encoded: UTC, whole seconds.
pub fn rfc3339(time: Timestamp) -> String {
    time.to_zoned(TimeZone::UTC)
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

/// As a `MicroTime` is encoded.
pub(crate) fn rfc3339_micros(time: Timestamp) -> String {
    let fraction = time.subsec_nanosecond().rem_euclid(1_000_000_000) / 1000;
    format!(
        "{}.{fraction:06}Z",
        time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S")
    )
}

fn parse(text: &str, layout: &str) -> Result<Timestamp, String> {
    let shaped = text.len() >= 20
        && text.as_bytes()[10] == b'T'
        && (text.ends_with('Z')
            || text.as_bytes()[text.len() - 6..]
                .first()
                .is_some_and(|b| b"+-".contains(b)));
    if shaped
        && text.is_ascii()
        && let Ok(time) = text.parse::<Timestamp>()
    {
        return Ok(time);
    }
    // Go says which element of the layout failed; the first is by far the most common, and the last is text
    // after a time that is whole.
    if let Some((rest, extra)) = text.find('Z').map(|at| text.split_at(at + 1))
        && !extra.is_empty()
        && parse(rest, layout).is_ok()
    {
        return Err(format!(
            "parsing time {}: extra text: {}",
            quoted(text),
            quoted(extra)
        ));
    }
    let text = quoted(text);
    Err(format!(
        "parsing time {text} as {layout:?}: cannot parse {text} as \"2006\""
    ))
}

/// As Go's package of times quotes: bytes beyond ASCII one by one.
fn quoted(text: &str) -> String {
    let quoted = text.bytes().map(|byte| match byte {
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' | 0x7f => char::from(byte).to_string(),
        other => format!("\\x{other:02x}"),
    });
    format!("\"{}\"", quoted.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_with_their_precision() {
        assert_eq!(
            seconds("2026-01-02T03:04:05.9+01:00").unwrap(),
            "2026-01-02T02:04:05Z"
        );
        assert_eq!(
            micros("2026-01-02T03:04:05Z").unwrap(),
            "2026-01-02T03:04:05.000000Z"
        );
        assert_eq!(
            micros("2026-01-02T03:04:05.123456789Z").unwrap(),
            "2026-01-02T03:04:05.123456Z"
        );
        assert!(seconds("yesterday").is_err());
        assert_eq!(
            seconds("2026-01-02T03:04:05Z!").unwrap_err(),
            "parsing time \"2026-01-02T03:04:05Z!\": extra text: \"!\""
        );
        assert_eq!(
            seconds("\"é").unwrap_err(),
            r#"parsing time "\"\xc3\xa9" as "2006-01-02T15:04:05Z07:00": cannot parse "\"\xc3\xa9" as "2006""#
        );
        assert!(seconds("2026-01-02").is_err());
    }
}
