//! Tokens among the subprotocols of a WebSocket: browsers can set no other header.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue};

/// What stands before the token.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// The subprotocols that a client offers.
fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lists = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    lists
        .filter_map(|list| list.to_str().ok())
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .filter(|protocol| !protocol.is_empty())
}

/// The token of a request for a WebSocket. There must be one alone, and a subprotocol beside it, which is
/// what can be agreed upon: the token is never sent back.
pub(super) fn token(headers: &HeaderMap) -> Option<String> {
    let says = |name, word: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.to_ascii_lowercase().contains(word))
    };
    if !says(CONNECTION, "upgrade") || !says(UPGRADE, "websocket") {
        return None;
    }
    let mut tokens = offered(headers).filter_map(|protocol| protocol.strip_prefix(BEARER));
    let (token, None) = (tokens.next()?, tokens.next()) else {
        return None;
    };
    if offered(headers).all(|protocol| protocol.starts_with(BEARER)) {
        return None;
    }
    let token = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    Some(token).filter(|token| !token.is_empty())
}

/// Takes tokens out of the subprotocols.
pub(super) fn forget(headers: &mut HeaderMap) {
    if !offered(headers).any(|protocol| protocol.starts_with(BEARER)) {
        return;
    }
    let others = offered(headers).filter(|protocol| !protocol.starts_with(BEARER));
    let mut others = others.collect::<Vec<_>>().join(", ");
    if others.is_empty() {
        // Whoever offers a token alone must not be taken for one who offers nothing.
        BEARER.clone_into(&mut others);
    }
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    // Made of parts of values that are valid.
    if let Ok(others) = HeaderValue::try_from(others) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, others);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn headers(protocols: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        for protocols in protocols {
            headers.append(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_str(protocols).unwrap());
        }
        headers
    }

    #[rstest]
    #[case(&["base64url.bearer.authorization.k8s.io.dG9rZW4, v4.channel.k8s.io"], Some("token"))]
    #[case(&["v4.channel.k8s.io", "base64url.bearer.authorization.k8s.io.dG9rZW4"], Some("token"))]
    #[case(&["base64url.bearer.authorization.k8s.io.dG9rZW4"], None)]
    #[case(&["base64url.bearer.authorization.k8s.io.dG9rZW4=, x"], None)]
    #[case(&["base64url.bearer.authorization.k8s.io._w, x"], None)]
    #[case(&["base64url.bearer.authorization.k8s.io., x"], None)]
    #[case(&["base64url.bearer.authorization.k8s.io.YQ, x, base64url.bearer.authorization.k8s.io.YQ"], None)]
    #[case(&["v4.channel.k8s.io"], None)]
    #[case(&[], None)]
    fn a_token_needs_another_subprotocol_beside_it(
        #[case] protocols: &[&str],
        #[case] expected: Option<&str>,
    ) {
        assert_eq!(token(&headers(protocols)).as_deref(), expected);
    }

    #[test]
    fn what_is_no_websocket_has_no_token() {
        let mut headers = headers(&["base64url.bearer.authorization.k8s.io.dG9rZW4, x"]);
        headers.remove(UPGRADE);
        assert_eq!(token(&headers), None);
    }

    #[test]
    fn tokens_are_forgotten_and_the_rest_is_kept() {
        let mut some = headers(&["a, base64url.bearer.authorization.k8s.io.dG9rZW4", "b"]);
        forget(&mut some);
        assert_eq!(
            some.get_all(SEC_WEBSOCKET_PROTOCOL).iter().collect::<Vec<_>>(),
            ["a, b"]
        );
        let mut alone = headers(&["base64url.bearer.authorization.k8s.io.dG9rZW4"]);
        forget(&mut alone);
        assert_eq!(
            alone.get_all(SEC_WEBSOCKET_PROTOCOL).iter().collect::<Vec<_>>(),
            [BEARER]
        );
    }
}
