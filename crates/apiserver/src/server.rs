//! The server as its users hold it.

mod bootstrap;

use crate::access::Access;
use crate::access::tokens::KeyError;
use crate::allocator::Allocator;
use crate::http::Caller;
use crate::kinds::Registry;
use crate::kubelet;
use crate::kubelet::Kubelets;
use crate::lifetime::Lifetime;
use crate::options::Options;
use crate::request::UserInfo;
use crate::signing::controller::State;
use crate::state::Shared;
use crate::store::Store;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evenkeel_net::admin::Admin;
use evenkeel_net::pki::{Ca, Identity, PkiError, ServerNames, Validity};
use evenkeel_net::serve::{PeerIdentity, ServerTls, serve_https};
use jiff::Timestamp;
use serde_json::json;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A running API server. Cheap to clone; ends with its last clone.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Shared>,
}

/// Why a server could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Its certificate authority.
    #[error("cannot make the certificate authority of the API server")]
    Authority(#[from] PkiError),
    /// Its key for ServiceAccount tokens.
    #[error("cannot make the token key of the API server")]
    Tokens(#[from] KeyError),
}

/// Certificates are valid for ten years, authorities and servers, or one, clients; from an hour ago, for
/// clocks that are not quite right.
const LEEWAY: i64 = 3_600;
const YEAR: i64 = 365 * 24 * 3_600;

fn valid_for(seconds: i64) -> Validity {
    let now = Timestamp::now().as_second();
    Validity {
        from: now - LEEWAY,
        until: now + seconds,
    }
}

impl ApiServer {
    /// Ready in milliseconds: no socket is opened. Makes its own certificate authority and the objects that a
    /// fresh cluster has (namespaces, default RBAC, priority classes, the `kubernetes` Service).
    pub fn new(options: Options) -> Result<Self, ServerError> {
        let ca = Ca::new("evenkeel-apiserver", valid_for(10 * YEAR))?;
        Self::with_ca(options, ca)
    }

    /// The same with an authority that exists already.
    pub fn with_ca(options: Options, ca: Ca) -> Result<Self, ServerError> {
        let identity = ca.issue_client(kubelet::USER, kubelet::GROUPS, valid_for(10 * YEAR))?;
        let kubelets = Kubelets::new(&options.kubelet, &identity, ca.certificate_pem())?;
        let inner = Shared {
            kubelets: Arc::new(kubelets),
            usage: Arc::default(),
            signing: State::default(),
            lifetime: Lifetime::default(),
            registry: Registry::new(),
            store: Store::new(options.watch_history),
            access: Access::new(&options)?,
            services: Allocator::default(),
            ca,
            admin: Admin::new("apiserver"),
            options,
        };
        bootstrap::fill(&inner);
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// A client inside the process, as a cluster administrator (`system:masters`). No sockets are involved.
    /// Call it inside a tokio runtime.
    pub fn client(&self) -> kube::Client {
        self.client_as("kubernetes-admin", &["system:masters"])
    }

    /// The same, as another user: its requests pass authorization and admission as that user's. Like any
    /// client, it gets errors while the server is down after a [`crash`](Self::crash).
    pub fn client_as(&self, user: &str, groups: &[&str]) -> kube::Client {
        let inner = self.inner.clone();
        let caller = in_process(user, groups);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (inner, caller) = (inner.clone(), caller.clone());
            async move {
                let life = inner.lifetime.present().ok_or_else(down)?;
                let request = request.map(axum::body::Body::new);
                let answer = crate::http::handle(inner, caller, request, Some(life.clone()));
                life.run_until_cancelled(answer).await.ok_or_else(down)
            }
        });
        kube::Client::new(service, "default")
    }

    /// A client inside the process that no [`crash`](Self::crash) touches, as a cluster administrator: its
    /// requests are answered while the server is down, and its watches go on. It is for tests that record
    /// what becomes of the objects meanwhile. Call it inside a tokio runtime.
    pub fn observer(&self) -> kube::Client {
        let inner = self.inner.clone();
        let caller = in_process("kubernetes-admin", &["system:masters"]);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (inner, caller) = (inner.clone(), caller.clone());
            async move {
                let request = request.map(axum::body::Body::new);
                Ok::<_, io::Error>(crate::http::handle(inner, caller, request, None).await)
            }
        });
        kube::Client::new(service, "default")
    }

    /// Goes down as a process that is killed: every listener of [`serve`](Self::serve) is closed, so that
    /// connections are refused, every connection is cut, and every request and watch of the clients inside
    /// the process fails or ends. The objects stay, as they would in etcd. Returns `false` if the server is
    /// down already.
    pub fn crash(&self) -> bool {
        self.inner.lifetime.end()
    }

    /// Comes back after a [`crash`](Self::crash), with the objects and without the history of watches, as
    /// [`forget_history`](Self::forget_history) says. The listeners are bound again at the addresses that
    /// they had. Returns `false` if the server is up already.
    pub fn come_back(&self) -> bool {
        self.inner.lifetime.begin(|| self.forget_history())
    }

    /// Whether the server answers, which it does except between [`crash`](Self::crash) and
    /// [`come_back`](Self::come_back).
    pub fn is_up(&self) -> bool {
        self.inner.lifetime.present().is_some()
    }

    /// Forgets all history. A watch, or a continued list, from an older resourceVersion gets 410 Gone
    /// (`Expired`) from now on. Watches that are open have seen everything up to now, and go on.
    pub fn forget_history(&self) {
        self.inner.store.compact();
    }

    /// The authority behind the serving certificate and behind client certificates.
    pub fn ca(&self) -> &Ca {
        &self.inner.ca
    }

    /// A client certificate that this server accepts, valid for a year.
    pub fn client_certificate(&self, user: &str, groups: &[&str]) -> Result<Identity, PkiError> {
        self.inner.ca.issue_client(user, groups, valid_for(YEAR))
    }

    /// A kubeconfig (YAML) for a user, by client certificate, pointing at `server` (`https://HOST:PORT`).
    pub fn kubeconfig(&self, server: &str, user: &str, groups: &[&str]) -> Result<String, PkiError> {
        let identity = self.client_certificate(user, groups)?;
        let base64 = |text: &str| STANDARD.encode(text);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "evenkeel", "preferences": {},
            "clusters": [{"name": "evenkeel", "cluster": {
                "server": server, "certificate-authority-data": base64(self.inner.ca.certificate_pem()),
            }}],
            "users": [{"name": user, "user": {
                "client-certificate-data": base64(&identity.certificate_pem),
                "client-key-data": base64(&identity.key_pem),
            }}],
            "contexts": [{"name": "evenkeel", "context": {"cluster": "evenkeel", "user": user}}],
        });
        serde_saphyr::to_string(&config).map_err(|error| PkiError::Read {
            what: "a kubeconfig".to_owned(),
            reason: error.to_string(),
        })
    }

    /// Serves TLS on `listener` until `shutdown`. `names` go into the serving certificate beside `localhost`,
    /// `127.0.0.1`, `::1`, `kubernetes.default.svc` and the listener's own address. May be called for several
    /// listeners.
    pub async fn serve(
        &self,
        listener: TcpListener,
        names: &ServerNames,
        shutdown: CancellationToken,
    ) -> Result<(), std::io::Error> {
        let mut names = names.clone();
        names.dns.extend(
            [
                "localhost",
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
            ]
            .map(str::to_owned),
        );
        names.ips.extend([
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
            IpAddr::V4(bootstrap::KUBERNETES_ADDRESS),
            listener.local_addr()?.ip(),
        ]);
        self.inner.signing.serves(&names);
        let ca = &self.inner.ca;
        let identity = ca
            .issue_server("kube-apiserver", &names, valid_for(10 * YEAR))
            .map_err(io::Error::other)?;
        let tls = ServerTls::new(&identity, Some(ca.certificate_pem())).map_err(io::Error::other)?;
        let address = listener.local_addr()?;
        let mut listener = Some(listener);
        loop {
            let life = tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                life = self.inner.lifetime.up() => life,
            };
            let bound = match listener.take() {
                Some(listener) => listener,
                None => match bind_again(address, &shutdown).await {
                    Some(listener) => listener,
                    None => return Ok(()),
                },
            };
            let closing = life.child_token();
            let served = serve_https(bound, tls.clone(), self.router(closing.clone()), closing.clone());
            tokio::pin!(served);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {
                    closing.cancel();
                    return served.await;
                }
                // What is dropped here are the listener and its connections: nobody says goodbye.
                () = life.cancelled() => {}
                ended = &mut served => return ended,
            }
        }
    }

    fn router(&self, shutdown: CancellationToken) -> axum::Router {
        let inner = self.inner.clone();
        axum::Router::new().fallback(move |mut request: axum::extract::Request| {
            let (inner, shutdown) = (inner.clone(), shutdown.clone());
            async move {
                let peer = request
                    .extensions_mut()
                    .remove::<PeerIdentity>()
                    .unwrap_or_default();
                let caller = Caller::Connection(peer.certificate);
                let life = inner.lifetime.present();
                let answer = crate::http::handle(inner, caller, request, Some(shutdown));
                // A request that a crash interrupts writes nothing more. Nobody is left to read this answer.
                let answered = match life {
                    Some(life) => life.run_until_cancelled(answer).await,
                    None => None,
                };
                answered.unwrap_or_else(|| {
                    axum::response::IntoResponse::into_response(http::StatusCode::SERVICE_UNAVAILABLE)
                })
            }
        })
    }
}

/// Between two attempts to bind an address that another process has taken while the server was down.
const BIND_AGAIN: Duration = Duration::from_millis(100);

/// Binds the address that a crash has given up; `None` if `shutdown` comes first.
async fn bind_again(address: SocketAddr, shutdown: &CancellationToken) -> Option<TcpListener> {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return Some(listener),
            Err(error) => tracing::warn!(%address, %error, "cannot listen again yet"),
        }
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(BIND_AGAIN) => {}
        }
    }
}

/// What a client inside the process sees while the server is down.
fn down() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, "the API server is down")
}

fn in_process(user: &str, groups: &[&str]) -> Caller {
    let mut groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
    if !groups.iter().any(|group| group == "system:authenticated") {
        groups.push("system:authenticated".to_owned());
    }
    Caller::Process(UserInfo {
        name: user.to_owned(),
        groups,
        ..UserInfo::default()
    })
}
