//! The query of a request for logs.

use crate::{LogOptions, Streams};
use jiff::{SignedDuration, Timestamp};

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    /// The container's instance before the newest.
    pub(super) previous: bool,
    /// Which part of its output.
    pub(super) options: LogOptions,
}

/// Why a query is no good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// A number or time cannot be read.
    Unreadable,
    /// It can, but means nothing, or contradicts another.
    Invalid,
}

/// Reads `PodLogOptions` as Kubernetes 1.36 decodes and validates them. Of repeated parameters the first
/// counts; `tail` is an old name of `tailLines`, with `all` for all. `now` is what `sinceSeconds` counts back
/// from.
pub(super) fn read(query: &[(String, String)], now: Timestamp) -> Result<Query, Bad> {
    let get = |wanted: &str| {
        query
            .iter()
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| value.as_str())
    };
    // Everything but these is true, also nothing.
    let flag = |name| get(name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"));
    let number = |name| get(name).map(integer).transpose();

    let tail = match get("tail") {
        None | Some("") => number("tailLines")?,
        Some("all") => None,
        Some(tail) => Some(integer(tail)?),
    };
    let (limit, seconds) = (number("limitBytes")?, number("sinceSeconds")?);
    let time = get("sinceTime").map(time).transpose()?;

    let tail = tail.map(|lines| at_least(0, lines)).transpose()?;
    let limit = limit.map(|bytes| at_least(1, bytes)).transpose()?;
    let since = match (seconds, time) {
        (Some(_), Some(_)) => return Err(Bad::Invalid),
        (Some(seconds), None) => {
            at_least(1, seconds)?;
            // Further back than time goes is from the beginning.
            now.checked_sub(SignedDuration::from_secs(seconds)).ok()
        }
        (None, time) => time.flatten(),
    };
    let streams = match get("stream") {
        None | Some("All") => Streams::All,
        Some("Stdout") => Streams::Stdout,
        Some("Stderr") => Streams::Stderr,
        Some(_) => return Err(Bad::Invalid),
    };
    if streams != Streams::All && tail.is_some() {
        return Err(Bad::Invalid);
    }
    Ok(Query {
        previous: flag("previous"),
        options: LogOptions {
            follow: flag("follow"),
            timestamps: flag("timestamps"),
            tail,
            since,
            limit,
            streams,
        },
    })
}

fn integer(text: &str) -> Result<i64, Bad> {
    text.parse().map_err(|_| Bad::Unreadable)
}

fn at_least(least: i64, number: i64) -> Result<u64, Bad> {
    if number < least {
        return Err(Bad::Invalid);
    }
    u64::try_from(number).map_err(|_| Bad::Invalid)
}

/// RFC 3339, and what older clients send for no time.
fn time(text: &str) -> Result<Option<Timestamp>, Bad> {
    if text.is_empty() || text == "null" {
        return Ok(None);
    }
    // jiff reads much more than RFC 3339.
    let bytes = text.as_bytes();
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    let shaped = marks.iter().all(|&(at, mark)| bytes.get(at) == Some(&mark));
    let zoned = text.ends_with('Z')
        || bytes
            .len()
            .checked_sub(6)
            .and_then(|start| bytes.get(start..))
            .is_some_and(|zone| matches!(zone[0], b'+' | b'-') && zone[3] == b':');
    if !shaped || !zoned {
        return Err(Bad::Unreadable);
    }
    text.parse().map(Some).map_err(|_| Bad::Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const NOW: &str = "2026-01-01T00:01:40Z";

    fn ask(query: &str) -> Result<Query, Bad> {
        let uri: http::Uri = format!("/?{query}").parse().unwrap();
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&uri)
            .unwrap()
            .0;
        read(&pairs, NOW.parse().unwrap())
    }

    fn options(query: &str) -> LogOptions {
        ask(query).unwrap().options
    }

    #[test]
    fn without_a_query_everything_is_asked_for() {
        let all = Query {
            previous: false,
            options: LogOptions::default(),
        };
        assert_eq!(ask(""), Ok(all));
    }

    #[test]
    fn each_parameter_has_its_effect() {
        let query =
            ask("follow=true&previous=1&timestamps=&tailLines=0&limitBytes=1&sinceSeconds=100").unwrap();
        assert!(query.previous);
        let expected = LogOptions {
            follow: true,
            timestamps: true,
            tail: Some(0),
            since: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            limit: Some(1),
            streams: Streams::All,
        };
        assert_eq!(query.options, expected);
        assert!(!options("follow=false&follow=true").follow);
        assert!(!options("follow=FALSE").follow);
        assert!(!options("follow=0").follow);
        assert!(options("follow=no").follow);
        assert_eq!(options("tail=5&tailLines=7").tail, Some(5));
        assert_eq!(options("tail=all&tailLines=7").tail, None);
        assert_eq!(options("tail=&tailLines=7").tail, Some(7));
        assert_eq!(options("stream=Stderr").streams, Streams::Stderr);
        assert_eq!(options("stream=Stdout").streams, Streams::Stdout);
        assert_eq!(options("stream=All&tailLines=1").streams, Streams::All);
    }

    #[rstest]
    #[case("2026-01-01T00:00:00Z", Some("2026-01-01T00:00:00Z"))]
    #[case("2026-01-01T00:00:00.123456789Z", Some("2026-01-01T00:00:00.123456789Z"))]
    #[case("2026-01-01T01:00:00%2B01:00", Some("2026-01-01T00:00:00Z"))]
    #[case("null", None)]
    #[case("", None)]
    fn times_are_those_of_rfc_3339(#[case] text: &str, #[case] expected: Option<&str>) {
        let since = options(&format!("sinceTime={text}")).since;
        assert_eq!(since, expected.map(|time| time.parse().unwrap()));
    }

    #[rstest]
    #[case("tailLines=x", Bad::Unreadable)]
    #[case("tailLines=", Bad::Unreadable)]
    #[case("tailLines=1.5", Bad::Unreadable)]
    #[case("tail=x", Bad::Unreadable)]
    #[case("limitBytes=99999999999999999999", Bad::Unreadable)]
    #[case("sinceSeconds=1m", Bad::Unreadable)]
    #[case("sinceTime=yesterday", Bad::Unreadable)]
    #[case("sinceTime=2026-01-01", Bad::Unreadable)]
    #[case("sinceTime=2026-01-01 00:00:00Z", Bad::Unreadable)]
    #[case("sinceTime=2026-01-01T00:00:00", Bad::Unreadable)]
    #[case("sinceTime=2026-13-01T00:00:00Z", Bad::Unreadable)]
    #[case("tailLines=-1", Bad::Invalid)]
    #[case("limitBytes=0", Bad::Invalid)]
    #[case("limitBytes=-1", Bad::Invalid)]
    #[case("sinceSeconds=0", Bad::Invalid)]
    #[case("sinceSeconds=-5", Bad::Invalid)]
    #[case("sinceSeconds=5&sinceTime=2026-01-01T00:00:00Z", Bad::Invalid)]
    #[case("stream=stdout", Bad::Invalid)]
    #[case("stream=", Bad::Invalid)]
    #[case("stream=Stdout&tailLines=1", Bad::Invalid)]
    fn bad_values_are_refused(#[case] query: &str, #[case] bad: Bad) {
        let query = query.replace(' ', "%20");
        assert_eq!(ask(&query), Err(bad), "{query}");
    }

    #[test]
    fn further_back_than_time_goes_is_from_the_beginning() {
        assert_eq!(options(&format!("sinceSeconds={}", i64::MAX)).since, None);
    }
}
