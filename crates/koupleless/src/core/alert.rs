//! Alerts to people: what they say, which are sent, and to whom.

mod guard;
mod hook;
mod redact;

pub use guard::Limits;
pub(crate) use guard::{Guard, Verdict};
pub use hook::{Hook, HookError, Shape, hooks};
pub(crate) use redact::redact;

use jiff::Timestamp;
use serde_json::{Value, json};

/// The longest message that is sent, in characters.
const LONGEST: usize = 1_000;
/// What a DingTalk text starts with, as the released module controller's does: MC, and the word for alarm.
const HEADING: &str = "## MC\u{544a}\u{8b66}";

/// What an alert is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scene {
    /// A module could not be installed, however often it was tried.
    InstallFailed,
    /// A base is lost.
    BaseLost,
    /// A base runs out of metaspace.
    Overload,
    /// Healing of a base has begun.
    HealingBegun,
    /// Healing of a base has ended well.
    HealingEnded,
    /// Healing of a base waits, or was given up.
    HealingHeld,
    /// A jar holds another module than its pod says.
    ManifestMismatch,
}

/// Something that people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// What it is about.
    pub scene: Scene,
    /// The base: its identity, or the name of its node.
    pub base: String,
    /// The module, `NAME:VERSION`, where it is about one.
    pub module: Option<String>,
    /// What happened, in words. Secrets in URLs are taken out before it is sent.
    pub message: String,
    pub at: Timestamp,
}

impl Scene {
    pub const ALL: [Self; 7] = [
        Self::InstallFailed,
        Self::BaseLost,
        Self::Overload,
        Self::HealingBegun,
        Self::HealingEnded,
        Self::HealingHeld,
        Self::ManifestMismatch,
    ];

    /// The headline for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::InstallFailed => "Module not installed",
            Self::BaseLost => "Base lost",
            Self::Overload => "Base short of metaspace",
            Self::HealingBegun => "Healing of a base begun",
            Self::HealingEnded => "Healing of a base ended",
            Self::HealingHeld => "Healing of a base held",
            Self::ManifestMismatch => "Jar with another module",
        }
    }
}

impl Alert {
    /// The body of a request. `repeated`: how many like it were held back since the last one; `more`: how
    /// many others were.
    pub fn body(&self, shape: Shape, repeated: u64, more: u64) -> Value {
        match shape {
            Shape::DingTalk => self.markdown(repeated, more),
            Shape::Json => json!({
                "scene": self.scene, "title": self.scene.title(), "base": self.base, "module": self.module,
                "message": self.message(), "at": self.at.to_string(), "repeated": repeated, "heldBack": more,
            }),
        }
    }

    fn markdown(&self, repeated: u64, more: u64) -> Value {
        let mut lines = vec![
            HEADING.to_owned(),
            format!("**{}**", self.scene.title()),
            format!("- base: {}", plain(&self.base)),
        ];
        lines.extend(
            self.module
                .as_deref()
                .map(|module| format!("- module: {}", plain(module))),
        );
        lines.push(format!("- at: {}", self.at));
        if repeated > 0 {
            lines.push(format!("- repeated: {repeated} times since"));
        }
        if more > 0 {
            lines.push(format!("- other alerts held back: {more}"));
        }
        lines.push(format!("> {}", plain(&self.message())));
        json!({
            "msgtype": "markdown",
            "markdown": {"title": format!("{}: {}", self.scene.title(), self.base), "text": lines.join("\n\n")},
        })
    }

    fn message(&self) -> String {
        let message = redact(&self.message);
        if message.chars().count() <= LONGEST {
            return message;
        }
        let mut cut: String = message.chars().take(LONGEST).collect();
        cut.push('\u{2026}');
        cut
    }
}

/// What bases and jars say is text: it must not become links, headings or mentions.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '!' | '@' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn alert(message: &str) -> Alert {
        Alert {
            scene: Scene::InstallFailed,
            base: "192.0.2.2".to_owned(),
            module: Some("biz1:0.0.1".to_owned()),
            message: message.to_owned(),
            at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn dingtalk_gets_markdown() {
        let body = alert("no [link](http://h)\n# at all @all").body(Shape::DingTalk, 2, 3);
        assert_eq!(body["msgtype"], "markdown");
        assert_eq!(body["markdown"]["title"], "Module not installed: 192.0.2.2");
        let text = body["markdown"]["text"].as_str().unwrap();
        assert!(
            text.starts_with("## MC\u{544a}\u{8b66}\n\n**Module not installed**"),
            "{text}"
        );
        assert!(
            text.contains("- module: biz1:0.0.1") && text.contains("repeated: 2 times"),
            "{text}"
        );
        assert!(text.contains("held back: 3"), "{text}");
        assert!(
            text.ends_with(r"> no \[link\](http://h) \# at all \@all"),
            "{text}"
        );
    }

    #[test]
    fn others_get_typed_fields() {
        let body = alert("no").body(Shape::Json, 0, 0);
        let expected = json!({
            "scene": "install-failed", "title": "Module not installed", "base": "192.0.2.2", "module": "biz1:0.0.1",
            "message": "no", "at": "1970-01-01T00:00:00Z", "repeated": 0, "heldBack": 0,
        });
        assert_eq!(body, expected);
        let base = Alert {
            module: None,
            scene: Scene::BaseLost,
            ..alert("")
        };
        assert_eq!(base.body(Shape::Json, 0, 0)["module"], Value::Null);
        let text = base.body(Shape::DingTalk, 0, 0)["markdown"]["text"].to_string();
        assert!(!text.contains("module") && !text.contains("repeated"), "{text}");
    }

    #[rstest]
    #[case(Shape::Json)]
    #[case(Shape::DingTalk)]
    fn messages_hold_no_secrets_and_have_an_end(#[case] shape: Shape) {
        let long = format!("from https://u:hidden@h/a.jar?token=hidden {}", "x".repeat(5_000));
        let body = alert(&long).body(shape, 0, 0).to_string();
        assert!(!body.contains("hidden") && body.len() < 2_000, "{body}");
    }

    #[test]
    fn each_scene_has_words_of_its_own() {
        let titles: std::collections::BTreeSet<_> = Scene::ALL.iter().map(|scene| scene.title()).collect();
        assert_eq!(titles.len(), Scene::ALL.len());
    }
}
