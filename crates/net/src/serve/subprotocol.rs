//! Tokens among the subprotocols of websocket requests, to which browsers cannot add an `Authorization`
//! header.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue};

/// What a subprotocol with a token begins with; base64url without padding follows.
const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The token of a websocket request, if it has one. It needs another subprotocol beside it, which the answer
/// can name. `Err` says what is wrong with it.
pub fn token(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    if !is_websocket(headers) {
        return Ok(None);
    }
    let mut token = None;
    let mut others = false;
    for protocol in protocols(headers) {
        let Some(encoded) = protocol.strip_prefix(PREFIX.as_bytes()) else {
            others = true;
            continue;
        };
        if token.is_some() {
            return Err("there are several tokens among the subprotocols");
        }
        let decoded = URL_SAFE_NO_PAD
            .decode(encoded)
            .map_err(|_| "the token is not base64url without padding")?;
        token = Some(String::from_utf8(decoded).map_err(|_| "the token is not UTF-8")?);
    }
    match token {
        Some(token) if token.is_empty() => Ok(None),
        Some(_) if !others => Err("there is no subprotocol beside the token"),
        token => Ok(token),
    }
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get_all(CONNECTION).iter().any(|value| {
        value
            .as_bytes()
            .split(|byte| *byte == b',')
            .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
    });
    let protocol = headers.get(UPGRADE);
    upgrade && protocol.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .into_iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
}

/// Takes subprotocols with tokens out, whether a token was used or not: they are for this server alone.
pub fn remove_tokens(headers: &mut HeaderMap) {
    let carries = |protocol: &[u8]| {
        let start = protocol.get(..PREFIX.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(PREFIX.as_bytes()))
    };
    if !protocols(headers).any(carries) {
        return;
    }
    let mut kept: Vec<&[u8]> = protocols(headers).filter(|protocol| !carries(protocol)).collect();
    if kept.is_empty() {
        // Whoever offers a token alone must not be taken for one who offers nothing.
        kept.push(PREFIX.as_bytes());
    }
    let kept = HeaderValue::from_bytes(&kept.join(&b", "[..]));
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    // Parts of header values are good header values.
    if let Ok(kept) = kept {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn headers(upgrade: &'static str, protocols: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(upgrade));
        for protocol in protocols {
            headers.append(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
        }
        headers
    }

    #[rstest]
    #[case::beside_another(&["a, base64url.bearer.authorization.k8s.io.czNjcmV0"], Ok(Some("s3cret")))]
    #[case::in_lines(&["base64url.bearer.authorization.k8s.io.czNjcmV0", "a"], Ok(Some("s3cret")))]
    #[case::none(&["a,b"], Ok(None))]
    #[case::empty(&["a,base64url.bearer.authorization.k8s.io."], Ok(None))]
    #[case::alone(&["base64url.bearer.authorization.k8s.io.czNjcmV0"], Err("there is no subprotocol beside the token"))]
    #[case::two(
        &["a,base64url.bearer.authorization.k8s.io.eA,base64url.bearer.authorization.k8s.io.eA"],
        Err("there are several tokens among the subprotocols")
    )]
    #[case::padded(&["a,base64url.bearer.authorization.k8s.io.eA=="], Err("the token is not base64url without padding"))]
    #[case::binary(&["a,base64url.bearer.authorization.k8s.io._w"], Err("the token is not UTF-8"))]
    fn tokens_stand_among_subprotocols(
        #[case] protocols: &[&'static str],
        #[case] expected: Result<Option<&str>, &str>,
    ) {
        let expected = expected.map(|token| token.map(str::to_owned));
        assert_eq!(token(&headers("WebSocket", protocols)), expected);
        assert_eq!(token(&headers("SPDY/3.1", protocols)), Ok(None), "no websocket");
    }

    #[rstest]
    #[case(&["a,base64url.bearer.authorization.k8s.io.eA, b"], Some("a, b"))]
    #[case(&["base64url.bearer.authorization.k8s.io.eA", "a"], Some("a"))]
    #[case(&["BASE64URL.bearer.authorization.k8s.io.eA"], Some(PREFIX))]
    #[case(&["a,b"], Some("a,b"))]
    fn tokens_are_taken_out_and_other_protocols_stay(
        #[case] protocols: &[&'static str],
        #[case] expected: Option<&'static str>,
    ) {
        let mut headers = headers("SPDY/3.1", protocols);
        remove_tokens(&mut headers);
        let left: Vec<&HeaderValue> = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().collect();
        assert_eq!(left, expected.into_iter().collect::<Vec<_>>());
    }
}
