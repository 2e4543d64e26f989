//! The API client of every component: found, built and kept alive in one way.
//!
//! # A server that is silent
//! A host that drops packets, or a load balancer that forgot its connections, answers nothing and closes
//! nothing, and TCP by itself gives up after a quarter of an hour. Every component works again within 30 s of
//! it:
//!
//! * **HTTP/2 with pings** where the server offers it (every Kubernetes API server does): after 5 s without a
//!   frame comes a ping, and 5 s later ([`Access::pong_within`]) the connection is dead, and with it every
//!   request and watch on it. [`Activity`] tells when something was received.
//!   Pings are answered by the API server itself, or by what ends TLS before it, so they also find a server
//!   that hangs behind a host that is well. With HTTP/1.1 each watch has its own connection, which nobody
//!   asks anything for minutes, and each idle connection in the pool is a trap of its own. What speaks
//!   against HTTP/2 is met: a request that was given up in silence takes its connection out of the pool at
//!   once; the window of a connection holds 32 times that of a stream, so that watches nobody reads do not
//!   starve a write; a further connection is opened before the server takes no more requests on the first
//!   (`connections`); and who must not wait behind anything (an elector) takes a second client from the same
//!   [`Access`], which has a connection of its own.
//! * **TCP keepalive and TCP_USER_TIMEOUT** end connections of either kind after 25 and 20 s.
//! * **Time-outs**: 15 s for a response head and between two parts of a body, see [`SilentServer`]; callers
//!   that cannot wait so long have their own.
//! * **Further addresses** (`--api-endpoint`) of the same server: connections go to the one that answers, and
//!   stay there.
//!
//! Upgrades of connections (exec, attach, port-forward) need HTTP/1.1. Who makes them takes a client of their
//! own for them, [`Access::upgrading`]: on HTTP/2 the server refuses them.

use certificate::ClientCertificate;
use connections::Connections;
use dial::{CONNECT, Dialer, Endpoints, Prompt};
use exchange::Exchange;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, ResolveServerName};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use retry::ReadsAgain;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use silence::Silence;
use std::sync::Arc;
use std::time::Duration;
use tower::layer::util::Identity;
use tower::retry::RetryLayer;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, Service, ServiceBuilder};
use tower_http::timeout::TimeoutBody;

#[cfg(feature = "process")]
mod args;
mod certificate;
mod connections;
mod dial;
mod endpoints;
mod exchange;
#[cfg(feature = "process")]
mod proxy;
mod retry;
#[cfg(feature = "process")]
mod server;
mod silence;
mod stream;

#[cfg(feature = "process")]
pub use args::ClientArgs;
pub use connections::OpenBody;
pub use endpoints::{Endpoint, NoEndpoint};
#[cfg(feature = "process")]
pub use server::ServerArgs;
pub use silence::SilentServer;
pub use stream::Activity;

/// A connection on which nothing came in for this long is asked whether it lives.
const PING: Duration = Duration::from_secs(5);
/// And without an answer for this long it does not, see [`Access::pong_within`].
const PONG: Duration = Duration::from_secs(5);
/// A connection to which no request was given for this long is not used again. That is longer than any watch,
/// and a watch on it, which keeps it in use and proves that it lives, counts as the request that began it.
const IDLE: Duration = Duration::from_secs(900);
/// What a server may send ahead on one request, in bytes: 5 MB/s at a round trip of 100 ms.
const STREAM_WINDOW: u32 = 512 * 1024;
/// The same on a connection: so many requests whose answers nobody reads leave room for one that matters.
const CONNECTION_WINDOW: u32 = 32 * STREAM_WINDOW;

