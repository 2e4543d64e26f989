//! Where alerts are sent.

use http::Uri;
use std::fmt;

/// What a receiver wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Markdown, as DingTalk's robots read it.
    #[default]
    DingTalk,
    /// A JSON object with typed fields.
    Json,
}

/// Where alerts are sent. Shown, it is its host alone: the rest of the URL is often a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Hook {
    url: Uri,
    shape: Shape,
}

/// A text that is no hook. It does not show the text, which may hold a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("alert hook {index}: {why}; give http:// or https:// URLs separated by ';'")]
pub struct HookError {
    /// Which one, counted from 1.
    pub index: usize,
    pub why: &'static str,
}

/// Reads hooks separated by `;`, as in `REPORT_HOOKS`. Empty parts are passed over.
pub fn hooks(text: &str, shape: Shape) -> Result<Vec<Hook>, HookError> {
    let parts = text.split(';').map(str::trim).enumerate();
    let hook = |(index, text): (usize, &str)| {
        let index = index + 1;
        Hook::new(text, shape).map_err(|why| HookError { index, why })
    };
    parts.filter(|(_, text)| !text.is_empty()).map(hook).collect()
}

impl Hook {
    fn new(text: &str, shape: Shape) -> Result<Self, &'static str> {
        let url: Uri = text.parse().map_err(|_| "it is no URL")?;
        if !matches!(url.scheme_str(), Some("http" | "https")) {
            return Err("its scheme is neither http nor https");
        }
        if url.host().is_none_or(str::is_empty) {
            return Err("it names no host");
        }
        if url
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@'))
        {
            return Err("it has a user name in it, which is not sent");
        }
        Ok(Self { url, shape })
    }

    /// The URL as a whole.
    pub fn url(&self) -> &Uri {
        &self.url
    }

    /// What is sent.
    pub fn shape(&self) -> Shape {
        self.shape
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.host().unwrap_or("-"))
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hook({self}, {:?})", self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn hooks_are_separated_by_semicolons() {
        let found = hooks(
            " https://a.example/r?access_token=x;; http://b:8080/ ;",
            Shape::DingTalk,
        )
        .unwrap();
        let hosts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["a.example", "b"]);
        assert_eq!(found[0].url().query(), Some("access_token=x"));
        assert_eq!(hooks("", Shape::Json), Ok(Vec::new()));
    }

    #[test]
    fn a_hook_is_shown_without_its_secrets() {
        let hook = &hooks("https://a.example/hidden?access_token=hidden", Shape::Json).unwrap()[0];
        assert_eq!(format!("{hook} {hook:?}"), "a.example Hook(a.example, Json)");
    }

    #[rstest]
    #[case("https://ok/;ftp://hidden/", 2, "neither http nor https")]
    #[case("hidden", 1, "neither http nor https")]
    #[case("https://u:hidden@h/", 1, "user name")]
    #[case("https://hid den/", 1, "no URL")]
    fn what_is_none_is_refused_without_showing_it(
        #[case] text: &str,
        #[case] index: usize,
        #[case] why: &str,
    ) {
        let error = hooks(text, Shape::DingTalk).unwrap_err();
        assert_eq!(error.index, index);
        let words = error.to_string();
        assert!(words.contains(why) && !words.contains("hid"), "{words}");
    }
}
