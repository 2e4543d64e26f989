//! `POST /heartbeat`, by which bases over HTTP make themselves known every 12 s, and `POST /queryBaseline`.
//!
//! Whoever may speak here can have nodes made and this process connect to addresses. So a base speaks for its
//! own address alone (the [registry](crate::core::registry) sees to that), and where bases can be given one,
//! for the holder of a token or of a client certificate alone. arklet's own client can neither; a proxy
//! beside the base can.

use super::Hub;
use super::token::Tokens;
use crate::baseline::Baseline;
use crate::core::Identity;
use crate::core::identity::IdentityError;
use crate::core::registry::{Announcement, Observation, Refused};
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Extension, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use evenkeel_arklet::heartbeat::{Heartbeat, Metadata};
use evenkeel_net::log::causes;
use evenkeel_net::serve::{PeerIdentity, ServerTls, serve_http, serve_https};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::timeout::TimeoutLayer;

/// The released controller's port.
pub const PORT: u16 = 7777;
/// A heartbeat has 200 bytes.
const BODY_LIMIT: usize = 64 * 1024;
/// arklet waits for 10 s.
const TIMEOUT: Duration = Duration::from_secs(8);

/// Takes heartbeats over HTTP. Made by [`Heartbeats::open`](super::listener::Heartbeats::open).
pub struct Listener {
    pub socket: TcpListener,
    /// With TLS, and the authority of client certificates in it.
    pub tls: Option<ServerTls>,
    pub auth: Auth,
    /// What bases should run; nothing without.
    pub baseline: Option<Arc<dyn Baseline>>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener")
            .field("socket", &self.socket)
            .field("tls", &self.tls)
            .field("auth", &self.auth)
            .finish_non_exhaustive()
    }
}

/// Who may speak: everybody, where nothing is asked for; else who has any of what is asked for.
#[derive(Clone, Debug, Default)]
pub struct Auth {
    pub tokens: Option<Tokens>,
    /// A client certificate, verified by [`Listener::tls`].
    pub certificate: bool,
}

/// What keeps a request from being heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Denied {
    Nothing,
    Wrong,
}

impl Auth {
    fn check(&self, headers: &HeaderMap, peer: Option<&PeerIdentity>) -> Result<(), Denied> {
        if self.tokens.is_none() && !self.certificate {
            return Ok(());
        }
        if self.certificate && peer.is_some_and(|peer| peer.certificate.is_some()) {
            return Ok(());
        }
        let tokens = self.tokens.as_ref().ok_or(Denied::Nothing)?;
        let token = bearer(headers).ok_or(Denied::Nothing)?;
        if tokens.accepts(token) {
            Ok(())
        } else {
            Err(Denied::Wrong)
        }
    }

    /// The answer to a request without credentials.
    fn wanted(&self) -> &'static str {
        match (self.tokens.is_some(), self.certificate) {
            (true, false) => "a bearer token is needed\n",
            (false, true) => "a client certificate is needed\n",
            (true, true) | (false, false) => "a bearer token or a client certificate is needed\n",
        }
    }
}

/// The token of `Authorization: Bearer TOKEN` (RFC 6750).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[derive(Clone)]
struct Server {
    hub: Arc<Hub>,
    auth: Auth,
    baseline: Option<Arc<dyn Baseline>>,
}

/// Serves until `shutdown`.
pub(super) async fn serve(hub: Arc<Hub>, listener: Listener, shutdown: CancellationToken) {
    let server = Server {
        hub,
        auth: listener.auth,
        baseline: listener.baseline,
    };
    let app = router(server);
    let served = match listener.tls {
        Some(tls) => serve_https(listener.socket, tls, app, shutdown).await,
        None => serve_http(listener.socket, app, shutdown).await,
    };
    if let Err(error) = served {
        tracing::error!(%error, "heartbeats are not served any more");
    }
}

fn router(server: Server) -> Router {
    Router::new()
        .route("/heartbeat", post(heartbeat))
        .route("/queryBaseline", post(query_baseline))
        .layer(axum::middleware::from_fn_with_state(server.clone(), guard))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::REQUEST_TIMEOUT,
            TIMEOUT,
        ))
        .with_state(server)
}

impl Server {
    /// Reports one who may not announce bases.
    fn refuse(&self, peer: Option<&PeerIdentity>, why: &str) {
        if let Some(address) = peer.and_then(|peer| peer.address) {
            self.hub.cannot_read(address.ip(), why.trim_end());
        }
    }
}

