//! HTTPS listeners.

use crate::pki::{Identity, PkiError, first_certificate, unreadable};
use arc_swap::ArcSwap;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

/// For how long open requests may go on after `shutdown`; what is open then, such as a watch, is cut.
const DRAIN: Duration = Duration::from_secs(5);
/// For how long a peer may take for its TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For how long a connection may wait for a request head. Longer than the 90 s for which Go's and kube's clients keep
/// idle connections, so that it is they who close, and no request runs into a closing server.
const IDLE: Duration = Duration::from_secs(120);

/// Serving certificate that can be replaced while connections are open.
#[derive(Clone)]
pub struct ServerTls {
    current: Arc<ArcSwap<rustls::ServerConfig>>,
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
    /// With `client_ca_pem`, client certificates are verified against it where they are offered (never required). It
    /// may hold several authorities.
    pub fn new(identity: &Identity, client_ca_pem: Option<&str>) -> Result<Self, PkiError> {
        let client_verifier = client_ca_pem.map(client_verifier).transpose()?;
        let config = server_config(identity, client_verifier.as_ref())?;
        Ok(Self {
            current: Arc::new(ArcSwap::from_pointee(config)),
            client_verifier,
        })
    }

    /// Replaces certificate and key for connections accepted from now on. On an error the old ones stay.
    pub fn replace(&self, identity: &Identity) -> Result<(), PkiError> {
        self.current
            .store(Arc::new(server_config(identity, self.client_verifier.as_ref())?));
        Ok(())
    }
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls")
            .field("verifies_clients", &self.client_verifier.is_some())
            .finish_non_exhaustive()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn client_verifier(ca_pem: &str) -> Result<Arc<dyn ClientCertVerifier>, PkiError> {
    let refuse = |reason: &dyn std::fmt::Display| unreadable("the client CA", &reason.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots
            .add(certificate.map_err(|error| refuse(&error))?)
            .map_err(|error| refuse(&error))?;
    }
    if roots.is_empty() {
        return Err(refuse(&"no CERTIFICATE in the PEM text"));
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|error| refuse(&error))
}

fn server_config(
    identity: &Identity,
    client_verifier: Option<&Arc<dyn ClientCertVerifier>>,
) -> Result<rustls::ServerConfig, PkiError> {
    // Says so in our words when there is none at all.
    first_certificate(&identity.certificate_pem)?;
    let chain = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unreadable("the serving certificate", &error.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())
        .map_err(|error| unreadable("the serving key", &error.to_string()))?;
    let builder = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| unreadable("the TLS settings", &error.to_string()))?;
    let builder = match client_verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier.clone()),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| unreadable("the serving certificate with its key", &error.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Serves `app` with HTTP/1.1 and HTTP/2 over TLS until `shutdown`, then drains for at most 5 s. A
/// [`PeerIdentity`] is in the extensions of each request. A handshake that takes over 10 s is dropped.
pub async fn serve_https(
    listener: TcpListener,
    tls: ServerTls,
    app: axum::Router,
    shutdown: CancellationToken,
) -> io::Result<()> {
    serve(listener, Some(tls), app, shutdown).await
}

/// The same without TLS.
pub async fn serve_http(
    listener: TcpListener,
    app: axum::Router,
    shutdown: CancellationToken,
) -> io::Result<()> {
    serve(listener, None, app, shutdown).await
}

async fn serve(
    listener: TcpListener,
    tls: Option<ServerTls>,
    app: axum::Router,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(ended) = connections.join_next() => {
                report(ended);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                let connection = connection(
                    stream,
                    address,
                    tls.as_ref().map(|tls| tls.current.load_full()),
                    app.clone(),
                    graceful.watcher(),
                    shutdown.clone(),
                );
                connections.spawn(connection);
            }
            Err(error) if is_of_the_peer(&error) => {
                tracing::debug!(%error, "a connection ended before it was accepted");
            }
            Err(error) => {
                // Out of file descriptors or memory: those who hold them must get a chance to let go.
                tracing::warn!(%error, "cannot accept connections for the moment");
                tokio::select! {
                    () = shutdown.cancelled() => break,
                    () = tokio::time::sleep(Duration::from_millis(200)) => {}
                }
            }
        }
    }
    drop(listener);
    let drained = tokio::time::timeout(DRAIN, async {
        // Tells every connection to finish what it has, then waits until all have ended.
        graceful.shutdown().await;
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    });
    if drained.await.is_err() {
        tracing::info!(
            open = connections.len(),
            "cutting the connections that did not end by themselves"
        );
        connections.shutdown().await;
    }
    Ok(())
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

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Arc<rustls::ServerConfig>>,
    app: axum::Router,
    watcher: Watcher,
    shutdown: CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%address, %error, "cannot switch off Nagle's algorithm");
    }
    let Some(config) = tls else {
        let peer = PeerIdentity {
            certificate: None,
            address: Some(address),
        };
        return http(stream, peer, app, watcher).await;
    };
    let handshake = tokio::time::timeout(HANDSHAKE, tokio_rustls::TlsAcceptor::from(config).accept(stream));
    let stream = tokio::select! {
        // Nobody waits for an answer on it yet.
        () = shutdown.cancelled() => return,
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
    http(stream, peer, app, watcher).await;
}

async fn http<S>(stream: S, peer: PeerIdentity, app: axum::Router, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let address = peer.address;
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        // A router is always ready, so `call` needs no `ready` before it.
        app.clone().call(request)
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let served = watcher
        .watch(builder.serve_connection_with_upgrades(TokioIo::new(stream), service))
        .await;
    if let Err(error) = served {
        tracing::debug!(?address, %error, "connection ended with an error");
    }
}
