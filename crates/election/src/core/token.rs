//! Fencing tokens as text, and the order of two of them.

use super::FencingToken;
use std::cmp::Ordering;
use std::str::FromStr;

/// Returned for a text that is no fencing token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no fencing token: expected <lease uid>/<transitions>, for example {EXAMPLE}")]
pub struct MalformedToken(pub String);

const EXAMPLE: &str = "5f0c9d1e-8c0b-4f3e-9a52-0d6f6f0f7c11/7";

impl FencingToken {
    /// Orders two tokens of one Lease by term. `None` when they are of different Leases, which have no order.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        (self.lease_uid == other.lease_uid).then(|| self.transitions.cmp(&other.transitions))
    }
}

impl FromStr for FencingToken {
    type Err = MalformedToken;

    /// Accepts exactly the texts that [`Display`](std::fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self, MalformedToken> {
        let malformed = || MalformedToken(text.to_owned());
        let (uid, number) = text.split_once('/').ok_or_else(malformed)?;
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let uid_is_one = !uid.is_empty() && uid.bytes().all(|byte| byte.is_ascii_graphic());
        if !digits || !uid_is_one {
            return Err(malformed());
        }
        let transitions = number.parse().map_err(|_| malformed())?;
        let token = Self {
            lease_uid: uid.to_owned(),
            transitions,
        };
        // This refuses other spellings of a number, such as `007`.
        if token.to_string() == text {
            Ok(token)
        } else {
            Err(malformed())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(uid: &str, transitions: i32) -> FencingToken {
        FencingToken {
            lease_uid: uid.to_owned(),
            transitions,
        }
    }

    #[test]
    fn only_terms_of_one_lease_have_an_order() {
        assert_eq!(token("a", 1).compare(&token("a", 2)), Some(Ordering::Less));
        assert_eq!(token("a", 2).compare(&token("a", 2)), Some(Ordering::Equal));
        assert_eq!(token("a", 3).compare(&token("a", 2)), Some(Ordering::Greater));
        assert_eq!(token("a", 1).compare(&token("b", 2)), None);
    }

    #[test]
    fn what_is_no_token_is_refused_by_name() {
        for text in [
            "",
            "/",
            "a",
            "a/",
            "/1",
            "a/x",
            "a/-1",
            "a/+1",
            "a/1/2",
            "a/007",
            "a/1 ",
            " a/1",
            "a b/1",
            "a/2147483648",
        ] {
            let error = text.parse::<FencingToken>().unwrap_err();
            assert_eq!(error, MalformedToken(text.to_owned()));
            assert!(
                error
                    .to_string()
                    .starts_with(&format!("`{text}` is no fencing token: "))
            );
        }
        assert!(EXAMPLE.parse::<FencingToken>().is_ok());
    }

    proptest! {
        #[test]
        fn a_token_survives_being_written_and_read(uid in "[a-z0-9-]{1,40}", transitions in 0..=i32::MAX) {
            let token = token(&uid, transitions);
            prop_assert_eq!(token.to_string().parse(), Ok(token));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            if let Ok(token) = text.parse::<FencingToken>() {
                prop_assert_eq!(token.to_string(), text);
            }
        }
    }
}
