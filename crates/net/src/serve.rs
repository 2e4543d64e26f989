//! HTTPS listeners.

use self::http::Version;
use crate::pki::{Identity, PkiError, authorities, first_certificate, unreadable};
use arc_swap::ArcSwap;
use limit::{ConnectionLimit, Permit};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

mod http;
mod limit;
pub mod subprotocol;

/// For how long open requests may go on after `shutdown`; what is open then, such as a watch, is cut.
const DRAIN: Duration = Duration::from_secs(5);
/// For how long a peer may take for its TLS handshake, and to say which version of HTTP it speaks where TLS
/// has not.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For how long a connection may wait for a request head, or be without a request (HTTP/2). Longer than the
/// 90 s for which Go's and kube's clients keep idle connections, so that it is they who close, and no request
/// runs into a closing server.
const IDLE: Duration = Duration::from_secs(120);

/// Serving certificate that can be replaced while connections are open, like the authority of client
/// certificates.
#[derive(Clone)]
pub struct ServerTls {
    current: Arc<ArcSwap<rustls::ServerConfig>>,
    parts: Arc<Mutex<Parts>>,
}

/// What a configuration is made of.
#[derive(Clone)]
struct Parts {
    /// `None`: every handshake fails.
    identity: Option<Identity>,
    client_verifier: Option<Arc<dyn ClientCertVerifier>>,
}

/// What the TLS layer knows of a peer; put into the request's extensions.
#[derive(Clone, Debug, Default)]
pub struct PeerIdentity {
    /// DER of the verified client certificate, leaf only; `None` without one.
    pub certificate: Option<Arc<Vec<u8>>>,
    /// Address of the peer.
    pub address: Option<SocketAddr>,
}

impl ServerTls {
    /// With `client_ca_pem`, client certificates are verified against it where they are offered (never
    /// required). It may hold several authorities.
    pub fn new(identity: &Identity, client_ca_pem: Option<&str>) -> Result<Self, PkiError> {
        Self::made_of(Parts {
            identity: Some(identity.clone()),
            client_verifier: client_ca_pem.map(client_verifier).transpose()?,
        })
    }

    /// Without a certificate, and so far without an authority of client certificates: every handshake fails
    /// until [`replace`](Self::replace) brings one.
    pub fn without_certificate() -> Result<Self, PkiError> {
        Self::made_of(Parts {
            identity: None,
            client_verifier: None,
        })
    }

    fn made_of(parts: Parts) -> Result<Self, PkiError> {
        let config = parts.config()?;
        Ok(Self {
            current: Arc::new(ArcSwap::from_pointee(config)),
            parts: Arc::new(Mutex::new(parts)),
        })
    }

    /// Replaces certificate and key for connections accepted from now on. On an error the old ones stay.
    pub fn replace(&self, identity: &Identity) -> Result<(), PkiError> {
        self.change(|parts| parts.identity = Some(identity.clone()))
    }

    /// Replaces the authorities of client certificates for connections accepted from now on; with `None`,
    /// clients are not asked for certificates. On an error the old ones stay.
    pub fn trust(&self, client_ca_pem: Option<&str>) -> Result<(), PkiError> {
        let verifier = client_ca_pem.map(client_verifier).transpose()?;
        self.change(|parts| parts.client_verifier = verifier)
    }

    fn change(&self, change: impl FnOnce(&mut Parts)) -> Result<(), PkiError> {
        // Held until the new configuration is in place, so that two changes cannot undo each other.
        let mut parts = self.parts();
        let mut changed = parts.clone();
        change(&mut changed);
        self.current.store(Arc::new(changed.config()?));
        *parts = changed;
        Ok(())
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        // Nothing is half done when a holder panics: the parts are replaced as a whole.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = self.parts();
        f.debug_struct("ServerTls")
            .field("has_certificate", &parts.identity.is_some())
            .field("verifies_clients", &parts.client_verifier.is_some())
            .finish_non_exhaustive()
    }
}

impl Parts {
    fn config(&self) -> Result<rustls::ServerConfig, PkiError> {
        let builder = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| unreadable("the TLS settings", &error.to_string()))?;
        let builder = match &self.client_verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier.clone()),
            None => builder.with_no_client_auth(),
        };
        let mut config = match &self.identity {
            Some(identity) => {
                let (chain, key) = material(identity)?;
                builder
                    .with_single_cert(chain, key)
                    .map_err(|error| unreadable("the serving certificate with its key", &error.to_string()))?
            }
            None => builder.with_cert_resolver(Arc::new(NoCertificate)),
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// Refuses every handshake.
#[derive(Debug)]
struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn client_verifier(ca_pem: &str) -> Result<Arc<dyn ClientCertVerifier>, PkiError> {
    let refuse = |reason: &dyn std::fmt::Display| unreadable("the client CA", &reason.to_string());
    let roots = authorities("the client CA", ca_pem)?;
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|error| refuse(&error))
}

fn material(identity: &Identity) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), PkiError> {
    // Says so in our words when there is none at all.
    first_certificate(&identity.certificate_pem)?;
    let chain = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unreadable("the serving certificate", &error.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())
        .map_err(|error| unreadable("the serving key", &error.to_string()))?;
    Ok((chain, key))
}

