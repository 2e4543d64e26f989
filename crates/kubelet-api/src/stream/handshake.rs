//! Which protocol, and what is answered to requests that ask for none. Codes and texts are the kubelet's.

use super::until::Task;
use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts as _, Request};
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use http::header::{CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

const SPDY: HeaderValue = HeaderValue::from_static("SPDY/3.1");
const PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const ACCEPTED: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");

/// The longest message of a WebSocket. Clients send pieces of 32 KiB or what a terminal brings; it is the
/// bound of what each connection can make us keep.
const LONGEST_MESSAGE: usize = 1024 * 1024;
/// What waits to be written to a WebSocket whose client does not read: without this bound, answers to pings
/// pile up.
const OUTPUT: usize = 1024 * 1024;

/// What a request asks to upgrade to.
pub(super) enum Wanted {
    /// A WebSocket with one of these subprotocols, the preferred first; there may be none.
    WebSocket(Vec<String>),
    /// SPDY, or so we take it.
    Spdy,
}

/// Reads what a request asks for.
pub(super) fn wanted(request: &Request) -> Result<Wanted, Response> {
    let headers = request.headers();
    let upgrade = tokens(headers, &CONNECTION).any(|token| token.to_ascii_lowercase().contains("upgrade"));
    if !upgrade {
        return Err(refusal(StatusCode::BAD_REQUEST, "Upgrade request required"));
    }
    let websocket = headers
        .get(UPGRADE)
        .is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"));
    if !websocket {
        return Ok(Wanted::Spdy);
    }
    Ok(Wanted::WebSocket(
        tokens(headers, &SEC_WEBSOCKET_PROTOCOL).collect(),
    ))
}

/// A request for SPDY that has been agreed to.
pub(super) struct Spdy {
    upgrade: OnUpgrade,
    response: Response,
    /// The protocol that was agreed upon.
    pub(super) protocol: &'static str,
}

impl Spdy {
    /// Agrees upon the first of the client's protocols that is ours.
    pub(super) fn negotiate(mut request: Request, ours: &[&'static str]) -> Result<Self, Response> {
        let bad = |text: &str| Err(refusal(StatusCode::BAD_REQUEST, text));
        let headers = request.headers();
        if !headers.contains_key(PROTOCOL) {
            let count = headers.keys_len();
            return bad(&format!(
                "unable to upgrade: header X-Stream-Protocol-Version does not exist in request with {count} headers"
            ));
        }
        let theirs: Vec<String> = tokens(headers, &PROTOCOL).collect();
        if theirs.is_empty() {
            return bad(
                "unable to upgrade: header X-Stream-Protocol-Version contains [], but no valid protocols",
            );
        }
        let agreed = theirs
            .iter()
            .find_map(|theirs| ours.iter().find(|ours| **ours == theirs));
        let Some(protocol) = agreed.copied() else {
            let text = format!(
                "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]",
                theirs.join(" "),
                ours.join(" "),
            );
            let mut response = refusal(StatusCode::FORBIDDEN, &text);
            for protocol in ours {
                response
                    .headers_mut()
                    .append(ACCEPTED, HeaderValue::from_static(protocol));
            }
            return Err(response);
        };
        let spdy = tokens(headers, &UPGRADE).any(|to| to.eq_ignore_ascii_case("SPDY/3.1"));
        if !spdy {
            return bad("unable to upgrade: missing upgrade headers in request");
        }
        let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
        let answer = response.headers_mut();
        answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        answer.insert(UPGRADE, SPDY);
        answer.insert(PROTOCOL, HeaderValue::from_static(protocol));
        Ok(Self {
            upgrade: hyper::upgrade::on(&mut request),
            response,
            protocol,
        })
    }

    /// Answers, and serves the connection in a task of its own.
    pub(super) fn serve<F, Fut>(self, task: Task, serve: F) -> Response
    where
        F: FnOnce(TokioIo<Upgraded>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let upgrade = self.upgrade;
        tokio::spawn(task.run(async move {
            match upgrade.await {
                Ok(socket) => serve(TokioIo::new(socket)).await,
                Err(error) => tracing::debug!(%error, "a client left before its connection was upgraded"),
            }
        }));
        self.response
    }
}

/// A WebSocket with a subprotocol: the first of the client's that is ours. `ours` has "" where none is
/// needed.
pub(super) fn websocket(
    request: Request,
    theirs: &[String],
    ours: &[&'static str],
) -> Result<(WebSocketUpgrade, &'static str), Response> {
    if request.method() != Method::GET {
        return Err(refusal(StatusCode::METHOD_NOT_ALLOWED, "bad method"));
    }
    if request
        .headers()
        .get(SEC_WEBSOCKET_VERSION)
        .is_none_or(|version| version != "13")
    {
        let mut response = refusal(StatusCode::BAD_REQUEST, "missing or bad WebSocket Version");
        let version = HeaderValue::from_static("13");
        response.headers_mut().insert(SEC_WEBSOCKET_VERSION, version);
        return Err(response);
    }
    let find = |wanted: &str| ours.iter().find(|ours| **ours == wanted).copied();
    let agreed = match theirs {
        [] => find(""),
        theirs => theirs.iter().find_map(|theirs| find(theirs)),
    };
    let Some(protocol) = agreed else {
        return Err(StatusCode::FORBIDDEN.into_response());
    };
    let mut parts = request.into_parts().0;
    // Looks at the head alone, so there is nothing to wait for.
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).now_or_never();
    match upgrade {
        Some(Ok(mut upgrade)) => {
            if !protocol.is_empty() {
                upgrade.set_selected_protocol(HeaderValue::from_static(protocol));
            }
            let upgrade = upgrade
                .max_message_size(LONGEST_MESSAGE)
                .max_frame_size(LONGEST_MESSAGE)
                .max_write_buffer_size(OUTPUT);
            Ok((upgrade, protocol))
        }
        Some(Err(rejection)) => Err(rejection.into_response()),
        None => Err(StatusCode::INTERNAL_SERVER_ERROR.into_response()),
    }
}

/// An answer in text, as Go's library writes it.
pub(super) fn refusal(status: StatusCode, text: &str) -> Response {
    let mut response = Response::new(Body::from(format!("{text}\n")));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// The values of a header that may be a list, and may be there more than once.
fn tokens<'a>(headers: &'a HeaderMap, name: &'a HeaderName) -> impl Iterator<Item = String> + 'a {
    let lists = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok());
    lists
        .flat_map(|list| list.split(','))
        .map(|token| token.trim().to_owned())
        .filter(|token| !token.is_empty())
}