/// Names of protocols in TLS (ALPN).
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// What carries requests to the API server and answers back: authenticated, bounded in time, reads repeated.
/// What [`Access::client_with`] puts its layer on.
pub type Transport = BoxCloneSyncService<Request<Body>, Response<TimeoutBody<OpenBody<Incoming>>>, BoxError>;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be read or does not hold together. Not worth a retry.
    #[error("cannot use kubeconfig {path}: {reason}")]
    Kubeconfig {
        /// File as it was named.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// No configuration was found anywhere. Not worth a retry.
    #[error("no API server configured: give --kubeconfig FILE or --server URL ({0})")]
    NotFound(String),
    /// Flags contradict each other, or name files that cannot be used. Not worth a retry.
    #[error("{0}")]
    Flags(String),
    /// The client could not be built from a readable configuration.
    #[error("cannot build an API client")]
    Build(#[source] kube::Error),
}

/// An API server, and how it is reached. Every client made of it has its own connections, and all of them
/// know what one of them found out about the server's addresses.
#[derive(Clone, Debug)]
pub struct Access {
    config: Config,
    endpoints: Arc<Endpoints>,
    pong: Duration,
    repeats_reads: bool,
}

impl Access {
    /// The server of a configuration, with further addresses of it. Fails for configurations with a proxy.
    pub fn new(config: Config, further: &[Endpoint]) -> Result<Self, ClientError> {
        if let Some(proxy_url) = &config.proxy_url {
            return Err(ClientError::Build(kube::Error::ProxyProtocolUnsupported {
                proxy_url: Box::new(proxy_url.clone()),
            }));
        }
        let url = &config.cluster_url;
        let first = Endpoint::of(url)
            .ok_or_else(|| ClientError::NotFound(format!("the cluster's URL {url} names no host")))?;
        let endpoints = Endpoints::new(first, further)
            .map_err(|error| ClientError::Build(kube::Error::HttpError(error)))?;
        Ok(Self {
            config,
            endpoints,
            pong: PONG,
            repeats_reads: true,
        })
    }

    /// The same with another time after which a ping without an answer ends its connection, 5 s by default.
    #[must_use]
    pub fn pong_within(self, pong: Duration) -> Self {
        Self { pong, ..self }
    }

    /// The same without repetitions of reads that an overloaded server refused, of which there are up to ten
    /// within 3 s: for a process that runs on thousands of nodes and has a back-off of its own.
    #[must_use]
    pub fn reading_once(self) -> Self {
        Self {
            repeats_reads: false,
            ..self
        }
    }

    /// The configuration it was made of.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// A client with connections of its own; no request is made. `component` ends up in the User-Agent.
    pub fn client(&self, component: &str) -> Result<Client, ClientError> {
        self.client_with(component, &Identity::new())
    }

    /// The same for requests that upgrade their connections (exec, attach, port-forward): it speaks HTTP/1.1
    /// alone.
    pub fn upgrading(&self, component: &str) -> Result<Client, ClientError> {
        let transport = self.transport(component, &[HTTP1]).map_err(ClientError::Build)?;
        Ok(Client::new(transport, self.config.default_namespace.clone()))
    }

    /// The same with a layer outside of everything else: it sees each request once, before time-outs and
    /// repetitions, and what it refuses is not sent.
    pub fn client_with<L, B>(&self, component: &str, layer: &L) -> Result<Client, ClientError>
    where
        L: Layer<Transport>,
        L::Service: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>, Future: Send>
            + Send
            + 'static,
        <L::Service as Service<Request<Body>>>::Future: 'static,
        B: http_body::Body<Data = bytes::Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let transport = self.transport(component, &[HTTP2, HTTP1]);
        let transport = transport.map_err(ClientError::Build)?;
        let namespace = self.config.default_namespace.clone();
        Ok(Client::new(layer.layer(transport), namespace))
    }

    fn transport(&self, component: &str, protocols: &[&[u8]]) -> Result<Transport, kube::Error> {
        crate::init_crypto();
        let mut config = self.config.clone();
        let agent = format!("evenkeel-{component}/{}", env!("CARGO_PKG_VERSION"));
        match http::HeaderValue::try_from(&agent) {
            Ok(agent) => config.headers.push((http::header::USER_AGENT, agent)),
            Err(error) => tracing::warn!(%agent, %error, "not usable as a User-Agent"),
        }
        let certificate = ClientCertificate::of(&config)?;
        let connector = Prompt(self.connector(protocols, certificate.clone())?);
        let pong = self.pong;
        let version = move || {
            certificate
                .as_ref()
                .map_or(0, |certificate| certificate.version())
        };
        let connections = Connections::new(version, move || {
            hyper_util::client::legacy::Client::builder(TokioExecutor::new())
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .http2_keep_alive_interval(PING)
                .http2_keep_alive_timeout(pong)
                .http2_keep_alive_while_idle(true)
                .http2_initial_stream_window_size(STREAM_WINDOW)
                .http2_initial_connection_window_size(CONNECTION_WINDOW)
                .build::<_, Body>(connector.clone())
        });
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .layer_fn(|inner| Silence { inner })
            .option_layer(self.repeats_reads.then(|| RetryLayer::new(ReadsAgain::new())))
            .option_layer(config.auth_layer()?)
            .layer(config.extra_headers_layer()?)
            .map_err(BoxError::from)
            .layer_fn(|inner| Exchange { inner })
            .service(connections);
        Ok(BoxCloneSyncService::new(service))
    }

    /// TLS over a connection to whichever address answers. kube's own connector would offer HTTP/1.1 only.
    fn connector(
        &self,
        protocols: &[&[u8]],
        certificate: Option<Arc<ClientCertificate>>,
    ) -> Result<HttpsConnector<Dialer>, kube::Error> {
        let mut tls = self.config.rustls_client_config()?;
        if let Some(certificate) = certificate {
            tls.client_auth_cert_resolver = certificate;
            // A session that is resumed is that of the certificate that began it.
            tls.resumption = Resumption::disabled();
        }
        tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let name: Arc<dyn ResolveServerName + Send + Sync> = match &self.config.tls_server_name {
            None => Arc::new(DefaultServerNameResolver::default()),
            Some(name) => {
                let name = ServerName::try_from(name.clone()).map_err(|error| {
                    kube::Error::RustlsTls(kube::client::RustlsTlsError::InvalidServerName(error))
                })?;
                Arc::new(FixedServerNameResolver::new(name))
            }
        };
        let dialer = Dialer::new(Arc::clone(&self.endpoints), tcp());
        Ok(HttpsConnector::new(dialer, tls, false, name))
    }
}

/// Connections that end by themselves when the other host is gone, also while nothing is sent on them (a
/// watch): after 10 s of silence the kernel asks each 5 s, and after 20 s without an acknowledgement it gives
/// up.
fn tcp() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_keepalive(Some(Duration::from_secs(10)));
    connector.set_keepalive_interval(Some(Duration::from_secs(5)));
    connector.set_keepalive_retries(Some(3));
    connector.set_tcp_user_timeout(Some(Duration::from_secs(20)));
    connector
}

#[cfg(feature = "process")]
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
