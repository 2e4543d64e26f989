//! Real servers on loopback.

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// What a server was told last.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) service: String,
    pub(super) agent: String,
    pub(super) timeout: String,
    pub(super) peer: Option<SocketAddr>,
}

/// A health service that says what it is told to say.
#[derive(Clone)]
pub(super) struct Mock {
    answer: Result<i32, Status>,
    pause: Duration,
    seen: Arc<Mutex<Seen>>,
}

impl Mock {
    pub(super) fn status(status: i32) -> Self {
        Self {
            answer: Ok(status),
            pause: Duration::ZERO,
            seen: Arc::default(),
        }
    }

    pub(super) fn slow(pause: Duration) -> Self {
        Self {
            pause,
            ..Self::status(1)
        }
    }

    pub(super) fn error(code: Code, message: &str) -> Self {
        Self {
            answer: Err(Status::new(code, message)),
            ..Self::status(1)
        }
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    pub(super) fn into_service(self) -> HealthServer<Self> {
        HealthServer::new(self)
    }
}

#[tonic::async_trait]
impl Health for Mock {
    async fn check(
        &self,
        request: tonic::Request<HealthCheckRequest>,
    ) -> Result<tonic::Response<HealthCheckResponse>, Status> {
        let text = |name: &str| {
            let value = request.metadata().get(name);
            value.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
        };
        *self.seen.lock().unwrap() = Seen {
            service: request.get_ref().service.clone(),
            agent: text("user-agent"),
            timeout: text("grpc-timeout"),
            peer: request.extensions().get::<SocketAddr>().copied(),
        };
        tokio::time::sleep(self.pause).await;
        let status = self.answer.clone()?;
        Ok(tonic::Response::new(HealthCheckResponse { status }))
    }

    type WatchStream = tonic::codegen::BoxStream<HealthCheckResponse>;

    async fn watch(
        &self,
        _: tonic::Request<HealthCheckRequest>,
    ) -> Result<tonic::Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("nobody watches"))
    }
}

/// Serves on loopback until the test ends.
pub(super) async fn serve(mock: Mock) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    accept(listener, mock.into_service());
    address
}

/// The same over TLS, with a certificate for 127.0.0.1 and `health.test`; and its authority's.
pub(super) async fn serve_tls(mock: Mock) -> (SocketAddr, String) {
    let names = ["127.0.0.1".to_owned(), "health.test".to_owned()];
    let signed = rcgen::generate_simple_self_signed(names).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key.into())
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = mock.into_service();
    tokio::spawn(async move {
        loop {
            let (stream, peer) = listener.accept().await.unwrap();
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(speak(stream, peer, service.clone()));
            }
        }
    });
    (address, signed.cert.pem())
}

/// An address at which nobody listens.
pub(super) async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

pub(super) fn accept<S>(listener: TcpListener, service: S)
where
    S: tower::Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    tokio::spawn(async move {
        loop {
            let (stream, peer) = listener.accept().await.unwrap();
            tokio::spawn(speak(stream, peer, service.clone()));
        }
    });
}

async fn speak<T, S>(stream: T, peer: SocketAddr, service: S)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: tower::Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let service = tower::util::MapRequest::new(service, move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request
    });
    // Probes reset their connections.
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
        .await;
}