async fn guard(State(server): State<Server>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<PeerIdentity>();
    match server.auth.check(request.headers(), peer) {
        Ok(()) => next.run(request).await,
        Err(Denied::Nothing) => {
            let why = server.auth.wanted();
            server.refuse(peer, why);
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            (StatusCode::UNAUTHORIZED, challenge, why).into_response()
        }
        Err(Denied::Wrong) => {
            let why = "this is no token of a base\n";
            server.refuse(peer, why);
            (StatusCode::FORBIDDEN, why).into_response()
        }
    }
}

async fn heartbeat(
    State(server): State<Server>,
    Extension(peer): Extension<PeerIdentity>,
    body: Bytes,
) -> Response {
    let Some(peer) = peer.address else {
        return (StatusCode::FORBIDDEN, "the peer has no address\n").into_response();
    };
    let unreadable = |why: &str| {
        server.hub.cannot_read(peer.ip(), why);
        bad(format!("not a heartbeat: {why}\n"))
    };
    let heartbeat = match Heartbeat::decode(&body) {
        Ok(heartbeat) => heartbeat,
        Err(error) => return unreadable(&causes(&error)),
    };
    let announcement = match announcement(&heartbeat) {
        Ok(announcement) => announcement,
        Err(error) => return unreadable(&error.to_string()),
    };
    let seen = server.hub.observe(Observation::HttpHeartbeat {
        announcement,
        port: heartbeat.port.unwrap_or(0),
        peer: peer.ip(),
    });
    match seen {
        Ok(()) => "SUCCESS".into_response(),
        Err(refused) => {
            let status = match refused {
                Refused::NoAddress(_) => StatusCode::BAD_REQUEST,
                Refused::Full(_) => StatusCode::SERVICE_UNAVAILABLE,
                Refused::Flood { .. } => StatusCode::TOO_MANY_REQUESTS,
                _ => StatusCode::FORBIDDEN,
            };
            (status, format!("{refused}\n")).into_response()
        }
    }
}

async fn query_baseline(State(server): State<Server>, body: Bytes) -> Response {
    let value: serde_json::Value = match serde_json::from_slice(&body) {
        Ok(value) => value,
        Err(error) => return bad(format!("not a query: {error}\n")),
    };
    let metadata = match Metadata::read(&value) {
        Ok(metadata) => metadata,
        Err(error) => return bad(format!("not a query: {}\n", causes(&error))),
    };
    let cluster = metadata.cluster_name.as_deref();
    let baseline = server.baseline.map(|baseline| baseline.of(cluster));
    Json(baseline.unwrap_or_default()).into_response()
}

fn bad(why: String) -> Response {
    (StatusCode::BAD_REQUEST, why).into_response()
}

/// What a heartbeat says of its base.
pub(super) fn announcement(heartbeat: &Heartbeat) -> Result<Announcement, IdentityError> {
    let metadata = &heartbeat.metadata;
    Ok(Announcement {
        identity: Identity::new(&metadata.identity)?,
        name: metadata.name.clone(),
        version: metadata.version.clone(),
        cluster: metadata.cluster_name.clone(),
        host_name: heartbeat.host_name.clone(),
        address: heartbeat.ip,
        active: heartbeat.is_active(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("Bearer abc", Some("abc"))]
    #[case("bearer  abc ", Some("abc"))]
    #[case("Bearer", None)]
    #[case("Bearer ", None)]
    #[case("Basic abc", None)]
    #[case("abc", None)]
    fn tokens_stand_in_the_header(#[case] value: &'static str, #[case] token: Option<&str>) {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        assert_eq!(bearer(&headers), token);
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn a_certificate_that_was_verified_is_enough_where_it_is_asked_for() {
        let holder = PeerIdentity {
            certificate: Some(Arc::new(vec![1])),
            address: None,
        };
        let auth = |certificate| Auth {
            tokens: None,
            certificate,
        };
        let none = HeaderMap::new();
        assert_eq!(auth(true).check(&none, Some(&holder)), Ok(()));
        assert_eq!(
            auth(true).check(&none, Some(&PeerIdentity::default())),
            Err(Denied::Nothing)
        );
        assert_eq!(auth(false).check(&none, None), Ok(()));
    }
}
