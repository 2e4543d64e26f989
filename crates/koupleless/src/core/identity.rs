//! Names of bases, and what may stand in Kubernetes' names and labels of them.

use sha2::{Digest as _, Sha256};
use std::fmt;
use std::sync::Arc;

/// The longest name of an object (DNS-1123 subdomain).
const NAME: usize = 253;
/// The longest label value, and the longest label of a DNS name.
const LABEL: usize = 63;
/// Characters of a digest that make a changed name unique again.
const DIGEST: usize = 8;

/// What a base calls itself. 1 to 253 printable ASCII characters, none of them a blank or one of `/`, `+`,
/// `#` (it is a part of MQTT topics).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize, serde::Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Identity(Arc<str>);

/// Why a text is no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("the identity is empty")]
    Empty,
    /// It is too long.
    #[error("the identity has {0} characters, at most {NAME} are possible")]
    TooLong(usize),
    /// A character is not allowed.
    #[error(
        "the identity {0:?} has the character {1:?}; letters, digits and punctuation without '/', '+', '#' are possible"
    )]
    Character(String, char),
}

impl Identity {
    pub fn new(text: &str) -> Result<Self, IdentityError> {
        if text.is_empty() {
            return Err(IdentityError::Empty);
        }
        if text.len() > NAME {
            return Err(IdentityError::TooLong(text.chars().count()));
        }
        let wrong = |c: &char| !c.is_ascii_graphic() || matches!(c, '/' | '+' | '#');
        match text.chars().find(wrong) {
            Some(c) => Err(IdentityError::Character(text.to_owned(), c)),
            None => Ok(Self(text.into())),
        }
    }

    /// As the base writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl TryFrom<String> for Identity {
    type Error = IdentityError;

    fn try_from(text: String) -> Result<Self, IdentityError> {
        Self::new(&text)
    }
}

impl From<Identity> for String {
    fn from(identity: Identity) -> Self {
        identity.as_str().to_owned()
    }
}

/// A name for an object (DNS-1123 subdomain, 253 characters at most) that is `text` where that is one; else
/// `text` in lower case with other characters replaced by `-`, and a digest of `text`, so that two texts
/// never share a name.
pub(crate) fn object_name(text: &str) -> String {
    let cleaned: Vec<String> = text
        .split('.')
        .map(clean)
        .map(|part| part.trim_matches('-').chars().take(LABEL).collect::<String>())
        .map(|part| part.trim_end_matches('-').to_owned())
        .filter(|part| !part.is_empty())
        .collect();
    let name = cleaned.join(".");
    if name == text && !name.is_empty() && name.len() <= NAME {
        return name;
    }
    let kept = NAME - DIGEST - 1;
    let head: String = name.chars().take(kept).collect();
    let head = head.trim_matches(['-', '.']);
    // The digest is a part of its own: parts have a limit of their own as well.
    if head.is_empty() {
        digest(text)
    } else {
        format!("{head}.{}", digest(text))
    }
}

/// A label value that is `text` where that is one; else `text` with other characters replaced by `-`, cut to
/// 63 characters with a digest of `text` at the end where it had to be cut. `None` where nothing is left.
pub(crate) fn label_value(text: &str) -> Option<String> {
    let cleaned = clean_value(text);
    let trimmed = cleaned.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    if trimmed.is_empty() {
        return None;
    }
    if trimmed.len() <= LABEL {
        return Some(trimmed.to_owned());
    }
    let head: String = trimmed.chars().take(LABEL - DIGEST - 1).collect();
    Some(format!("{head}-{}", digest(text)))
}

fn clean(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let lower = text.chars().map(|c| c.to_ascii_lowercase());
    lower.map(|c| if allowed(c) { c } else { '-' }).collect()
}

fn clean_value(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.chars().map(|c| if allowed(c) { c } else { '-' }).collect()
}

pub(crate) fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let number = digest
        .iter()
        .take(DIGEST / 2)
        .fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    format!("{number:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("192.0.2.2")]
    #[case("fe80::1")]
    #[case("unknown-AB12C")]
    fn what_bases_call_themselves_is_an_identity(#[case] text: &str) {
        assert_eq!(Identity::new(text).unwrap().as_str(), text);
    }

    #[rstest]
    #[case("", IdentityError::Empty)]
    #[case("a/b", IdentityError::Character("a/b".to_owned(), '/'))]
    #[case("a+", IdentityError::Character("a+".to_owned(), '+'))]
    #[case("#", IdentityError::Character("#".to_owned(), '#'))]
    #[case("a b", IdentityError::Character("a b".to_owned(), ' '))]
    #[case("a\n", IdentityError::Character("a\n".to_owned(), '\n'))]
    fn what_cannot_stand_in_a_topic_is_none(#[case] text: &str, #[case] error: IdentityError) {
        assert_eq!(Identity::new(text), Err(error));
        assert_eq!(Identity::new(&"a".repeat(254)), Err(IdentityError::TooLong(254)));
    }

    #[rstest]
    #[case("vnode.192.0.2.2.dev", "vnode.192.0.2.2.dev")]
    #[case("a-b", "a-b")]
    fn a_good_name_stays_as_it_is(#[case] text: &str, #[case] name: &str) {
        assert_eq!(object_name(text), name);
    }

    #[test]
    fn two_texts_never_share_a_name() {
        let names = [
            "vnode.A.dev",
            "vnode.a.dev",
            "vnode.a-.dev",
            "vnode..a.dev",
            "vnode.ä.dev",
        ]
        .map(object_name);
        for (index, name) in names.iter().enumerate() {
            assert!(!names[index + 1..].contains(name), "{names:?}");
        }
    }

    #[rstest]
    #[case("1.0.0", Some("1.0.0"))]
    #[case("TO_BE_IMPLEMENTED", Some("TO_BE_IMPLEMENTED"))]
    #[case("a b/c", Some("a-b-c"))]
    #[case("-a-", Some("a"))]
    #[case("---", None)]
    #[case("", None)]
    fn label_values(#[case] text: &str, #[case] value: Option<&str>) {
        assert_eq!(label_value(text).as_deref(), value);
    }

    proptest! {
        #[test]
        fn a_name_is_always_a_dns_subdomain(text in "\\PC{0,300}") {
            let name = object_name(&text);
            prop_assert!(evenkeel_kube_values::names::is_subdomain(&name), "{name:?}");
        }

        #[test]
        fn a_label_value_is_always_one(text in "\\PC{0,100}") {
            if let Some(value) = label_value(&text) {
                prop_assert!(value.len() <= 63);
                prop_assert!(value.starts_with(|c: char| c.is_ascii_alphanumeric()));
                prop_assert!(value.ends_with(|c: char| c.is_ascii_alphanumeric()));
                prop_assert!(value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)));
            }
        }
    }
}
