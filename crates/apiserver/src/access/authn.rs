//! Who asks: client certificates, bearer tokens, nobody.

use crate::access::errors::unauthorized;
use crate::access::tokens::{TokenError, TokenIssuer, Verified};
use crate::options::StaticToken;
use crate::request::{Reader, UserInfo};
use evenkeel_kube_rules::status::ApiResult;
use evenkeel_net::serve::subprotocol;
use http::HeaderMap;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Group of everybody who showed a good credential.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// Group of everybody who showed none.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// User name of everybody who showed none.
pub(crate) const ANONYMOUS: &str = "system:anonymous";

/// Finds the user behind a request.
pub(crate) struct Authenticator {
    static_tokens: Vec<StaticToken>,
    tokens: Arc<TokenIssuer>,
    anonymous: bool,
}

impl Authenticator {
    /// `anonymous`: whether requests without any credential are `system:anonymous`.
    pub(crate) fn new(static_tokens: &[StaticToken], tokens: Arc<TokenIssuer>, anonymous: bool) -> Self {
        Self {
            static_tokens: static_tokens.to_vec(),
            tokens,
            anonymous,
        }
    }

    /// The user, before impersonation. A good certificate wins over a token; a bad token is 401 even where
    /// anonymous requests are served.
    pub(crate) fn authenticate(
        &self,
        headers: &HeaderMap,
        client_certificate: Option<&[u8]>,
        reader: &dyn Reader,
        now: Timestamp,
    ) -> ApiResult<UserInfo> {
        if let Some(user) = client_certificate.and_then(certificate_user) {
            return Ok(authenticated(user));
        }
        let token = match bearer(headers) {
            Some(token) => Some(token),
            None => subprotocol::token(headers).map_err(|why| {
                tracing::debug!(why, "the token of a websocket request cannot be read");
                unauthorized()
            })?,
        };
        if let Some(token) = token {
            return self
                .token(&token, &[], reader, now)
                .map(|verified| verified.user)
                .map_err(|error| {
                    tracing::debug!(%error, "a bearer token was refused");
                    unauthorized()
                });
        }
        if self.anonymous {
            return Ok(anonymous());
        }
        Err(unauthorized())
    }

    /// The user of a bearer token, for the server itself if no audiences are asked for.
    pub(crate) fn token(
        &self,
        token: &str,
        audiences: &[String],
        reader: &dyn Reader,
        now: Timestamp,
    ) -> Result<Verified, TokenError> {
        let api = crate::access::tokens::API_AUDIENCES.map(str::to_owned);
        let audiences = if audiences.is_empty() { &api[..] } else { audiences };
        let mut verified = match self.static_token(token) {
            Some(user) => Verified {
                user,
                audiences: audiences
                    .iter()
                    .filter(|one| api.contains(one))
                    .cloned()
                    .collect(),
            },
            None => self.tokens.verify_for(token, audiences, reader, now)?,
        };
        verified.user = authenticated(verified.user);
        Ok(verified)
    }

    /// Compares with every known token, in a time that does not depend on their texts.
    fn static_token(&self, token: &str) -> Option<UserInfo> {
        let digest = Sha256::digest(token.as_bytes());
        let mut found = None;
        for known in &self.static_tokens {
            if bool::from(Sha256::digest(known.token.as_bytes()).ct_eq(&digest)) {
                found = Some(known);
            }
        }
        found.map(|known| UserInfo {
            name: known.user.clone(),
            groups: known.groups.clone(),
            ..UserInfo::default()
        })
    }
}

