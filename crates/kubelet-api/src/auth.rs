//! Who may ask a kubelet what.
//!
//! Users are known by a client certificate, which the TLS layer has verified, or by a bearer token, about
//! which the API server is asked (TokenReview); what they may is asked there, too (SubjectAccessReview).
//! Where the API server does not answer, nobody may anything.

mod attributes;
mod cache;
mod user;

pub use attributes::{subresources, verb};
pub use user::User;

use super::Node;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use cache::{Cache, Key};
use evenkeel_net::log::causes;
use evenkeel_net::serve::{PeerIdentity, subprotocol};
use http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::PostParams;
use kube::core::Request as Requests;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// For how long the API server's answers count, and how many are kept. The defaults are the kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Whom a token belongs to, or that it is nobody's. 2 min.
    pub token: Duration,
    /// That somebody may. 5 min.
    pub allowed: Duration,
    /// That somebody may not. 30 s.
    pub denied: Duration,
    /// Tokens kept. 4,096.
    pub tokens: usize,
    /// Decisions kept: a scraper asks for one per node. 65,536, of about 150 bytes.
    pub decisions: usize,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            token: Duration::from_secs(120),
            allowed: Duration::from_secs(300),
            denied: Duration::from_secs(30),
            tokens: 4_096,
            decisions: 65_536,
        }
    }
}

/// Who may ask without saying who it is, and who decides what users may: as the kubelet's flags of these
/// names. Its own configuration file has the same defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// `--anonymous-auth`: whoever shows no credential at all is `system:anonymous`. A wrong one is refused
    /// all the same.
    pub anonymous: bool,
    /// `--authorization-mode`: who decides what users may.
    pub mode: Mode,
}

/// Who decides what users may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum), value(rename_all = "PascalCase"))]
pub enum Mode {
    /// The API server, by SubjectAccessReviews.
    #[default]
    Webhook,
    /// Nobody: users may everything. Who is anonymous reaches logs, commands and ports from this machine
    /// alone.
    AlwaysAllow,
}

/// Deadline of a question to the API server.
const ANSWER: Duration = Duration::from_secs(10);
/// Questions that are under way at a time, so that a flood of bad tokens is none for the API server.
const AT_ONCE: usize = 64;

/// Why a request goes no further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Nobody knows who asks.
    #[error("Unauthorized")]
    Unknown,
    /// The user may not. The text is the kubelet's.
    #[error("Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{}])\n", subresources.join(" "))]
    Forbidden {
        /// The user's name.
        user: String,
        /// What it wanted to do.
        verb: &'static str,
        /// To which of the node's subresources.
        subresources: &'static [&'static str],
    },
    /// The API server did not say who it is. The kubelet answers 401 here; who has a good token should know
    /// that it is not to blame.
    #[error("Authentication error")]
    NotAuthenticated,
    /// The API server did not say whether the user may. The text is the kubelet's.
    #[error("Authorization error (user={user}, verb={verb}, resource=nodes, subresource={subresource})")]
    NotAuthorized {
        /// The user's name.
        user: String,
        /// What it wanted to do.
        verb: &'static str,
        /// To which of the node's subresources.
        subresource: &'static str,
    },
}

