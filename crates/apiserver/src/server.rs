//! The server as its users hold it.

mod bootstrap;

use crate::access::Access;
use crate::access::tokens::KeyError;
use crate::allocator::Allocator;
use crate::http::Caller;
use crate::kinds::{Registry, Resource};
use crate::kubelet;
use crate::kubelet::Kubelets;
use crate::lifetime::Lifetime;
use crate::options::Options;
use crate::request::UserInfo;
use crate::signing::controller::State;
use crate::state::Shared;
use crate::store::Store;
use crate::traffic::Traffic;
use axum::body::Body;
use axum::response::IntoResponse;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use evenkeel_kube_rules::gvk::Gvk;
use evenkeel_net::admin::Admin;
use evenkeel_net::pki::{Ca, Identity, PkiError, ServerNames, Validity};
use evenkeel_net::serve::{PeerIdentity, ServerTls, serve_https};
use futures::stream;
use http::Response;
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

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").finish_non_exhaustive()
    }
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
        Self::with_traffic(options, ca, None)
    }

    /// A server whose requests are recorded and may be intercepted.
    pub(crate) fn under_test(options: Options, traffic: Traffic) -> Result<Self, ServerError> {
        let ca = Ca::new("evenkeel-apiserver", valid_for(10 * YEAR))?;
        Self::with_traffic(options, ca, Some(traffic))
    }

    fn with_traffic(options: Options, ca: Ca, traffic: Option<Traffic>) -> Result<Self, ServerError> {
        let identity = ca.issue_client(kubelet::USER, kubelet::GROUPS, valid_for(10 * YEAR))?;
        let kubelets = Kubelets::new(&options.kubelet, &identity, ca.certificate_pem())?;
        let registry = Arc::new(Registry::new());
        let inner = Shared {
            kubelets: Arc::new(kubelets),
            usage: Arc::default(),
            signing: State::default(),
            lifetime: Lifetime::default(),
            store: Store::new(options.watch_history),
            access: Access::new(&options, Arc::clone(&registry))?,
            registry,
            services: Allocator::default(),
            ca,
            admin: Admin::new("apiserver"),
            options,
            traffic,
        };
        bootstrap::fill(&inner);
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// A client inside the process, as a cluster administrator (`system:masters`). No sockets are involved.
    /// Call it inside a tokio runtime.
    pub fn client(&self) -> kube::Client {
        self.client_as(ADMIN.0, ADMIN.1)
    }

    /// The same, as another user: its requests pass authorization and admission as that user's. Like any
    /// client, it gets errors while the server is down after a [`crash`](Self::crash).
    pub fn client_as(&self, user: &str, groups: &[&str]) -> kube::Client {
        let inner = self.inner.clone();
        client(
            move || Some(inner.clone()),
            Caller::Process(in_process(user, groups)),
        )
    }

    /// The same for a server of which the client is no owner: it fails once the server is dropped.
    pub(crate) fn borrowed_client_as(&self, user: &str, groups: &[&str]) -> kube::Client {
        let inner = Arc::downgrade(&self.inner);
        client(move || inner.upgrade(), Caller::Process(in_process(user, groups)))
    }

    /// A client inside the process that no [`crash`](Self::crash) touches, as a cluster administrator: its
    /// requests are answered while the server is down, and its watches go on. It is for tests that record
    /// what becomes of the objects meanwhile. Call it inside a tokio runtime.
    pub fn observer(&self) -> kube::Client {
        let inner = self.inner.clone();
        client(move || Some(inner.clone()), Caller::Observer(administrator()))
    }

    /// The same for a server of which the client is no owner.
    pub(crate) fn borrowed_observer(&self) -> kube::Client {
        let inner = Arc::downgrade(&self.inner);
        client(move || inner.upgrade(), Caller::Observer(administrator()))
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

    /// Goes down as a network that is cut, or comes back from that: as [`crash`](Self::crash) and
    /// [`come_back`](Self::come_back), but the history is kept.
    pub(crate) fn set_reachable(&self, reachable: bool) {
        if reachable {
            self.inner.lifetime.begin(|| ());
        } else {
            self.inner.lifetime.end();
        }
    }

    /// The resource of a kind, if it is served.
    pub(crate) fn resource(&self, gvk: &Gvk) -> Option<Arc<Resource>> {
        self.inner.registry.snapshot().by_gvk(gvk).cloned()
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
                match answered {
                    Some(Ok(answer)) => answer,
                    // A body that fails at once makes hyper close the connection, or reset the stream, before
                    // it has sent anything of the answer.
                    Some(Err(disconnected)) => Response::new(Body::from_stream(stream::once(async move {
                        Err::<Bytes, _>(io::Error::from(disconnected))
                    }))),
                    None => IntoResponse::into_response(http::StatusCode::SERVICE_UNAVAILABLE),
                }
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

/// A client inside the process of the server that `reach` finds, if it is still there.
fn client(reach: impl Fn() -> Option<Arc<Shared>> + Clone + Send + 'static, caller: Caller) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (reached, caller) = (reach(), caller.clone());
        async move {
            let server = reached.ok_or_else(down)?;
            let request = request.map(Body::new);
            if let Caller::Observer(_) = caller {
                return Ok(crate::http::handle(server, caller, request, None).await?);
            }
            let life = server.lifetime.present().ok_or_else(down)?;
            let answer = crate::http::handle(server, caller, request, Some(life.clone()));
            let answer = life.run_until_cancelled(answer).await.ok_or_else(down)?;
            Ok::<_, io::Error>(answer?)
        }
    });
    kube::Client::new(service, "default")
}

/// The user of clients and kubeconfigs where nobody else is named, and its groups.
pub(crate) const ADMIN: (&str, &[&str]) = ("kubernetes-admin", &["system:masters"]);

fn administrator() -> UserInfo {
    in_process(ADMIN.0, ADMIN.1)
}

fn in_process(user: &str, groups: &[&str]) -> UserInfo {
    let mut groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
    if !groups.iter().any(|group| group == "system:authenticated") {
        groups.push("system:authenticated".to_owned());
    }
    UserInfo {
        name: user.to_owned(),
        groups,
        ..UserInfo::default()
    }
}
