//! Who asks.

use evenkeel_net::pki::der_sha256;
use k8s_openapi::api::authentication::v1::UserInfo;
use std::collections::BTreeMap;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Every user who has shown who it is belongs to it.
const AUTHENTICATED: &str = "system:authenticated";
/// Who has not shown who it is, and its group.
const ANONYMOUS: (&str, &str) = ("system:anonymous", "system:unauthenticated");
/// Which credential a user has shown (`authentication.kubernetes.io/credential-id`, KEP-4193).
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// A user: one who has shown who it is, or the anonymous one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user's name.
    pub name: String,
    /// Its UID, or empty.
    pub uid: String,
    /// Its groups: `system:authenticated` among them, or `system:unauthenticated`.
    pub groups: Vec<String>,
    /// What else is known of it.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user of a verified client certificate: its common name, with its organisations as groups. `None`
    /// where it names nobody.
    pub fn of_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        // The last of several, as Go has it.
        let name = subject.iter_common_name().last()?.as_str().ok()?.to_owned();
        if name.is_empty() {
            return None;
        }
        let groups = subject
            .iter_organization()
            .filter_map(|organisation| organisation.as_str().ok())
            .map(str::to_owned)
            .collect();
        let credential = vec![format!("X509SHA256={}", der_sha256(der))];
        let user = Self {
            name,
            groups,
            extra: BTreeMap::from([(CREDENTIAL.to_owned(), credential)]),
            ..Self::default()
        };
        Some(user.authenticated())
    }

    /// The user of a TokenReview.
    pub(super) fn of_review(info: UserInfo) -> Self {
        Self {
            name: info.username.unwrap_or_default(),
            uid: info.uid.unwrap_or_default(),
            groups: info.groups.unwrap_or_default(),
            extra: info.extra.unwrap_or_default(),
        }
        .authenticated()
    }

    /// Who has not shown who it is.
    pub(super) fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.0.to_owned(),
            groups: vec![ANONYMOUS.1.to_owned()],
            ..Self::default()
        }
    }

    /// Whether it has not shown who it is: its group says so, for a name can be given to anybody.
    pub(super) fn is_anonymous(&self) -> bool {
        self.groups.iter().any(|group| group == ANONYMOUS.1)
    }

    fn authenticated(mut self) -> Self {
        if !self.groups.iter().any(|group| group == AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

/// The bearer token of an `Authorization` header, as Go's servers read it.
pub(super) fn bearer(header: &str) -> Option<&str> {
    let mut parts = header.trim().splitn(3, ' ');
    let scheme = parts.next()?;
    let token = parts.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_net::pki::{Ca, Validity};
    use k8s_openapi::jiff::Timestamp;

    #[test]
    fn a_certificate_names_user_groups_and_itself() {
        let now = Timestamp::now().as_second();
        let validity = Validity {
            from: now - 60,
            until: now + 3600,
        };
        let ca = Ca::new("clients", validity).unwrap();
        let read = |user, groups: &[&str]| {
            let pem = ca.issue_client(user, groups, validity).unwrap().certificate_pem;
            let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
            User::of_certificate(&pem.contents)
        };
        let jane = read("jane", &["b", "a"]).unwrap();
        assert_eq!(jane.name, "jane");
        assert_eq!(jane.groups, ["b", "a", "system:authenticated"]);
        assert!(jane.extra[CREDENTIAL][0].starts_with("X509SHA256="), "{jane:?}");
        assert_eq!(read("", &["system:masters"]), None);
        assert_eq!(User::of_certificate(b"nonsense"), None);
    }

    #[test]
    fn bearer_tokens_are_read_leniently_and_nothing_else_is() {
        let token = |header| bearer(header);
        assert_eq!(token("Bearer abc"), Some("abc"));
        assert_eq!(token(" bEARER abc "), Some("abc"));
        assert_eq!(token("Bearer abc def"), Some("abc"));
        for none in ["", "Bearer", "Bearer ", "Bearer  abc", "Basic abc", "abc"] {
            assert_eq!(token(none), None, "{none:?}");
        }
    }
}
