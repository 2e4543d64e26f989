//! Topics: `koupleless_<environment>/<identity>/<command>` towards a base,
//! `koupleless_<environment>/<identity>/base/<kind>` from it. The baseline goes towards the base among the
//! latter.

use crate::command::{Command, InvalidRequest};

/// Longest part of a topic that is taken from others, in bytes. A topic has 65535.
const MOST: usize = 1024;

/// What bases publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Every 10 s.
    Heart,
    /// Once after the first connection.
    QueryBaseline,
    /// Reply to `health`.
    Health,
    /// Reply to `queryAllBiz`.
    SimpleBiz,
    /// The same as over HTTP, by the released controller's word: arklet itself never writes it.
    Biz,
    /// Reply to `installBiz` and `uninstallBiz`.
    BizOperation,
    /// Reply to a baseline.
    BatchInstallBizResponse,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Heart,
        Self::QueryBaseline,
        Self::Health,
        Self::SimpleBiz,
        Self::Biz,
        Self::BizOperation,
        Self::BatchInstallBizResponse,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Heart => "heart",
            Self::QueryBaseline => "queryBaseline",
            Self::Health => "health",
            Self::SimpleBiz => "simpleBiz",
            Self::Biz => "biz",
            Self::BizOperation => "bizOperation",
            Self::BatchInstallBizResponse => "batchInstallBizResponse",
        }
    }
}

/// Refuses what would name other topics than one's own.
pub(super) fn check(what: &'static str, text: &str) -> Result<(), InvalidRequest> {
    let is_level = !text.is_empty()
        && text.len() <= MOST
        && !text
            .chars()
            .any(|c| matches!(c, '/' | '+' | '#') || c.is_control());
    if is_level {
        return Ok(());
    }
    Err(InvalidRequest::Topic {
        what,
        text: text.chars().take(80).collect(),
    })
}

/// Where a base takes a command.
pub(super) fn command(environment: &str, identity: &str, command: Command) -> String {
    format!("koupleless_{environment}/{identity}/{command}")
}

/// Where a base takes its baseline.
pub(super) fn baseline(environment: &str, identity: &str) -> String {
    format!("koupleless_{environment}/{identity}/base/baseline")
}

/// Where a base puts an answer of this kind.
pub(super) fn answer(environment: &str, identity: &str, kind: Kind) -> String {
    format!("koupleless_{environment}/{identity}/base/{}", kind.as_str())
}

/// What to subscribe to: each kind by its name, so that our own baselines do not come back.
pub(super) fn filters(environment: &str) -> impl Iterator<Item = String> {
    Kind::ALL
        .into_iter()
        .map(move |kind| answer(environment, "+", kind))
}

/// The parts of a topic under which a base has published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct From<'a> {
    pub(super) environment: &'a str,
    pub(super) identity: &'a str,
    pub(super) kind: Kind,
}

/// Takes a topic apart.
pub(super) fn parse(topic: &str) -> Option<From<'_>> {
    let mut levels = topic.split('/');
    let environment = levels.next()?.strip_prefix("koupleless_")?;
    let identity = levels.next()?;
    if levels.next()? != "base" {
        return None;
    }
    let kind = levels.next()?;
    if levels.next().is_some() || check("identity", identity).is_err() {
        return None;
    }
    Some(From {
        environment,
        identity,
        kind: Kind::ALL.into_iter().find(|known| known.as_str() == kind)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_those_of_bases() {
        assert_eq!(
            command("dev", "10.0.0.1", Command::InstallBiz),
            "koupleless_dev/10.0.0.1/installBiz"
        );
        assert_eq!(baseline("dev", "a"), "koupleless_dev/a/base/baseline");
        let filters: Vec<String> = filters("dev").collect();
        assert_eq!(filters.len(), 7);
        for filter in filters {
            let topic = filter.replace('+', "a b");
            let from = parse(&topic).unwrap();
            assert_eq!((from.environment, from.identity), ("dev", "a b"));
        }
    }

    #[test]
    fn what_would_name_other_topics_is_refused() {
        for text in ["", "a/b", "+", "a#", "a\0", "a\n", &"x".repeat(2000)] {
            assert!(check("identity", text).is_err(), "{text:?}");
        }
        for text in ["10.0.0.1", "ünknown-1", "a b", "fe80::1%eth0", "$SYS"] {
            assert_eq!(check("identity", text), Ok(()), "{text}");
        }
    }

    #[test]
    fn foreign_topics_are_none_of_ours() {
        for topic in [
            "",
            "koupleless_dev",
            "koupleless_dev/a/base",
            "koupleless_dev/a/base/Biz",
            "koupleless_dev/a/base/baseline",
            "koupleless_dev/a/base/heart/x",
            "koupleless_dev/a/heart",
            "koupleless_dev//base/heart",
            "koupleless-dev/a/base/heart",
        ] {
            assert_eq!(parse(topic), None, "{topic}");
        }
    }
}