/// Serves `app` with HTTP/1.1 and HTTP/2 over TLS until `shutdown`, then drains for at most 5 s. A
/// [`PeerIdentity`] is in the extensions of each request. A handshake that takes over 10 s is dropped.
pub async fn serve_https(
    listener: TcpListener,
    tls: ServerTls,
    app: axum::Router,
    shutdown: CancellationToken,
) -> io::Result<()> {
    Acceptor::new(tls, app).serve(listener, (), shutdown).await;
    Ok(())
}

/// The same without TLS.
pub async fn serve_http(
    listener: TcpListener,
    app: axum::Router,
    shutdown: CancellationToken,
) -> io::Result<()> {
    Acceptor::plain(app).serve(listener, (), shutdown).await;
    Ok(())
}

/// Accepts connections for one application with one certificate. Many listeners can share it, and each of
/// them costs little more than its socket.
#[derive(Clone, Debug)]
pub struct Acceptor {
    tls: Option<ServerTls>,
    app: axum::Router,
    limit: Option<Arc<ConnectionLimit>>,
}

impl Acceptor {
    /// An acceptor without a limit of connections.
    pub fn new(tls: ServerTls, app: axum::Router) -> Self {
        Self {
            tls: Some(tls),
            app,
            limit: None,
        }
    }

    /// The same without TLS.
    pub fn plain(app: axum::Router) -> Self {
        Self {
            tls: None,
            app,
            limit: None,
        }
    }

    /// Accepts at most `connections` at a time over all of its listeners, upgraded ones included, and
    /// `of_one` of them from one IPv4 address or one /64 of IPv6. Further ones are closed at once.
    #[must_use]
    pub fn at_most(self, connections: usize, of_one: usize) -> Self {
        Self {
            limit: Some(Arc::new(ConnectionLimit::new(connections, of_one))),
            ..self
        }
    }

    /// Serves a listener as [`serve_https`] does, until `closing`, then drains for at most 5 s. `tag` is in
    /// the extensions of each of its requests.
    pub async fn serve<T>(&self, listener: TcpListener, tag: T, closing: CancellationToken)
    where
        T: Clone + Send + Sync + 'static,
    {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = closing.cancelled() => break,
                Some(ended) = connections.join_next() => {
                    report(ended);
                    continue;
                }
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => {
                    let permit = match &self.limit {
                        None => None,
                        Some(limit) => match limit.permit(address) {
                            None => continue,
                            permit => permit,
                        },
                    };
                    let tls = self.tls.as_ref().map(|tls| tls.current.load_full());
                    let (app, tag, closing) = (self.app.clone(), tag.clone(), closing.clone());
                    connections.spawn(connection(stream, address, permit, tls, app, tag, closing));
                }
                Err(error) if is_of_the_peer(&error) => {
                    tracing::debug!(%error, "a connection ended before it was accepted");
                }
                Err(error) => {
                    // Out of file descriptors or memory: those who hold them must get a chance to let go.
                    tracing::warn!(%error, "cannot accept connections for the moment");
                    tokio::select! {
                        () = closing.cancelled() => break,
                        () = tokio::time::sleep(Duration::from_millis(200)) => {}
                    }
                }
            }
        }
        drop(listener);
        // Each of them has seen `closing`, too, and ends itself in time.
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection's task failed");
    }
}

/// Errors of `accept` that concern one connection, not the listener (accept(2)).
fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

async fn connection<T>(
    stream: TcpStream,
    address: SocketAddr,
    permit: Option<Permit>,
    tls: Option<Arc<rustls::ServerConfig>>,
    app: axum::Router,
    tag: T,
    closing: CancellationToken,
) where
    T: Clone + Send + Sync + 'static,
{
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%address, %error, "cannot switch off Nagle's algorithm");
    }
    if let Err(error) = crate::tcp::keep_alive(&stream) {
        tracing::debug!(%address, %error, "cannot have the kernel ask whether the peer is there");
    }
    let Some(config) = tls else {
        let peer = PeerIdentity {
            certificate: None,
            address: Some(address),
        };
        return http::serve(stream, None, permit, peer, app, tag, closing).await;
    };
    let handshake = tokio::time::timeout(HANDSHAKE, tokio_rustls::TlsAcceptor::from(config).accept(stream));
    let stream = tokio::select! {
        // Nobody waits for an answer on it yet.
        () = closing.cancelled() => return,
        done = handshake => match done {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%address, %error, "TLS handshake failed");
                return;
            }
            Err(_) => {
                tracing::debug!(%address, after = ?HANDSHAKE, "TLS handshake took too long");
                return;
            }
        },
    };
    let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let peer = PeerIdentity {
        certificate: leaf.map(|leaf| Arc::new(leaf.to_vec())),
        address: Some(address),
    };
    let version = Version::of_alpn(stream.get_ref().1.alpn_protocol());
    http::serve(stream, version, permit, peer, app, tag, closing).await;
}