impl Refused {
    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::UNAUTHORIZED,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::NotAuthenticated | Self::NotAuthorized { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// The API server gave no answer; the log says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Silent;

/// Asks the API server. Cheap to clone; answers are shared.
#[derive(Clone)]
pub struct Auth {
    shared: Arc<Shared>,
    rules: Rules,
}

struct Shared {
    client: Client,
    memory: Memory,
    at_once: Semaphore,
    tokens: Cache<Result<Option<Arc<User>>, Silent>>,
    decisions: Cache<Result<bool, Silent>>,
}

impl Auth {
    /// Asks by way of `client`, whose user needs `system:auth-delegator`.
    pub fn new(client: Client, memory: Memory) -> Self {
        Self {
            shared: Arc::new(Shared {
                client,
                memory,
                at_once: Semaphore::new(AT_ONCE),
                tokens: Cache::new(memory.tokens),
                decisions: Cache::new(memory.decisions),
            }),
            rules: Rules::default(),
        }
    }

    /// The same by other rules.
    #[must_use]
    pub fn by(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// Lets a request through, or says why not.
    pub async fn check(
        &self,
        node: &str,
        peer: Option<&PeerIdentity>,
        request: &Attributes<'_>,
    ) -> Result<Arc<User>, Refused> {
        let user = self.authenticate(peer, request.headers).await?;
        let verb = verb(request.method);
        let subresources = subresources(request.path);
        if self.rules.mode == Mode::AlwaysAllow {
            let is_near = peer
                .and_then(|peer| peer.address)
                .is_some_and(|address| address.ip().to_canonical().is_loopback());
            let is_harmless = !matches!(subresources, ["proxy" | "log"]);
            if is_near || is_harmless || !user.is_anonymous() {
                return Ok(user);
            }
            return Err(Refused::Forbidden {
                user: user.name.clone(),
                verb,
                subresources,
            });
        }
        for &subresource in subresources {
            match self.may(&user, node, verb, subresource).await {
                Ok(true) => return Ok(user),
                Ok(false) => {}
                Err(Silent) => {
                    return Err(Refused::NotAuthorized {
                        user: user.name.clone(),
                        verb,
                        subresource,
                    });
                }
            }
        }
        Err(Refused::Forbidden {
            user: user.name.clone(),
            verb,
            subresources,
        })
    }

    async fn authenticate(
        &self,
        peer: Option<&PeerIdentity>,
        headers: &HeaderMap,
    ) -> Result<Arc<User>, Refused> {
        let certificate = peer.and_then(|peer| peer.certificate.as_ref());
        if let Some(user) = certificate.and_then(|der| User::of_certificate(der)) {
            return Ok(Arc::new(user));
        }
        let header = headers.get(header::AUTHORIZATION);
        let bearer = header
            .and_then(|header| header.to_str().ok())
            .and_then(user::bearer);
        let token = match bearer {
            Some(token) => Some(token.to_owned()),
            None => subprotocol::token(headers).map_err(|why| {
                tracing::debug!(why, "the token of a websocket request cannot be read");
                Refused::Unknown
            })?,
        };
        match token {
            Some(token) => match self.user_of(&token).await {
                Ok(user) => user.ok_or(Refused::Unknown),
                Err(Silent) => Err(Refused::NotAuthenticated),
            },
            None if self.rules.anonymous && header.is_none() => Ok(Arc::new(User::anonymous())),
            None => Err(Refused::Unknown),
        }
    }

    async fn user_of(&self, token: &str) -> Result<Option<Arc<User>>, Silent> {
        let key: Key = Sha256::digest(token).into();
        let ask = || async {
            let answer = self.review(token).await;
            let counts = answer
                .as_ref()
                .map_or(Duration::ZERO, |_| self.shared.memory.token);
            (answer, counts)
        };
        self.shared.tokens.get(key, ask).await
    }

    async fn review(&self, token: &str) -> Result<Option<Arc<User>>, Silent> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let status = self
            .create("TokenReview", &review)
            .await?
            .status
            .unwrap_or_default();
        let known = status.authenticated.unwrap_or(false);
        Ok(status
            .user
            .filter(|_| known)
            .map(|user| Arc::new(User::of_review(user))))
    }

    async fn may(
        &self,
        user: &User,
        node: &str,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, Silent> {
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                version: Some("v1".to_owned()),
                resource: Some("nodes".to_owned()),
                subresource: Some(subresource.to_owned()),
                name: Some(node.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        };
        let key = Sha256::digest(json("SubjectAccessReview", &spec)?).into();
        let ask = || async {
            let answer = self.access(spec).await;
            let memory = &self.shared.memory;
            let counts = match answer {
                Ok(true) => memory.allowed,
                Ok(false) => memory.denied,
                Err(Silent) => Duration::ZERO,
            };
            (answer, counts)
        };
        self.shared.decisions.get(key, ask).await
    }

    async fn access(&self, spec: SubjectAccessReviewSpec) -> Result<bool, Silent> {
        let review = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let status = self.create("SubjectAccessReview", &review).await?.status;
        let status = status.unwrap_or_default();
        Ok(status.allowed && !status.denied.unwrap_or(false))
    }

    /// The answer to a review. What was asked is never logged: it may hold a token, and an answer repeats it.
    /// Therefore by way of text: the client writes a body that it cannot decode to the log.
    async fn create<K>(&self, what: &str, review: &K) -> Result<K, Silent>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let body = json(what, review)?;
        let request = Requests::new(K::url_path(&(), None)).create(&PostParams::default(), body);
        let request = request.map_err(|error| {
            tracing::error!(error = causes(&error), "cannot ask for a {what}");
            Silent
        })?;
        let answer = tokio::time::timeout(ANSWER, async {
            // Never closed.
            let _turn = self.shared.at_once.acquire().await;
            self.shared.client.request_text(request).await
        });
        match answer.await {
            // What is wrong with it is not said: a decoder quotes what it did not expect.
            Ok(Ok(answer)) => serde_json::from_str(&answer).map_err(|_| {
                tracing::warn!("the API server's answer to a {what} cannot be read");
                Silent
            }),
            Ok(Err(error)) => {
                tracing::warn!(error = causes(&error), "the API server refused a {what}");
                Err(Silent)
            }
            Err(_) => {
                tracing::warn!(after = ?ANSWER, "the API server did not answer a {what}");
                Err(Silent)
            }
        }
    }
}

/// What is wrong is not said: it may quote what was asked.
fn json(what: &str, asked: &impl serde::Serialize) -> Result<Vec<u8>, Silent> {
    serde_json::to_vec(asked).map_err(|_| {
        tracing::error!("cannot write a {what} as JSON");
        Silent
    })
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth")
            .field("memory", &self.shared.memory)
            .finish_non_exhaustive()
    }
}

/// What of a request decides.
#[derive(Debug)]
pub struct Attributes<'a> {
    /// The request's method.
    pub method: &'a http::Method,
    /// Its path as it is routed.
    pub path: &'a str,
    /// The request's headers.
    pub headers: &'a HeaderMap,
}

/// Stands before all routes, also those that do not exist: who may not ask learns nothing.
pub(super) async fn guard(State(auth): State<Auth>, mut request: Request, next: Next) -> Response {
    let Some(Node { name, .. }) = request.extensions().get::<Node>().cloned() else {
        tracing::error!("a request has no node in its extensions");
        return refuse(
            StatusCode::INTERNAL_SERVER_ERROR,
            "Internal Server Error".to_owned(),
        );
    };
    let attributes = Attributes {
        method: request.method(),
        path: request.uri().path(),
        headers: request.headers(),
    };
    let peer = request.extensions().get::<PeerIdentity>();
    match auth.check(&name, peer, &attributes).await {
        Ok(_) => {
            // No handler needs it any more, and none can betray it.
            request.headers_mut().remove(header::AUTHORIZATION);
            subprotocol::remove_tokens(request.headers_mut());
            next.run(request).await
        }
        Err(refused) => {
            let path = request.uri().path();
            tracing::debug!(node = %name, path, refused = %refused.to_string().trim_end(), "a request was refused");
            refuse(refused.status(), refused.to_string())
        }
    }
}

fn refuse(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}