/// The same user in `system:authenticated`, which upstream puts last.
pub(crate) fn authenticated(mut user: UserInfo) -> UserInfo {
    let placed = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
    if user.name != ANONYMOUS && !user.groups.iter().any(placed) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

fn anonymous() -> UserInfo {
    UserInfo {
        name: ANONYMOUS.to_owned(),
        groups: vec![UNAUTHENTICATED.to_owned()],
        ..UserInfo::default()
    }
}

/// The token of `Authorization: Bearer TOKEN`; none for another scheme or an empty token.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

/// Common name and organizations of a certificate; none if it has no name.
fn certificate_user(der: &[u8]) -> Option<UserInfo> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    // The last of several, as in Go, and as the signing of requests and kubelets have it: whoever is approved
    // under one name must not be let in under another.
    let name = subject.iter_common_name().last()?.as_str().ok()?;
    if name.is_empty() {
        return None;
    }
    let groups = subject
        .iter_organization()
        .filter_map(|organization| organization.as_str().ok().map(str::to_owned))
        .collect();
    let digest = Sha256::digest(der)
        .iter()
        .fold(String::from("X509SHA256="), |mut text, byte| {
            use std::fmt::Write;
            write!(text, "{byte:02x}").expect("writing to a String cannot fail");
            text
        });
    Some(UserInfo {
        name: name.to_owned(),
        uid: String::new(),
        groups,
        extra: BTreeMap::from([(
            "authentication.kubernetes.io/credential-id".to_owned(),
            vec![digest],
        )]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::testing::Objects;
    use rstest::rstest;

    fn authenticator(anonymous: bool) -> Authenticator {
        let admin = StaticToken {
            token: "s3cret".to_owned(),
            user: "admin".to_owned(),
            groups: vec!["system:masters".to_owned()],
        };
        Authenticator::new(&[admin], Arc::new(TokenIssuer::new().unwrap()), anonymous)
    }

    fn headers(authorization: Option<&str>) -> HeaderMap {
        authorization
            .map(|value| (http::header::AUTHORIZATION, value.parse().unwrap()))
            .into_iter()
            .collect()
    }

    #[rstest]
    #[case::known(Some("Bearer s3cret"), true, Ok("admin"))]
    #[case::scheme_in_any_case(Some("bearer  s3cret"), true, Ok("admin"))]
    #[case::unknown(Some("Bearer nope"), true, Err(401))]
    #[case::a_prefix(Some("Bearer s3cre"), true, Err(401))]
    #[case::other_scheme(Some("Basic s3cret"), true, Ok(ANONYMOUS))]
    #[case::nobody(None, true, Ok(ANONYMOUS))]
    #[case::nobody_is_not_served(None, false, Err(401))]
    fn tokens(
        #[case] authorization: Option<&str>,
        #[case] anonymous: bool,
        #[case] expected: Result<&str, u16>,
    ) {
        let got = authenticator(anonymous).authenticate(
            &headers(authorization),
            None,
            &Objects::default(),
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(
            got.as_ref()
                .map(|user| user.name.as_str())
                .map_err(|error| error.code),
            expected
        );
    }

    #[rstest]
    #[case::known(
        "base64url.bearer.authorization.k8s.io.czNjcmV0, v5.channel.k8s.io",
        Ok("admin")
    )]
    #[case::unknown("v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.bm9wZQ", Err(401))]
    #[case::alone("base64url.bearer.authorization.k8s.io.czNjcmV0", Err(401))]
    #[case::no_token("v5.channel.k8s.io", Ok(ANONYMOUS))]
    fn websockets_of_browsers_name_a_token_among_their_protocols(
        #[case] protocols: &str,
        #[case] expected: Result<&str, u16>,
    ) {
        let mut headers = headers(None);
        headers.insert(http::header::CONNECTION, "Upgrade".parse().unwrap());
        headers.insert(http::header::UPGRADE, "websocket".parse().unwrap());
        headers.insert(http::header::SEC_WEBSOCKET_PROTOCOL, protocols.parse().unwrap());
        let got =
            authenticator(true).authenticate(&headers, None, &Objects::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(
            got.as_ref()
                .map(|user| user.name.as_str())
                .map_err(|error| error.code),
            expected
        );
    }

    #[test]
    fn a_certificate_names_user_and_groups() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "jane");
        params
            .distinguished_name
            .push(rcgen::DnType::OrganizationName, "devs");
        let certificate = params.self_signed(&key).unwrap();
        let user = authenticator(false)
            .authenticate(
                &headers(Some("Bearer nope")),
                Some(certificate.der()),
                &Objects::default(),
                Timestamp::UNIX_EPOCH,
            )
            .unwrap();
        assert_eq!(
            (user.name.as_str(), user.groups),
            ("jane", vec!["devs".to_owned(), AUTHENTICATED.to_owned()])
        );
    }

    #[test]
    fn the_last_of_several_names_is_the_user() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "victim");
        // rcgen keeps one value per type; by its number the type is another one for it.
        let common_name = rcgen::DnType::CustomDnType(vec![2, 5, 4, 3]);
        params.distinguished_name.push(common_name, "system:node:n1");
        let certificate = params.self_signed(&key).unwrap();
        let user = certificate_user(certificate.der()).unwrap();
        assert_eq!(user.name, "system:node:n1");
    }
}
